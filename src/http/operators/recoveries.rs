//! Recoveries of lanes, for administrators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::{Admin, Operator};
use crate::http::extract::{Id, Params, Valid};
use crate::http::frame::reply::Json;
use crate::http::page::{cut_page, page_limit};
use crate::http::problem::Problem;
use crate::http::words::{Words, in_words};
use crate::sale::ids::RecoveryId;
use crate::sale::recovery::records::{Recovery, RecoveryFilter, RecoveryState};

/// Number of a lane in a query.
#[derive(Clone, Copy, ToSchema)]
#[schema(value_type = i32, minimum = 0, maximum = 62)]
pub struct LaneNumber(i32);

impl<'de> Deserialize<'de> for LaneNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i32::deserialize(from)?;
        match (0..limits::LANES_MAX).contains(&number) {
            true => Ok(Self(number)),
            false => Err(D::Error::custom("no lane has this number")),
        }
    }
}

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only closures of the lane with this number.
    #[param(inline, nullable = false)]
    lane: Option<LaneNumber>,
    /// `unfinished`: has not opened its lane. `kept_all`: has opened it and kept all claims. `unsettled`, `settled`: could
    /// not keep some claims, and their buyers have not been told, or have been.
    #[param(inline, nullable = false)]
    state: Option<RecoveryState>,
    /// `next_cursor` of the page before; nothing for the first.
    #[param(inline, nullable = false)]
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
    get, path = "/v1/recoveries", operation_id = "listRecoveries", tag = "operations", params(Asked), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of recoveries", body = RecoveryPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    Params(asked): Params<Asked>,
) -> Result<Json<RecoveryPage>, Problem> {
    let limit = page_limit(asked.limit, limits::PAGE_RECOVERIES_MAX)?;
    let Asked { lane, state, cursor, .. } = asked;
    let filter = RecoveryFilter { lane: lane.map(|LaneNumber(lane)| lane), state };
    let found = app.keeper.recoveries(filter, cursor, limit + 1).await?;
    let (recoveries, next_cursor) = cut_page(found, limit, |recovery| recovery.id);
    Ok(Json(RecoveryPage { recoveries, next_cursor }))
}

/// End of the matter of a recovery.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// Account of what the buyers were told, for the books: 1 to 1,000 characters, not only spaces.
    #[schema(value_type = Words)]
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    note: String,
}

/// Settle the claims that a recovery could not keep.
///
/// Their buyers have been told. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/recoveries/{id}/settle", operation_id = "settleRecovery", tag = "operations", security(("admin" = [])),
    params(("id" = RecoveryId, Path, description = "Id of the recovery")),
    request_body = Settlement,
    responses(
        (status = 204, description = "It is settled: now or before, and then with its first note"),
    ),
    extensions(("x-problems" = json!(["recovery_not_found"]))),
)]
pub async fn settle(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(recovery): Id<RecoveryId>,
    Valid(Settlement { note }): Valid<Settlement>,
) -> Result<StatusCode, Problem> {
    if app.keeper.settle(recovery, &note, &by.actor).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "no recovery with this id has claims that it could not keep";
    Err(Problem::not_found("recovery_not_found", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_lane_is_below_the_largest_number_of_lanes() {
        for (number, is_one) in
            [(0, true), (1, true), (62, true), (-1, false), (63, false), (64, false)]
        {
            let read = serde_json::from_value::<LaneNumber>(number.into());
            assert_eq!(read.ok().map(|LaneNumber(lane)| lane), is_one.then_some(number));
        }
    }
}
