//! Entity tags (RFC 9110, section 8.8.3): a client that has a reply already is told so, and gets no body.

use std::convert::Infallible;

use aws_lc_rs::digest;
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

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
        let body = to_raw_value(body).expect("a reply can be written as JSON");
        let tag = tag(&body);
        let about = [(header::ETAG, HeaderValue::try_from(&tag).expect("digits and letters"))];
        match is_held(&self.0, &tag) {
            true => (StatusCode::NOT_MODIFIED, about).into_response(),
            false => (about, Json(body)).into_response(),
        }
    }
}

/// Strong: another byte is another tag.
fn tag(body: &RawValue) -> String {
    let digest = digest::digest(&digest::SHA256, body.get().as_bytes());
    let (half, _) = digest.as_ref().split_at(16);
    let digits: String = half.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
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
