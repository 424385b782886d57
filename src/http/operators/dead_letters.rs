//! Dead letters: log entries that could not become orders, for an operator to discard.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::extract::{Id, Params};
use crate::http::page::{Page, cut_page};
use crate::http::problem::Problem;
use crate::sale::ids::DeadLetterId;
use crate::sale::order::dead_letter::OpenLetter;
use crate::sale::order::discard::Discarded;

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
        Discarded::NotFound => {
            Err(Problem::not_found("dead_letter_not_found", "there is no dead letter with this id"))
        }
        Discarded::OrderIdTaken => {
            let detail = "another order has its order id; look at both before anything is changed";
            Err(Problem::new(StatusCode::CONFLICT, "order_id_taken", detail))
        }
    }
}
