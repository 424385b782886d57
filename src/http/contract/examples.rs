//! Examples of replies: those of problems are made of their table, the others stand in `examples.json` by schema.

use serde_json::{Map, Value, json};

use crate::base::limits;
use crate::http::problem::kinds::Kind;

/// Name of a request.
pub const REQUEST_ID: &str = "0b8f6c1e-6a0f-4d53-9d7e-2f6a1c9b7e10";

/// Examples by the name of a schema; under `operations`, what differs in the reply of an operation; and under `texts`,
/// replies that are no JSON: of a stream, one event.
const EXAMPLES: &str = include_str!("examples.json");

/// Gives each success with a body an example.
pub fn add(document: &mut Value) {
    let examples: Value = serde_json::from_str(EXAMPLES).expect("the examples are JSON");
    let paths = document["paths"].as_object_mut().expect("a document has paths");
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let responses = operation["responses"].as_object_mut().expect("it has responses");
        for (status, response) in responses {
            let content = response.get_mut("content");
            let by_type = content.and_then(Value::as_object_mut).into_iter().flatten();
            for (_, content) in by_type.filter(|(media_type, _)| !media_type.ends_with("json")) {
                content["example"] = text(&examples["texts"][&id]);
            }
            let content = response.get_mut("content");
            let Some(content) = content.and_then(|by_type| by_type.get_mut("application/json"))
            else {
                continue;
            };
            let (schema, is_unfinished) = match &content["schema"]["allOf"][0] {
                Value::Null => (&content["schema"], false),
                of_work => (of_work, true),
            };
            let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
            let mut example = examples[name.unwrap_or_default()].clone();
            if is_unfinished {
                example["retry_after_ms"] = json!(limits::WORK_POLL_PAUSE.as_millis());
            }
            merge(&mut example, &examples["operations"][&id]);
            merge(&mut example, &examples["operations"][format!("{id} {status}")]);
            content["example"] = example;
        }
    }
}

/// The text, or the event with its data as text.
fn text(example: &Value) -> Value {
    let mut example = example.clone();
    if let Some(data) = example.get_mut("data") {
        *data = data.to_string().into();
    }
    example
}

/// Puts the members of `change` in place of those of `example`.
fn merge(example: &mut Value, change: &Value) {
    for (name, value) in change.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => merge(&mut example[name], value),
            _ => example[name] = value.clone(),
        }
    }
}

/// A problem body of this kind.
pub fn problem(kind: &Kind) -> Value {
    let mut example = json!({
        "type": kind.page(),
        "title": kind.title,
        "status": kind.status,
        "code": kind.code,
        "detail": kind.detail,
        "request_id": REQUEST_ID,
    });
    let more = match kind.code {
        "already_claimed" => json!({"order_id": "3907346718213341194"}),
        "already_redeemed" => json!({"redeemed_at": "2026-03-01T12:30:00Z", "redeemed_by": "7"}),
        "price_differs" => json!({"pay_cents": 2_500, "currency": "CNY"}),
        "invalid_transition" => json!({"from": "cancelled", "to": "paid"}),
        "invalid_body" => json!({"errors": [
            {"pointer": "/title", "detail": "is missing"},
            {"pointer": "/pay_cents", "detail": "has to be a whole number from 0 to 1000000000000"},
        ]}),
        "sale_not_started" => json!({"retry_after_ms": 86_400_000}),
        "too_many_closed_orders" => json!({"retry_after_ms": 1_800_000}),
        _ if matches!(kind.status, 429 | 503) => json!({"retry_after_ms": 1_000}),
        _ => Value::Null,
    };
    merge(&mut example, &more);
    example
}
