//! The ceiling: a route that costs what every claim costs apart from the claim itself. It is off by default.
//!
//! A request passes the same middleware and the same verification of its token, and is answered with a
//! constant body of about the length of an accepted claim's. What a claim costs more is the sale's doing.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::auth::User;

/// Where it is.
pub const PATH: &str = "/v1/no-op";

const BODY: &str =
    r#"{"order_id":"none","coupon_id":"none","status":"nothing was done, and nothing is stored"}"#;

/// Verifies the token, and does nothing.
pub async fn no_op(User(_): User) -> Response {
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], BODY).into_response()
}
