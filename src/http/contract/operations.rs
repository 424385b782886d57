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
    let asks_stores = path != LIVEZ && path != METRICS;
    let bounded = !matches!(path, LIVEZ | READYZ | METRICS | CALLBACK);
    let rules = [
        (has("path"), "invalid_id"),
        (has("query"), "invalid_query"),
        (bounded, "rate_limited"),
        // What a gateway has signed is held if it can't be read.
        (body && !needs("signature"), "malformed_json"),
        (body && !needs("signature"), "invalid_body"),
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

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";
    /// Codes that each operation has.
    const EACH: [&str; 3] = ["method_not_allowed", "body_too_large", "internal"];

    fn of(name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// The document of one operation, completed; with the schemas that the tests name.
    fn completed(method: &str, path: &str, operation: &Value) -> Value {
        let timed =
            json!({"type": "object", "properties": {"retry_after_ms": {"type": "integer"}}});
        let mut document = json!({
            "paths": {path: {method: operation}},
            "components": {"schemas": {"Accepted": timed, "Job": {"type": "object"}}},
        });
        complete(&mut document);
        document
    }

    fn in_place(document: &Value, method: &str, path: &str) -> Value {
        document["paths"][path][method].clone()
    }

    fn names(object: &Value) -> Vec<&str> {
        object.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect()
    }

    #[test]
    fn the_form_of_an_operation_implies_its_refusals() {
        let path = json!({"name": "id", "in": "path"});
        let header = json!({"name": "Prefer", "in": "header"});
        let query = json!({"name": "limit", "in": "query"});
        let stores = &["unavailable"][..];
        let bounded = &["rate_limited", "unavailable"][..];
        let body = &["malformed_json", "invalid_body", "body_too_slow"][..];
        let of_type = &["unsupported_media_type"][..];
        let token = &["invalid_token", "forbidden", "unavailable"][..];
        let rate = &["rate_limited"][..];
        for (place, operation, parts) in [
            ("/livez", json!({}), vec![]),
            ("/metrics", json!({}), vec![]),
            ("/readyz", json!({}), vec![stores]),
            ("/v1/x", json!({}), vec![bounded]),
            ("/v1/x", json!({"parameters": []}), vec![bounded]),
            ("/v1/x", json!({"parameters": [header]}), vec![bounded]),
            (
                "/v1/x/{id}",
                json!({"parameters": [path, header]}),
                vec![&["invalid_id"][..], bounded],
            ),
            (
                "/v1/x",
                json!({"parameters": [header, query]}),
                vec![&["invalid_query"][..], bounded],
            ),
            ("/v1/x", json!({"requestBody": {}}), vec![rate, body, of_type, stores]),
            (
                "/v1/payments/callback",
                json!({"requestBody": {}, "security": [{"signature": []}]}),
                vec![&["body_too_slow"], stores],
            ),
            ("/v1/x", json!({"security": [{"user": []}]}), vec![rate, &["invalid_token"], stores]),
            ("/v1/x", json!({"security": [{"other": []}, {"clerk": []}]}), vec![rate, token]),
            ("/v1/x", json!({"security": [{"operator": []}]}), vec![rate, token]),
            ("/v1/x", json!({"security": [{"admin": []}]}), vec![rate, token]),
            ("/v1/x", json!({"security": []}), vec![bounded]),
        ] {
            let expected = [parts.concat(), EACH.to_vec()].concat();
            assert_eq!(implied(place, &operation), expected, "{place} {operation}");
        }
    }

    #[test]
    fn an_operation_has_its_own_refusals_by_status_and_says_that_it_needs_no_token() {
        let operation = json!({
            "parameters": [{"name": "limit", "in": "query", "schema": {"type": ["integer", "null"]}}],
            "responses": {"200": {"description": "It", "headers": {"Location": {"schema": {}}, "X-Other": {"schema": {}}}}},
            "x-problems": ["sold_out", "sale_ended", "coupon_not_found"],
        });
        let document = completed("post", "/v1/things", &operation);
        let operation = in_place(&document, "post", "/v1/things");
        assert_eq!(names(&operation), ["parameters", "responses", "security"]);
        assert_eq!(operation["security"], json!([]));
        assert_eq!(operation["parameters"][0]["schema"], json!({"type": "integer"}));
        let headers = json!({
            "Location": {"$ref": "#/components/headers/Location"},
            "x-request-id": {"$ref": "#/components/headers/RequestId"},
        });
        assert_eq!(operation["responses"]["200"]["headers"], headers);
        let shared = &document["components"]["responses"];
        let mut named = Vec::new();
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let Some(reference) = response["$ref"].as_str() else { continue };
            let name = reference.strip_prefix("#/components/responses/").expect("a shared one");
            let codes = &shared[name]["content"][PROBLEM_JSON]["schema"]["allOf"][1]["properties"];
            assert_eq!(codes["status"]["const"].to_string(), *status);
            named.push((status.as_str(), name));
        }
        let expected = [
            ("400", "InvalidQuery"),
            ("404", "CouponNotFound"),
            ("405", "MethodNotAllowed"),
            ("410", "SoldOutOrSaleEnded"),
            ("413", "BodyTooLarge"),
            ("429", "RateLimited"),
            ("500", "Internal"),
            ("503", "Unavailable"),
        ];
        assert_eq!(named, expected);
        assert_eq!(names(shared).len(), expected.len());
        // A token that is needed stays as it is said.
        let needed = json!({"security": [{"user": []}], "responses": {}});
        let document = completed("post", "/v1/things", &needed);
        assert_eq!(in_place(&document, "post", "/v1/things")["security"], json!([{"user": []}]));
    }

    /// Replies of the script tell its times, and no other refusals of the same operation.
    #[test]
    fn refusals_of_a_measured_operation_tell_its_times() {
        let trace =
            |name: &str| json!({"name": name, "in": "header", "schema": {"type": "string"}});
        for (names_of, is_measured) in
            [(&["Prefer", "X-Trace"][..], true), (&["Prefer"], false), (&[], false)]
        {
            let parameters: Vec<Value> = names_of.iter().map(|name| trace(name)).collect();
            let operation = json!({
                "parameters": parameters,
                "security": [{"user": []}],
                "responses": {"202": {"description": "x", "headers": {"Server-Timing": {"schema": {}}}}},
                "x-problems": ["sold_out"],
            });
            let document = completed("post", "/v1/things", &operation);
            let shared = &document["components"]["responses"];
            let name = if is_measured { "SoldOutMeasured" } else { "SoldOut" };
            let responses = in_place(&document, "post", "/v1/things")["responses"].clone();
            let reference = json!({"$ref": format!("#/components/responses/{name}")});
            assert_eq!(responses["410"], reference, "{names_of:?}");
            let timing = &shared[name]["headers"]["Server-Timing"];
            let expected = if is_measured { header("ServerTiming") } else { Value::Null };
            assert_eq!(timing, &expected, "{names_of:?}");
            assert_eq!(shared["InvalidToken"]["headers"]["Server-Timing"], Value::Null);
            assert_eq!(responses["202"]["headers"]["Server-Timing"], header("ServerTiming"));
        }
    }

    #[test]
    fn a_problem_joins_a_reply_that_the_operation_has_itself() {
        let report = json!({"description": "not ready", "content": {JSON: {"schema": of("Job")}}});
        let operation = json!({"responses": {"503": report}});
        let document = completed("get", "/readyz", &operation);
        let own = in_place(&document, "get", "/readyz")["responses"]["503"].clone();
        assert_eq!(own["description"], "not ready");
        assert_eq!(names(&own["content"]), [JSON, PROBLEM_JSON]);
        assert_eq!(names(&own["content"][PROBLEM_JSON]["examples"]), ["unavailable"]);
        assert_eq!(names(&own["headers"]), ["Retry-After", "x-request-id"]);
        assert!(document["components"]["responses"]["Unavailable"].is_null());
    }

    #[test]
    fn a_refusal_has_the_headers_of_its_status_and_each_of_its_kinds() {
        let refusal_of = |codes: &[&str]| {
            let kinds: Vec<_> = codes.iter().map(|code| kind(code)).collect();
            refusal(kinds[0].status, &kinds)
        };
        for (codes, headers) in [
            (&["invalid_token"][..], &["WWW-Authenticate"][..]),
            (&["method_not_allowed"], &["Allow"]),
            (&["rate_limited"], &["RateLimit", "RateLimit-Policy", "Retry-After"]),
            (&["unavailable"], &["Retry-After"]),
            (&["already_claimed", "sale_not_started"], &["Retry-After"]),
            (&["already_claimed", "sale_paused"], &[]),
            (&["coupon_not_found"], &[]),
        ] {
            let refusal = refusal_of(codes);
            let expected = [headers, &["x-request-id"]].concat();
            assert_eq!(names(&refusal["headers"]), expected, "{codes:?}");
            let content = &refusal["content"][PROBLEM_JSON];
            let own = &content["schema"]["allOf"][1]["properties"];
            let pages: Vec<String> =
                codes.iter().map(|code| format!("/docs/problems#{code}")).collect();
            assert_eq!(
                (&own["code"]["enum"], &own["type"]["enum"]),
                (&json!(codes), &json!(pages))
            );
            for code in codes {
                assert_eq!(content["examples"][code]["value"]["code"], *code);
            }
        }
        let told = |code: &str| kind(code).meaning;
        assert_eq!(refusal_of(&["sold_out"])["description"], told("sold_out"));
        let both =
            format!("* `sold_out`: {}\n* `sale_ended`: {}", told("sold_out"), told("sale_ended"));
        assert_eq!(refusal_of(&["sold_out", "sale_ended"])["description"], both);
        assert_eq!(names(&refusal_of(&["rate_limited"])["headers"]["RateLimit"]), ["$ref"]);
    }

    #[test]
    fn each_read_with_a_json_body_knows_tags_and_no_other_operation_does() {
        let reply = |media_type: &str| json!({"200": {"description": "It", "content": {media_type: {"schema": of("Job")}}}});
        let tag = json!({"$ref": "#/components/headers/ETag"});
        let id = json!({"name": "id", "in": "path", "schema": {"type": "string"}});
        for (method, media_type, parameters, knows) in [
            ("get", JSON, json!([id]), true),
            ("get", JSON, json!(null), true),
            ("get", "text/plain", json!([id]), false),
            ("post", JSON, json!([id]), false),
        ] {
            let operation = json!({"parameters": parameters, "responses": reply(media_type)});
            let document = completed(method, "/v1/things", &operation);
            let operation = in_place(&document, method, "/v1/things");
            let responses = &operation["responses"];
            let expected = if knows { &tag } else { &Value::Null };
            assert_eq!(&responses["200"]["headers"]["ETag"], expected, "{method} {media_type}");
            assert_eq!(&responses["304"]["headers"]["ETag"], expected, "{method} {media_type}");
            let given = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
            let named: Vec<&str> = given.iter().filter_map(|it| it["name"].as_str()).collect();
            let mut all: Vec<&str> = if parameters.is_null() { vec![] } else { vec!["id"] };
            all.extend(knows.then_some("If-None-Match"));
            assert_eq!(named, all, "{method} {media_type}");
        }
    }

    #[test]
    fn a_202_tells_the_milliseconds_beside_a_value_that_does_not() {
        let operation = |schema: Value| json!({"responses": {"202": {"description": "later", "content": {JSON: {"schema": schema}}}}});
        let told = |schema: Value| {
            let document = completed("post", "/v1/things", &operation(schema));
            let reply = in_place(&document, "post", "/v1/things")["responses"]["202"].clone();
            assert_eq!(reply["headers"]["Retry-After"], header("RetryAfter"));
            reply["content"][JSON]["schema"].clone()
        };
        assert_eq!(told(of("Accepted")), of("Accepted"));
        for schema in [of("Job"), json!({"type": "object"})] {
            let parts = told(schema.clone())["allOf"].clone();
            assert_eq!(parts[0], schema);
            assert_eq!(parts[1]["required"], json!(["retry_after_ms"]));
            assert_eq!(parts[1]["properties"]["retry_after_ms"]["type"], "integer");
        }
        // One without a body, and an operation without a 202.
        let bare = completed(
            "post",
            "/v1/things",
            &json!({"responses": {"202": {"description": "later"}}}),
        );
        let reply = in_place(&bare, "post", "/v1/things")["responses"]["202"].clone();
        assert_eq!(names(&reply["headers"]), ["Retry-After", "x-request-id"]);
        let none = completed("post", "/v1/things", &json!({"responses": {}}));
        assert!(in_place(&none, "post", "/v1/things")["responses"]["202"].is_null());
    }

    #[test]
    fn a_stream_lists_its_events_and_the_last_one() {
        let stream = json!({"200": {"description": "Events", "content": {"text/event-stream": {"schema": of("Job")}}}});
        let operation = json!({"responses": stream, "x-events": ["board"]});
        let document = completed("get", "/v1/things/live", &operation);
        let operation = in_place(&document, "get", "/v1/things/live");
        assert!(operation["x-events"].is_null(), "{operation}");
        let schema = &operation["responses"]["200"]["content"]["text/event-stream"]["schema"];
        let event = &schema["properties"];
        assert_eq!(event["event"]["enum"], json!(["board", "bye"]));
        assert_eq!(event["data"]["contentSchema"]["anyOf"][0], of("Job"));
        assert_eq!(schema["required"], json!(["event", "data"]));
    }

    #[test]
    fn the_headers_that_operations_name_are_among_those_of_the_document() {
        let known = headers();
        for (_, shared) in OWN_HEADERS.iter().chain(&BOUND) {
            assert!(known[shared]["schema"].is_object(), "{shared}");
        }
        assert_eq!(
            ["sold_out", "a", "too_many_unpaid_orders"].map(camel_case),
            ["SoldOut", "A", "TooManyUnpaidOrders"]
        );
    }
}
