//! The contract: what `/openapi.json` says beyond the attributes of the handlers.
//!
//! A handler names the codes of its own refusals (`x-problems`). The others follow from the form of the operation: an
//! id, a query, a body, a token.

// Paths with a rule of their own.
pub mod paths;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

use self::paths::{CALLBACK, LIVEZ, METRICS, READYZ};
use super::problem::PROBLEM_JSON;
use super::problem::kinds::Kind;

/// Member of an operation with the codes of its own refusals.
const OWN: &str = "x-problems";

/// Completes the document with what follows from the form of each operation.
pub fn document(openapi: &OpenApi) -> Value {
    let mut document = serde_json::to_value(openapi).expect("a document is JSON");
    document["components"]["securitySchemes"] = security_schemes();
    let paths = document["paths"].as_object_mut().expect("a document has paths");
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete(path, method, operation);
        }
    }
    // The parameter of a generic schema is registered, too, although nothing may refer to it.
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object_mut().expect("there are schemas");
    schemas.retain(|name, _| text.contains(&format!("\"#/components/schemas/{name}\"")));
    document
}

fn security_schemes() -> Value {
    let token = |description: &str| json!({"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": description});
    json!({
        "user": token("A token of any user: `sub` is the user's id."),
        "integrator": token("A token with `role: \"integrator\"`, or `operator` or `admin`."),
        "clerk": token("A token with `role: \"clerk\"`, or `operator` or `admin`."),
        "operator": token("A token with `role: \"operator\"`, or `admin`."),
        "admin": token("A token with `role: \"admin\"`."),
        "signature": {
            "type": "apiKey", "in": "header", "name": "X-Signature",
            "description": "HMAC-SHA256 of the bytes of the body with the secret that gateway and service share, in hexadecimal.",
        },
    })
}

fn complete(path: &str, method: &str, operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        // A parameter may be left out but is never null: in a query, `null` is just a text.
        if let [kind, Value::String(null)] | [Value::String(null), kind] =
            parameter["schema"]["type"].as_array().map_or(&[][..], Vec::as_slice)
            && null == "null"
        {
            parameter["schema"]["type"] = kind.clone();
        }
    }
    let kinds = kinds(path, operation);
    let operation = operation.as_object_mut().expect("an operation is an object");
    operation.remove(OWN);
    operation.entry("security").or_insert(json!([]));
    let responses = &mut operation["responses"];
    if method == "get" && responses["200"]["content"]["application/json"].is_object() {
        responses["304"] = json!({"description": "The client has this reply (If-None-Match)"});
    }
    if let Some(events) = responses.pointer_mut("/200/content/text~1event-stream") {
        let state = events["schema"].take();
        let data = json!({"type": "string", "contentMediaType": "application/json", "contentSchema": state});
        let properties =
            json!({"event": {"type": "string"}, "id": {"type": "string"}, "data": data});
        events["schema"] =
            json!({"type": "object", "required": ["data"], "properties": properties});
    }
    for (status, kinds) in kinds {
        let response = &mut responses[status.to_string()];
        let lines = kinds.iter().map(|kind| format!("* `{}`: {}", kind.code, kind.meaning));
        let words = lines.collect::<Vec<_>>().join("\n");
        let own =
            response["description"].as_str().map(|own| format!("{own}, or a problem:\n{words}"));
        response["description"] = own.unwrap_or(words).into();
        response["content"][PROBLEM_JSON] =
            json!({"schema": {"$ref": "#/components/schemas/Problem"}});
        for (name, description) in refusal_headers(status) {
            response["headers"][name] = header(description);
        }
    }
    for (status, response) in responses.as_object_mut().into_iter().flatten() {
        let headers = &mut response["headers"];
        headers["x-request-id"] = header("Name of the request in the logs.");
        if status.as_str() < "400" {
            headers["ETag"] = header("Tag of a JSON reply; changes with each byte of it.");
        }
        if status == "202" {
            headers["Retry-After"] = header("Seconds after which to ask again.");
        }
        if path.ends_with("/claims") {
            headers["Server-Timing"] = header("Times of a claim that was sent with `X-Trace: 1`.");
        }
    }
}

fn header(description: &str) -> Value {
    json!({"description": description, "schema": {"type": "string"}})
}

fn refusal_headers(status: u16) -> &'static [(&'static str, &'static str)] {
    match status {
        401 => &[("WWW-Authenticate", "How to authenticate, and the fault of a token (RFC 6750).")],
        405 => &[("Allow", "Methods of the path.")],
        409 | 429 | 503 => &[("Retry-After", "Seconds after which to ask again.")],
        _ => &[],
    }
}

/// The kinds of problems of an operation, by status.
fn kinds(path: &str, operation: &Value) -> BTreeMap<u16, Vec<&'static Kind>> {
    let own = operation[OWN].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut kinds: BTreeMap<u16, Vec<&'static Kind>> = BTreeMap::new();
    for kind in own.chain(implied(path, operation)).map(Kind::of) {
        kinds.entry(kind.status.as_u16()).or_default().push(kind);
    }
    kinds
}

/// Codes that follow from the form of an operation.
fn implied<'a>(path: &str, operation: &'a Value) -> impl Iterator<Item = &'a str> {
    let list = |name: &str| operation[name].as_array().map_or(&[][..], Vec::as_slice);
    let has = |place: &str| list("parameters").iter().any(|parameter| parameter["in"] == place);
    let needs = |scheme: &str| list("security").iter().any(|needed| needed[scheme].is_array());
    let needs_scope = ["integrator", "clerk", "operator", "admin"].into_iter().any(needs);
    let body = operation["requestBody"].is_object();
    // A signed body that can't be read is held, not refused.
    let read = body && !needs("signature");
    let rules = [
        (has("path"), "invalid_id"),
        (has("query"), "invalid_query"),
        (!matches!(path, LIVEZ | READYZ | METRICS | CALLBACK), "rate_limited"),
        (read, "malformed_json"),
        (read, "invalid_body"),
        (read, "unsupported_media_type"),
        (body, "body_too_slow"),
        (needs("user") || needs_scope, "invalid_token"),
        (needs_scope, "forbidden"),
        (path != LIVEZ && path != METRICS, "unavailable"),
        (true, "method_not_allowed"),
        (true, "body_too_large"),
        (true, "internal"),
    ];
    rules.into_iter().filter(|(holds, _)| *holds).map(|(_, code)| code)
}
