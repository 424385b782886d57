//! Entity tags (RFC 9110, section 8.8.3): a client that has a reply already is told so, and gets no body.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::base::tagged::TaggedJson;

/// A copy may be kept anywhere, and is shown only once the service has said that it is still right.
const PUBLIC: HeaderValue = HeaderValue::from_static("public, no-cache");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Tags of the replies that the client has (If-None-Match).
pub struct Held(HeaderMap);

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let mut held = HeaderMap::new();
        for tags in parts.headers.get_all(header::IF_NONE_MATCH) {
            held.append(header::IF_NONE_MATCH, tags.clone());
        }
        Ok(Self(held))
    }
}

impl Held {
    /// The reply with this body and its tag; without the body for a client that has it.
    pub fn reply(&self, body: &impl Serialize) -> Response {
        self.reply_with(&TaggedJson::new(body))
    }

    /// The same, for all users alike.
    pub fn public_reply(&self, body: &TaggedJson) -> Response {
        let mut reply = self.reply_with(body);
        reply.headers_mut().insert(header::CACHE_CONTROL, PUBLIC);
        reply
    }

    fn reply_with(&self, TaggedJson { body, tag }: &TaggedJson) -> Response {
        let is_held = tag.to_str().is_ok_and(|tag| is_held(&self.0, tag));
        let tag = (header::ETAG, tag.clone());
        match is_held {
            true => (StatusCode::NOT_MODIFIED, [tag]).into_response(),
            false => ([tag, (header::CONTENT_TYPE, JSON)], body.clone()).into_response(),
        }
    }
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
