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

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";

    /// The example that a reply of an operation gets; `content` is what the reply has without it.
    fn example(id: &str, status: &str, content: Value) -> Value {
        let media_type = content.as_object().and_then(|it| it.keys().next().cloned());
        let response = json!({"description": "x", "content": content});
        let operation = json!({"operationId": id, "responses": {status: response, "204": {"description": "y"}}});
        let mut document = json!({"paths": {"/v1/things": {"get": operation}}});
        add(&mut document);
        let responses = document["paths"]["/v1/things"]["get"]["responses"].take();
        assert_eq!(
            responses["204"],
            json!({"description": "y"}),
            "without a body there is no example"
        );
        responses[status]["content"][media_type.expect("a type")]["example"].clone()
    }

    fn of_schema(name: &str) -> Value {
        json!({JSON: {"schema": {"$ref": format!("#/components/schemas/{name}")}}})
    }

    #[test]
    fn a_reply_has_the_example_of_its_schema_with_the_changes_of_its_operation() {
        let all: Value = serde_json::from_str(EXAMPLES).expect("JSON");
        let run = &all["Run"];
        assert!(run["run_id"].is_string() && run["retry_after_ms"].is_null(), "{run}");
        assert_eq!(&example("getComparison", "200", of_schema("Run")), run);
        // Work that goes on has the time to ask again beside its value.
        let parts = json!([{"$ref": "#/components/schemas/Run"}, {"type": "object"}]);
        let mut later = run.clone();
        later["retry_after_ms"] = json!(1_000);
        let content = json!({JSON: {"schema": {"allOf": parts}}});
        assert_eq!(example("another", "202", content), later);
        // Those of an operation count for each status, and some for one status alone.
        let restocked = example("restockCoupon", "200", of_schema("Coupon"));
        assert_eq!(restocked["revision"], 2);
        assert_eq!(restocked["title"], all["Coupon"]["title"]);
        let sale = &restocked["sale"];
        assert_eq!([&sale["total"], &sale["left"]], [150, 50].map(Value::from).each_ref());
        assert_eq!(sale["opens_at"], all["Coupon"]["sale"]["opens_at"]);
        for (status, expected) in [("200", "paid"), ("202", "unpaid")] {
            assert_eq!(example("payOrder", status, of_schema("Order"))["status"], expected);
        }
    }

    #[test]
    fn a_reply_that_is_no_json_has_a_text_or_an_event_and_a_problem_has_none_here() {
        let text =
            |id: &str, media_type: &str| example(id, "200", json!({media_type: {"schema": {}}}));
        assert_eq!(text("getLiveness", "text/plain"), "ok\n");
        let event = text("watchSale", "text/event-stream");
        assert_eq!(event["event"], "sale");
        let data: Value =
            serde_json::from_str(event["data"].as_str().expect("a text")).expect("JSON");
        assert_eq!(data["coupon_id"], "1048577");
        assert_eq!(text("getLiveness", "application/problem+json"), Value::Null);
    }

    /// Each kind, with the members that its problem has beside those of all.
    #[test]
    fn the_example_of_a_problem_has_the_members_of_its_kind() {
        for kind in Kind::all() {
            let mut example = problem(kind);
            for (name, value) in [
                ("type", json!(format!("/docs/problems#{}", kind.code))),
                ("title", json!(kind.title)),
                ("status", json!(kind.status)),
                ("code", json!(kind.code)),
                ("detail", json!(kind.detail)),
                ("request_id", json!("0b8f6c1e-6a0f-4d53-9d7e-2f6a1c9b7e10")),
            ] {
                assert_eq!(example[name], value, "{}", kind.code);
                example.as_object_mut().expect("an object").remove(name);
            }
            let members: Vec<&str> =
                example.as_object().expect("an object").keys().map(String::as_str).collect();
            let expected: &[&str] = match (kind.code, kind.status) {
                ("already_claimed", _) => &["order_id"],
                ("already_redeemed", _) => &["redeemed_at", "redeemed_by"],
                ("price_differs", _) => &["currency", "pay_cents"],
                ("invalid_transition", _) => &["from", "to"],
                ("invalid_body", _) => &["errors"],
                ("sale_not_started" | "too_many_closed_orders", _) | (_, 429 | 503) => {
                    &["retry_after_ms"]
                }
                _ => &[],
            };
            assert_eq!(members, expected, "{}", kind.code);
        }
        let of = |code| problem(Kind::of(code).expect("a kind"));
        assert_eq!(of("sale_not_started")["retry_after_ms"], 86_400_000);
        assert_eq!(of("too_many_closed_orders")["retry_after_ms"], 1_800_000);
        assert_eq!(of("unavailable")["retry_after_ms"], 1_000);
        assert_eq!(of("invalid_body")["errors"][1]["pointer"], "/pay_cents");
    }
}
