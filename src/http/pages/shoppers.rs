//! Tokens for the shoppers of a demo: each browser is a user of its own, for as long as its token lasts. Only `demo`
//! serves this, on loopback, with the guards of `here.rs`.

use std::sync::atomic::{AtomicI64, Ordering};

use axum::extract::State;
use chrono::TimeDelta;
use serde::Serialize;

use super::here::{Here, demo};
use crate::base::limits;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::http::state::HttpState;
use crate::kit::jwt::Grants;

/// A user id that no shopper has had: the time in ms, or the last id plus one if that is higher.
fn next(last: &AtomicI64, now_ms: i64) -> i64 {
    let next = |last: i64| now_ms.max(last + 1);
    let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    next(before.unwrap_or_else(|last| last))
}

#[derive(Serialize)]
pub struct Shopper {
    /// The user, as a string like every id.
    user_id: String,
    token: String,
}

/// Makes a new shopper, with a token.
pub async fn enter(Here(_): Here, State(http): State<HttpState>) -> Result<Json<Shopper>, Problem> {
    let last = &demo(&http)?.newest_shopper;
    let now = http.app().clock.now();
    let subject = next(last, now.timestamp_millis());
    let until = now + TimeDelta::from_std(limits::SHOPPER_TOKEN_TIME).unwrap_or_default();
    let token = http.front().tokens.issue(Grants::user(subject), until);
    Ok(Json(Shopper { user_id: subject.to_string(), token }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_shoppers_are_one_user() {
        let last = AtomicI64::default();
        assert_eq!([5, 5, 3, 9].map(|now_ms| next(&last, now_ms)), [5, 6, 7, 9]);
    }
}
