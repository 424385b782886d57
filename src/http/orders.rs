//! A user's own orders; orders of other users don't exist for the user. An administrator redeems any order.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::{Admin, User};
use super::extract::{Id, Params, Valid};
use super::page::{Page, cut_page};
use super::problem::Problem;
use crate::app::App;
use crate::base::limits;
use crate::sale::ids::OrderId;
use crate::sale::order::model::Order;
use crate::sale::order::model::PayMethod;
use crate::sale::order::moves::Moved;
use crate::sale::payment::Paying;

/// A page of orders, newest first.
#[derive(Serialize, ToSchema)]
pub struct OrderPage {
    orders: Vec<Order>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<OrderId>,
}

/// My orders, newest first.
///
/// An order is listed as soon as it is written.
#[utoipa::path(
    get, path = "/v1/orders", operation_id = "listOrders", tag = "orders", params(Page<OrderId>), security(("user" = [])),
    responses(
        (status = 200, description = "A page of orders", body = OrderPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    User(user): User,
    Params(page): Params<Page<OrderId>>,
) -> Result<Json<OrderPage>, Problem> {
    let limit = page.limit(limits::PAGE_ORDERS_MAX)?;
    let found = app.orders.list(user, page.cursor, limit + 1).await?;
    let (orders, next_cursor) = cut_page(found, limit, |order| order.order_id);
    Ok(Json(OrderPage { orders, next_cursor }))
}

/// One of my orders.
///
/// Orders of other users are not found.
#[utoipa::path(
    get, path = "/v1/orders/{id}", operation_id = "getOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The order", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found"]))),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    app.orders.get(user, order).await?.map(Json).ok_or_else(order_not_found)
}

/// Options of a payment.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Payment {
    /// Means of payment.
    #[garde(skip)]
    method: PayMethod,
}

const ELSEWHERE: &str =
    "nothing is paid here: pay at the shop's payment gateway, which confirms the order by its id";
const NO_GATEWAY: &str = "nothing can be paid: this service has no payment gateway; its operator sets one up by --payment-callback-secret";

/// Pay for my unpaid order.
///
/// Only where the service itself is the gateway, which is for trying: no money moves. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/pay", operation_id = "payOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    request_body = Payment,
    responses(
        (status = 200, description = "The order, paid: now or before", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition", "payment_elsewhere", "no_gateway"]))),
)]
pub async fn pay(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
    Valid(Payment { method }): Valid<Payment>,
) -> Result<Json<Order>, Problem> {
    match app.payments.pay(user, order, method).await? {
        Paying::Moved(moved) => reply(moved),
        Paying::Elsewhere => {
            Err(Problem::new(StatusCode::CONFLICT, "payment_elsewhere", ELSEWHERE))
        }
        Paying::NoGateway => Err(Problem::new(StatusCode::CONFLICT, "no_gateway", NO_GATEWAY)),
    }
}

/// Give up my unpaid order.
///
/// Its unit can be claimed again, also by me. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/cancel", operation_id = "cancelOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The order, cancelled: now or before", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition"]))),
)]
pub async fn cancel(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    reply(app.order_moves.cancel(user, order).await?)
}

/// Ask for my money back for a paid order.
///
/// The unit comes back when the gateway has confirmed the refund. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/refund", operation_id = "refundOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The order, refunding, or refunded already", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition"]))),
)]
pub async fn refund(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    reply(app.payments.refund(user, order).await?)
}

/// Redeem a paid order of any user.
///
/// A redeemed order can't be refunded. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/redeem", operation_id = "redeemOrder", tag = "orders", security(("admin" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The order, redeemed: now or before", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition"]))),
)]
pub async fn redeem(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    reply(app.order_moves.redeem(order).await?)
}

fn reply(moved: Moved) -> Result<Json<Order>, Problem> {
    match moved {
        Moved::There(order) => Ok(Json(order)),
        Moved::NotFound => Err(order_not_found()),
        Moved::Impossible { from, to } => {
            Err(Problem::invalid_transition("order", from.as_str(), to.as_str()))
        }
    }
}

fn order_not_found() -> Problem {
    let detail = "you have no order with this id; a pending one is told by its coupon's claims/me";
    Problem::not_found("order_not_found", detail)
}
