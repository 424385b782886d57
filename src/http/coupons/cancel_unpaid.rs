//! All unpaid orders of a coupon, cancelled by an administrator.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Admin;
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::http::words::Because;
use crate::store::ids::CouponId;

/// Orders whose time to pay has been ended.
#[derive(Serialize, ToSchema)]
pub struct CancelledUnpaid {
    /// Number of unpaid orders that this request cancels, without those of earlier requests.
    orders: u64,
}

/// Cancel all unpaid orders of a coupon.
///
/// Ends their time to pay now; the workers close them within seconds. Safe to repeat: a repeat cancels the unpaid
/// orders that have come since.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/cancel-unpaid", operation_id = "cancelUnpaidOrders", tag = "coupons", security(("admin" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Because,
    responses(
        (status = 200, description = "The number of orders that it concerns", body = CancelledUnpaid),
    ),
    extensions(("x-problems" = json!(["coupon_not_found"]))),
)]
pub async fn cancel_unpaid(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(coupon): Id<CouponId>,
    Valid(Because { reason }): Valid<Because>,
) -> Result<Json<CancelledUnpaid>, Problem> {
    let orders = app.order_moves.cancel_unpaid(coupon, reason, &by.actor).await?;
    Ok(Json(CancelledUnpaid { orders: orders.ok_or_else(coupon_not_found)? }))
}
