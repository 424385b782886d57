//! JSON replies. A handler hands over a value, and the door writes it: so there is one place where order ids leave.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::base::limits;
use crate::kit::tagged::tag_of;
use crate::sale::ids::public::PublicIds;

/// A value as the JSON body of a reply.
pub struct Json<T>(pub T);

/// A body that has yet to be written.
#[derive(Clone)]
struct Unwritten(Arc<Written>);

/// The bytes of a body, by the ids outside.
type Written = dyn Fn(&PublicIds) -> Vec<u8> + Send + Sync;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl<T: Serialize + Send + Sync + 'static> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
        let body = Unwritten(Arc::new(move |ids| {
            serde_json::to_vec(&ids.outside(&self.0)).expect("a reply can be written as JSON")
        }));
        response.extensions_mut().insert(body);
        response
    }
}

/// A value that work goes on for, with the time to ask for it again.
#[derive(Serialize)]
pub struct Unfinished<T> {
    #[serde(flatten)]
    value: T,
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

/// Writes the body of a reply, if it has one that is yet to be written; the reply to a read gets its tag.
pub fn write(response: &mut Response, ids: &PublicIds, is_read: bool) {
    let Some(Unwritten(body)) = response.extensions_mut().remove() else { return };
    let body = body(ids);
    // axum has counted the bytes of the empty body.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    if is_read && response.status() == StatusCode::OK {
        response.headers_mut().insert(header::ETAG, tag_of("", &body));
    }
    *response.body_mut() = body.into();
}
