//! JSON replies. A handler hands over a value, and the door writes it: so there is one place where order ids leave.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

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

/// Writes the body of a reply, if it has one that is yet to be written.
pub fn write(response: &mut Response, ids: &PublicIds) {
    if let Some(Unwritten(body)) = response.extensions_mut().remove() {
        *response.body_mut() = body(ids).into();
        // axum has counted the bytes of the empty body.
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}
