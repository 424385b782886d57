//! Bodies, held against their schemas: the same ones that `/openapi.json` shows.
//!
//! serde stops at the first fault and speaks of Rust. So a body that serde or the rules of its type refuse is read once
//! more by its schema, for all its faults.

use std::any::type_name;
use std::collections::BTreeMap;
use std::sync::Mutex;

use chrono::{DateTime, Utc};
use regex_lite::Regex;
use serde_json::{Map, Value};
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::json::step;
use super::schemas::{self, SCHEMAS};
use crate::base::limits;
use crate::http::problem::WrongMember;

/// Things that are made once for each name. There are as many as types and patterns of the contract.
struct Known<T: 'static>(Mutex<BTreeMap<String, &'static T>>);

impl<T> Known<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn get(&self, name: &str, make: impl FnOnce() -> T) -> &'static T {
        let mut known = self.0.lock().expect("no holder of this lock panics");
        if let Some(known) = known.get(name) {
            return known;
        }
        let made: &'static T = Box::leak(Box::new(make()));
        known.insert(name.to_owned(), made);
        made
    }
}

static SCHEMAS_OF: Known<Value> = Known::new();
static PARAMETERS_OF: Known<Value> = Known::new();
static PATTERNS: Known<Option<Regex>> = Known::new();

/// The wrong members of a body that ought to be a `T`, [`limits::FAULTS_TOLD_MAX`] at most; none if only `T` itself knows
/// the fault.
pub fn wrong_members<T: ToSchema>(body: &Value) -> Vec<WrongMember> {
    let schemas = SCHEMAS_OF.get(type_name::<T>(), || {
        let mut named = Vec::new();
        T::schemas(&mut named);
        named.push((T::name().into_owned(), <T as PartialSchema>::schema()));
        let named: BTreeMap<_, _> = named.into_iter().collect();
        let mut schemas = serde_json::to_value(named).expect("schemas are JSON");
        schemas::complete(&mut schemas);
        schemas
    });
    let mut check = Check { schemas, wrong: Vec::new() };
    check.value(&schemas[&*T::name()], body, "");
    check.wrong
}

/// The faults of a query that ought to be a `T`, in words, [`limits::FAULTS_TOLD_MAX`] at most; none if only `T` itself
/// knows the fault.
pub fn wrong_parameters<T: IntoParams>(query: &[(String, String)]) -> Vec<String> {
    let parameters = PARAMETERS_OF.get(type_name::<T>(), || {
        serde_json::to_value(T::into_params(|| Some(ParameterIn::Query)))
            .expect("parameters are JSON")
    });
    let parameters = parameters.as_array().map_or(&[][..], Vec::as_slice);
    let mut wrong = Vec::new();
    // Of more than there are, one is unknown or stands there twice.
    for (at, (name, text)) in query.iter().take(parameters.len() + 1).enumerate() {
        let Some(parameter) = parameters.iter().find(|parameter| parameter["name"] == **name)
        else {
            wrong.push(format!("`{}` is unknown", shown(name)));
            continue;
        };
        if query[..at].iter().any(|(before, _)| before == name) {
            wrong.push(format!("`{name}` stands there twice"));
        }
        let mut check = Check { schemas: &Value::Null, wrong: Vec::new() };
        let schema = &parameter["schema"];
        check.value(schema, &in_json(schema, text), "");
        wrong.extend(check.wrong.into_iter().map(|fault| format!("`{name}` {}", fault.detail)));
    }
    wrong.truncate(limits::FAULTS_TOLD_MAX);
    wrong
}

/// A name that a client has chosen, in a reply.
fn shown(name: &str) -> String {
    name.chars().take(limits::NAME_TOLD_CHARS_MAX).collect()
}

/// The text of a query as a value of the type that its schema has, if it looks like one.
fn in_json(schema: &Value, text: &str) -> Value {
    let read = match kind_of(schema) {
        "integer" => text.parse().ok().map(|number: i64| number.into()),
        "boolean" => text.parse().ok().map(Value::Bool),
        _ => None,
    };
    read.unwrap_or_else(|| text.into())
}

struct Check<'a> {
    schemas: &'a Value,
    wrong: Vec<WrongMember>,
}

impl<'a> Check<'a> {
    fn wrong(&mut self, pointer: &str, detail: impl Into<String>) {
        if self.wrong.len() < limits::FAULTS_TOLD_MAX {
            self.wrong.push(WrongMember { pointer: pointer.to_owned(), detail: detail.into() });
        }
    }

    fn value(&mut self, schema: &'a Value, value: &Value, pointer: &str) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(SCHEMAS)) {
            return self.value(&self.schemas[name], value, pointer);
        }
        if let Some(variants) = schema["oneOf"].as_array() {
            return self.variant(variants, value, pointer);
        }
        if let Some(allowed) = schema["enum"].as_array() {
            if !allowed.contains(value) {
                let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
                self.wrong(pointer, format!("has to be one of {}", allowed.join(", ")));
            }
            return;
        }
        match kind_of(schema) {
            _ if value.is_null() && may_be_null(schema) => {}
            "object" => match value.as_object() {
                Some(members) => self.object(schema, members, pointer),
                None => self.wrong(pointer, "has to be an object"),
            },
            "string" => self.text(schema, value, pointer),
            "integer" => self.number(schema, value, pointer),
            "boolean" if !value.is_boolean() => self.wrong(pointer, "has to be true or false"),
            "null" if !value.is_null() => self.wrong(pointer, "is not allowed here"),
            _ => {}
        }
    }

    /// The variant that the value names by a member with one allowed value, or the one beside null.
    fn variant(&mut self, variants: &'a [Value], value: &Value, pointer: &str) {
        let schemas = self.schemas;
        let resolved = variants.iter().map(|variant| resolve(schemas, variant));
        let mut kinds = Vec::new();
        for variant in resolved {
            let Some(kind) = variant["properties"]["kind"]["enum"][0].as_str() else {
                // A value or null.
                if !value.is_null() && variant["type"] != "null" {
                    self.value(variant, value, pointer);
                }
                continue;
            };
            if value["kind"] == kind {
                return self.value(variant, value, pointer);
            }
            kinds.push(kind);
        }
        match value {
            _ if kinds.is_empty() => {}
            Value::Object(_) => {
                let detail = format!("has to be one of {}", kinds.join(", "));
                self.wrong(&format!("{pointer}/kind"), detail);
            }
            _ => self.wrong(pointer, "has to be an object"),
        }
    }

    fn object(&mut self, schema: &'a Value, members: &Map<String, Value>, pointer: &str) {
        for (name, value) in members {
            if self.wrong.len() >= limits::FAULTS_TOLD_MAX {
                return;
            }
            let pointer = pointer.to_owned() + &step(name);
            match schema["properties"].get(name) {
                Some(member) => self.value(member, value, &pointer),
                None if schema["additionalProperties"] == false => {
                    self.wrong(&pointer, "is unknown")
                }
                None => {}
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                self.wrong(&format!("{pointer}/{name}"), "is missing");
            }
        }
    }

    fn text(&mut self, schema: &Value, value: &Value, pointer: &str) {
        let Some(text) = value.as_str() else {
            return self.wrong(pointer, "has to be a string");
        };
        let chars = text.chars().count();
        let bound =
            |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
        let (min, max) =
            (bound("minLength").unwrap_or(0), bound("maxLength").unwrap_or(usize::MAX));
        let pattern = schema["pattern"].as_str();
        let pattern =
            pattern.and_then(|pattern| PATTERNS.get(pattern, || Regex::new(pattern).ok()).as_ref());
        let fits = pattern.is_none_or(|pattern| pattern.is_match(text));
        if schema["format"] == "date-time" {
            // Times of coupons are bounded as instants, those of a query as they are written.
            let is_one = |time| fits && (pattern.is_some() || a_time(time));
            if !text.parse::<DateTime<Utc>>().is_ok_and(is_one) {
                self.wrong(pointer, TIME);
            }
        } else if !fits || !(min..=max).contains(&chars) {
            self.wrong(pointer, in_words(schema));
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, pointer: &str) {
        let min = schema["minimum"].as_i64().unwrap_or(i64::MIN);
        let max = schema["maximum"].as_i64().unwrap_or(i64::MAX);
        if !value.as_i64().is_some_and(|number| (min..=max).contains(&number)) {
            self.wrong(pointer, format!("has to be a whole number from {min} to {max}"));
        }
    }
}

const TIME: &str = "has to be a time such as 2030-01-01T00:00:00Z, between the years 1970 and 9999";

fn a_time(time: DateTime<Utc>) -> bool {
    crate::sale::coupon::values::a_time_redis_can_count(&time, &()).is_ok()
}

fn resolve<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|name| name.strip_prefix(SCHEMAS));
    name.map_or(schema, |name| &schemas[name])
}

/// The type of the values of a schema, apart from null.
fn kind_of(schema: &Value) -> &str {
    let kinds = schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let first = kinds.into_iter().find(|kind| *kind != "null");
    first.or(schema["type"].as_str()).unwrap_or_default()
}

fn may_be_null(schema: &Value) -> bool {
    let null = |kind: &Value| kind == "null";
    schema["type"].as_array().is_some_and(|kinds| kinds.iter().any(null))
}

/// Form of a text in words: those of its schema behind a colon, to the end of the sentence.
fn in_words(schema: &Value) -> String {
    let description = schema["description"].as_str().unwrap_or_default();
    let words = description.split_once(": ").map_or(description, |(_, words)| words);
    let sentence = words.split(". ").next().unwrap_or(words).trim_end_matches('.');
    format!("has to be {}", sentence.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sale::coupon::input::NewCoupon;

    const WHOLE: &str = "has to be a whole number from 1 to 3";

    /// Faults of a value by a schema: each as its pointer and its words, in the order of the pointers.
    fn faults(schema: &Value, value: &Value) -> Vec<(String, String)> {
        let of_kind = |kind: &str, min: i32| {
            json!({
                "type": "object",
                "required": ["kind", "size"],
                "properties": {
                    "kind": {"type": "string", "enum": [kind]},
                    "size": {"type": "integer", "minimum": min, "maximum": min + 2},
                },
            })
        };
        let schemas = json!({
            "Name": {"type": "string", "minLength": 1, "description": "Name: 1 character or more."},
            "A": of_kind("a", 1),
            "B": of_kind("b", 5),
        });
        let mut check = Check { schemas: &schemas, wrong: Vec::new() };
        check.value(schema, value, "");
        let mut told: Vec<_> =
            check.wrong.into_iter().map(|wrong| (wrong.pointer, wrong.detail)).collect();
        told.sort_unstable();
        told
    }

    fn assert_faults(schema: &Value, value: &Value, expected: &[(&str, &str)]) {
        let told = faults(schema, value);
        let told: Vec<(&str, &str)> = told.iter().map(|(at, words)| (&**at, &**words)).collect();
        assert_eq!(told, expected, "{schema} {value}");
    }

    /// Each row is a schema, and values with the words about them; without words the value fits.
    fn assert_words(rows: Vec<(Value, Vec<(Value, &str)>)>) {
        for (schema, values) in rows {
            for (value, words) in values {
                let expected: &[(&str, &str)] = if words.is_empty() { &[] } else { &[("", words)] };
                assert_faults(&schema, &value, expected);
            }
        }
    }

    #[test]
    fn each_wrong_type_of_a_value_is_told_in_words() {
        let (object, string) = ("has to be an object", "has to be a string");
        assert_words(vec![
            (json!({}), vec![(json!([1]), "")]),
            (
                json!({"type": "string", "enum": ["a", "b"]}),
                vec![
                    (json!("a"), ""),
                    (json!("b"), ""),
                    (json!("c"), "has to be one of a, b"),
                    (json!(1), "has to be one of a, b"),
                ],
            ),
            (
                json!({"type": "object"}),
                vec![(json!({}), ""), (json!([]), object), (json!("x"), object)],
            ),
            (
                json!({"type": "boolean"}),
                vec![
                    (json!(true), ""),
                    (json!(false), ""),
                    (json!("true"), "has to be true or false"),
                    (json!(null), "has to be true or false"),
                ],
            ),
            (json!({"type": "null"}), vec![(json!(null), ""), (json!(1), "is not allowed here")]),
            (
                json!({"type": "string"}),
                vec![(json!(""), ""), (json!(null), string), (json!(5), string)],
            ),
            (json!({"type": ["string", "integer"]}), vec![(json!(null), string)]),
            (
                json!({"type": ["string", "null"]}),
                vec![(json!(null), ""), (json!("x"), ""), (json!(5), string)],
            ),
            (
                json!({"type": ["null", "integer"], "minimum": 1, "maximum": 3}),
                vec![(json!(null), ""), (json!(2), ""), (json!("x"), WHOLE)],
            ),
        ]);
    }

    #[test]
    fn each_value_out_of_its_bounds_is_told_in_words() {
        let text = json!({"type": "string", "minLength": 2, "maxLength": 3,
                          "description": "Name: two or\nthree characters. More words."});
        let whole = json!({"type": "integer", "minimum": 1, "maximum": 3});
        let two = "has to be two or three characters";
        let any = "has to be a whole number from -9223372036854775808 to 9223372036854775807";
        let string = "has to be a string";
        assert_words(vec![
            (
                whole,
                vec![
                    (json!(0), WHOLE),
                    (json!(1), ""),
                    (json!(3), ""),
                    (json!(4), WHOLE),
                    (json!(1.5), WHOLE),
                    (json!("2"), WHOLE),
                    (json!(null), WHOLE),
                ],
            ),
            (
                json!({"type": "integer"}),
                vec![(json!(i64::MIN), ""), (json!(i64::MAX), ""), (json!(u64::MAX), any)],
            ),
            (
                text,
                vec![
                    (json!("é"), two),
                    (json!("éé"), ""),
                    (json!("ééé"), ""),
                    (json!("éééé"), two),
                ],
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]+$", "description": "lower case"}),
                vec![(json!("a"), ""), (json!("A"), "has to be lower case")],
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                vec![
                    (json!("2030-01-01T00:00:00Z"), ""),
                    (json!("1969-12-31T23:59:59Z"), TIME),
                    (json!("soon"), TIME),
                    (json!(5), string),
                ],
            ),
            // The pattern bounds the time as it is written.
            (
                json!({"type": "string", "format": "date-time", "pattern": "^19"}),
                vec![
                    (json!("1969-12-31T23:59:59Z"), ""),
                    (json!("2030-01-01T00:00:00Z"), TIME),
                    (json!("19"), TIME),
                ],
            ),
        ]);
    }

    #[test]
    fn a_variant_is_chosen_by_its_kind_or_stands_beside_null() {
        let name = json!({"$ref": format!("{SCHEMAS}Name")});
        let one = "has to be 1 character or more";
        assert_faults(&name, &json!("x"), &[]);
        assert_faults(&name, &json!(""), &[("", one)]);
        let or_null = json!({"oneOf": [{"type": "null"}, name]});
        for (value, expected) in [
            (json!(null), &[][..]),
            (json!("x"), &[]),
            (json!(""), &[("", one)]),
            (json!(5), &[("", "has to be a string")]),
        ] {
            assert_faults(&or_null, &value, expected);
        }
        let kinds = ["A", "B"].map(|name| json!({"$ref": format!("{SCHEMAS}{name}")}));
        let by_kind = json!({"oneOf": kinds});
        let other = "has to be one of a, b";
        for (value, expected) in [
            (json!({"kind": "a", "size": 3}), &[][..]),
            (json!({"kind": "a", "size": 4}), &[("/size", WHOLE)]),
            (json!({"kind": "b", "size": 7}), &[]),
            (json!({"kind": "b", "size": 3}), &[("/size", "has to be a whole number from 5 to 7")]),
            (json!({"kind": "b"}), &[("/size", "is missing")]),
            (json!({"kind": "c", "size": 3}), &[("/kind", other)]),
            (json!({}), &[("/kind", other)]),
            (json!([]), &[("", "has to be an object")]),
            (json!(null), &[("", "has to be an object")]),
        ] {
            assert_faults(&by_kind, &value, expected);
        }
    }

    #[test]
    fn each_wrong_member_of_an_object_is_named_by_its_pointer() {
        let sale = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["total", "name"],
            "properties": {
                "name": {"type": "string"},
                "note": {"type": ["string", "null"]},
                "total": {"type": "integer", "minimum": 1, "maximum": 3},
            },
        });
        for (value, expected) in [
            (json!({"total": 1, "name": "n"}), &[][..]),
            (json!({"total": 1, "name": "n", "note": null}), &[]),
            (json!({"total": 9, "name": "n"}), &[("/total", WHOLE)]),
            (json!({"total": 1}), &[("/name", "is missing")]),
            (json!({"name": "n"}), &[("/total", "is missing")]),
            (json!({}), &[("/name", "is missing"), ("/total", "is missing")]),
            (
                json!({"total": 1, "name": 5, "a/b~": 1}),
                &[("/a~1b~0", "is unknown"), ("/name", "has to be a string")],
            ),
        ] {
            assert_faults(&sale, &value, expected);
            // Where further members are allowed, each of them is.
            let open = json!({"type": "object", "properties": {"in": sale}});
            let inside: Vec<(String, &str)> =
                expected.iter().map(|(at, words)| (format!("/in{at}"), *words)).collect();
            let inside: Vec<(&str, &str)> =
                inside.iter().map(|(at, words)| (&**at, *words)).collect();
            assert_faults(&open, &json!({"in": value, "x": 1}), &inside);
        }
    }

    #[test]
    fn wrong_members_of_a_new_coupon_are_found_by_the_schemas_of_the_contract() {
        let sale = |total: i64| json!({"total": total, "opens_at": "2030-01-01T00:00:00Z", "closes_at": "2031-01-01T00:00:00Z"});
        let coupon = |kind: &str, sale: Value| json!({"kind": kind, "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
        for (body, expected) in [
            (coupon("flash", sale(1)), vec![]),
            (
                coupon("flash", sale(0)),
                vec![("/sale/total", "has to be a whole number from 1 to 100000000")],
            ),
            (coupon("regular", sale(1)), vec![("/sale", "is not allowed here")]),
            (
                json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2}),
                vec![("/sale", "is missing")],
            ),
        ] {
            let wrong = wrong_members::<NewCoupon>(&body);
            let told: Vec<_> = wrong.iter().map(|it| (&*it.pointer, &*it.detail)).collect();
            assert_eq!(told, expected, "{body}");
        }
    }
}
