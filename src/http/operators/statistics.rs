//! Statistics of a day.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::extract::Id;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::sale::statistics::{Day, DayStatistics, InvalidDay};

/// Statistics of a day.
///
/// Accepted claims and orders by Postgres, the day's sequence as an upper bound of its orders, and answers to claims by
/// the process that replies.
#[utoipa::path(
    get, path = "/v1/statistics/days/{day}", operation_id = "getDayStatistics", tag = "operations", security(("operator" = [])),
    params(("day" = String, Path, format = Date, description = "A day in UTC, from 2022-01-01 to today")),
    responses(
        (status = 200, description = "The statistics", body = DayStatistics),
    ),
)]
pub async fn of_day(
    State(app): State<Arc<App>>,
    _: Operator,
    day: Result<Id<Day>, Problem>,
) -> Result<Json<DayStatistics>, Problem> {
    let Id(day) = day.map_err(|_| invalid_day())?;
    app.numbers.statistics.of(day).await?.map(Json).ok_or_else(invalid_day)
}

fn invalid_day() -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_day", InvalidDay.to_string())
}
