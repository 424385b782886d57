//! Entity tags (RFC 9110, section 8.8.3). A client that has a reply already is told so, and gets no body. A change may
//! name the state that it is meant for.
//!
//! The tag of a coupon begins with its revision: `"revision-3.<digest of the reply>"`. The digest changes with each
//! claim, because a reply has the units left. A change compares the revision alone, so the tag of any reply about this
//! revision will do, and so will `"revision-3"`.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::IntoParams;

use super::problem::Problem;
use crate::kit::tagged::{REVISION, TaggedJson};

/// Anyone may keep a copy, and has to ask the service whether it is still right before showing it.
const PUBLIC: HeaderValue = HeaderValue::from_static("public, no-cache");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A body that is the same for all users, with its tag.
pub fn shared(body: &TaggedJson) -> Response {
    ([(header::CACHE_CONTROL, PUBLIC)], tagged(body)).into_response()
}

pub fn tagged(TaggedJson { body, tag }: &TaggedJson) -> Response {
    ([(header::ETAG, tag.clone()), (header::CONTENT_TYPE, JSON)], body.clone()).into_response()
}

/// Tags of the replies that a client has (If-None-Match).
pub struct Held(Vec<HeaderValue>);

impl Held {
    /// The tags that a GET or HEAD sends; `None` for other methods, and without tags.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let tags: Vec<_> =
            request.headers().get_all(header::IF_NONE_MATCH).iter().cloned().collect();
        (is_read && !tags.is_empty()).then_some(Self(tags))
    }

    /// Turns a reply that the client has already into a 304 without a body.
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

    /// Whether the client has a reply with this tag. Reads use the weak comparison.
    fn names(&self, tag: &str) -> bool {
        let mut held = self.0.iter().filter_map(|value| value.to_str().ok()).flat_map(listed);
        held.any(|held| held == "*" || opaque(held) == opaque(tag))
    }
}

/// The reply to a change, with the tag of the state that it made.
pub fn changed(revision: i64, body: &impl Serialize) -> Response {
    tagged(&TaggedJson::of_revision(revision, body))
}

/// The header of a change, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IfMatchHeader {
    /// Makes the change only if the coupon still has this revision: the tag of a reply about the coupon, or the
    /// revision as in `"revision-3"`
    #[param(rename = "If-Match", nullable = false, pattern = r#"^(\*|(W/)?"[!#-~]*")?$"#)]
    _if_match: Option<String>,
}

/// Condition of a change in the header If-Match.
#[derive(Default)]
pub struct IfMatch {
    /// The revision that the coupon must have; [`NO_REVISION`] for a tag without one.
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
            // An empty list of tags (RFC 9110, section 5.6.1), which nothing matches.
            Some("") => Ok(Self { revision: Some(NO_REVISION) }),
            Some(value) if is_one_tag(value) => {
                Ok(Self { revision: Some(revision_of(value).unwrap_or(NO_REVISION)) })
            }
            _ => Err(Problem::of("invalid_if_match", INVALID)),
        }
    }
}

/// A revision that no coupon has: the first is 1.
const NO_REVISION: i64 = 0;

const INVALID: &str = r#"send the header `If-Match` once, with one tag: that of a reply about the coupon, or its revision as in "revision-3""#;

impl IfMatch {
    /// The revision that header and body ask for. Refuses the request if they differ.
    pub fn with(&self, in_body: Option<i64>) -> Result<Option<i64>, Problem> {
        match (self.revision, in_body) {
            (Some(NO_REVISION), _) => Ok(Some(NO_REVISION)),
            (Some(header), Some(body)) if header != body => {
                let detail = "isn't the revision that the header If-Match names: send one of both";
                Err(Problem::wrong_member("/revision", detail))
            }
            (header, body) => Ok(header.or(body)),
        }
    }

    /// The problem of a coupon that has another revision than the request asks for.
    pub fn conflict(&self, detail: String) -> Problem {
        match self.revision {
            Some(_) => Problem::of("precondition_failed", detail),
            None => Problem::of("revision_conflict", detail),
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
    use private_servers::testing::bound_this_test;

    use super::*;

    #[test]
    fn a_reply_that_the_client_holds_is_shortened_to_its_tag() {
        let (ok, made) = (StatusCode::OK, StatusCode::CREATED);
        for (held, status, tag, is_short) in [
            ("\"a\"", ok, Some("\"a\""), true),
            ("W/\"a\"", ok, Some("\"a\""), true),
            ("\"b\", \"a\"", ok, Some("W/\"a\""), true),
            ("*", ok, Some("\"a\""), true),
            ("\"b\"", ok, Some("\"a\""), false),
            ("*", ok, None, false),
            ("*", made, Some("\"a\""), false),
        ] {
            let mut reply = (status, "{}").into_response();
            if let Some(tag) = tag {
                reply.headers_mut().insert(header::ETAG, HeaderValue::from_static(tag));
            }
            Held(vec![HeaderValue::from_static(held)]).shorten(&mut reply);
            let expected = if is_short { StatusCode::NOT_MODIFIED } else { status };
            assert_eq!(reply.status(), expected, "{held} {status} {tag:?}");
        }
    }

    #[tokio::test]
    async fn a_condition_is_one_tag_of_one_revision() {
        bound_this_test();
        let rows: [(&[&'static str], Option<Option<i64>>); 13] = [
            (&[], Some(None)),
            (&["*"], Some(None)),
            (&[""], Some(Some(0))),
            (&[" \"revision-3\" "], Some(Some(3))),
            (&["\"revision-12.5f2b\""], Some(Some(12))),
            (&["\"revision-+3\""], Some(Some(0))),
            (&["\"revision-3x\""], Some(Some(0))),
            (&["W/\"revision-3\""], Some(Some(0))),
            (&["\"another\""], Some(Some(0))),
            (&["revision-3"], None),
            (&["\"a b\""], None),
            (&["\"revision-3\", \"revision-4\""], None),
            (&["\"revision-3\"", "\"revision-3\""], None),
        ];
        for (values, expected) in rows {
            let (mut parts, ()) = Request::new(()).into_parts();
            for value in values {
                parts.headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            let read = IfMatch::from_request_parts(&mut parts, &()).await;
            assert_eq!(read.ok().map(|read| read.revision), expected, "{values:?}");
        }
    }
}
