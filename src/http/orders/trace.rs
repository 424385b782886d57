//! The steps of one claim with their times, for its user and for operators.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::claim::trace::steps::Trace;
use crate::http::auth::Reader;
use crate::http::extract::Id;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::store::ids::OrderId;

/// Follow my claim, step by step.
///
/// For an accepted claim that was sent to this process a moment ago, with `X-Trace: 1`. A step is null if this process
/// hasn't measured it: a worker elsewhere has written the row, or the times are forgotten. Operators and administrators
/// may follow the claims of all users.
#[utoipa::path(
    get, path = "/v1/orders/{id}/trace", operation_id = "followClaim", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The steps, as far as they are known", body = Trace),
    ),
    extensions(("x-problems" = json!(["not_traced"]))),
)]
pub async fn follow(
    State(app): State<Arc<App>>,
    Reader { user, reads_all }: Reader,
    Id(order): Id<OrderId>,
) -> Result<Json<Trace>, Problem> {
    let asker = (!reads_all).then_some(user);
    let trace = app.traces.follow(order, asker).await?;
    trace.map(Json).ok_or_else(|| {
        let detail = "this process remembers no such claim of yours; a claim is followed if it is sent with `X-Trace: 1`";
        Problem::of("not_traced", detail)
    })
}
