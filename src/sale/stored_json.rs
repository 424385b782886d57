//! JSON as Postgres has it, on its way out: rows and values whose members name orders.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::sale::ids::OrderId;
use crate::sale::ids::public::sentence;
use crate::sale::pass::{ItemKind, Pass};

/// JSON that Postgres has. A member `order_id` is the id of an order, and so is `item` beside a pass over orders; `detail`
/// is a sentence.
pub struct StoredJson<'a> {
    value: &'a Value,
    /// Name of a further member that is the id of an order.
    own_id: &'static str,
}

impl<'a> StoredJson<'a> {
    /// Any value.
    pub fn of(value: &'a Value) -> Self {
        Self { value, own_id: "order_id" }
    }

    /// A row of `orders`.
    pub fn order(value: &'a Value) -> Self {
        Self { value, own_id: "id" }
    }
}

/// A sentence.
struct Sentence<'a>(&'a str);

impl Serialize for Sentence<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        sentence(self.0, to)
    }
}

impl Serialize for StoredJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(members) => {
                let orders = [self.own_id, "order_id", self.item()];
                let mut object = to.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    let text = value.as_str().unwrap_or_default();
                    match text.parse::<OrderId>() {
                        Ok(order) if orders.contains(&name.as_str()) => {
                            object.serialize_entry(name, &order)?;
                        }
                        _ if name == "detail" && value.is_string() => {
                            object.serialize_entry(name, &Sentence(text))?;
                        }
                        _ => object.serialize_entry(name, &StoredJson::of(value))?,
                    }
                }
                object.end()
            }
            Value::Array(values) => to.collect_seq(values.iter().map(StoredJson::of)),
            value => value.serialize(to),
        }
    }
}

impl StoredJson<'_> {
    /// Name of the member with an item, if that is an order.
    fn item(&self) -> &'static str {
        let pass = self.value["pass"].as_str().and_then(Pass::of_name).and_then(Pass::postpones);
        match pass {
            Some((ItemKind::Order, _)) => "item",
            _ => self.own_id,
        }
    }
}

/// Writes JSON that Postgres has, if there is any.
///
/// # Errors
///
/// Those of the writer.
pub fn stored<S: Serializer>(value: &Option<Value>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(StoredJson::of).serialize(to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sale::ids::public::PublicIds;

    #[test]
    fn order_ids_are_translated_in_rows_and_values() {
        let ids = PublicIds::keyed(&"a key that is only good for tests".into());
        let public = ids.public(OrderId::new(77).expect("an id")).to_string();
        let stored = |order: &str, user: &str| {
            json!([
                {"order_id": order, "user_id": user, "pay_cents": 77},
                {"pass": "expiry", "item": order}, {"pass": "archive", "item": user},
                {"finding": {"code": "order_lost", "detail": format!("user {user}, order {order}")}},
                {"order_id": null, "note": "order 77 as a person wrote it", "detail": 5},
            ])
        };
        let written = |ids: &PublicIds| {
            serde_json::to_value(ids.outside(&StoredJson::of(&stored("77", "77")))).expect("JSON")
        };
        assert_eq!(written(&ids), stored(&public, "77"));
        assert_eq!(written(&PublicIds::plain()), stored("77", "77"));
        let row = serde_json::to_value(ids.outside(&StoredJson::order(&json!({"id": "77"}))));
        assert_eq!(row.expect("JSON"), json!({ "id": public }));
    }
}
