//! Bodies, held against their schemas: the same ones that `/openapi.json` shows.
//!
//! serde stops at the first fault and speaks of Rust. So a body that serde or the rules of its type refuse is read once
//! more by its schema, for all its faults.

use chrono::{DateTime, Utc};
use regex_lite::Regex;
use serde_json::{Map, Value};
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::json::step;
use super::schemas::{self, SCHEMAS};
use crate::http::problem::WrongMember;

/// The wrong members of a body that ought to be a `T`; none if only `T` itself knows the fault.
pub fn wrong_members<T: ToSchema>(body: &Value) -> Vec<WrongMember> {
    let mut named = Vec::new();
    T::schemas(&mut named);
    named.push((T::name().into_owned(), <T as PartialSchema>::schema()));
    let mut schemas =
        serde_json::to_value(named.into_iter().collect::<std::collections::BTreeMap<_, _>>())
            .expect("schemas are JSON");
    schemas::complete(&mut schemas);
    let mut check = Check { schemas: &schemas, wrong: Vec::new() };
    check.value(&schemas[&*T::name()], body, "");
    check.wrong
}

/// The faults of a query that ought to be a `T`, in words; none if only `T` itself knows the fault.
pub fn wrong_parameters<T: IntoParams>(query: &[(String, String)]) -> Vec<String> {
    let parameters = T::into_params(|| Some(ParameterIn::Query));
    let parameters = serde_json::to_value(parameters).expect("parameters are JSON");
    let schema = |name: &str| {
        let mut known = parameters.as_array()?.iter();
        Some(&known.find(|parameter| parameter["name"] == name)?["schema"])
    };
    let mut wrong = Vec::new();
    for (at, (name, text)) in query.iter().enumerate() {
        let Some(schema) = schema(name) else {
            wrong.push(format!("`{name}` is unknown"));
            continue;
        };
        if query[..at].iter().any(|(before, _)| before == name) {
            wrong.push(format!("`{name}` stands there twice"));
        }
        let mut check = Check { schemas: &Value::Null, wrong: Vec::new() };
        check.value(schema, &in_json(schema, text), "");
        wrong.extend(check.wrong.into_iter().map(|fault| format!("`{name}` {}", fault.detail)));
    }
    wrong
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
        self.wrong.push(WrongMember { pointer: pointer.to_owned(), detail: detail.into() });
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
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let former = |name: &str| properties.get(name)?["x-former-name"].as_str();
        for (name, value) in members {
            let pointer = pointer.to_owned() + &step(name);
            let present = properties.keys().find(|present| former(present) == Some(name));
            if let Some(present) = present.filter(|present| members.contains_key(present.as_str()))
            {
                let detail = format!("is the former name of `{present}`; send one of them");
                self.wrong(&pointer, detail);
                continue;
            }
            match schema["properties"].get(present.unwrap_or(name)) {
                Some(member) => self.value(member, value, &pointer),
                None if schema["additionalProperties"] == false => {
                    self.wrong(&pointer, "is unknown")
                }
                None => {}
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let there = members.contains_key(name)
                || former(name).is_some_and(|former| members.contains_key(former));
            if !there {
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
        let pattern = schema["pattern"].as_str().and_then(|pattern| Regex::new(pattern).ok());
        let fits = pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
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
