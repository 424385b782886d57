//! Postponed items, for administrators: passes could not deal with them and try them again.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::extract::{Id, Params};
use crate::http::page::{cut_page, page_limit};
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
    #[param(inline)]
    pass: Option<Pass>,
    /// `next_cursor` of the page before; nothing for the first.
    cursor: Option<PostponedId>,
    /// Items on a page, 1 to 100; 20 if not given.
    limit: Option<u32>,
}

/// A page of postponed items, newest first.
#[derive(Serialize, ToSchema)]
pub struct PostponedPage {
    postponed: Vec<PostponedItem>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<PostponedId>,
}

/// Postponed items, newest first, each with its remedy.
#[utoipa::path(
    get, path = "/v1/postponed", tag = "operations", params(Filter), security(("token" = [])),
    responses(
        (status = 200, description = "A page of postponed items", body = PostponedPage),
        (status = 400, description = "`invalid_query`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(filter): Params<Filter>,
) -> Result<Json<PostponedPage>, Problem> {
    let limit = page_limit(filter.limit, limits::PAGE_POSTPONED_MAX)?;
    let found = app.postponed.list(filter.pass, filter.cursor, limit + 1).await?;
    let (postponed, next_cursor) = cut_page(found, limit, |item| item.id);
    Ok(Json(PostponedPage { postponed, next_cursor }))
}

/// Have a postponed item tried again by the next run of its pass. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/postponed/{id}/retry", tag = "operations", security(("token" = [])),
    params(("id" = String, Path, description = "Postponed item, by the id in the list")),
    responses(
        (status = 204, description = "It is due now"),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`postponed_not_found`: it has been dealt with, or never was postponed"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn retry(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(item): Id<PostponedId>,
) -> Result<StatusCode, Problem> {
    if app.postponed.retry(item).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "nothing is postponed under this id; it may have been dealt with";
    Err(Problem::not_found("postponed_not_found", detail))
}
