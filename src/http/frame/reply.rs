//! JSON replies, and the tags of those to reads.

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::base::limits;
use crate::kit::tagged::tag_of;

/// A value as the JSON body of a reply.
pub struct Json<T>(pub T);

/// The bytes of a JSON body, for its tag.
#[derive(Clone)]
struct Written(Bytes);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).expect("a reply can be written as JSON");
        let body = Bytes::from(body);
        let mut response = ([(header::CONTENT_TYPE, JSON)], body.clone()).into_response();
        response.extensions_mut().insert(Written(body));
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

/// Gives the reply to a read its tag.
pub fn tag(response: &mut Response) {
    if response.status() != StatusCode::OK {
        return;
    }
    if let Some(Written(body)) = response.extensions_mut().remove() {
        response.headers_mut().insert(header::ETAG, tag_of("", &body));
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use private_servers::testing::bound_this_test;
    use serde_json::json;

    use super::*;

    async fn body_of(reply: Response) -> String {
        let body = to_bytes(reply.into_body(), 1_000).await.expect("it is in memory");
        String::from_utf8(body.to_vec()).expect("JSON")
    }

    #[tokio::test]
    async fn a_reply_of_200_in_json_gets_a_tag() {
        bound_this_test();
        for (reply, has_tag) in [
            (Json(json!({"a": 1})).into_response(), true),
            ((StatusCode::CREATED, Json(json!({"a": 1}))).into_response(), false),
            (r#"{"a":1}"#.into_response(), false),
        ] {
            let (mut reply, expected) = (reply, r#"{"a":1}"#);
            tag(&mut reply);
            let expected_tag = has_tag.then(|| tag_of("", expected.as_bytes()));
            assert_eq!(reply.headers().get(header::ETAG), expected_tag.as_ref());
            assert_eq!(body_of(reply).await, expected);
        }
    }

    #[tokio::test]
    async fn a_reply_about_work_that_goes_on_tells_when_to_ask() {
        bound_this_test();
        let reply = accepted(Json(Unfinished::new(json!({"job_id": "4"}))));
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()[header::RETRY_AFTER]),
            (202, &A_SECOND)
        );
        assert_eq!(reply.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(body_of(reply).await, r#"{"job_id":"4","retry_after_ms":1000}"#);
    }
}
