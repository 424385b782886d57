//! Swagger UI: its page and files, which are embedded compressed, as each client takes them.

use std::io::Read;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use flate2::read::GzDecoder;
use serde_json::Value;
use utoipa_swagger_ui::SwaggerUi;

use super::files::takes_gzip;
use crate::http::state::HttpState;

/// `/docs`, about the document, which is served at this path.
pub fn routes(path: &'static str, document: Value) -> Router<HttpState> {
    let ui = SwaggerUi::new("/docs").external_url_unchecked(path, document);
    Router::from(ui).layer(from_fn(as_taken))
}

/// Unpacks a file for a client that doesn't take it packed. A reply to HEAD has nothing to unpack.
async fn as_taken(request: Request, next: Next) -> Response {
    let takes_gzip = takes_gzip(request.headers());
    let mut reply = next.run(request).await;
    let coding = reply.headers().get(header::CONTENT_ENCODING);
    if coding.is_none_or(|coding| coding != "gzip") {
        return reply;
    }
    reply.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if takes_gzip {
        return reply;
    }
    let (mut parts, body) = reply.into_parts();
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    let packed = to_bytes(body, usize::MAX).await.expect("the file is in memory");
    let mut plain = Vec::new();
    if !packed.is_empty() {
        GzDecoder::new(&*packed).read_to_end(&mut plain).expect("the build has packed it");
    }
    Response::from_parts(parts, Body::from(plain))
}
