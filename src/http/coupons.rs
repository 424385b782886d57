//! Coupons: everybody may read them, administrators create them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::claims::coupon_not_found;
use super::extract::{Id, Params, Valid};
use super::problem::Problem;
use crate::app::App;
use crate::base::limits;
use crate::sale::coupon::input::NewCoupon;
use crate::sale::coupon::model::Coupon;
use crate::sale::ids::CouponId;

/// Which part of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// `next_cursor` of the page before; nothing for the first.
    cursor: Option<CouponId>,
    /// Coupons on a page, 1 to 100; 20 if not given.
    limit: Option<u32>,
}

/// A page of coupons, newest first.
#[derive(Serialize, ToSchema)]
pub struct CouponPage {
    coupons: Vec<Coupon>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<CouponId>,
}

/// Create a coupon. A flash coupon is on sale at once, within its window.
#[utoipa::path(
    post, path = "/v1/coupons", tag = "coupons", security(("token" = [])),
    request_body = NewCoupon,
    responses(
        (status = 201, description = "The coupon", body = Coupon, headers(("Location" = String))),
        (status = 400, description = "`malformed_json`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 413, description = "`body_too_large`"),
        (status = 415, description = "`unsupported_media_type`"),
        (status = 422, description = "`invalid_body`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn create(
    State(app): State<Arc<App>>,
    _: Admin,
    Valid(new): Valid<NewCoupon>,
) -> Result<Response, Problem> {
    let coupon = app.coupons.create(new).await?;
    let location = format!("/v1/coupons/{}", coupon.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(coupon)).into_response())
}

/// Coupons, newest first.
#[utoipa::path(
    get, path = "/v1/coupons", tag = "coupons", params(Page),
    responses(
        (status = 200, description = "A page of coupons", body = CouponPage),
        (status = 400, description = "`invalid_query`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    Params(page): Params<Page>,
) -> Result<Json<CouponPage>, Problem> {
    let limit = page_limit(page.limit, limits::PAGE_COUPONS_MAX)?;
    let found = app.coupons.list(page.cursor, limit + 1).await?;
    let (coupons, next_cursor) = cut_page(found, limit, |coupon| coupon.id);
    Ok(Json(CouponPage { coupons, next_cursor }))
}

/// One coupon.
#[utoipa::path(
    get, path = "/v1/coupons/{id}", tag = "coupons",
    params(("id" = String, Path, description = "Coupon")),
    responses(
        (status = 200, description = "The coupon", body = Coupon),
        (status = 400, description = "`invalid_id`"),
        (status = 404, description = "`coupon_not_found`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    Id(coupon): Id<CouponId>,
) -> Result<Json<Coupon>, Problem> {
    app.coupons.get(coupon).await?.map(Json).ok_or_else(coupon_not_found)
}

/// Cuts what was found down to a page. If there was more, its cursor is the last id that is on it.
pub fn cut_page<T, I>(mut found: Vec<T>, limit: u32, id: impl Fn(&T) -> I) -> (Vec<T>, Option<I>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = found.len() > limit;
    found.truncate(limit);
    let cursor = found.last().map(id).filter(|_| more);
    (found, cursor)
}

/// The asked-for length of a page.
pub fn page_limit(asked: Option<u32>, max: u32) -> Result<u32, Problem> {
    let limit = asked.unwrap_or(20);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("`limit` is a number from 1 to {max}");
    Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail))
}
