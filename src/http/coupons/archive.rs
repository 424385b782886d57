//! Archiving an ended sale early: an operator may if the sale is settled, an administrator may also give up what is
//! open.

use std::sync::Arc;

use axum::extract::State;
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::kit::jwt::Scope;
use crate::operator::archive::{ArchiveOutcome, ArchiveRefusal, Archived};
use crate::store::ids::CouponId;

/// Options of archiving.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Archiving {
    /// Whether open dead letters, units on their way back, and buyers without an order may be given up. Only an
    /// administrator may accept that.
    #[garde(skip)]
    accept_loss: bool,
}

/// Archive an ended sale now.
///
/// Only if every claim is known to be an order, or if an administrator accepts the loss. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/archive", operation_id = "archiveCoupon", tag = "coupons", security(("operator" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = Archiving,
    responses(
        (status = 200, description = "It is archived, now or before; and what was given up for it by this call", body = Archived),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "sale_not_ended", "sale_in_flight", "sale_not_settled", "sale_not_loaded", "no_sale"]))),
)]
pub async fn archive(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(coupon): Id<CouponId>,
    Valid(archiving): Valid<Archiving>,
) -> Result<Json<Archived>, Problem> {
    if archiving.accept_loss {
        by.need(Scope::Administrator)?;
    }
    match app.archive.ask(coupon, archiving.accept_loss, &by.actor).await? {
        ArchiveOutcome::Archived(archived) => Ok(Json(archived)),
        ArchiveOutcome::Refused(refusal) => Err(refused(&refusal)),
    }
}

fn refused(refusal: &ArchiveRefusal) -> Problem {
    let code = match refusal {
        ArchiveRefusal::NotFound => return coupon_not_found(),
        ArchiveRefusal::NoSale => "no_sale",
        ArchiveRefusal::NotEnded => "sale_not_ended",
        ArchiveRefusal::NotLoaded => "sale_not_loaded",
        ArchiveRefusal::InFlight(_) => "sale_in_flight",
        ArchiveRefusal::NotSettled(_) => "sale_not_settled",
    };
    Problem::of(code, refusal.to_string())
}
