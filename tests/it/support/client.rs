//! Talking to the API, and holding it to its word: every reply has to be one that `/openapi.json` documents,
//! and every refusal a complete problem body.

use serde_json::Value;

use super::bounded;

/// A reply that has been read.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Reply {
    /// Reads a reply to `method path` and checks it against the document.
    pub async fn read(
        response: reqwest::Response,
        method: &str,
        path: &str,
        document: &Value,
    ) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = match is_stream(&response) {
            // A stream has no end. Its first event stands for it.
            true => Events::of(response).next().await.expect("there is an event").1.to_string(),
            false => bounded("the body", response.text()).await.expect("it arrives"),
        };
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let reply = Self { status, headers, body };
        if status >= 400 && !path.starts_with("/readyz") {
            reply.assert_problem();
        }
        assert_documented(document, method, path, &reply);
        reply
    }

    /// The value of a header, or "".
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("headers are ASCII here"))
    }

    /// The string under this name in the body.
    pub fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_else(|| panic!("no text `{name}` in {self:?}"))
    }

    /// Status and problem code, for comparing in one line.
    pub fn refusal(&self) -> (u16, &str) {
        (self.status, self.text("code"))
    }

    /// The order id, parsed.
    pub fn order_id(&self) -> i64 {
        self.text("order_id").parse().expect("an order id is a number in a string")
    }

    fn assert_problem(&self) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!(self.body["status"], self.status, "{self:?}");
        assert_eq!(self.text("type"), format!("/docs/problems#{}", self.text("code")));
        assert_eq!(self.text("request_id"), self.header("x-request-id"), "{self:?}");
        for member in ["title", "detail"] {
            assert!(!self.text(member).is_empty(), "{self:?}");
        }
    }
}

fn is_stream(response: &reqwest::Response) -> bool {
    let content_type = response.headers().get("content-type");
    content_type.is_some_and(|content_type| content_type == "text/event-stream")
}

/// Events of a stream, as they come.
pub struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    /// The events in the body of this reply.
    pub fn of(response: reqwest::Response) -> Self {
        assert!(is_stream(&response), "{response:?}");
        // A proxy that collects a reply would hold events back.
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self { response, text: String::new() }
    }

    /// The next event, with its name; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
                };
                let name = field("event:").expect("an event has a name");
                let data = serde_json::from_str(&field("data:").expect("an event has data"));
                let data: Value = data.expect("the data are JSON");
                // By its id, a client that had an event of another process drops an older one.
                let id = field("id:").map(|id| id.parse().expect("a time in ms"));
                assert_eq!(id, data["now"].as_i64(), "{name}");
                self.text = rest.to_owned();
                return Some((name, data));
            }
            let bytes = bounded("an event, or the end", self.response.chunk()).await;
            let bytes = bytes.expect("the stream isn't broken off")?;
            self.text.push_str(std::str::from_utf8(&bytes).expect("an event is UTF-8"));
        }
    }

    /// The next state of the sale.
    pub async fn sale(&mut self) -> Value {
        let (name, data) = self.next().await.expect("the stream goes on");
        assert_eq!(name, "sale", "{data}");
        data
    }
}

/// The reply, with the code of a problem, is one of the operation. A method that a path doesn't have has no operation.
fn assert_documented(document: &Value, method: &str, path: &str, reply: &Reply) {
    let path = path.split('?').next().unwrap_or(path);
    let paths = document["paths"].as_object().expect("a document has paths");
    let Some(item) = paths.iter().find(|(template, _)| matches(template, path)) else {
        return;
    };
    let operation = &item.1[method.to_lowercase()];
    let status = reply.status;
    if operation.is_null() && [405, 413].contains(&status) {
        return;
    }
    let response = &operation["responses"][status.to_string()];
    assert!(
        response.is_object(),
        "{method} {path} answered {status}, which /openapi.json doesn't know"
    );
    let known = headers(document, response);
    for name in HEADERS.into_iter().filter(|name| reply.headers.contains_key(*name)) {
        // The document of a version before the headers has none.
        assert!(
            known.is_empty() || known.iter().any(|known| known.eq_ignore_ascii_case(name)),
            "{method} {path} answered {status} with {name}, which /openapi.json doesn't know"
        );
    }
    if status == 202 && known.contains(&"Retry-After") {
        let ms = reply.body["retry_after_ms"].as_u64().expect("a 202 tells the milliseconds");
        let seconds = ms.div_ceil(1_000).max(1).to_string();
        assert_eq!(reply.header("retry-after"), seconds, "{method} {path}: {reply:?}");
    }
    let codes = codes(document, response);
    if let Some(code) = reply.body["code"].as_str().filter(|_| status >= 400) {
        // The document of a version before the codes has none.
        assert!(
            codes.is_empty() || codes.contains(&code),
            "{method} {path} answered {status} {code}, which /openapi.json doesn't know"
        );
    }
}

/// Headers that a client acts on, so that the document has to name them.
const HEADERS: [&str; 6] =
    ["allow", "etag", "location", "retry-after", "server-timing", "www-authenticate"];

/// Names of the headers that a response of the document has.
fn headers<'a>(document: &'a Value, response: &'a Value) -> Vec<&'a str> {
    let headers = resolved(document, response)["headers"].as_object();
    headers.into_iter().flat_map(|headers| headers.keys()).map(String::as_str).collect()
}

/// Codes of the problems that a response of the document may have.
pub fn codes<'a>(document: &'a Value, response: &'a Value) -> Vec<&'a str> {
    let words = resolved(document, response)["description"].as_str().unwrap_or_default();
    let code = |line: &'a str| line.strip_prefix("* `")?.split('`').next();
    words.lines().filter_map(code).collect()
}

/// The response itself, which several operations may share.
pub fn resolved<'a>(document: &'a Value, response: &'a Value) -> &'a Value {
    let shared = response["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
    shared.map_or(response, |place| document.pointer(place).expect("it is there"))
}

fn matches(template: &str, path: &str) -> bool {
    let template = template.split('/');
    let path = path.split('/');
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(expected, found)| {
            expected == found || expected.starts_with('{') && !found.is_empty()
        })
}

/// Every `$ref` in a document.
pub fn references(document: &Value) -> Vec<&str> {
    match document {
        Value::Object(members) => {
            let own = members.get("$ref").and_then(Value::as_str);
            own.into_iter().chain(members.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}
