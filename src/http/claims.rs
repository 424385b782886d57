//! Claims on a coupon, and their outcome.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::auth::User;
use super::extract::Id;
use super::problem::Problem;
use super::state::HttpState;
use crate::app::App;
use crate::base::durability::Level;
use crate::base::limits;
use crate::claim::outcome::{ClaimOutcome, UNAVAILABLE};
use crate::claim::status::{ClaimState, ClaimStatus, Inquiry};
use crate::claim::trace::TracedClaim;
use crate::claim::trace::probe::Probe;
use crate::http::frame::reply::{A_SECOND, Json};
use crate::order::model::Order;
use crate::store::Failure;
use crate::store::ids::{CouponId, OrderId, UserId};

/// The value `1` asks for the times of a claim; other values are ignored.
const X_TRACE: HeaderName = HeaderName::from_static("x-trace");
/// Tells the times of a claim (<https://www.w3.org/TR/server-timing/>).
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An accepted claim.
#[derive(Serialize, ToSchema)]
struct Accepted {
    /// The order that it becomes.
    order_id: OrderId,
    /// The claimed coupon.
    coupon_id: CouponId,
    /// Always `pending`.
    status: ClaimStatus,
    /// Milliseconds after which to ask for the claim's status.
    #[schema(minimum = 0)]
    retry_after_ms: u64,
}

impl Accepted {
    /// Formatted by hand, because each accepted claim gets one.
    fn body(order: OrderId, coupon: CouponId) -> String {
        let ms = limits::CLAIM_POLL_PAUSE.as_millis();
        format!(
            r#"{{"order_id":"{order}","coupon_id":"{coupon}","status":"pending","retry_after_ms":{ms}}}"#
        )
    }
}

/// Claim one unit of a coupon.
///
/// Safe to repeat: a repeat takes no second unit, and is told the order of the first claim. After a 202, poll the
/// address in Location. Or send `Prefer: wait=N`, and get the order itself if it is written in time.
#[utoipa::path(
    post, path = "/v1/coupons/{id}/claims", operation_id = "claimCoupon", tag = "claims", security(("user" = [])),
    params(
        ("id" = CouponId, Path, description = "Id of the coupon"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: wait up to N (at most 10) seconds for the order to be written, and get it"),
        ("X-Trace" = Option<String>, Header, description = "`1`: measure this claim. The reply has Server-Timing if the script was asked, and the order's trace has each step of an accepted claim"),
    ),
    responses(
        (status = 201, description = "The order, written", body = Order, headers(("Location" = String))),
        (status = 202, description = "Accepted; the order is on its way", body = Accepted, headers(("Location" = String))),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "already_claimed", "sale_not_started", "sale_paused", "too_many_unpaid_orders", "too_many_closed_orders", "sold_out", "sale_ended", "overloaded", "recovering"]))),
)]
#[deny(
    clippy::large_futures,
    reason = "thousands of claims may wait at a time, each in one of these"
)]
pub async fn claim(
    State(http): State<HttpState>,
    User(user): User,
    Id(coupon): Id<CouponId>,
    PreferWait(patience): PreferWait,
    Measured(probe): Measured,
) -> Result<Response, Problem> {
    let app = http.app();
    let answer = answer(app, (coupon, user), patience, probe.as_ref()).await;
    match &probe {
        Some(probe) => Ok(traced(app, (coupon, user), probe, answer)),
        None => answer,
    }
}

async fn answer(
    app: &App,
    (coupon, user): (CouponId, UserId),
    patience: Option<Duration>,
    probe: Option<&Arc<Probe>>,
) -> Result<Response, Problem> {
    let mut answer = app.claims.claim_probed(coupon, user, probe).await;
    if let Ok(ClaimOutcome::Accepted(order) | ClaimOutcome::AlreadyClaimed(order)) = answer
        && app.durability.first().level() == Level::Postgres
    {
        answer = Box::pin(committed(app, user, order, answer)).await;
    }
    app.metrics.count_claim(answer.as_ref().map_or(UNAVAILABLE, |outcome| outcome.status().code));
    let outcome = answer?;
    if let ClaimOutcome::Accepted(order_id) = outcome
        && let Some(patience) = patience
        && let Some(order) = Box::pin(app.order_waiters.wait(user, order_id, patience)).await
    {
        return reply(coupon, ClaimOutcome::Created(order.into()));
    }
    reply(coupon, outcome)
}

/// Adds the times to the reply to a measured claim, and notes the claim for its trace if it was accepted.
fn traced(
    app: &App,
    (coupon, user): (CouponId, UserId),
    probe: &Probe,
    answer: Result<Response, Problem>,
) -> Response {
    let is_success = answer.is_ok();
    let mut reply = answer.into_response();
    let Some(call) = probe.call() else { return reply };
    let times = HeaderValue::try_from(call.server_timing()).expect("it is plain ASCII");
    reply.headers_mut().insert(SERVER_TIMING, times);
    let Some(order) = call.accepted.filter(|_| is_success) else { return reply };
    app.traces.note_claim(TracedClaim { order, coupon, user, call, told_at: Instant::now() });
    reply
}

/// Waits for the order in Postgres, or for its dead letter, and returns the outcome. If neither comes within
/// [`limits::ROW_WAIT_MAX`], the outcome is unknown.
async fn committed(
    app: &App,
    user: UserId,
    order: OrderId,
    answer: Result<ClaimOutcome, Failure>,
) -> Result<ClaimOutcome, Failure> {
    match app.order_waiters.wait(user, order, limits::ROW_WAIT_MAX).await {
        Some(order) if matches!(answer, Ok(ClaimOutcome::Accepted(_))) => {
            Ok(ClaimOutcome::Created(order.into()))
        }
        Some(_) => answer,
        None if app.dead_letters.is_open(order).await? => answer,
        None => Err(Failure::NotKept("Postgres doesn't have the order yet")),
    }
}

/// Outcome of my claim.
///
/// `pending` until the order is written, `in_review` while an operator decides about it, then the status of the order.
#[utoipa::path(
    get, path = "/v1/coupons/{id}/claims/me", operation_id = "getMyClaim", tag = "claims", security(("user" = [])),
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    responses(
        (status = 200, description = "State of the claim", body = ClaimState),
    ),
    extensions(("x-problems" = json!(["not_claimed", "coupon_not_found", "recovering"]))),
)]
pub async fn my_claim(
    State(app): State<Arc<App>>,
    User(user): User,
    Id(coupon): Id<CouponId>,
) -> Result<Json<ClaimState>, Problem> {
    match app.claim_statuses.inquire(coupon, user).await? {
        Inquiry::Claimed(state) => Ok(Json(state)),
        Inquiry::NotClaimed => Err(Problem::of("not_claimed", "you haven't claimed this coupon")),
        Inquiry::NoCoupon => Err(coupon_not_found()),
    }
}

pub fn coupon_not_found() -> Problem {
    Problem::of("coupon_not_found", "there is no coupon with this id")
}

fn reply(coupon: CouponId, outcome: ClaimOutcome) -> Result<Response, Problem> {
    let status = outcome.status();
    let http = StatusCode::from_u16(status.http).expect("the table holds valid statuses");
    let refuse = |detail: &'static str| Problem::of(status.code, detail);
    Err(match outcome {
        ClaimOutcome::Accepted(order_id) => {
            let location = format!("/v1/coupons/{coupon}/claims/me");
            let location = HeaderValue::try_from(location).expect("it is plain ASCII");
            let headers = [
                (header::CONTENT_TYPE, JSON),
                (header::LOCATION, location),
                (header::RETRY_AFTER, A_SECOND),
            ];
            return Ok((http, headers, Accepted::body(order_id, coupon)).into_response());
        }
        ClaimOutcome::Created(order) => {
            let location = format!("/v1/orders/{}", order.order_id);
            return Ok((http, [(header::LOCATION, location)], Json(order)).into_response());
        }
        ClaimOutcome::AlreadyClaimed(order) => {
            refuse("you have claimed this coupon; `order_id` is the order").order_id(order)
        }
        ClaimOutcome::NotStarted(wait) => {
            refuse("the sale hasn't started; come back after Retry-After seconds").retry_after(wait)
        }
        ClaimOutcome::TooManyUnpaid => {
            refuse("you hold as many unpaid orders as you may; pay or cancel one first")
        }
        ClaimOutcome::TooManyClosed(wait) => {
            refuse("you have closed too many orders of this coupon; come back after Retry-After seconds")
                .retry_after(wait)
        }
        ClaimOutcome::Paused => refuse("the sale is paused; come back later"),
        ClaimOutcome::Ended => refuse("the sale has ended"),
        ClaimOutcome::SoldOut => refuse("no unit is left"),
        ClaimOutcome::Overloaded => {
            refuse("there are more claims than can be taken in, and this one was not carried out; come back after Retry-After seconds")
                .retry_after(limits::OVERLOADED_RETRY_AFTER)
        }
        ClaimOutcome::NotFound => coupon_not_found(),
    })
}

/// Time that the client is willing to wait for the order.
pub struct PreferWait(pub Option<Duration>);

impl<S: Sync> FromRequestParts<S> for PreferWait {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(prefer_wait(&parts.headers)))
    }
}

/// A probe, if the client asks for the times of its claim.
pub struct Measured(Option<Arc<Probe>>);

impl FromRequestParts<HttpState> for Measured {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, Infallible> {
        let is_asked = parts.headers.get(X_TRACE).is_some_and(|value| value == "1");
        Ok(Self(is_asked.then(Arc::default)))
    }
}

/// `Prefer: wait=N` (RFC 7240, section 4.3), among other preferences.
fn prefer_wait(headers: &HeaderMap) -> Option<Duration> {
    let preferences =
        headers.get_all("prefer").iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    let wait = preferences.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, seconds) = preference.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("wait")
            .then(|| seconds.trim().trim_matches('"').parse().ok())?
    });
    wait.map(Duration::from_secs).map(|wait| wait.min(limits::PREFER_WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_of(value: &'static str) -> Option<u64> {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("prefer"),
            HeaderValue::from_static(value),
        )]);
        prefer_wait(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_body_of_an_accepted_claim_is_what_is_documented() {
        let order_id = OrderId::new(i64::MAX).unwrap();
        let coupon_id = CouponId::compose(1, 1);
        let retry_after_ms = u64::try_from(limits::CLAIM_POLL_PAUSE.as_millis()).unwrap();
        let accepted =
            Accepted { order_id, coupon_id, status: ClaimStatus::Pending, retry_after_ms };
        let body = serde_json::to_string(&accepted).unwrap();
        assert_eq!(Accepted::body(order_id, coupon_id), body);
    }

    #[test]
    fn prefer_wait_is_found_among_other_preferences() {
        assert_eq!(wait_of("wait=5"), Some(5));
        assert_eq!(wait_of("respond-async, WAIT = \"7\""), Some(7));
        assert_eq!(wait_of("return=5, wait=3; x=9"), Some(3));
        assert_eq!(wait_of("wait=10"), Some(10));
        assert_eq!(wait_of("wait=3600"), Some(10));
    }

    #[test]
    fn what_is_not_a_wait_is_ignored() {
        for value in ["", "wait", "wait=", "wait=-1", "wait=x", "return=minimal", "waits=5", "x=5"]
        {
            assert_eq!(wait_of(value), None, "{value}");
        }
    }
}
