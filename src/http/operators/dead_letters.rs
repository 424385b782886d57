//! Dead letters: log entries that could not become orders, for an operator to discard or to try again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::extract::{Id, Params, Valid};
use crate::http::page::{Page, cut_page};
use crate::http::problem::Problem;
use crate::sale::ids::{DeadLetterId, OrderId};
use crate::sale::order::dead_letter::{OpenLetter, Reason};
use crate::sale::order::discard::Discarded;
use crate::sale::recovery::retry::{Retried, Summary};

/// A page of dead letters, newest first.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterPage {
    dead_letters: Vec<OpenLetter>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<DeadLetterId>,
}

/// Open dead letters, newest first.
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead letters", params(Page<DeadLetterId>), security(("token" = [])),
    responses(
        (status = 200, description = "A page of dead letters", body = DeadLetterPage),
        (status = 400, description = "`invalid_query`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(page): Params<Page<DeadLetterId>>,
) -> Result<Json<DeadLetterPage>, Problem> {
    let limit = page.limit(limits::PAGE_DEAD_LETTERS_MAX)?;
    let found = app.dead_letters.list(page.cursor, limit + 1).await?;
    let (dead_letters, next_cursor) = cut_page(found, limit, |letter| letter.id);
    Ok(Json(DeadLetterPage { dead_letters, next_cursor }))
}

/// Discard a dead letter: its order becomes a cancelled one, and its unit comes back if it exists. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/discard", tag = "dead letters", security(("token" = [])),
    params(("id" = String, Path, description = "Dead letter")),
    responses(
        (status = 204, description = "It is discarded: now or before"),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`dead_letter_not_found`"),
        (status = 409, description = "`order_id_taken`: its order id belongs to another order, so it can't become one"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn discard(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(letter): Id<DeadLetterId>,
) -> Result<StatusCode, Problem> {
    match app.dead_letters.discard(letter).await? {
        Discarded::Done => Ok(StatusCode::NO_CONTENT),
        Discarded::NotFound => Err(not_found()),
        Discarded::OrderIdTaken => {
            let detail = "another order has its order id; look at both before anything is changed";
            Err(Problem::new(StatusCode::CONFLICT, "order_id_taken", detail))
        }
    }
}

/// A dead letter that is an order now.
#[derive(Serialize, ToSchema)]
pub struct BecameOrder {
    /// The order, under the id that was promised.
    order_id: OrderId,
}

/// Try a dead letter again: it becomes its order, under the id that was promised. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/retry", tag = "dead letters", security(("token" = [])),
    params(("id" = String, Path, description = "Dead letter")),
    responses(
        (status = 200, description = "It is an order: now or before", body = BecameOrder),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`dead_letter_not_found`"),
        (status = 409, description = "It stays: `superseded` (the user claimed again later), `no_unit`, `order_refused` (by Postgres, the detail says why), `order_id_taken`, `letter_unreadable`, `sale_not_loaded` or `dead_letter_closed`"),
        (status = 503, description = "`unavailable`, or `recovering` (with Retry-After)"),
    ),
)]
pub async fn retry(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(letter): Id<DeadLetterId>,
) -> Result<Json<BecameOrder>, Problem> {
    match app.retries.retry(letter).await? {
        Retried::Order(order_id) => Ok(Json(BecameOrder { order_id })),
        Retried::NotFound => Err(not_found()),
        Retried::Kept(kept) => {
            Err(Problem::new(StatusCode::CONFLICT, kept.code(), kept.to_string()))
        }
    }
}

/// Dead letters to be tried again.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct RetryAll {
    /// Only those of this reason; all without it.
    #[serde(default)]
    #[garde(skip)]
    reason: Option<Reason>,
}

/// Result of a retry of many dead letters.
#[derive(Serialize, ToSchema)]
pub struct RetriedLetters {
    /// Dead letters that are orders now.
    orders: u64,
    /// Dead letters that stay, by the code of the reason.
    kept: BTreeMap<&'static str, u64>,
}

/// Try all open dead letters again, or those of one reason; one that stays holds up no other. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/retry", tag = "dead letters", security(("token" = [])),
    request_body = RetryAll,
    responses(
        (status = 200, description = "How many became orders, and why the others stay", body = RetriedLetters),
        (status = 400, description = "`malformed_json`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 413, description = "`body_too_large`"),
        (status = 415, description = "`unsupported_media_type`"),
        (status = 422, description = "`invalid_body`"),
        (status = 503, description = "`unavailable`: ask again, those before are done"),
    ),
)]
pub async fn retry_all(
    State(app): State<Arc<App>>,
    _: Admin,
    Valid(RetryAll { reason }): Valid<RetryAll>,
) -> Result<Json<RetriedLetters>, Problem> {
    let Summary { orders, kept } = app.retries.retry_all(reason).await?;
    Ok(Json(RetriedLetters { orders, kept }))
}

fn not_found() -> Problem {
    Problem::not_found("dead_letter_not_found", "there is no dead letter with this id")
}
