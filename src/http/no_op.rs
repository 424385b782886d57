//! The upper bound: a route that costs what a claim costs around the claim itself. Off by default.
//!
//! A request passes the same middleware and the same check of its token, and gets a constant body about as long as that
//! of an accepted claim. What a claim costs beyond this is the cost of the sale.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::auth::User;

pub const PATH: &str = super::contract::paths::NO_OP;

const BODY: &str =
    r#"{"order_id":"none","coupon_id":"none","status":"nothing was done, and nothing is stored"}"#;

/// Verifies the token, and does nothing.
pub async fn no_op(User(_): User) -> Response {
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], BODY).into_response()
}
