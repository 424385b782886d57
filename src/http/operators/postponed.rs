//! Postponed items, for operators. A job could not deal with them, and will try them again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::extract::Id;
use crate::http::problem::Problem;
use crate::store::ids::PostponedId;

/// Retry a postponed item.
///
/// The next run of its job tries it. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/postponed/{id}/retry", operation_id = "retryPostponed", tag = "operations", security(("operator" = [])),
    params(("id" = PostponedId, Path, description = "Id of the postponed item, as in the list")),
    responses(
        (status = 204, description = "It is due now"),
    ),
    extensions(("x-problems" = json!(["postponed_not_found"]))),
)]
pub async fn retry(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(item): Id<PostponedId>,
) -> Result<StatusCode, Problem> {
    if app.postponed.retry(item, &by.actor).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "nothing is postponed under this id; it may have been dealt with";
    Err(Problem::of("postponed_not_found", detail))
}
