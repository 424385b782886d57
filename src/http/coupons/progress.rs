//! Progress of a sale, by both stores, for operators.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::claims::coupon_not_found;
use crate::http::extract::Id;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::recovery::reconcile::gauges::SideBySide;
use crate::store::ids::CouponId;

/// Progress of a sale.
#[derive(Serialize, ToSchema)]
pub struct SaleProgress {
    /// The coupon.
    coupon_id: CouponId,
    /// Facts of both stores; null for a coupon that Redis never had to hold.
    stores: Option<SideBySide>,
}

/// Progress of a sale: facts of both stores, side by side.
///
/// Reads the sale in both stores, as a comparison does. It is meant for people, not for polling every second.
#[utoipa::path(
    get, path = "/v1/coupons/{id}/progress", operation_id = "getSaleProgress", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    responses(
        (status = 200, description = "The sale in Redis and in Postgres, the log of its lane, and disagreements", body = SaleProgress),
    ),
    extensions(("x-problems" = json!(["coupon_not_found"]))),
)]
pub async fn progress(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(coupon_id): Id<CouponId>,
) -> Result<Json<SaleProgress>, Problem> {
    if app.coupons.get(coupon_id).await?.is_none() {
        return Err(coupon_not_found());
    }
    let stores = app.numbers.progress(coupon_id).await?;
    Ok(Json(SaleProgress { coupon_id, stores }))
}
