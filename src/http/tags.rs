//! Entity tags (RFC 9110, section 8.8.3): a client that has a reply already is told so, and gets no body; and a change may
//! name the state that it is made for.
//!
//! The tag of a coupon begins with its revision: `"revision-3.<digest of the reply>"`. The digest changes with each claim,
//! because a reply names the units left. A change looks at the revision alone, so the tag of any reply about this
//! revision counts for it, and so does `"revision-3"`.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Problem, WrongMember};
use super::state::HttpState;
use crate::kit::tagged::{REVISION, TaggedJson};
use crate::sale::ids::public::PublicIds;

/// A copy may be kept anywhere, and is shown only once the service has said that it is still right.
const PUBLIC: HeaderValue = HeaderValue::from_static("public, no-cache");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Tags of the replies that the client has (If-None-Match).
pub struct Held {
    tags: HeaderMap,
    ids: PublicIds,
}

impl FromRequestParts<HttpState> for Held {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Infallible> {
        let mut tags = HeaderMap::new();
        for held in parts.headers.get_all(header::IF_NONE_MATCH) {
            tags.append(header::IF_NONE_MATCH, held.clone());
        }
        Ok(Self { tags, ids: http.app().public_ids.clone() })
    }
}

impl Held {
    /// The reply with this body and its tag; without the body for a client that has it.
    pub fn reply(&self, body: &impl Serialize) -> Response {
        self.reply_with(&TaggedJson::new(&self.ids.outside(body)))
    }

    /// The same, for all users alike.
    pub fn public_reply(&self, body: &TaggedJson) -> Response {
        let mut reply = self.reply_with(body);
        reply.headers_mut().insert(header::CACHE_CONTROL, PUBLIC);
        reply
    }

    fn reply_with(&self, TaggedJson { body, tag }: &TaggedJson) -> Response {
        let is_held = tag.to_str().is_ok_and(|tag| is_held(&self.tags, tag));
        let tag = (header::ETAG, tag.clone());
        match is_held {
            true => (StatusCode::NOT_MODIFIED, [tag]).into_response(),
            false => ([tag, (header::CONTENT_TYPE, JSON)], body.clone()).into_response(),
        }
    }
}

/// The reply to a change, with the tag of the state that it made.
pub fn changed(revision: i64, body: &impl Serialize) -> Response {
    let TaggedJson { body, tag } = TaggedJson::of_revision(revision, body);
    ([(header::ETAG, tag), (header::CONTENT_TYPE, JSON)], body).into_response()
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

/// Whether these headers name the tag, by the weak comparison that reads ask for.
pub fn is_held(headers: &HeaderMap, tag: &str) -> bool {
    values(headers, header::IF_NONE_MATCH).any(|held| held == "*" || opaque(held) == opaque(tag))
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Values of a header that is a list.
pub fn values(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
