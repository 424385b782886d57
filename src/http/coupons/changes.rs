//! Changing coupons: edit, pause, resume, end, restock; for administrators. Each is safe to repeat.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::http::auth::Admin;
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Valid};
use crate::http::problem::Problem;
use crate::sale::coupon::changes::ChangeOutcome;
use crate::sale::coupon::input::{CouponEdit, Restock};
use crate::sale::coupon::model::{Coupon, CouponState};
use crate::sale::coupon::rules::{Change, Refusal};
use crate::sale::ids::CouponId;

type Reply = Result<(StatusCode, Json<Coupon>), Problem>;

/// Edit a coupon. With `revision`, only if it still has that one. The stock of a sale only grows.
#[utoipa::path(
    patch, path = "/v1/coupons/{id}", tag = "coupons", security(("token" = [])),
    params(("id" = String, Path, description = "Coupon")),
    request_body = CouponEdit,
    responses(
        (status = 200, description = "The coupon; nothing has changed if it was like this before", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
        (status = 400, description = "`malformed_json` or `invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`coupon_not_found`"),
        (status = 409, description = "`coupon_ended`, `revision_conflict`, `no_sale` or `stock_only_grows`"),
        (status = 413, description = "`body_too_large`"),
        (status = 415, description = "`unsupported_media_type`"),
        (status = 422, description = "`invalid_body`"),
        (status = 503, description = "`unavailable`: the outcome is unknown, ask again"),
    ),
)]
pub async fn edit(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(coupon): Id<CouponId>,
    Valid(edit): Valid<CouponEdit>,
) -> Reply {
    change(&app, coupon, Change::Edit(edit)).await
}

/// Suspend the claims on a coupon.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/pause", tag = "coupons", security(("token" = [])),
    params(("id" = String, Path, description = "Coupon")),
    responses(
        (status = 200, description = "The coupon, paused", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`coupon_not_found`"),
        (status = 409, description = "`invalid_transition`, with both states"),
        (status = 503, description = "`unavailable`: the outcome is unknown, ask again"),
    ),
)]
pub async fn pause(State(app): State<Arc<App>>, _: Admin, Id(coupon): Id<CouponId>) -> Reply {
    change(&app, coupon, Change::Move(CouponState::Paused)).await
}

/// Let claims on a paused coupon go on.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/resume", tag = "coupons", security(("token" = [])),
    params(("id" = String, Path, description = "Coupon")),
    responses(
        (status = 200, description = "The coupon, active", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`coupon_not_found`"),
        (status = 409, description = "`invalid_transition`, with both states"),
        (status = 503, description = "`unavailable`: the outcome is unknown, ask again"),
    ),
)]
pub async fn resume(State(app): State<Arc<App>>, _: Admin, Id(coupon): Id<CouponId>) -> Reply {
    change(&app, coupon, Change::Move(CouponState::Active)).await
}

/// End a coupon, for good.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/end", tag = "coupons", security(("token" = [])),
    params(("id" = String, Path, description = "Coupon")),
    responses(
        (status = 200, description = "The coupon, ended", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`coupon_not_found`"),
        (status = 503, description = "`unavailable`: the outcome is unknown, ask again"),
    ),
)]
pub async fn end(State(app): State<Arc<App>>, _: Admin, Id(coupon): Id<CouponId>) -> Reply {
    change(&app, coupon, Change::Move(CouponState::Ended)).await
}

/// Add units to a sale, once for each `key`.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/restock", tag = "coupons", security(("token" = [])),
    params(("id" = String, Path, description = "Coupon")),
    request_body = Restock,
    responses(
        (status = 200, description = "The coupon; nothing was added if the key had been used for as many units", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Coupon),
        (status = 400, description = "`malformed_json` or `invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`coupon_not_found`"),
        (status = 409, description = "`coupon_ended`, `no_sale`, `stock_too_large` or `restock_key_used`"),
        (status = 413, description = "`body_too_large`"),
        (status = 415, description = "`unsupported_media_type`"),
        (status = 422, description = "`invalid_body`"),
        (status = 503, description = "`unavailable`: the outcome is unknown, ask again"),
    ),
)]
pub async fn restock(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(coupon): Id<CouponId>,
    Valid(restock): Valid<Restock>,
) -> Reply {
    change(&app, coupon, Change::Restock(restock)).await
}

async fn change(app: &App, coupon: CouponId, change: Change) -> Reply {
    match app.coupon_changes.change(coupon, change).await? {
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
        Refusal::EmptyWindow => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", detail)
        }
        Refusal::RestockKeyUsed { .. } => conflict("restock_key_used"),
    }
}
