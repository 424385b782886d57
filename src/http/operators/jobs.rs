//! Jobs that cancel all unpaid orders of a coupon, for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Operator;
use crate::http::extract::{Id, Params};
use crate::http::frame::reply::Json;
use crate::http::page::{Page, cut_page};
use crate::http::problem::Problem;
use crate::http::tags::Held;
use crate::sale::ids::JobId;
use crate::sale::order::moves::jobs::Job;

/// A page of jobs, newest first.
#[derive(Serialize, ToSchema)]
pub struct JobPage {
    jobs: Vec<Job>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<JobId>,
}

/// Jobs, newest first.
///
/// Each with its progress.
#[utoipa::path(
    get, path = "/v1/jobs", operation_id = "listJobs", tag = "operations", params(Page<JobId>), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of jobs", body = JobPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    Params(page): Params<Page<JobId>>,
) -> Result<Json<JobPage>, Problem> {
    let limit = page.limit(limits::PAGE_JOBS_MAX)?;
    let found = app.cancellations.list(page.cursor, limit + 1).await?;
    let (jobs, next_cursor) = cut_page(found, limit, |job| job.job_id);
    Ok(Json(JobPage { jobs, next_cursor }))
}

/// One job.
///
/// With its progress; `finished_at` is null while it goes on.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", operation_id = "getJob", tag = "operations", security(("operator" = [])),
    params(
        ("id" = JobId, Path, description = "Id of the job"),
        ("If-None-Match" = Option<String>, Header, description = "Tags of the replies that the client has"),
    ),
    responses(
        (status = 200, description = "The job", body = Job),
    ),
    extensions(("x-problems" = json!(["job_not_found"]))),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(job): Id<JobId>,
    held: Held,
) -> Result<Response, Problem> {
    let not_found = || Problem::not_found("job_not_found", "there is no job with this id");
    Ok(held.reply(&app.cancellations.get(job).await?.ok_or_else(not_found)?))
}
