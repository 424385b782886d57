//! Notices of a payment gateway, which confirms payments and refunds. Only the signature proves who has sent one.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderName;
use garde::Validate;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::caller;
use super::extract;
use super::problem::Problem;
use super::state::HttpState;
use crate::app::App;
use crate::http::frame::reply::Json;
use crate::order::model::Order;
use crate::payment::callback::{Notice, Receipt};
use crate::payment::model::PaymentReason;

const SIGNATURE: HeaderName = HeaderName::from_static("x-signature");

/// A body that the gateway has signed.
pub struct Signed(pub Bytes);

/// Outcome of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = NoticeOutcome)]
enum Outcome {
    /// The payment has paid its order.
    Accepted,
    /// The payment could not pay its order, and is refunded.
    HandedBack,
    /// The payment is recorded, and no order has the money yet.
    Held,
    /// The refund is recorded.
    Refunded,
    /// The refund is recorded. The service had not asked for it, and the order has lost its payment.
    ChargedBack,
}

/// Reply to a gateway.
#[derive(Serialize, ToSchema)]
#[schema(as = NoticeAnswer)]
pub struct Answer {
    outcome: Outcome,
    /// Reason why no order has the money; with `handed_back` and `held` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<PaymentReason>,
    /// The order as it is now, without its redemption code; null if it is unknown, or not written yet.
    order: Option<Order>,
}

impl FromRequest<HttpState> for Signed {
    type Rejection = Problem;

    async fn from_request(request: Request, http: &HttpState) -> Result<Self, Problem> {
        let Some(callbacks) = &http.front().callbacks else {
            let detail = "no gateway is known here: --payment-callback-secret isn't set";
            return Err(Problem::of("callbacks_off", detail));
        };
        let (parts, body) = request.into_parts();
        let signature = parts.headers.get(SIGNATURE).and_then(|value| value.to_str().ok());
        let body = extract::whole_body(body).await?;
        if !callbacks.verifies(&body, signature.unwrap_or("")) {
            http.front().bounds.anonymous(caller(&parts).client)?;
            let detail = match callbacks.stamped_only() {
                true => {
                    "send the header `X-Signature: t=<seconds since 1970>,v1=<signature>`: HMAC-SHA256 of the time, a dot and the body with the common secret, in hexadecimal; it is good for five minutes"
                }
                false => {
                    "send the header `X-Signature`: HMAC-SHA256 of the body with the common secret, in hexadecimal"
                }
            };
            return Err(Problem::of("invalid_signature", detail));
        }
        Ok(Self(body))
    }
}

/// Notice of a gateway: a payment or a refund.
///
/// The gateway signs the body, and repeats the notice until it is answered 200. Safe to repeat. Unknown members are
/// ignored. A notice that can't be understood is held as it was sent, and an administrator decides about it.
#[utoipa::path(
    post, path = "/v1/payments/callback", operation_id = "receivePaymentNotice", tag = "payments", security(("signature" = [])),
    request_body = Notice,
    responses(
        (status = 200, description = "It has been noted: now or before", body = Answer),
    ),
    extensions(("x-problems" = json!(["invalid_signature", "callbacks_off", "payment_not_found"]))),
)]
pub async fn callback(
    State(app): State<Arc<App>>,
    Signed(body): Signed,
) -> Result<Json<Answer>, Problem> {
    let receipt = match read(&body) {
        Ok(notice) => app.payments.receive(notice).await?,
        Err(fault) => app.payments.hold_notice(&body, &fault).await?,
    };
    let (outcome, reason, order) = match receipt {
        Receipt::Accepted(order) => (Outcome::Accepted, None, Some(order)),
        Receipt::HandedBack(order, reason) => (Outcome::HandedBack, Some(reason), order),
        Receipt::Held(order, reason) => (Outcome::Held, Some(reason), order),
        Receipt::Refunded(order) => (Outcome::Refunded, None, order),
        Receipt::ChargedBack(order) => (Outcome::ChargedBack, None, Some(order)),
        Receipt::NoPayment => {
            let detail = "there is no payment with this id";
            return Err(Problem::of("payment_not_found", detail));
        }
    };
    Ok(Json(Answer { outcome, reason, order: order.map(Order::without_code) }))
}

/// The notice, or the reason why it can't be understood.
fn read(body: &[u8]) -> Result<Notice, String> {
    if !body.trim_ascii().starts_with(b"{") {
        return Err("it is no object".to_owned());
    }
    let notice: Notice = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    notice.validate().map_err(|report| report.to_string())?;
    Ok(notice)
}
