//! Changing coupons: edit, pause, resume, end, restock; for administrators. Each is safe to repeat.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::http::auth::{Admin, Operator, Staff};
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Valid, ValidOrDefault};
use crate::http::problem::{Problem, WrongMember};
use crate::sale::coupon::changes::ChangeOutcome;
use crate::sale::coupon::input::{CouponEdit, Move, Restock};
use crate::sale::coupon::model::{Coupon, CouponState};
use crate::sale::coupon::rules::{Change, Refusal};
use crate::sale::ids::CouponId;

type Reply = Result<(StatusCode, Json<Coupon>), Problem>;

/// Edit a coupon.
///
/// Of the members in the body all are changed, or none. With a revision, only if the coupon still has that one. The
/// total of a sale only grows.
#[utoipa::path(
    patch, path = "/v1/coupons/{id}", operation_id = "editCoupon", tag = "coupons", security(("admin" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = CouponEdit,
    responses(
        (status = 200, description = "The coupon; nothing has changed if it was like this before", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "coupon_ended", "revision_conflict", "no_sale", "stock_only_grows"]))),
)]
pub async fn edit(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(coupon): Id<CouponId>,
    Valid(edit): Valid<CouponEdit>,
) -> Reply {
    change(&app, &by, coupon, Change::Edit(edit)).await
}

/// Suspend the claims on a coupon.
///
/// With a revision, only if the coupon still has that one. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/pause", operation_id = "pauseCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Option<Move>,
    responses(
        (status = 200, description = "The coupon, paused", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "invalid_transition", "revision_conflict"]))),
)]
pub async fn pause(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    ValidOrDefault(Move { revision }): ValidOrDefault<Move>,
) -> Reply {
    change(&app, &by, coupon, Change::Move(CouponState::Paused, revision)).await
}

/// Let claims on a paused coupon go on.
///
/// With a revision, only if the coupon still has that one. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/resume", operation_id = "resumeCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Option<Move>,
    responses(
        (status = 200, description = "The coupon, active", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "invalid_transition", "revision_conflict"]))),
)]
pub async fn resume(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    ValidOrDefault(Move { revision }): ValidOrDefault<Move>,
) -> Reply {
    change(&app, &by, coupon, Change::Move(CouponState::Active, revision)).await
}

/// End a coupon, for good.
///
/// With a revision, only if the coupon still has that one. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/end", operation_id = "endCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Option<Move>,
    responses(
        (status = 200, description = "The coupon, ended", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "revision_conflict"]))),
)]
pub async fn end(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    ValidOrDefault(Move { revision }): ValidOrDefault<Move>,
) -> Reply {
    change(&app, &by, coupon, Change::Move(CouponState::Ended, revision)).await
}

/// Add units to a sale.
///
/// Once for each key: safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/restock", operation_id = "restockCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Restock,
    responses(
        (status = 200, description = "The coupon; nothing was added if the key had been used for as many units", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "coupon_ended", "no_sale", "stock_too_large", "restock_key_used"]))),
)]
pub async fn restock(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    Valid(restock): Valid<Restock>,
) -> Reply {
    change(&app, &by, coupon, Change::Restock(restock)).await
}

async fn change(app: &App, by: &Staff, coupon: CouponId, change: Change) -> Reply {
    match app.coupon_changes.change(coupon, change, &by.actor).await? {
        ChangeOutcome::Changed(coupon) => Ok((StatusCode::OK, Json(coupon))),
        ChangeOutcome::Decided(coupon) => Ok((StatusCode::ACCEPTED, Json(coupon))),
        ChangeOutcome::Refused(refusal) => Err(refused(refusal)),
    }
}

fn refused(refusal: Refusal) -> Problem {
    let detail = refusal.to_string();
    let conflict = |code| Problem::new(StatusCode::CONFLICT, code, detail.clone());
    match refusal {
        Refusal::NotFound => coupon_not_found(),
        Refusal::InvalidTransition { from, to } => {
            Problem::invalid_transition("coupon", from.as_str(), to.as_str())
        }
        Refusal::Ended => conflict("coupon_ended"),
        Refusal::RevisionConflict { .. } => conflict("revision_conflict"),
        Refusal::NoSale => conflict("no_sale"),
        Refusal::StockOnlyGrows { .. } => conflict("stock_only_grows"),
        Refusal::StockTooLarge => conflict("stock_too_large"),
        Refusal::EmptyWindow | Refusal::WindowPast => Problem::invalid_body(vec![WrongMember {
            pointer: "/sale/closes_at".to_owned(),
            detail,
        }]),
        Refusal::RestockKeyUsed { .. } => conflict("restock_key_used"),
    }
}
