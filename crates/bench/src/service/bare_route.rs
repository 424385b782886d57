//! A bare axum route: the least that any route costs with this library, in a process of the bench's own.
//!
//! No layer, no token, no state, and the accept loop of axum. The answer is that of the service's `src/http/no_op.rs`,
//! byte for byte but for the request id; so the difference between the two is the frame of a request and its token.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;

use super::target::NO_OP;

const BODY: &str =
    r#"{"order_id":"none","coupon_id":"none","status":"nothing was done, and nothing is stored"}"#;

/// Serves the route until the process is ended.
pub async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // The keeper waits for this line.
    eprintln!("the API listens on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().route(NO_OP, post(answer))).await?)
}

async fn answer() -> Response {
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], BODY).into_response()
}
