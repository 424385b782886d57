//! A user's own orders: for the user, orders of others don't exist. Operators read and search all orders.

// Codes of paid orders, and redeeming by them.
pub mod redemptions;

// Moves that an administrator makes for a buyer.
pub mod staff;

// Payments of an order, for operators.
pub mod payments;

// Exports.
pub mod export;

// The steps of one claim.
pub mod trace;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::coupon::values::Cents;
use crate::http::auth::{Reader, User};
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::{Json, Unfinished, accepted};
use crate::http::page::{List, PageParams, Time};
use crate::http::problem::Problem;
use crate::order::model::PayMethod;
use crate::order::model::{Order, OrderFilter, OrderStatus};
use crate::order::moves::{Asker, Moved};
use crate::order::read::Listed;
use crate::payment::Paying;
use crate::payment::model::ToBePaid;
use crate::store::ids::{CouponId, OrderId, UserId};

/// A page of orders, newest first.
#[derive(Serialize, ToSchema)]
pub struct OrderPage {
    orders: Vec<Order>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<OrderId>,
}

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// For operators: orders of this user.
    #[param(inline, nullable = false)]
    user: Option<UserId>,
    /// For operators: orders of this coupon, and so its buyers.
    #[param(inline, nullable = false)]
    coupon: Option<CouponId>,
    /// For operators: orders in this status.
    #[param(inline, nullable = false)]
    status: Option<OrderStatus>,
    /// For operators: orders that were claimed from this time on.
    #[param(inline, nullable = false)]
    from: Option<Time>,
    /// For operators: orders that were claimed before this time.
    #[param(inline, nullable = false)]
    to: Option<Time>,
}

impl Asked {
    /// The search of an operator; `None` without any filter.
    fn search(&self) -> Option<OrderFilter> {
        let Self { user, coupon, status, from, to } = *self;
        let [from, to] = [from, to].map(|time| time.map(|Time(time)| time));
        let times = from.is_some() || to.is_some();
        let any = user.is_some() || coupon.is_some() || status.is_some() || times;
        any.then_some(OrderFilter { user, coupon, status, from, to })
    }
}

/// My orders, newest first; for operators, with a filter, orders of all users.
///
/// An order is listed as soon as it is written, and stays listed in the history. A search lists the newest claim first,
/// without redemption codes. A page reads at most twelve months of the history, so a page before the last may
/// have fewer orders, or none.
#[utoipa::path(
    get, path = "/v1/orders", operation_id = "listOrders", tag = "orders", security(("user" = [])),
    params(Asked, PageParams<OrderId>),
    responses(
        (status = 200, description = "A page of orders", body = OrderPage),
    ),
    extensions(("x-problems" = json!(["forbidden"]))),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    reader: Reader,
    List(asked, page): List<Asked, OrderId>,
) -> Result<Json<OrderPage>, Problem> {
    let (behind, limit) = (page.cursor, page.limit());
    let Listed { orders, next } = match asked.search() {
        Some(filter) => {
            reader.need_all()?;
            app.orders.search(&filter, behind, limit).await?
        }
        None => app.orders.list(reader.user, behind, limit).await?,
    };
    Ok(Json(OrderPage { orders, next_cursor: next }))
}

/// One of my orders.
///
/// Orders of other users are found only by operators and administrators, who don't get the redemption codes.
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
    Reader { user, reads_all }: Reader,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    let found = match app.orders.get(user, order).await? {
        None if reads_all => app.order_moves.find(order).await?.map(Order::without_code),
        own => own,
    };
    Ok(Json(found.ok_or_else(order_not_found)?))
}

/// Options of a payment.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Payment {
    /// Means of payment.
    #[garde(skip)]
    method: PayMethod,
    /// Price that the payer has seen, in minor units. If the order has another price, nothing is paid.
    #[serde(default)]
    #[schema(value_type = Option<Cents>)]
    #[garde(inner(range(min = 0, max = limits::CENTS_MAX)))]
    expected_cents: Option<i64>,
}

/// A payment that the payer has to make at the gateway.
#[derive(Serialize, ToSchema)]
pub struct PaymentOpened {
    /// The order.
    order_id: OrderId,
    /// Always `opened`.
    status: &'static str,
    /// The gateway's id of the payment.
    payment_id: String,
    /// Page on which the payer pays; the gateway completes the payment.
    pay_url: String,
    /// The amount, in minor units.
    amount_cents: i64,
    /// Its currency (ISO 4217).
    currency: String,
    /// Time until which the order can be paid.
    pay_by: DateTime<Utc>,
}

const ELSEWHERE: &str =
    "nothing is paid here: pay at the shop's payment gateway, which confirms the order by its id";
const NO_GATEWAY: &str = "nothing can be paid: this service has no payment gateway; its operator sets one up by --payment-callback-secret";

/// Pay for my unpaid order.
///
/// Opens the payment at the gateway, which completes it. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/pay", operation_id = "payOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    request_body = Payment,
    responses(
        (status = 200, description = "The order, paid: before, or now by the gateway for trying", body = Order),
        (status = 202, description = "Send the payer to `pay_url`; the order is paid once the gateway has confirmed", body = Unfinished<PaymentOpened>),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition", "price_differs", "payment_refused", "payment_elsewhere", "no_gateway", "too_many_closed_orders"]))),
)]
pub async fn pay(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
    Valid(Payment { method, expected_cents }): Valid<Payment>,
) -> Result<Response, Problem> {
    match app.payments.pay(user, order, method, expected_cents).await? {
        Paying::Moved(Moved::TooManyClosed(wait)) => {
            let detail = "you have had too many orders of this coupon refunded within an hour: this one can be paid after Retry-After seconds";
            Err(too_many_closed(detail, wait))
        }
        Paying::Moved(moved) => Ok(reply(moved)?.into_response()),
        Paying::Opened(payment) => Ok(opened(order, payment)),
        Paying::Refused(words) => {
            let detail = format!("the payment gateway refuses this payment: {words}");
            Err(Problem::of("payment_refused", detail))
        }
        Paying::PriceDiffers { pay_cents, currency } => {
            Err(Problem::price_differs(pay_cents, currency))
        }
        Paying::Elsewhere => Err(Problem::of("payment_elsewhere", ELSEWHERE)),
        Paying::NoGateway => Err(Problem::of("no_gateway", NO_GATEWAY)),
    }
}

fn opened(order_id: OrderId, payment: ToBePaid) -> Response {
    let ToBePaid { payment_id, pay_url, amount_cents, currency, pay_by } = payment;
    let status = "opened";
    let opened =
        PaymentOpened { order_id, status, payment_id, pay_url, amount_cents, currency, pay_by };
    accepted(Json(Unfinished::new(opened)))
}

/// Cancel my unpaid order.
///
/// Its unit can be claimed again, also by me. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/cancel", operation_id = "cancelOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The order, cancelled: now or before", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition", "too_many_closed_orders"]))),
)]
pub async fn cancel(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    reply(app.order_moves.cancel(Asker::Buyer(user), order).await?)
}

/// Ask for a refund of my paid order.
///
/// The unit returns to stock when the gateway has confirmed the refund, and at once if the order cost nothing. Safe to
/// repeat.
#[utoipa::path(
    post, path = "/v1/orders/{id}/refund", operation_id = "refundOrder", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The order, refunding, or refunded already", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "invalid_transition", "too_many_closed_orders"]))),
)]
pub async fn refund(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
) -> Result<Json<Order>, Problem> {
    reply(app.payments.refund(Asker::Buyer(user), order).await?)
}

fn reply(moved: Moved) -> Result<Json<Order>, Problem> {
    match moved {
        Moved::There(order) => Ok(Json(*order)),
        Moved::NotFound => Err(order_not_found()),
        Moved::Impossible { from, to } => {
            Err(Problem::invalid_transition("order", from.as_str(), to.as_str()))
        }
        Moved::TooManyClosed(wait) => {
            let detail = "you have closed too many orders of this coupon within an hour: keep this one, or close it after Retry-After seconds";
            Err(too_many_closed(detail, wait))
        }
    }
}

fn too_many_closed(detail: &'static str, wait: Duration) -> Problem {
    Problem::of("too_many_closed_orders", detail).retry_after(wait)
}

pub fn order_not_found() -> Problem {
    let detail = "you have no order with this id; a pending one is told by its coupon's claims/me";
    Problem::of("order_not_found", detail)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn search(query: Value) -> Option<OrderFilter> {
        serde_json::from_value::<Asked>(query).expect("a query").search()
    }

    /// Each filter alone makes a search; no filter makes none.
    #[test]
    fn a_query_asks_for_a_search_by_any_filter() {
        assert!(search(json!({})).is_none());
        let text = "2030-01-01T00:00:00Z";
        let time = text.parse::<DateTime<Utc>>().expect("a time");
        for (number, filter) in [
            json!({"user": "7"}),
            json!({"coupon": "1024"}),
            json!({"status": "paid"}),
            json!({"from": text}),
            json!({"to": text}),
        ]
        .into_iter()
        .enumerate()
        {
            let found = search(filter.clone()).unwrap_or_else(|| panic!("{filter} is a filter"));
            let is_set = [
                found.user.is_some_and(|user| user.get() == 7),
                found.coupon.is_some_and(|coupon| coupon.get() == 1_024),
                found.status.is_some_and(|status| status.as_str() == "paid"),
                found.from == Some(time),
                found.to == Some(time),
            ];
            let set: Vec<usize> = (0..is_set.len()).filter(|at| is_set[*at]).collect();
            assert_eq!(set, [number], "{filter}");
        }
    }
}
