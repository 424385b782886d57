//! Cross-origin resource sharing (<https://fetch.spec.whatwg.org/#http-cors-protocol>): pages of listed origins may use
//! the API from a browser. Without a list, no page of another origin may.
//!
//! An identity is a token in a header that a page sends itself, never a cookie; so credentials are not allowed, and any
//! origin may be listed without danger to the users of others.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

/// Origins whose pages may use the API.
pub struct Cors {
    any: bool,
    origins: Vec<HeaderValue>,
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH");
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, if-match, if-none-match, prefer, x-request-id, x-trace",
);
const REPLY_HEADERS: HeaderValue = HeaderValue::from_static(
    "allow, etag, location, ratelimit, ratelimit-policy, retry-after, server-timing, www-authenticate, x-request-id",
);
/// Seconds for which a browser remembers the answer to its question.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const ANY: HeaderValue = HeaderValue::from_static("*");
const VARY: HeaderValue = HeaderValue::from_static("origin");

impl Cors {
    /// With this list; `None` for an empty one.
    pub fn new(origins: &[String]) -> Option<Self> {
        let value =
            |origin: &String| HeaderValue::from_str(origin).expect("the setting is checked");
        let origins: Vec<HeaderValue> = origins.iter().map(value).collect();
        (!origins.is_empty()).then(|| Self { any: origins.contains(&ANY), origins })
    }

    /// The answer to a browser that asks whether a page may make a request; `None` for other requests.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let asked = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if method != Method::OPTIONS || !asked || !headers.contains_key(header::ORIGIN) {
            return None;
        }
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = StatusCode::NO_CONTENT;
        if self.allowed(headers.get(header::ORIGIN)).is_some() {
            let headers = reply.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        Some(reply)
    }

    /// The value that allows a page of this origin to see the reply.
    pub fn allowed(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        let origin = origin?;
        if self.any {
            return Some(ANY);
        }
        self.origins.iter().find(|listed| *listed == origin).cloned()
    }

    /// Adds the headers to a reply to a page of an allowed origin.
    pub fn allow(&self, reply: &mut HeaderMap, allowed: Option<HeaderValue>) {
        if !self.any {
            // A cache must not give the reply for one origin to another one.
            reply.append(header::VARY, VARY);
        }
        if let Some(allowed) = allowed {
            reply.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            reply.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, REPLY_HEADERS);
        }
    }
}
