//! Entity tags (RFC 9110, section 8.8.3): a client that has a reply already is told so, and gets no body; and a change may
//! name the state that it is made for.
//!
//! The tag of a coupon begins with its revision: `"revision-3.<digest of the reply>"`. The digest changes with each claim,
//! because a reply names the units left. A change looks at the revision alone, so the tag of any reply about this
//! revision counts for it, and so does `"revision-3"`.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Problem, WrongMember};
use crate::kit::tagged::{REVISION, TaggedJson};

/// A copy may be kept anywhere, and is shown only once the service has said that it is still right.
const PUBLIC: HeaderValue = HeaderValue::from_static("public, no-cache");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A body for all users alike, and its tag.
pub fn shared(body: &TaggedJson) -> Response {
    ([(header::CACHE_CONTROL, PUBLIC)], tagged(body)).into_response()
}

/// A body with its tag.
pub fn tagged(TaggedJson { body, tag }: &TaggedJson) -> Response {
    ([(header::ETAG, tag.clone()), (header::CONTENT_TYPE, JSON)], body.clone()).into_response()
}

/// Tags of the replies that a client has (If-None-Match).
pub struct Held(Vec<HeaderValue>);

impl Held {
    /// The tags of a read, which may be told that its reply is one of them.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let tags = || request.headers().get_all(header::IF_NONE_MATCH).iter().cloned();
        is_read.then(|| Self(tags().collect()))
    }

    /// Takes the body out of a reply that the client has.
    pub fn shorten(&self, response: &mut Response) {
        let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
        if response.status() != StatusCode::OK || !tag.is_some_and(|tag| self.names(tag)) {
            return;
        }
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        for of_the_body in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING]
        {
            response.headers_mut().remove(of_the_body);
        }
    }

    /// True if the client has a reply with this tag, by the weak comparison that reads ask for.
    fn names(&self, tag: &str) -> bool {
        let mut held = self.0.iter().filter_map(|value| value.to_str().ok()).flat_map(listed);
        held.any(|held| held == "*" || opaque(held) == opaque(tag))
    }
}

/// The reply to a change, with the tag of the state that it made.
pub fn changed(revision: i64, body: &impl Serialize) -> Response {
    tagged(&TaggedJson::of_revision(revision, body))
}

/// Condition of a change in the header If-Match.
#[derive(Default)]
pub struct IfMatch {
    /// The revision that the thing has to have; [`NO_REVISION`] for a tag that is of none.
    revision: Option<i64>,
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(header::IF_MATCH).iter();
        let Some(value) = values.next() else { return Ok(Self::default()) };
        let value = value.to_str().ok().filter(|_| values.next().is_none());
        match value.map(str::trim) {
            Some("*") => Ok(Self::default()),
            // A list without a tag (RFC 9110, section 5.6.1), which nothing matches.
            Some("") => Ok(Self { revision: Some(NO_REVISION) }),
            Some(value) if is_one_tag(value) => {
                Ok(Self { revision: Some(revision_of(value).unwrap_or(NO_REVISION)) })
            }
            _ => Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_if_match", INVALID)),
        }
    }
}

/// Revision that nothing has: the first is 1.
const NO_REVISION: i64 = 0;

const INVALID: &str = r#"send the header `If-Match` once, with one tag: that of a reply about the coupon, or its revision as in "revision-3""#;

impl IfMatch {
    /// The revision that header and body ask for; refused if each asks for another.
    pub fn with(&self, in_body: Option<i64>) -> Result<Option<i64>, Problem> {
        match (self.revision, in_body) {
            (Some(NO_REVISION), _) => Ok(Some(NO_REVISION)),
            (Some(header), Some(body)) if header != body => {
                let detail = "isn't the revision that the header If-Match names: send one of both";
                let (pointer, detail) = ("/revision".to_owned(), detail.to_owned());
                Err(Problem::invalid_body(vec![WrongMember { pointer, detail }]))
            }
            (header, body) => Ok(header.or(body)),
        }
    }

    /// The problem of a thing with another revision than the request asks for, in these words.
    pub fn conflict(&self, detail: String) -> Problem {
        match self.revision {
            Some(_) => Problem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail),
            None => Problem::new(StatusCode::CONFLICT, "revision_conflict", detail),
        }
    }
}

fn is_one_tag(value: &str) -> bool {
    let inner = opaque(value).strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'))
}

/// The revision in a strong tag; a weak one never matches (RFC 9110, section 13.1.1).
fn revision_of(tag: &str) -> Option<i64> {
    let name = tag.strip_prefix('"')?.strip_suffix('"')?.strip_prefix(REVISION)?;
    let (revision, _digest) = name.split_once('.').unwrap_or((name, ""));
    let plain = revision.bytes().all(|digit| digit.is_ascii_digit());
    revision.parse().ok().filter(|_| plain)
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Values of a header that is a list.
pub fn values(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(listed)
}

fn listed(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;
    use private_servers::testing::bound_this_test;

    use super::*;

    fn headers(name: HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    /// A reply with a body, its type and this tag.
    fn reply(status: StatusCode, tag: Option<&'static str>) -> Response {
        let mut reply = (status, [(header::CONTENT_TYPE, JSON)], "{}").into_response();
        reply.headers_mut().insert(header::CONTENT_LENGTH, 2.into());
        reply.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(tag) = tag {
            reply.headers_mut().insert(header::ETAG, HeaderValue::from_static(tag));
        }
        reply
    }

    #[test]
    fn tags_are_held_for_reads_alone() {
        for (method, is_read) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::POST, false),
            (Method::PATCH, false),
            (Method::DELETE, false),
        ] {
            let request = Request::builder().method(method.clone());
            let request = request.header(header::IF_NONE_MATCH, "\"a\"").body(()).unwrap();
            let held = Held::of(&request).map(|held| held.0);
            let expected = is_read.then(|| vec![HeaderValue::from_static("\"a\"")]);
            assert_eq!(held, expected, "{method}");
        }
    }

    #[tokio::test]
    async fn a_reply_that_the_client_holds_is_shortened_to_its_tag() {
        bound_this_test();
        let (ok, made) = (StatusCode::OK, StatusCode::CREATED);
        for (held, status, tag, is_short) in [
            (&["\"a\""][..], ok, Some("\"a\""), true),
            (&["W/\"a\""], ok, Some("\"a\""), true),
            (&["\"a\""], ok, Some("W/\"a\""), true),
            (&["\"b\", \"a\""], ok, Some("\"a\""), true),
            (&["\"a\", \"b\""], ok, Some("\"a\""), true),
            (&["\"b\"", "\"a\""], ok, Some("\"a\""), true),
            (&["*"], ok, Some("\"a\""), true),
            (&["\"b\""], ok, Some("\"a\""), false),
            (&[], ok, Some("\"a\""), false),
            (&["*"], ok, None, false),
            (&["*"], made, Some("\"a\""), false),
        ] {
            let held = headers(header::IF_NONE_MATCH, held);
            let held = Held(held.into_iter().map(|(_, value)| value).collect());
            let mut reply = reply(status, tag);
            held.shorten(&mut reply);
            let what = format!("{:?} {status} {tag:?}", held.0);
            assert_eq!(
                reply.status(),
                if is_short { StatusCode::NOT_MODIFIED } else { status },
                "{what}"
            );
            for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
                assert_eq!(reply.headers().contains_key(&name), !is_short, "{what}: {name}");
            }
            assert_eq!(reply.headers().contains_key(header::ETAG), tag.is_some(), "{what}");
            let body = axum::body::to_bytes(reply.into_body(), 10).await.unwrap();
            assert_eq!(body, if is_short { "" } else { "{}" }, "{what}");
        }
    }

    #[tokio::test]
    async fn a_condition_is_one_tag_of_one_revision() {
        bound_this_test();
        let rows: [(&[&'static str], Option<Option<i64>>); 22] = [
            (&[], Some(None)),
            (&["*"], Some(None)),
            (&[" * "], Some(None)),
            (&[""], Some(Some(0))),
            (&["\"revision-3\""], Some(Some(3))),
            (&[" \"revision-3\" "], Some(Some(3))),
            (&["\"revision-12.5f2b\""], Some(Some(12))),
            (&["\"revision-+3\""], Some(Some(0))),
            (&["\"revision--3\""], Some(Some(0))),
            (&["\"revision-\""], Some(Some(0))),
            (&["\"revision-3x\""], Some(Some(0))),
            (&["\"revision-99999999999999999999\""], Some(Some(0))),
            (&["W/\"revision-3\""], Some(Some(0))),
            (&["\"another\""], Some(Some(0))),
            (&["\"\""], Some(Some(0))),
            (&["revision-3"], None),
            (&["\"revision-3"], None),
            (&["\""], None),
            (&["\"a b\""], None),
            (&["\"a\"b\""], None),
            (&["\"revision-3\", \"revision-4\""], None),
            (&["\"revision-3\"", "\"revision-3\""], None),
        ];
        for (values, expected) in rows {
            let (mut parts, ()) = Request::new(()).into_parts();
            parts.headers = headers(header::IF_MATCH, values);
            let read = IfMatch::from_request_parts(&mut parts, &()).await;
            let revision = read.as_ref().ok().map(|read| read.revision);
            assert_eq!(revision, expected, "{values:?}");
            if let Err(problem) = read {
                assert_eq!(problem.code(), "invalid_if_match", "{values:?}");
            }
        }
    }

    /// Revision of the header, of the body, and of both; no revision is 0.
    #[test]
    fn header_and_body_ask_for_one_revision() {
        for (revision, in_body, both) in [
            (None, None, Some(None)),
            (None, Some(3), Some(Some(3))),
            (Some(3), None, Some(Some(3))),
            (Some(3), Some(3), Some(Some(3))),
            (Some(3), Some(4), None),
            (Some(1), Some(2), None),
            (Some(0), None, Some(Some(0))),
            (Some(0), Some(4), Some(Some(0))),
        ] {
            let with = IfMatch { revision }.with(in_body);
            assert_eq!(with.as_ref().ok(), both.as_ref(), "{revision:?} {in_body:?}");
            if let Err(problem) = with {
                let body: serde_json::Value = serde_json::from_slice(&problem.body("x")).unwrap();
                assert_eq!(body["errors"][0]["pointer"], "/revision");
            }
        }
        let told = |revision| IfMatch { revision }.conflict("x".to_owned()).code();
        assert_eq!([told(None), told(Some(3))], ["revision_conflict", "precondition_failed"]);
    }
}
