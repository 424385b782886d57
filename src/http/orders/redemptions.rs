//! Redeeming: the buyer shows a code, and a clerk redeems the order by it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use garde::Validate;
use qrcode::QrCode;
use qrcode::render::svg;
use serde::Deserialize;
use utoipa::ToSchema;

use super::order_not_found;
use crate::app::App;
use crate::http::auth::{Clerk, Operator, Staff, User};
use crate::http::extract::{Id, KeyHeader, RequestKey, Valid};
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::order::model::{Order, OrderStatus, RedemptionCode};
use crate::order::moves::redeem::{Redeeming, Redemption};
use crate::store::ids::OrderId;

/// Least width and height of the picture of a code, in pixels.
const PIXELS_MIN: u32 = 240;

/// The redemption code of my paid order, as a picture.
///
/// An SVG with the code of the order as a QR code.
#[utoipa::path(
    get, path = "/v1/orders/{id}/qr", operation_id = "getOrderQrCode", tag = "orders", security(("user" = [])),
    params(("id" = OrderId, Path, description = "Id of the order")),
    responses(
        (status = 200, description = "The QR code", body = String, content_type = "image/svg+xml"),
    ),
    extensions(("x-problems" = json!(["order_not_found", "no_redemption_code"]))),
)]
pub async fn qr_code(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(order): Id<OrderId>,
) -> Result<Response, Problem> {
    let order = app.orders.get(user, order).await?.ok_or_else(order_not_found)?;
    let Some(code) = order.redemption_code else {
        let status = order.status.as_str();
        let detail = format!("the order is {status}: only a paid one has a redemption code");
        return Err(Problem::of("no_redemption_code", detail));
    };
    let picture = QrCode::new(code.to_string()).expect("a code is short");
    let picture = picture.render::<svg::Color<'_>>().min_dimensions(PIXELS_MIN, PIXELS_MIN).build();
    Ok(([(header::CONTENT_TYPE, "image/svg+xml")], picture).into_response())
}

/// Redeem a paid order of any user.
///
/// For an operator who knows the buyer by other means. A clerk redeems by the code that the buyer shows, because an id
/// can be guessed. A redeemed order can't be refunded. Safe to repeat with the header Idempotency-Key; without it, a
/// repeat is told that the order has been redeemed.
#[utoipa::path(
    post, path = "/v1/orders/{id}/redeem", operation_id = "redeemOrder", tag = "orders", security(("operator" = [])),
    params(("id" = OrderId, Path, description = "Id of the order"), KeyHeader),
    responses(
        (status = 200, description = "The order, redeemed by this request", body = Order),
    ),
    extensions(("x-problems" = json!(["order_not_found", "already_redeemed", "invalid_transition", "invalid_idempotency_key"]))),
)]
pub async fn redeem(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(order): Id<OrderId>,
    RequestKey(key): RequestKey,
) -> Result<Json<Order>, Problem> {
    redeem_by(&app, by, order, key).await
}

/// A code that a buyer shows.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The redemption code. Hyphens, spaces and case are ignored; O, I and L are read as digits.
    #[schema(min_length = 1, max_length = 64)]
    #[garde(length(chars, min = 1, max = 64))]
    code: String,
}

/// Redeem the paid order that has this code.
///
/// Works like redeeming by the id of the order.
#[utoipa::path(
    post, path = "/v1/redemptions", operation_id = "redeemCode", tag = "orders", security(("clerk" = [])),
    params(KeyHeader),
    request_body = Shown,
    responses(
        (status = 200, description = "The order, redeemed by this request", body = Order),
    ),
    extensions(("x-problems" = json!(["redemption_code_unknown", "already_redeemed", "invalid_transition", "invalid_idempotency_key"]))),
)]
pub async fn redeem_code(
    State(app): State<Arc<App>>,
    Clerk(clerk): Clerk,
    RequestKey(key): RequestKey,
    Valid(Shown { code }): Valid<Shown>,
) -> Result<Json<Order>, Problem> {
    let found = app.order_moves.of_code(&RedemptionCode::typed(&code)).await?;
    let order = found.ok_or_else(code_unknown)?.order_id;
    redeem_by(&app, clerk, order, key).await
}

/// The order that has this code.
///
/// Changes nothing: a clerk can look before redeeming.
#[utoipa::path(
    get, path = "/v1/redemptions/{code}", operation_id = "getOrderOfCode", tag = "orders", security(("clerk" = [])),
    params(("code" = String, Path, description = "Redemption code, as it is shown or typed")),
    responses(
        (status = 200, description = "The order", body = Order),
    ),
    extensions(("x-problems" = json!(["redemption_code_unknown"]))),
)]
pub async fn order_of_code(
    State(app): State<Arc<App>>,
    _: Clerk,
    Id(code): Id<RedemptionCode>,
) -> Result<Json<Order>, Problem> {
    app.order_moves.of_code(&code).await?.map(Json).ok_or_else(code_unknown)
}

async fn redeem_by(
    app: &App,
    clerk: Staff,
    order: OrderId,
    key: Option<String>,
) -> Result<Json<Order>, Problem> {
    let request = Redemption { clerk: clerk.id, by: clerk.actor, key };
    match app.order_moves.redeem(order, request).await? {
        Redeeming::Redeemed(order) => Ok(Json(order)),
        Redeeming::Before { at, by } => Err(Problem::already_redeemed(at, by)),
        Redeeming::NotFound => Err(order_not_found()),
        Redeeming::Impossible(from) => {
            let to = OrderStatus::Redeemed;
            Err(Problem::invalid_transition("order", from.as_str(), to.as_str()))
        }
    }
}

fn code_unknown() -> Problem {
    let detail =
        "no order has this code: it has 16 letters and digits, such as 7K3M-Q9TX-2B8D-HV4N";
    Problem::of("redemption_code_unknown", detail)
}
