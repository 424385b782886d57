//! JSON of a body, read by one rule for all types.
//!
//! * A member stands once in its object, however its name is escaped. Of two, readers choose differently (RFC 8259, 4), so a
//!   proxy that has looked at one would let the other pass.
//! * A number is whole if its fraction is zero: `5.0` and `5e0` are 5, as JSON Schema says. serde tells them apart.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// JSON that has been read.
pub struct Read {
    /// The value; of a member that stands there twice, the last one.
    pub value: Value,
    /// JSON pointers of the members that stand there twice.
    pub repeated: BTreeSet<String>,
    /// True if there is a list in it.
    pub has_list: bool,
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut read = Self { value: Value::Null, repeated: BTreeSet::new(), has_list: false };
        read.value = Reader { pointer: String::new(), read: &mut read }.deserialize(from)?;
        Ok(read)
    }
}

/// A member, by its name, as a further step of a JSON pointer (RFC 6901).
pub fn step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Reads the value at a pointer.
struct Reader<'a> {
    pointer: String,
    read: &'a mut Read,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(whole(value).map_or_else(|| value.into(), Value::from))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.read.has_list = true;
        let mut list = Vec::new();
        loop {
            let pointer = format!("{}/{}", self.pointer, list.len());
            match items.next_element_seed(Reader { pointer, read: self.read })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let pointer = self.pointer.clone() + &step(&name);
            let value =
                members.next_value_seed(Reader { pointer: pointer.clone(), read: self.read })?;
            if object.insert(name, value).is_some() {
                self.read.repeated.insert(pointer);
            }
        }
        Ok(Value::Object(object))
    }
}

/// True if a number in this JSON text isn't 0, and would be read as 0: `1e-400`.
pub fn vanishes(text: &str) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    let mut words = text.split(|character: char| {
        let was_text = is_text;
        is_text ^= character == '"' && !is_escaped;
        is_escaped = is_text && character == '\\' && !is_escaped;
        was_text || !matches!(character, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
    });
    words.any(|word| {
        let digits = word.split(['e', 'E']).next().unwrap_or_default();
        digits.contains(|digit| matches!(digit, '1'..='9')) && word.parse() == Ok(0.0)
    })
}

/// The whole number, if this is one.
fn whole(number: f64) -> Option<Number> {
    // Beyond, the float that serde_json reads may be that of a neighbour: its last bit is not exact.
    let is_whole = number.fract() == 0.0 && number.abs() < 4e15;
    let digits = is_whole.then(|| format!("{number:.0}"))?;
    digits.parse::<i64>().ok().map(Number::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Read {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn members_that_stand_twice_are_found_wherever_they_are() {
        for (text, pointers) in [
            (r#"{"a":1,"b":{"a":1}}"#, &[][..]),
            (r#"{"a":1,"a":1}"#, &["/a"]),
            (r#"{"a":1,"\u0061":5.0,"a":null}"#, &["/a"]),
            (r#"{"a":{"b":1,"b":2},"c":1,"c":1.0}"#, &["/a/b", "/c"]),
            (r#"{"a/b~":[{"x":0,"x":0}]}"#, &["/a~1b~0/0/x"]),
        ] {
            assert!(read(text).repeated.iter().eq(pointers), "{text}");
        }
    }

    #[test]
    fn a_fraction_of_zero_is_none() {
        let rows = [
            ("5.0", json!(5)),
            ("5e2", json!(500)),
            ("-0", json!(0)),
            ("-0.0", json!(0)),
            ("1000000000000.0", json!(1_000_000_000_000_i64)),
            ("4e15", json!(4e15)),
            ("5.5", json!(5.5)),
            ("18446744073709551615", json!(u64::MAX)),
            (r#"{"a":[1.0]}"#, json!({"a": [1]})),
        ];
        for (text, value) in rows {
            assert_eq!(read(text).value, value, "{text}");
        }
        assert!(read("8999999999999999.0").value.is_f64(), "it would be read as another number");
    }

    #[test]
    fn a_number_that_would_be_read_as_0_vanishes() {
        for (text, expected) in [
            ("1e-400", true),
            (r#"{"a":[-3.5e-999]}"#, true),
            ("0e-400", false),
            ("[0.0,-0,1e-300,true,1e0]", false),
            (r#""1e-400""#, false),
            (r#"{"\"":"\\","1e-400":1}"#, false),
            (r#"{"\"":"\\","a":1e-400}"#, true),
        ] {
            assert_eq!(vanishes(text), expected, "{text}");
        }
    }

    #[test]
    fn a_list_is_noticed_wherever_it_is_and_read_item_by_item() {
        for (text, has_list) in [
            ("{}", false),
            (r#"{"a":"[]","b":{"c":null}}"#, false),
            ("[]", true),
            (r#"{"a":{"b":[]}}"#, true),
        ] {
            assert_eq!(read(text).has_list, has_list, "{text}");
        }
        assert_eq!(read(r#"[1,[true,"x"],{}]"#).value, json!([1, [true, "x"], {}]));
        let steps = ["a", "a/b", "a~b", "~1/"].map(step);
        assert_eq!(steps, ["/a", "/a~1b", "/a~0b", "/~01~1"]);
    }

    #[test]
    fn what_is_no_json_is_none() {
        for text in ["", "{", "1e999", "NaN", r#"{"a":1,}"#, r#""\ud800""#, &"[".repeat(200)] {
            assert!(serde_json::from_str::<Read>(text).is_err(), "{text}");
        }
    }
}
