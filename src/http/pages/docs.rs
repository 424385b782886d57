//! Swagger UI: its page and files, which are embedded compressed, as each client takes them.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use flate2::read::GzDecoder;
use serde_json::Value;
use utoipa_swagger_ui::SwaggerUi;

use super::files::takes_gzip;
use crate::http::state::HttpState;

/// `/docs`, about the document, which is served at this path.
pub fn routes(path: &'static str, document: Value) -> Router<HttpState> {
    let ui = SwaggerUi::new("/docs").external_url_unchecked(path, document);
    Router::from(ui).layer(from_fn_with_state(Made::default(), as_taken))
}

/// Files that have been asked for. Each is made once, and all clients share its bytes.
type Made = Arc<Mutex<HashMap<String, Arc<File>>>>;

/// More than there are.
const FILES_MAX: usize = 64;

struct File {
    headers: HeaderMap,
    /// As it is embedded, if that is compressed.
    packed: Option<Bytes>,
    plain: Bytes,
}

async fn as_taken(State(made): State<Made>, request: Request, next: Next) -> Response {
    let takes_gzip = takes_gzip(request.headers());
    let is_read = request.method() == Method::GET;
    let path = request.uri().path().to_owned();
    let known = made.lock().ok().and_then(|made| made.get(&path).cloned());
    if let Some(file) = known.filter(|_| is_read) {
        return file.reply(takes_gzip);
    }
    let mut reply = next.run(request).await;
    if reply.status() != StatusCode::OK {
        return reply;
    }
    if !is_read {
        // A reply to HEAD has nothing to unpack.
        if !takes_gzip {
            reply.headers_mut().remove(header::CONTENT_ENCODING);
            reply.headers_mut().remove(header::CONTENT_LENGTH);
        }
        return reply;
    }
    let file = Arc::new(File::of(reply).await);
    if let Ok(mut made) = made.lock()
        && made.len() < FILES_MAX
    {
        made.insert(path, file.clone());
    }
    file.reply(takes_gzip)
}

impl File {
    async fn of(reply: Response) -> Self {
        let (parts, body) = reply.into_parts();
        let mut headers = parts.headers;
        headers.remove(header::CONTENT_LENGTH);
        let bytes = to_bytes(body, usize::MAX).await.expect("the file is in memory");
        if headers.remove(header::CONTENT_ENCODING).is_none_or(|coding| coding != "gzip") {
            return Self { headers, packed: None, plain: bytes };
        }
        headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
        let mut plain = Vec::new();
        GzDecoder::new(&*bytes).read_to_end(&mut plain).expect("the build has packed it");
        Self { headers, packed: Some(bytes), plain: plain.into() }
    }

    fn reply(&self, takes_gzip: bool) -> Response {
        let packed = self.packed.as_ref().filter(|_| takes_gzip);
        let mut reply = Response::new(Body::from(packed.unwrap_or(&self.plain).clone()));
        *reply.headers_mut() = self.headers.clone();
        if packed.is_some() {
            let coding = HeaderValue::from_static("gzip");
            reply.headers_mut().insert(header::CONTENT_ENCODING, coding);
        }
        reply
    }
}
