//! Postponed items, for operators: passes could not deal with them, and try them again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::extract::Id;
use crate::http::frame::reply::Json;
use crate::http::page::{List, PageParams};
use crate::http::problem::Problem;
use crate::sale::ids::PostponedId;
use crate::sale::pass::Pass;
use crate::sale::postponed::PostponedItem;

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only what this pass has postponed; all passes if not given.
    #[param(inline, nullable = false)]
    pass: Option<Pass>,
}

/// A page of postponed items, newest first.
#[derive(Serialize, ToSchema)]
pub struct PostponedPage {
    postponed: Vec<PostponedItem>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<PostponedId>,
}

/// Postponed items, newest first.
///
/// Each with its last error and its remedy.
#[utoipa::path(
    get, path = "/v1/postponed", operation_id = "listPostponed", tag = "operations", params(Filter, PageParams<PostponedId>), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of postponed items", body = PostponedPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    List(asked, page): List<Filter, PostponedId>,
) -> Result<Json<PostponedPage>, Problem> {
    let found = app.postponed.list(asked.pass, page.cursor, page.look()).await?;
    let (postponed, next_cursor) = page.cut(found, |item| item.id);
    Ok(Json(PostponedPage { postponed, next_cursor }))
}

/// Have a postponed item tried again.
///
/// By the next run of its pass. Safe to repeat.
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
