//! Comparisons of Redis with Postgres, for administrators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::extract::{Id, Params, Valid};
use crate::http::page::{Page, cut_page};
use crate::http::problem::Problem;
use crate::sale::ids::RunId;
use crate::sale::reconcile::runs::{AskedBy, Run};

/// Options of a comparison.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Whether to repair what can be repaired while the service runs.
    #[garde(skip)]
    repair: bool,
}

/// A page of comparisons, newest first.
#[derive(Serialize, ToSchema)]
pub struct RunPage {
    runs: Vec<Run>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<RunId>,
}

/// Compare Redis with Postgres now. A comparison with bad findings is a 200, too.
#[utoipa::path(
    post, path = "/v1/reconcile", tag = "operations", security(("token" = [])),
    request_body = Comparison,
    responses(
        (status = 200, description = "What was found and, if asked for, repaired", body = Run),
        (status = 202, description = "It takes longer; its record will tell", body = Run, headers(("Location" = String))),
        (status = 400, description = "`malformed_json`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 413, description = "`body_too_large`"),
        (status = 415, description = "`unsupported_media_type`"),
        (status = 422, description = "`invalid_body`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn compare(
    State(app): State<Arc<App>>,
    _: Admin,
    Valid(asked): Valid<Comparison>,
) -> Result<Response, Problem> {
    let run = app.reconciler.ask(AskedBy::Api, asked.repair).await?;
    if run.finished_at.is_some() {
        return Ok(Json(run).into_response());
    }
    let location = format!("/v1/reconcile/runs/{}", run.run_id);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(run)).into_response())
}

/// Comparisons with their findings, newest first.
#[utoipa::path(
    get, path = "/v1/reconcile/runs", tag = "operations", params(Page<RunId>), security(("token" = [])),
    responses(
        (status = 200, description = "A page of comparisons", body = RunPage),
        (status = 400, description = "`invalid_query`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(page): Params<Page<RunId>>,
) -> Result<Json<RunPage>, Problem> {
    let limit = page.limit(limits::PAGE_RUNS_MAX)?;
    let found = app.reconciler.list(page.cursor, limit + 1).await?;
    let (runs, next_cursor) = cut_page(found, limit, |run| run.run_id);
    Ok(Json(RunPage { runs, next_cursor }))
}

/// One comparison with its findings.
#[utoipa::path(
    get, path = "/v1/reconcile/runs/{id}", tag = "operations", security(("token" = [])),
    params(("id" = String, Path, description = "Comparison")),
    responses(
        (status = 200, description = "The comparison; `finished_at` is null while it runs", body = Run),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`run_not_found`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(run): Id<RunId>,
) -> Result<Json<Run>, Problem> {
    let not_found = || Problem::not_found("run_not_found", "there is no such comparison");
    app.reconciler.get(run).await?.map(Json).ok_or_else(not_found)
}
