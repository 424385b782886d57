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

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "https://shop.example";
    const OTHER: &str = "https://other.example";

    fn cors(origins: &[&str]) -> Option<Cors> {
        Cors::new(&origins.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_page_is_allowed_by_its_origin_or_all_pages_are() {
        assert!(cors(&[]).is_none(), "without a list there is nothing to say");
        for (origins, origin, allowed) in [
            (&[SHOP][..], Some(SHOP), Some(SHOP)),
            (&[OTHER, SHOP], Some(SHOP), Some(SHOP)),
            (&[SHOP, OTHER], Some(OTHER), Some(OTHER)),
            (&[OTHER], Some(SHOP), None),
            (&[SHOP], Some("https://shop.example.evil"), None),
            (&[SHOP], None, None),
            (&["*"], Some(SHOP), Some("*")),
            (&[SHOP, "*"], Some(OTHER), Some("*")),
            (&["*"], None, None),
        ] {
            let cors = cors(origins).expect("a list");
            let origin = origin.map(HeaderValue::from_static);
            let expected = allowed.map(HeaderValue::from_static);
            assert_eq!(cors.allowed(origin.as_ref()), expected, "{origins:?} {origin:?}");
        }
    }

    #[test]
    fn a_question_before_a_request_is_answered_and_other_requests_go_on() {
        let of = |asked: bool, origin: &'static str| {
            let mut headers = HeaderMap::new();
            if asked {
                headers.insert(
                    header::ACCESS_CONTROL_REQUEST_METHOD,
                    HeaderValue::from_static("POST"),
                );
            }
            if !origin.is_empty() {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            headers
        };
        let cors = cors(&[SHOP]).expect("a list");
        for (method, headers) in [
            (Method::GET, of(true, SHOP)),
            (Method::POST, of(true, SHOP)),
            (Method::OPTIONS, of(false, SHOP)),
            (Method::OPTIONS, of(true, "")),
        ] {
            assert!(cors.preflight(&method, &headers).is_none(), "{method} {headers:?}");
        }
        for (origin, is_allowed) in [(SHOP, true), (OTHER, false)] {
            let reply = cors.preflight(&Method::OPTIONS, &of(true, origin)).expect("an answer");
            assert_eq!(reply.status(), 204);
            for (name, value) in [
                (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
                (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
            ] {
                let expected = is_allowed.then_some(&value);
                assert_eq!(reply.headers().get(&name), expected, "{origin}: {name}");
            }
        }
    }

    /// A cache must not give the reply for one origin to another one, unless all get the same.
    #[test]
    fn a_reply_names_the_page_that_may_see_it_and_varies_with_it() {
        for (origins, allowed, varies) in [
            (&[SHOP][..], Some(SHOP), true),
            (&[SHOP], None, true),
            (&["*"], Some("*"), false),
            (&["*"], None, false),
        ] {
            let mut reply = HeaderMap::new();
            reply.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
            let value = allowed.map(HeaderValue::from_static);
            cors(origins).expect("a list").allow(&mut reply, value.clone());
            let vary: Vec<_> = reply.get_all(header::VARY).iter().collect();
            let expected: &[&str] =
                if varies { &["accept-encoding", "origin"] } else { &["accept-encoding"] };
            assert_eq!(vary, expected, "{origins:?}");
            assert_eq!(reply.get(header::ACCESS_CONTROL_ALLOW_ORIGIN), value.as_ref());
            let exposed = reply.get(header::ACCESS_CONTROL_EXPOSE_HEADERS);
            assert_eq!(exposed, allowed.is_some().then_some(&REPLY_HEADERS), "{origins:?}");
        }
    }
}
