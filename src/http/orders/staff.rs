//! Orders that an administrator moves for their buyers.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::http::auth::Admin;
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::http::words::Because;
use crate::order::model::Order;
use crate::order::moves::{Asker, Moved};
use crate::store::ids::OrderId;

/// Cancel an unpaid order for its buyer.
///
/// Does what the buyer could do, with a reason for the audit log. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/cancel-for-buyer", operation_id = "cancelOrderForBuyer", tag = "orders", security(("admin" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    request_body = Because,
    responses(
        (status = 200, description = "The order, cancelled: now or before", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition"]))),
)]
pub async fn cancel(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(order): Id<OrderId>,
    Valid(Because { reason }): Valid<Because>,
) -> Result<Json<Order>, Problem> {
    let asker = Asker::Staff { by: by.actor, reason };
    reply(app.order_moves.cancel(asker, order).await?)
}

/// Ask for a refund of a paid order for its buyer.
///
/// Does what the buyer could do, with a reason for the audit log. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/refund-for-buyer", operation_id = "refundOrderForBuyer", tag = "orders", security(("admin" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    request_body = Because,
    responses(
        (status = 200, description = "The order, refunding, or refunded already", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition"]))),
)]
pub async fn refund(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(order): Id<OrderId>,
    Valid(Because { reason }): Valid<Because>,
) -> Result<Json<Order>, Problem> {
    let asker = Asker::Staff { by: by.actor, reason };
    reply(app.payments.refund(asker, order).await?)
}

fn reply(moved: Moved) -> Result<Json<Order>, Problem> {
    match moved {
        Moved::NotFound => Err(Problem::of("order_not_found", "there is no order with this id")),
        moved => super::reply(moved).map(|Json(order)| Json(order.without_code())),
    }
}
