//! Payments of an order, for operators.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Operator;
use crate::http::extract::Id;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::payment::owed::OrderPayment;
use crate::store::ids::OrderId;

/// Payments of an order.
#[derive(Serialize, ToSchema)]
pub struct OrderPayments {
    /// Id of the order.
    order_id: OrderId,
    /// Its payments, oldest first, at most 100.
    payments: Vec<OrderPayment>,
}

/// Payments of an order, in every status.
///
/// Includes payments for an order that doesn't exist, if a gateway has taken money for it.
#[utoipa::path(
    get, path = "/v1/orders/{id}/payments", operation_id = "listOrderPayments", tag = "orders", security(("operator" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The payments", body = OrderPayments),
    ),
    extensions(("x-problems" = json!(["order_not_found"]))),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(order_id): Id<OrderId>,
) -> Result<Json<OrderPayments>, Problem> {
    let payments = app.payments.owed.of_order(order_id, limits::PAGE_MAX).await?;
    if payments.is_empty() && app.order_moves.find(order_id).await?.is_none() {
        let detail = "there is no order with this id, and no payment for it";
        return Err(Problem::of("order_not_found", detail));
    }
    Ok(Json(OrderPayments { order_id, payments }))
}
