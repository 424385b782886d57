//! Dead letters: claims that could not become orders, for an operator to discard or to retry.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::order::dead_letter::{Letter, Reason};
use crate::order::discard::Discarded;
use crate::recovery::retry::{Retried, Summary};
use crate::store::ids::{DeadLetterId, OrderId};

/// One dead letter, open or closed.
///
/// Includes the entry of the order log, or the bytes in its place.
#[utoipa::path(
    get, path = "/v1/dead-letters/{id}", operation_id = "getDeadLetter", tag = "dead letters", security(("operator" = [])),
    params(("id" = DeadLetterId, Path, description = "Id of the dead letter")),
    responses(
        (status = 200, description = "The dead letter", body = Letter),
    ),
    extensions(("x-problems" = json!(["dead_letter_not_found"]))),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(letter): Id<DeadLetterId>,
) -> Result<Json<Letter>, Problem> {
    app.dead_letters.get(letter).await?.map(Json).ok_or_else(not_found)
}

/// Discard a dead letter.
///
/// The claim becomes a cancelled order, and its unit returns to stock if it exists. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/discard", operation_id = "discardDeadLetter", tag = "dead letters", security(("operator" = [])),
    params(("id" = DeadLetterId, Path, description = "Id of the dead letter")),
    responses(
        (status = 204, description = "It is discarded: now or before"),
    ),
    extensions(("x-problems" = json!(["dead_letter_not_found", "order_id_taken"]))),
)]
pub async fn discard(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(letter): Id<DeadLetterId>,
) -> Result<StatusCode, Problem> {
    match app.dead_letters.discard(letter, &by.actor).await? {
        Discarded::Done => Ok(StatusCode::NO_CONTENT),
        Discarded::NotFound => Err(not_found()),
        Discarded::OrderIdTaken => {
            let detail = "another order has its order id; look at both before anything is changed";
            Err(Problem::of("order_id_taken", detail))
        }
    }
}

/// Dead letters to be discarded.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct DiscardAll {
    /// Only those with this reason.
    #[garde(skip)]
    reason: Reason,
}

/// Result of discarding many dead letters.
#[derive(Serialize, ToSchema)]
pub struct DiscardedLetters {
    /// Dead letters that are discarded.
    discarded: u64,
    /// Dead letters that stay, counted by the code of the reason.
    kept: BTreeMap<&'static str, u64>,
}

/// Discard all open dead letters of one reason.
///
/// A dead letter that can't be discarded holds up no other. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/discard", operation_id = "discardDeadLetters", tag = "dead letters", security(("operator" = [])),
    request_body = DiscardAll,
    responses(
        (status = 200, description = "How many are discarded, and why the others stay", body = DiscardedLetters),
    ),
)]
pub async fn discard_all(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Valid(DiscardAll { reason }): Valid<DiscardAll>,
) -> Result<Json<DiscardedLetters>, Problem> {
    let mut kept = app.dead_letters.discard_all(reason, &by.actor).await?;
    let discarded = kept.remove("discarded").unwrap_or_default();
    Ok(Json(DiscardedLetters { discarded, kept }))
}

/// A dead letter that is an order now.
#[derive(Serialize, ToSchema)]
pub struct BecameOrder {
    /// The order, under the id that was accepted.
    order_id: OrderId,
}

/// Retry a dead letter.
///
/// The letter becomes its order, under the id that was accepted. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/retry", operation_id = "retryDeadLetter", tag = "dead letters", security(("operator" = [])),
    params(("id" = DeadLetterId, Path, description = "Id of the dead letter")),
    responses(
        (status = 200, description = "It is an order: now or before", body = BecameOrder),
    ),
    extensions(("x-problems" = json!(["dead_letter_not_found", "superseded", "no_unit", "order_refused", "order_id_taken", "letter_unreadable", "sale_not_loaded", "dead_letter_closed", "recovering"]))),
)]
pub async fn retry(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(letter): Id<DeadLetterId>,
) -> Result<Json<BecameOrder>, Problem> {
    match app.retries.retry(letter, &by.actor).await? {
        Retried::Order(order_id) => Ok(Json(BecameOrder { order_id })),
        Retried::NotFound => Err(not_found()),
        Retried::Kept(kept) => Err(Problem::of(kept.code(), kept.to_string())),
    }
}

/// Dead letters to be retried.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct RetryAll {
    /// Only those with this reason; all if not given.
    #[serde(default)]
    #[garde(skip)]
    reason: Option<Reason>,
}

/// Result of retrying many dead letters.
#[derive(Serialize, ToSchema)]
pub struct RetriedLetters {
    /// Dead letters that are orders now.
    orders: u64,
    /// Dead letters that stay, counted by the code of the reason.
    kept: BTreeMap<&'static str, u64>,
}

/// Retry all open dead letters, or those with one reason.
///
/// A dead letter that can't become an order holds up no other. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/dead-letters/retry", operation_id = "retryDeadLetters", tag = "dead letters", security(("operator" = [])),
    request_body = RetryAll,
    responses(
        (status = 200, description = "How many became orders, and why the others stay", body = RetriedLetters),
    ),
    extensions(("x-problems" = json!(["recovering"]))),
)]
pub async fn retry_all(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Valid(RetryAll { reason }): Valid<RetryAll>,
) -> Result<Json<RetriedLetters>, Problem> {
    let Summary { orders, kept } = app.retries.retry_all(reason, &by.actor).await?;
    Ok(Json(RetriedLetters { orders, kept }))
}

fn not_found() -> Problem {
    Problem::of("dead_letter_not_found", "there is no dead letter with this id")
}
