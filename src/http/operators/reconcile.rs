//! Comparisons of Redis with Postgres, for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::extract::Id;
use crate::http::frame::reply::{Json, Unfinished, accepted};
use crate::http::page::{All, List, PageParams};
use crate::http::problem::Problem;
use crate::recovery::reconcile::job::Asked;
use crate::recovery::reconcile::runs::Run;
use crate::store::ids::RunId;

/// A page of comparisons, newest first.
#[derive(Serialize, ToSchema)]
pub struct RunPage {
    runs: Vec<Run>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<RunId>,
}

/// Compare Redis with Postgres now.
///
/// The reply is 200 even if the stores disagree. The comparison puts right what needs no decision; compare again to see
/// the result. Safe to repeat. Only one comparison runs at a time, among all processes: another request waits for 2 s
/// and is then refused.
#[utoipa::path(
    post, path = "/v1/reconcile", operation_id = "compareStores", tag = "operations", security(("operator" = [])),
    responses(
        (status = 200, description = "What was found", body = Run),
        (status = 202, description = "It takes longer; its record will tell", body = Unfinished<Run>, headers(("Location" = String))),
    ),
    extensions(("x-problems" = json!(["comparison_running"]))),
)]
pub async fn compare(State(app): State<Arc<App>>, _: Operator) -> Result<Response, Problem> {
    let run = match app.reconciler.ask().await? {
        Asked::Compared(run) => run,
        Asked::Busy(run) => return Err(comparison_running(run)),
    };
    if run.finished_at.is_some() {
        return Ok(Json(run).into_response());
    }
    let location = format!("/v1/reconcile/runs/{}", run.run_id);
    Ok(accepted(([(header::LOCATION, location)], Json(Unfinished::new(run)))))
}

fn comparison_running(run: Option<RunId>) -> Problem {
    let detail = match run {
        Some(run) => format!("comparison {run} goes on; its record tells its end"),
        None => "another comparison goes on; ask again in a moment".to_owned(),
    };
    Problem::of("comparison_running", detail)
}

/// Comparisons with their findings, newest first.
///
/// Records are kept for `--records-days`.
#[utoipa::path(
    get, path = "/v1/reconcile/runs", operation_id = "listComparisons", tag = "operations", params(PageParams<RunId>), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of comparisons", body = RunPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    List(All {}, page): List<All, RunId>,
) -> Result<Json<RunPage>, Problem> {
    let found = app.reconciler.list(page.cursor, page.read_max()).await?;
    let (runs, next_cursor) = page.cut(found, |run| run.run_id);
    Ok(Json(RunPage { runs, next_cursor }))
}

/// One comparison with its findings.
///
/// While it runs, `finished_at` is null.
#[utoipa::path(
    get, path = "/v1/reconcile/runs/{id}", operation_id = "getComparison", tag = "operations", security(("operator" = [])),
    params(("id" = RunId, Path, description = "Id of the comparison")),
    responses(
        (status = 200, description = "The comparison; `finished_at` is null while it runs", body = Run),
    ),
    extensions(("x-problems" = json!(["run_not_found"]))),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(run): Id<RunId>,
) -> Result<Json<Run>, Problem> {
    let not_found = || Problem::of("run_not_found", "there is no such comparison");
    Ok(Json(app.reconciler.get(run).await?.ok_or_else(not_found)?))
}
