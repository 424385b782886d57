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

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use private_servers::testing::bound_this_test;
    use secrecy::SecretString;
    use serde_json::json;

    use super::*;
    use crate::sale::ids::OrderId;

    /// The body of a reply as it is written for a client, with its headers.
    async fn written(
        mut reply: Response,
        ids: &PublicIds,
        is_read: bool,
    ) -> (Response<()>, String) {
        write(&mut reply, ids, is_read);
        let (parts, body) = reply.into_parts();
        let body = to_bytes(body, 1_000).await.expect("it is in memory");
        (Response::from_parts(parts, ()), String::from_utf8(body.to_vec()).expect("JSON"))
    }

    #[tokio::test]
    async fn a_json_reply_is_written_at_the_door_and_reads_get_a_tag() {
        bound_this_test();
        let plain = PublicIds::plain();
        for (status, is_read, has_tag) in [
            (StatusCode::OK, true, true),
            (StatusCode::OK, false, false),
            (StatusCode::CREATED, true, false),
        ] {
            let mut reply = (status, Json(json!({"a": 1}))).into_response();
            // As axum counts the bytes of the empty body.
            reply.headers_mut().insert(header::CONTENT_LENGTH, 0.into());
            let (reply, body) = written(reply, &plain, is_read).await;
            assert_eq!(body, r#"{"a":1}"#);
            let headers = reply.headers();
            assert_eq!(headers[header::CONTENT_TYPE], "application/json");
            assert!(!headers.contains_key(header::CONTENT_LENGTH), "{headers:?}");
            let tag = has_tag.then(|| tag_of("", body.as_bytes()));
            assert_eq!(headers.get(header::ETAG), tag.as_ref(), "{status} {is_read}");
        }
    }

    #[tokio::test]
    async fn order_ids_leave_in_their_form_outside() {
        bound_this_test();
        let order = OrderId::new(1_024).expect("an id");
        let keyed = PublicIds::keyed(&SecretString::from("a key that is only good for tests"));
        for ids in [PublicIds::plain(), keyed] {
            let reply = Json(OfOrder { order_id: order }).into_response();
            let (_, body) = written(reply, &ids, true).await;
            assert_eq!(body, format!(r#"{{"order_id":"{}"}}"#, ids.public(order)));
        }
    }

    #[derive(Serialize)]
    struct OfOrder {
        order_id: OrderId,
    }

    /// A body that is written already stays as it is.
    #[tokio::test]
    async fn other_replies_are_left_alone() {
        bound_this_test();
        let reply = ([(header::CONTENT_LENGTH, "2")], "ok").into_response();
        let (reply, body) = written(reply, &PublicIds::plain(), true).await;
        assert_eq!(body, "ok");
        assert_eq!(reply.headers()[header::CONTENT_LENGTH], "2");
        assert!(!reply.headers().contains_key(header::ETAG));
    }

    #[tokio::test]
    async fn a_reply_about_work_that_goes_on_tells_when_to_ask() {
        bound_this_test();
        let reply = accepted(Json(Unfinished::new(json!({"job_id": "4"}))));
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()[header::RETRY_AFTER]),
            (202, &A_SECOND)
        );
        let (_, body) = written(reply, &PublicIds::plain(), false).await;
        assert_eq!(body, r#"{"job_id":"4","retry_after_ms":1000}"#);
    }
}
