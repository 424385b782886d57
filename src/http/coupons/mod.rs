//! Coupons: anyone reads them, administrators create them.

// Live state of a sale, as a stream.
pub mod live;

// Progress of a sale, by both stores.
pub mod progress;

// An operator archives a sale.
pub mod archive;

// An administrator cancels all unpaid orders of a coupon.
pub mod cancel_unpaid;

// Changes of a coupon.
pub mod changes;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::coupon::create::Creation;
use crate::coupon::creation_keys::CreationKey;
use crate::coupon::input::NewCoupon;
use crate::coupon::model::{Coupon, CouponFilter, CouponKind, CouponState};
use crate::http::auth::Admin;
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Key, KeyHeader, Keyed};
use crate::http::frame::reply::Json;
use crate::http::page::{List, PageParams};
use crate::http::problem::Problem;
use crate::http::tags;
use crate::kit::tagged::TaggedJson;
use crate::store::ids::CouponId;

/// A page of coupons, newest first.
#[derive(Serialize, ToSchema)]
pub struct CouponPage {
    coupons: Vec<Coupon>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<CouponId>,
}

/// Create a coupon.
///
/// A flash coupon is on sale at once, within its window. Safe to repeat with the header Idempotency-Key.
#[utoipa::path(
    post, path = "/v1/coupons", operation_id = "createCoupon", tag = "coupons", security(("admin" = [])),
    params(KeyHeader),
    request_body = NewCoupon,
    responses(
        (status = 201, description = "The coupon", body = Coupon, headers(("Location" = String))),
    ),
    extensions(("x-problems" = json!(["invalid_idempotency_key", "idempotency_key_reused"]))),
)]
pub async fn create(
    State(app): State<Arc<App>>,
    Admin(administrator): Admin,
    Keyed(new, key): Keyed<NewCoupon>,
) -> Result<Response, Problem> {
    let key = key.map(|Key { key, body }| CreationKey::new(administrator.id.get(), key, &body));
    let coupon = match app.coupons.create(new, key, &administrator.actor).await? {
        Creation::Created(coupon) => coupon,
        refused @ Creation::KeyReused => {
            return Err(Problem::key_reused(refused.to_string()));
        }
        refused @ Creation::WindowPast => {
            return Err(Problem::wrong_member("/sale/closes_at", refused.to_string()));
        }
    };
    let location = format!("/v1/coupons/{}", coupon.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(coupon)).into_response())
}

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only coupons of this kind.
    #[param(inline, nullable = false)]
    kind: Option<CouponKind>,
    /// Only coupons in this state.
    #[param(inline, nullable = false)]
    state: Option<CouponState>,
}

/// Coupons, newest first.
///
/// Ended coupons are listed, too.
#[utoipa::path(
    get, path = "/v1/coupons", operation_id = "listCoupons", tag = "coupons",
    params(Asked, PageParams<CouponId>),
    responses(
        (status = 200, description = "A page of coupons", body = CouponPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    List(asked, page): List<Asked, CouponId>,
) -> Result<Response, Problem> {
    let Asked { kind, state } = asked;
    let found =
        app.coupons.list(CouponFilter { kind, state }, page.cursor, page.read_max()).await?;
    let (coupons, next_cursor) = page.cut(found, |coupon| coupon.id);
    Ok(tags::shared(&TaggedJson::new(&CouponPage { coupons, next_cursor })))
}

/// One coupon.
///
/// With a sale, the reply says how many units were left at most 200 ms ago. The process that makes a change shows it at
/// once, the others within 200 ms.
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
) -> Result<Response, Problem> {
    let coupon = app.coupons.cache.show(coupon).await?.ok_or_else(coupon_not_found)?;
    Ok(tags::shared(&coupon))
}
