//! Coupons: all users read them, administrators create them.

// Live state of a sale, as a stream.
pub mod live;

// An operator archives a sale.
pub mod archive;

// Changes of a coupon.
pub mod changes;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Params, Valid};
use crate::http::page::{Page, cut_page};
use crate::http::problem::Problem;
use crate::sale::coupon::create::Creation;
use crate::sale::coupon::input::NewCoupon;
use crate::sale::coupon::model::Coupon;
use crate::sale::ids::CouponId;

/// A page of coupons, newest first.
#[derive(Serialize, ToSchema)]
pub struct CouponPage {
    coupons: Vec<Coupon>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<CouponId>,
}

/// Create a coupon.
///
/// A flash coupon is on sale at once, within its window.
#[utoipa::path(
    post, path = "/v1/coupons", operation_id = "createCoupon", tag = "coupons", security(("admin" = [])),
    request_body = NewCoupon,
    responses(
        (status = 201, description = "The coupon", body = Coupon, headers(("Location" = String))),
    ),
    extensions(("x-problems" = json!(["durability_unavailable"]))),
)]
pub async fn create(
    State(app): State<Arc<App>>,
    _: Admin,
    Valid(new): Valid<NewCoupon>,
) -> Result<Response, Problem> {
    let coupon = match app.coupons.create(new).await? {
        Creation::Created(coupon) => coupon,
        refused @ Creation::DurabilityUnavailable { .. } => {
            let code = "durability_unavailable";
            return Err(Problem::new(StatusCode::CONFLICT, code, refused.to_string()));
        }
    };
    let location = format!("/v1/coupons/{}", coupon.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(coupon)).into_response())
}

/// Coupons, newest first.
///
/// Ended coupons are listed, too.
#[utoipa::path(
    get, path = "/v1/coupons", operation_id = "listCoupons", tag = "coupons", params(Page<CouponId>),
    responses(
        (status = 200, description = "A page of coupons", body = CouponPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    Params(page): Params<Page<CouponId>>,
) -> Result<Json<CouponPage>, Problem> {
    let limit = page.limit(limits::PAGE_COUPONS_MAX)?;
    let found = app.coupons.list(page.cursor, limit + 1).await?;
    let (coupons, next_cursor) = cut_page(found, limit, |coupon| coupon.id);
    Ok(Json(CouponPage { coupons, next_cursor }))
}

/// One coupon.
///
/// With a sale, it tells how many units are left.
#[utoipa::path(
    get, path = "/v1/coupons/{id}", operation_id = "getCoupon", tag = "coupons",
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    responses(
        (status = 200, description = "The coupon", body = Coupon),
    ),
    extensions(("x-problems" = json!(["coupon_not_found"]))),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    Id(coupon): Id<CouponId>,
) -> Result<Json<Coupon>, Problem> {
    app.coupons.get(coupon).await?.map(Json).ok_or_else(coupon_not_found)
}
