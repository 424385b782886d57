//! JSON replies.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::limits;
use crate::http::tags;
use crate::kit::tagged::TaggedJson;

/// A value as the JSON body of a reply, with its tag.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        tags::tagged(&TaggedJson::new(&self.0))
    }
}

/// A value that work goes on for, with the time to ask for it again.
#[derive(Serialize, ToSchema)]
pub struct Unfinished<T> {
    #[serde(flatten)]
    value: T,
    /// Milliseconds after which to ask again.
    #[schema(minimum = 0)]
    retry_after_ms: u64,
}

impl<T> Unfinished<T> {
    /// The value, as far as the work has come.
    pub fn new(value: T) -> Self {
        let ms = limits::WORK_POLL_PAUSE.as_millis();
        Self { value, retry_after_ms: u64::try_from(ms).unwrap_or(u64::MAX) }
    }
}

/// Seconds of a 202 in Retry-After: the shortest time that can be said.
pub const A_SECOND: HeaderValue = HeaderValue::from_static("1");

/// The reply to a request whose work goes on, made of its body, an [`Unfinished`] value, and headers of its own.
pub fn accepted(reply: impl IntoResponse) -> Response {
    let mut reply = reply.into_response();
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply.headers_mut().insert(header::RETRY_AFTER, A_SECOND);
    reply
}
