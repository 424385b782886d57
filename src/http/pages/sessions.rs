//! How the administrator gets into the pages of a demo: the code in a printed link is exchanged for a token, once. Only
//! `demo` serves this, on loopback, with the guards of `here.rs`. The code stands behind the `#` of the link, which
//! browsers don't send to a server, so no log shows it.

use axum::extract::State;
use chrono::TimeDelta;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::here::{Here, demo};
use crate::base::limits;
use crate::http::extract::Valid;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::http::state::HttpState;
use crate::kit::jwt::Grants;

/// Subject of the administrators of a demo.
const ADMINISTRATOR: i64 = 1;

/// The code in a printed link.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The letters behind `#code=`.
    #[garde(length(max = 100))]
    #[schema(max_length = 100)]
    code: String,
}

#[derive(Serialize)]
pub struct Session {
    token: String,
}

/// Exchanges a code for an administrator's token.
pub async fn enter(
    Here(_): Here,
    State(http): State<HttpState>,
    Valid(entry): Valid<Entry>,
) -> Result<Json<Session>, Problem> {
    if !demo(&http)?.take_code(&entry.code) {
        let detail = "this link has been used, or is of an earlier start: start the demo again, and open the link that it prints";
        return Err(Problem::of("invalid_code", detail));
    }
    let until = http.app().clock.now()
        + TimeDelta::from_std(limits::SESSION_TOKEN_TIME).unwrap_or_default();
    let grants = Grants::administrator(ADMINISTRATOR);
    Ok(Json(Session { token: http.front().tokens.issue(grants, until) }))
}
