//! Jobs that cancel all unpaid orders of a coupon, for operators.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Operator;
use crate::http::extract::{Id, Params};
use crate::http::frame::reply::Json;
use crate::http::page::{cut_page, page_limit};
use crate::http::problem::Problem;
use crate::sale::ids::{CouponId, JobId};
use crate::sale::order::moves::jobs::Job;

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only jobs of this coupon.
    #[param(inline, nullable = false)]
    coupon: Option<CouponId>,
    /// `next_cursor` of the page before; nothing for the first.
    #[param(inline, nullable = false)]
    cursor: Option<JobId>,
    /// Jobs on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

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
    get, path = "/v1/jobs", operation_id = "listJobs", tag = "operations", params(Asked), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of jobs", body = JobPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    Params(Asked { coupon, cursor, limit }): Params<Asked>,
) -> Result<Json<JobPage>, Problem> {
    let limit = page_limit(limit, limits::PAGE_JOBS_MAX)?;
    let found = app.cancellations.list(coupon, cursor, limit + 1).await?;
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
) -> Result<Json<Job>, Problem> {
    let not_found = || Problem::not_found("job_not_found", "there is no job with this id");
    Ok(Json(app.cancellations.get(job).await?.ok_or_else(not_found)?))
}
