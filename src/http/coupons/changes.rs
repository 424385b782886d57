//! Changing coupons. Operators pause, resume, end and restock; only administrators edit. Each is safe to repeat.
//!
//! Edits and moves may name the revision that they are made for, in the body or as the header If-Match.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::app::App;
use crate::coupon::changes::ChangeOutcome;
use crate::coupon::input::{CouponEdit, Move, Restock};
use crate::coupon::model::{Coupon, CouponState};
use crate::coupon::rules::{Change, Refusal};
use crate::http::auth::{Admin, Operator, Staff};
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Valid, ValidOrDefault};
use crate::http::frame::reply::{Unfinished, accepted};
use crate::http::problem::Problem;
use crate::http::tags::{self, IfMatch, IfMatchHeader};
use crate::store::ids::CouponId;

type Reply = Result<Response, Problem>;

/// Edit a coupon.
///
/// Either all members in the body are changed, or none. With a revision, only if the coupon still has that one. The
/// total of a sale can only grow.
#[utoipa::path(
    patch, path = "/v1/coupons/{id}", operation_id = "editCoupon", tag = "coupons", security(("admin" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon"), IfMatchHeader),
    request_body = CouponEdit,
    responses(
        (status = 200, description = "The coupon; nothing has changed if it was like this before", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Unfinished<Coupon>),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "coupon_ended", "revision_conflict", "precondition_failed", "invalid_if_match", "no_sale", "stock_only_grows"]))),
)]
pub async fn edit(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(coupon): Id<CouponId>,
    if_match: IfMatch,
    Valid(mut edit): Valid<CouponEdit>,
) -> Reply {
    edit.revision = if_match.with(edit.revision)?;
    change(&app, &by, coupon, Change::Edit(edit), &if_match).await
}

/// Pause the claims on a coupon.
///
/// With a revision, only if the coupon still has that one. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/pause", operation_id = "pauseCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon"), IfMatchHeader),
    request_body = Option<Move>,
    responses(
        (status = 200, description = "The coupon, paused", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Unfinished<Coupon>),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "invalid_transition", "revision_conflict", "precondition_failed", "invalid_if_match"]))),
)]
pub async fn pause(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    if_match: IfMatch,
    ValidOrDefault(Move { revision }): ValidOrDefault<Move>,
) -> Reply {
    let revision = if_match.with(revision)?;
    change(&app, &by, coupon, Change::Move(CouponState::Paused, revision), &if_match).await
}

/// Resume the claims on a paused coupon.
///
/// With a revision, only if the coupon still has that one. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/resume", operation_id = "resumeCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon"), IfMatchHeader),
    request_body = Option<Move>,
    responses(
        (status = 200, description = "The coupon, active", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Unfinished<Coupon>),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "invalid_transition", "revision_conflict", "precondition_failed", "invalid_if_match"]))),
)]
pub async fn resume(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    if_match: IfMatch,
    ValidOrDefault(Move { revision }): ValidOrDefault<Move>,
) -> Reply {
    let revision = if_match.with(revision)?;
    change(&app, &by, coupon, Change::Move(CouponState::Active, revision), &if_match).await
}

/// End a coupon, for good.
///
/// With a revision, only if the coupon still has that one. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/end", operation_id = "endCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon"), IfMatchHeader),
    request_body = Option<Move>,
    responses(
        (status = 200, description = "The coupon, ended", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Unfinished<Coupon>),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "revision_conflict", "precondition_failed", "invalid_if_match"]))),
)]
pub async fn end(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    if_match: IfMatch,
    ValidOrDefault(Move { revision }): ValidOrDefault<Move>,
) -> Reply {
    let revision = if_match.with(revision)?;
    change(&app, &by, coupon, Change::Move(CouponState::Ended, revision), &if_match).await
}

/// Add units to a sale.
///
/// Each key adds its units once. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/restock", operation_id = "restockCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Restock,
    responses(
        (status = 200, description = "The coupon; nothing was added if the key had been used for as many units", body = Coupon),
        (status = 202, description = "The coupon: it is decided, and Redis will be told; until then claims go on as before", body = Unfinished<Coupon>),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "coupon_ended", "no_sale", "stock_too_large", "restock_key_used"]))),
)]
pub async fn restock(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    Valid(restock): Valid<Restock>,
) -> Reply {
    change(&app, &by, coupon, Change::Restock(restock), &IfMatch::default()).await
}

async fn change(
    app: &App,
    by: &Staff,
    coupon: CouponId,
    change: Change,
    if_match: &IfMatch,
) -> Reply {
    match app.coupon_changes.change(coupon, change, &by.actor).await? {
        ChangeOutcome::Changed(coupon) => Ok(tags::changed(coupon.row.revision, &coupon)),
        ChangeOutcome::Decided(coupon) => {
            let revision = coupon.row.revision;
            Ok(accepted(tags::changed(revision, &Unfinished::new(coupon))))
        }
        ChangeOutcome::Refused(refusal) => Err(refused(refusal, if_match)),
    }
}

fn refused(refusal: Refusal, if_match: &IfMatch) -> Problem {
    let detail = refusal.to_string();
    let conflict = |code: &str| Problem::of(code, detail.clone());
    match refusal {
        Refusal::NotFound => coupon_not_found(),
        Refusal::InvalidTransition { from, to } => {
            Problem::invalid_transition("coupon", from.as_str(), to.as_str())
        }
        Refusal::Ended => conflict("coupon_ended"),
        Refusal::RevisionConflict { .. } => if_match.conflict(detail),
        Refusal::NoSale => conflict("no_sale"),
        Refusal::StockOnlyGrows { .. } => conflict("stock_only_grows"),
        Refusal::StockTooLarge => conflict("stock_too_large"),
        Refusal::EmptyWindow | Refusal::WindowPast => {
            Problem::wrong_member("/sale/closes_at", detail)
        }
        Refusal::RestockKeyUsed { .. } => conflict("restock_key_used"),
    }
}
