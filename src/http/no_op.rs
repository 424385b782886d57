//! The ceiling: a route that costs as much as a claim without the claim itself, off by default.
//!
//! A request passes the same middleware and the same verification of its token, and is answered with a constant body
//! of about the length of an accepted claim's. The further cost of a claim is the sale's.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::auth::User;

/// Path of the route.
pub const PATH: &str = super::contract::paths::NO_OP;

const BODY: &str =
    r#"{"order_id":"none","coupon_id":"none","status":"nothing was done, and nothing is stored"}"#;

/// Verifies the token, and does nothing.
pub async fn no_op(User(_): User) -> Response {
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], BODY).into_response()
}
