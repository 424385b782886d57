//! Tokens for the shoppers of a demo: each browser tab is a user of its own. Only `demo` serves this, on loopback.
//!
//! Two guards keep other sites out, which can send a browser on this machine here. The request has to name this service
//! by a loopback name, so a site whose own name leads to loopback is refused; and it may not come from a page of another
//! site (`CsrfLayer`).

use std::sync::atomic::{AtomicI64, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use chrono::TimeDelta;
use serde::Serialize;

use crate::base::limits;
use crate::http::problem::Problem;
use crate::http::state::HttpState;
use crate::kit::jwt::Grants;

/// Names that mean this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A user that no shopper has been: the time in ms, or the number behind that of the last one.
fn next(last: &AtomicI64, now_ms: i64) -> i64 {
    let next = |last: i64| now_ms.max(last + 1);
    let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    next(before.unwrap_or_else(|last| last))
}

/// A new shopper.
#[derive(Serialize)]
pub struct Shopper {
    /// The user, as a string like every id.
    user_id: String,
    /// The user's token.
    token: String,
}

/// Lets a new shopper in.
pub async fn enter(
    State(http): State<HttpState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Shopper>, Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !is_loopback(uri.authority().map(Authority::as_str).or(host)) {
        let detail =
            "ask for this at http://localhost or http://127.0.0.1, with the port of the demo";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", detail));
    }
    let Some(last) = &http.front().shoppers else {
        return Err(Problem::not_found("not_found", "only the demo lets shoppers in"));
    };
    let now = http.app().clock.now();
    let subject = next(last, now.timestamp_millis());
    let until = now + TimeDelta::from_std(limits::SHOPPER_TOKEN_TIME).unwrap_or_default();
    let token = http.front().tokens.issue(Grants::user(subject), until);
    Ok(Json(Shopper { user_id: subject.to_string(), token }))
}

fn is_loopback(host: Option<&str>) -> bool {
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| LOOPBACK.contains(&authority.host()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_taken() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"] {
            assert!(is_loopback(Some(host)), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org:8080",
            "127.0.0.1.example.org",
            "10.0.0.1:8080",
        ] {
            assert!(!is_loopback(Some(host)), "{host}");
        }
        assert!(!is_loopback(None));
    }

    #[test]
    fn no_two_shoppers_are_one_user() {
        let last = AtomicI64::default();
        assert_eq!([5, 5, 3, 9].map(|now_ms| next(&last, now_ms)), [5, 6, 7, 9]);
    }
}
