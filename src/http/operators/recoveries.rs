//! Recoveries of lanes: operators read them, administrators settle them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::auth::{Admin, Operator};
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::Json;
use crate::http::page::{List, PageParams};
use crate::http::problem::Problem;
use crate::http::words::Noted;
use crate::recovery::records::{Recovery, RecoveryFilter, RecoveryState};
use crate::store::ids::RecoveryId;

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only recoveries of the lane with this number.
    #[param(nullable = false, minimum = 0)]
    lane: Option<i32>,
    /// `unfinished`: has not opened its lane. `kept_all`: has opened it and kept all claims. `unsettled`: could not
    /// keep some claims, and their buyers have not been told. `settled`: their buyers have been told.
    #[param(inline, nullable = false)]
    state: Option<RecoveryState>,
}

/// A page of recoveries, newest first.
#[derive(Serialize, ToSchema)]
pub struct RecoveryPage {
    recoveries: Vec<Recovery>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<RecoveryId>,
}

/// Recoveries of lanes after a loss of data in Redis, newest first.
///
/// Each says what was kept, built and lost.
#[utoipa::path(
    get, path = "/v1/recoveries", operation_id = "listRecoveries", tag = "operations", params(Asked, PageParams<RecoveryId>), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of recoveries", body = RecoveryPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    List(asked, page): List<Asked, RecoveryId>,
) -> Result<Json<RecoveryPage>, Problem> {
    let Asked { lane, state } = asked;
    let filter = RecoveryFilter { lane, state };
    let found = app.leaders.first().recoveries(filter, page.cursor, page.read_max()).await?;
    let (recoveries, next_cursor) = page.cut(found, |recovery| recovery.id);
    Ok(Json(RecoveryPage { recoveries, next_cursor }))
}

/// Settle the claims that a recovery could not keep.
///
/// Do this once their buyers have been told. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/recoveries/{id}/settle", operation_id = "settleRecovery", tag = "operations", security(("admin" = [])),
    params(("id" = RecoveryId, Path, description = "Id of the recovery")),
    request_body = Noted,
    responses(
        (status = 204, description = "It is settled: now or before, and then with its first note"),
    ),
    extensions(("x-problems" = json!(["recovery_not_found"]))),
)]
pub async fn settle(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(recovery): Id<RecoveryId>,
    Valid(Noted { note }): Valid<Noted>,
) -> Result<StatusCode, Problem> {
    if app.leaders.first().settle(recovery, &note, &by.actor).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "no recovery with this id has claims that it could not keep";
    Err(Problem::of("recovery_not_found", detail))
}
