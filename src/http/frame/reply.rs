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

/// A value whose work goes on, and when to ask for it again.
#[derive(Serialize, ToSchema)]
pub struct Unfinished<T> {
    #[serde(flatten)]
    value: T,
    /// Milliseconds after which to ask again.
    #[schema(minimum = 0)]
    retry_after_ms: u64,
}

impl<T> Unfinished<T> {
    /// The value as it is now.
    pub fn new(value: T) -> Self {
        let ms = limits::WORK_POLL_PAUSE.as_millis();
        Self { value, retry_after_ms: u64::try_from(ms).unwrap_or(u64::MAX) }
    }
}

/// `Retry-After` of a 202: the shortest time that the header can express.
pub const A_SECOND: HeaderValue = HeaderValue::from_static("1");

/// Makes a 202 of a reply whose body is an [`Unfinished`] value.
pub fn accepted(reply: impl IntoResponse) -> Response {
    let mut reply = reply.into_response();
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply.headers_mut().insert(header::RETRY_AFTER, A_SECOND);
    reply
}
