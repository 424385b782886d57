//! All unpaid orders of a coupon, cancelled by an administrator.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Admin;
use crate::http::claims::coupon_not_found;
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::{Json, Unfinished, accepted};
use crate::http::problem::Problem;
use crate::http::words::{Words, in_words};
use crate::sale::coupon::values::{RestockKey, one_line};
use crate::sale::ids::CouponId;
use crate::sale::order::cancellations::Asked;
use crate::sale::order::moves::jobs::Job;

/// All unpaid orders of a coupon, to be cancelled.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct CancelUnpaid {
    /// Name of this request for this coupon, 1 to 100 characters of the client's choice. A repeat for the same reason finds the same job.
    #[schema(value_type = RestockKey)]
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    key: String,
    /// Reason, for the book of changes: 1 to 1,000 characters, not only spaces.
    #[schema(value_type = Words)]
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    reason: String,
}

const KEY_REUSED: &str =
    "this key has begun a job for another reason; give another request a key of its own";

/// Cancel all unpaid orders of a coupon.
///
/// Of claims before this request. A job does it, whose progress can be read. Once for each key: safe to repeat.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/cancel-unpaid", operation_id = "cancelUnpaidOrders", tag = "coupons", security(("admin" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    request_body = CancelUnpaid,
    responses(
        (status = 202, description = "The job, as far as it has come", body = Job, headers(("Location" = String))),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "idempotency_key_reused"]))),
)]
pub async fn cancel_unpaid(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(coupon): Id<CouponId>,
    Valid(CancelUnpaid { key, reason }): Valid<CancelUnpaid>,
) -> Result<Response, Problem> {
    let job = match app.cancellations.ask(coupon, &key, &reason, &by.actor).await? {
        Asked::Job(job) => job,
        Asked::KeyReused => return Err(Problem::key_reused(KEY_REUSED)),
        Asked::NoCoupon => return Err(coupon_not_found()),
    };
    let location = format!("/v1/jobs/{}", job.job_id);
    Ok(accepted(([(header::LOCATION, location)], Json(Unfinished::new(job)))))
}
