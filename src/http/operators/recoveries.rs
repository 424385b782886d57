//! Recoveries of lanes, for administrators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Operator;
use crate::http::extract::Params;
use crate::http::page::{cut_page, page_limit};
use crate::http::problem::Problem;
use crate::sale::ids::RecoveryId;
use crate::sale::recovery::records::Recovery;

/// Position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Position {
    /// `next_cursor` of the page before; nothing for the first.
    #[param(nullable = false)]
    cursor: Option<RecoveryId>,
    /// Recoveries on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A page of recoveries, newest first.
#[derive(Serialize, ToSchema)]
pub struct RecoveryPage {
    recoveries: Vec<Recovery>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<RecoveryId>,
}

/// Closures of lanes after a loss of Redis, newest first.
///
/// Each with what was kept, built and lost.
#[utoipa::path(
    get, path = "/v1/recoveries", operation_id = "listRecoveries", tag = "operations", params(Position), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of recoveries", body = RecoveryPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    Params(position): Params<Position>,
) -> Result<Json<RecoveryPage>, Problem> {
    let limit = page_limit(position.limit, limits::PAGE_RECOVERIES_MAX)?;
    let found = app.keeper.recoveries(position.cursor, limit + 1).await?;
    let (recoveries, next_cursor) = cut_page(found, limit, |recovery| recovery.id);
    Ok(Json(RecoveryPage { recoveries, next_cursor }))
}
