//! Problems, headers and codes of each operation.
//!
//! A handler names the codes of its own refusals (`x-problems`). The others follow from the form of the operation: an id,
//! a query, a body, a token.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::paths::{CALLBACK, LIVEZ, METRICS, READYZ};
use super::{examples, schemas};
use crate::http::problem::PROBLEM_JSON;
use crate::http::problem::kinds::Kind;

/// Member of an operation with the codes of its own refusals.
const OWN: &str = "x-problems";

/// Extension of a stream: the names of its events, but for the last one.
const EVENTS: &str = "x-events";

/// Headers of replies.
pub fn headers() -> Value {
    let text = |description: &str, example: &str| json!({"description": description, "schema": {"type": "string"}, "example": example});
    json!({
        "RequestId": text("Name of the request in the logs: the client's own, if it sent one that is fit for a log line.", examples::REQUEST_ID),
        "Location": text("Path of what was made, or of the place to ask.", "/v1/coupons/1048577/claims/me"),
        "Allow": text("Methods of the path.", "GET,HEAD"),
        "WwwAuthenticate": text("How to authenticate, and the fault of a token that was refused (RFC 6750).", "Bearer"),
        "RateLimitPolicy": text("The bound: its name, and requests (`q`) in a window of seconds (`w`).", r#""user-claims";q=10;w=1"#),
        "RateLimit": text("State of the bound: requests that are left (`r`), and seconds until there are more (`t`).", r#""user-claims";r=0;t=1"#),
        "ETag": text("Tag of this reply; changes with each byte of it. That of a coupon begins with its revision, and is fit for If-Match.", r#""revision-3.5f2b0d6c9f0c4c0e8f0e3d1a7b6c5d4e""#),
        "ServerTiming": text("Times of a claim that was sent with `X-Trace: 1`, in ms: its wait for a call of the script, and the call.", r#"queue;dur=0.420, script;dur=0.310;desc="17 claims""#),
        "RetryAfter": {"description": "Seconds after which to ask again.", "schema": {"type": "integer", "minimum": 1}, "example": 1},
    })
}

/// Completes every operation, and the responses that they share.
pub fn complete(document: &mut Value) {
    let mut shared = Map::new();
    let schemas = document["components"]["schemas"].clone();
    let paths = document["paths"].as_object_mut().expect("a document has paths");
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if method == "get" {
                know_tags(operation);
            }
            complete_one(path, operation, &mut shared);
            unfinished(operation, &schemas);
        }
    }
    document["components"]["responses"] = Value::Object(shared);
}

fn complete_one(path: &str, operation: &mut Value, shared: &mut Map<String, Value>) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for schema in parameters.into_iter().flatten().filter_map(|it| it.get_mut("schema")) {
        schemas::take_null_out(schema);
    }
    let kinds = kinds(path, operation);
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    let is_measured = parameters.iter().any(|parameter| parameter["name"] == "X-Trace");
    let of_the_script: BTreeSet<u16> =
        own(operation).map(|kind| kind.status).filter(|_| is_measured).collect();
    let operation = operation.as_object_mut().expect("an operation is an object");
    operation.remove(OWN);
    let events = operation.remove(EVENTS).unwrap_or_default();
    if operation.get("security").is_none() {
        operation.insert("security".to_owned(), json!([]));
    }
    let responses = operation["responses"].as_object_mut().expect("it has responses");
    for response in responses.values_mut() {
        let own = response["headers"].take();
        response["headers"] = json!({"x-request-id": header("RequestId")});
        for (name, shared) in OWN_HEADERS {
            if own[name].is_object() {
                response["headers"][name] = header(shared);
            }
        }
        if let Some(stream) = response.pointer_mut("/content/text~1event-stream") {
            stream["schema"] = event(&events, &stream["schema"]);
        }
    }
    for (status, kinds) in kinds {
        let is_measured = of_the_script.contains(&status);
        let refusal = || {
            let mut refusal = refusal(status, &kinds);
            if is_measured {
                refusal["headers"]["Server-Timing"] = header("ServerTiming");
            }
            refusal
        };
        if let Some(own) = responses.get_mut(&status.to_string()) {
            let mut refusal = refusal();
            own["content"][PROBLEM_JSON] = refusal["content"][PROBLEM_JSON].take();
            for (name, header) in refusal["headers"].as_object().into_iter().flatten() {
                own["headers"][name] = header.clone();
            }
            continue;
        }
        let mut name =
            kinds.iter().map(|kind| camel_case(kind.code)).collect::<Vec<_>>().join("Or");
        if is_measured {
            name.push_str("Measured");
        }
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        responses.insert(status.to_string(), reference);
        // Most are shared by many operations.
        shared.entry(name).or_insert_with(refusal);
    }
}

/// Each read with a JSON body tells its tag, and takes the tags that a client has.
fn know_tags(operation: &mut Value) {
    if !operation["responses"]["200"]["content"]["application/json"].is_object() {
        return;
    }
    operation["responses"]["200"]["headers"]["ETag"] = header("ETag");
    let unchanged =
        json!({"description": "The client has this reply", "headers": {"ETag": header("ETag")}});
    operation["responses"]["304"] = unchanged;
    let taken = json!({
        "name": "If-None-Match",
        "in": "header",
        "description": "Tags of the replies that the client has",
        "required": false,
        "schema": {"type": "string"},
    });
    match &mut operation["parameters"] {
        Value::Array(parameters) => parameters.push(taken),
        none => *none = json!([taken]),
    }
}

/// A 202 says when to ask again, in seconds and, in its body, in milliseconds.
fn unfinished(operation: &mut Value, schemas: &Value) {
    let Some(response) = operation["responses"].get_mut("202") else { return };
    response["headers"]["Retry-After"] = header("RetryAfter");
    let Some(schema) = response.pointer_mut("/content/application~1json/schema") else { return };
    let name = schema["$ref"].as_str().and_then(|name| name.strip_prefix(schemas::SCHEMAS));
    if name.is_some_and(|name| schemas[name]["properties"]["retry_after_ms"].is_object()) {
        return;
    }
    let description = "Milliseconds after which to ask again.";
    let ms =
        json!({"type": "integer", "format": "int64", "minimum": 0, "description": description});
    *schema = json!({"allOf": [
        schema.take(),
        {"type": "object", "required": ["retry_after_ms"], "properties": {"retry_after_ms": ms}},
    ]});
}

/// The kinds of problems of an operation, by status.
fn kinds(path: &str, operation: &Value) -> BTreeMap<u16, Vec<&'static Kind>> {
    let mut kinds: BTreeMap<u16, Vec<&'static Kind>> = BTreeMap::new();
    for kind in own(operation).chain(implied(path, operation).into_iter().map(kind)) {
        kinds.entry(kind.status).or_default().push(kind);
    }
    kinds
}

/// The kinds of an operation's own refusals.
fn own(operation: &Value) -> impl Iterator<Item = &'static Kind> {
    operation[OWN].as_array().into_iter().flatten().filter_map(Value::as_str).map(kind)
}

fn kind(code: &str) -> &'static Kind {
    Kind::of(code).unwrap_or_else(|| panic!("{code} is no kind of problem"))
}

/// Codes that follow from the form of an operation.
fn implied(path: &str, operation: &Value) -> Vec<&'static str> {
    let list = |name: &str| operation[name].as_array().map_or(&[][..], Vec::as_slice);
    let has = |place: &str| list("parameters").iter().any(|parameter| parameter["in"] == place);
    let needs = |scheme: &str| list("security").iter().any(|needed| needed[scheme].is_array());
    let needs_scope = ["clerk", "operator", "admin"].into_iter().any(needs);
    let body = operation["requestBody"].is_object();
    let of_day = path.ends_with("/{day}");
    let asks_stores = path != LIVEZ && path != METRICS;
    let bounded = !matches!(path, LIVEZ | READYZ | METRICS | CALLBACK);
    let rules = [
        (has("path") && !of_day, "invalid_id"),
        (of_day, "invalid_day"),
        (has("query"), "invalid_query"),
        (bounded, "rate_limited"),
        (body, "malformed_json"),
        (body, "invalid_body"),
        (body, "body_too_slow"),
        (body && !needs("signature"), "unsupported_media_type"),
        (needs("user") || needs_scope, "invalid_token"),
        (needs_scope, "forbidden"),
        (asks_stores, "unavailable"),
        (true, "method_not_allowed"),
        (true, "body_too_large"),
        (true, "internal"),
    ];
    rules.into_iter().filter(|(holds, _)| *holds).map(|(_, code)| code).collect()
}

/// The response of refusals with one status.
fn refusal(status: u16, kinds: &[&'static Kind]) -> Value {
    let codes: Vec<&str> = kinds.iter().map(|kind| kind.code).collect();
    let types: Vec<String> = kinds.iter().map(|kind| kind.page()).collect();
    let examples: Map<String, Value> = kinds
        .iter()
        .map(|kind| {
            let example = json!({"summary": kind.title, "value": examples::problem(kind)});
            (kind.code.to_owned(), example)
        })
        .collect();
    let schema = json!({"allOf": [
        {"$ref": "#/components/schemas/Problem"},
        {
            "type": "object",
            "required": ["type", "status", "code"],
            "properties": {
                "type": {"type": "string", "enum": types},
                "status": {"type": "integer", "const": status},
                "code": {"type": "string", "enum": codes},
            },
        },
    ]});
    let mut headers = json!({"x-request-id": header("RequestId")});
    match status {
        401 => headers["WWW-Authenticate"] = header("WwwAuthenticate"),
        405 => headers["Allow"] = header("Allow"),
        429 => {
            for (name, shared) in BOUND {
                headers[name] = header(shared);
            }
        }
        _ if kinds.iter().any(|kind| kind.tells_when()) => {
            headers["Retry-After"] = header("RetryAfter");
        }
        _ => {}
    }
    let content = json!({PROBLEM_JSON: {"schema": schema, "examples": examples}});
    json!({"description": in_words(kinds), "headers": headers, "content": content})
}

fn in_words(kinds: &[&'static Kind]) -> String {
    match kinds {
        [kind] => kind.meaning.to_owned(),
        _ => {
            let lines = kinds.iter().map(|kind| format!("* `{}`: {}", kind.code, kind.meaning));
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

/// An event of a stream of these states, as a client reads it (HTML, server-sent events).
fn event(names: &Value, state: &Value) -> Value {
    let mut names = names.clone();
    names.as_array_mut().expect("a stream lists its events in `x-events`").push(json!("bye"));
    let bye = json!({
        "type": "object",
        "required": ["reason"],
        "properties": {"reason": {"type": "string", "const": "stopping"}},
    });
    json!({
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"type": "string", "enum": names},
            "id": {"type": "string", "description": "Grows with time."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": [state, bye]},
            },
        },
    })
}

/// Headers that an operation names itself.
const OWN_HEADERS: [(&str, &str); 3] =
    [("Location", "Location"), ("Server-Timing", "ServerTiming"), ("ETag", "ETag")];

/// Headers of a reply to a client that asks too often.
const BOUND: [(&str, &str); 3] = [
    ("Retry-After", "RetryAfter"),
    ("RateLimit-Policy", "RateLimitPolicy"),
    ("RateLimit", "RateLimit"),
];

fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}

fn camel_case(code: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    code.split('_').map(capital).collect()
}
