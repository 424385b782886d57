//! Schemas, beyond what their types say.

use serde_json::{Map, Value, json};

use crate::http::problem::kinds::Kind;

/// Prefix of references to schemas.
pub const SCHEMAS: &str = "#/components/schemas/";

/// Completes the schemas by rules between members.
pub fn complete(schemas: &mut Value) {
    if schemas["NewCoupon"].is_object() {
        by_kind(schemas);
    }
    if schemas["Problem"].is_object() {
        let codes: Vec<&str> = Kind::all().map(|kind| kind.code).collect();
        schemas["Problem"]["properties"]["code"]["enum"] = json!(codes);
    }
}

/// A new coupon is a flash coupon, which needs a sale, or a regular one, which has none.
fn by_kind(schemas: &mut Value) {
    let any = schemas["NewCoupon"].take();
    let variant = |kind: &str, words: &str| {
        let mut schema = any.clone();
        schema["description"] = json!(words);
        schema["properties"]["kind"] = json!({"type": "string", "enum": [kind]});
        schema
    };
    let mut flash = variant("flash", "A flash coupon to be created: it has a sale.");
    flash["properties"]["sale"] = json!({"$ref": format!("{SCHEMAS}NewSale")});
    flash["required"].as_array_mut().expect("it has required members").push(json!("sale"));
    let mut regular = variant("regular", "A regular coupon to be created: it has no sale.");
    regular["properties"]["sale"] = json!({"type": "null"});
    schemas["NewFlashCoupon"] = flash;
    schemas["NewRegularCoupon"] = regular;
    let of = |name: &str| format!("{SCHEMAS}{name}");
    schemas["NewCoupon"] = json!({
        "description": any["description"],
        "oneOf": [{"$ref": of("NewFlashCoupon")}, {"$ref": of("NewRegularCoupon")}],
        "discriminator": {
            "propertyName": "kind",
            "mapping": {"flash": of("NewFlashCoupon"), "regular": of("NewRegularCoupon")},
        },
    });
}

/// Members of replies that may be null are always there. A request, which refuses unknown members, may leave them out.
pub fn complete_replies(schemas: &mut Value) {
    for schema in schemas.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if schema["additionalProperties"] == false {
            continue;
        }
        let Some(properties) = schema["properties"].as_object() else { continue };
        let nullable = properties.iter().filter(|(_, member)| may_be_null(member));
        let nullable: Vec<Value> = nullable.map(|(name, _)| json!(name)).collect();
        if nullable.is_empty() {
            continue;
        }
        match schema["required"].as_array_mut() {
            Some(required) => required.extend(nullable),
            None => schema["required"] = json!(nullable),
        }
    }
}

/// A parameter may be left out, and is never null: a header or a query has only texts, and the text `null` is another
/// value.
pub fn take_null_out(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("oneOf") {
        any.retain(|schema| !is_null(schema));
    }
}

fn is_null(schema: &Value) -> bool {
    schema["type"] == "null"
}

fn may_be_null(member: &Value) -> bool {
    member["type"].as_array().is_some_and(|types| types.contains(&json!("null")))
        || member["oneOf"].as_array().is_some_and(|any| any.iter().any(is_null))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_coupon_is_one_of_two_kinds() {
        let any = json!({
            "type": "object",
            "description": "A coupon to be created.",
            "required": ["kind"],
            "properties": {"kind": {"type": "string"}, "sale": {"type": ["object", "null"]}},
        });
        let mut schemas = json!({"NewCoupon": any});
        complete(&mut schemas);
        let expected = json!({
            "NewCoupon": {
                "description": "A coupon to be created.",
                "oneOf": [
                    {"$ref": "#/components/schemas/NewFlashCoupon"},
                    {"$ref": "#/components/schemas/NewRegularCoupon"},
                ],
                "discriminator": {
                    "propertyName": "kind",
                    "mapping": {
                        "flash": "#/components/schemas/NewFlashCoupon",
                        "regular": "#/components/schemas/NewRegularCoupon",
                    },
                },
            },
            "NewFlashCoupon": {
                "type": "object",
                "description": "A flash coupon to be created: it has a sale.",
                "required": ["kind", "sale"],
                "properties": {
                    "kind": {"type": "string", "enum": ["flash"]},
                    "sale": {"$ref": "#/components/schemas/NewSale"},
                },
            },
            "NewRegularCoupon": {
                "type": "object",
                "description": "A regular coupon to be created: it has no sale.",
                "required": ["kind"],
                "properties": {
                    "kind": {"type": "string", "enum": ["regular"]},
                    "sale": {"type": "null"},
                },
            },
        });
        assert_eq!(schemas, expected);
    }

    #[test]
    fn schemas_are_completed_only_where_they_are() {
        let mut none = json!({});
        complete(&mut none);
        assert_eq!(none, json!({}));
        let mut schemas = json!({"Problem": {"properties": {"code": {"type": "string"}}}});
        complete(&mut schemas);
        let codes: Vec<&str> = Kind::all().map(|kind| kind.code).collect();
        let code = json!({"type": "string", "enum": codes});
        assert_eq!(schemas, json!({"Problem": {"properties": {"code": code}}}));
    }

    #[test]
    fn members_of_replies_that_may_be_null_are_always_there() {
        let string = json!({"type": "string"});
        let or_null = json!({"type": ["string", "null"]});
        let one_of = json!({"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/Sale"}]});
        let two = json!({"type": ["string", "integer"]});
        let properties =
            json!({"a": string, "b": or_null, "c": one_of, "d": {"oneOf": [string]}, "e": two});
        for (schema, required) in [
            (json!({"properties": properties}), json!(["b", "c"])),
            (json!({"properties": properties, "required": ["a"]}), json!(["a", "b", "c"])),
            (json!({"properties": properties, "additionalProperties": true}), json!(["b", "c"])),
            // A request, which refuses unknown members.
            (json!({"properties": properties, "additionalProperties": false}), Value::Null),
            (json!({"properties": {"a": string}}), Value::Null),
            (json!({"type": "string"}), Value::Null),
        ] {
            let mut schemas = json!({"Reply": schema});
            complete_replies(&mut schemas);
            let mut expected = schema;
            if required.is_array() {
                expected["required"] = required;
            }
            assert_eq!(schemas, json!({"Reply": expected}));
        }
    }

    #[test]
    fn null_is_taken_out_of_the_schema_of_a_parameter() {
        for (mut schema, expected) in [
            (json!({"type": ["string", "null"]}), json!({"type": "string"})),
            (json!({"type": ["null"]}), json!({"type": []})),
            (
                json!({"type": ["string", "integer", "null"]}),
                json!({"type": ["string", "integer"]}),
            ),
            (json!({"type": "string"}), json!({"type": "string"})),
            (
                json!({"oneOf": [{"type": "null"}, {"$ref": "x"}, {"type": "string"}]}),
                json!({"oneOf": [{"$ref": "x"}, {"type": "string"}]}),
            ),
            (json!(true), json!(true)),
        ] {
            take_null_out(&mut schema);
            assert_eq!(schema, expected);
        }
    }
}
