//! Payments that wait for the staff: no order has the money, or the gateway hasn't confirmed the refund.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::http::auth::{Admin, Operator};
use crate::http::extract::{Id, Valid};
use crate::http::problem::Problem;
use crate::http::words::Noted;
use crate::payment::owed::Settled;
use crate::store::ids::PaymentId;

/// Hand a held payment back to its payer.
///
/// The service asks its gateway to refund it. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/payments/{id}/hand-back", operation_id = "handPaymentBack", tag = "payments", security(("operator" = [])),
    params(("id" = PaymentId, Path, description = "Id of the payment in the list")),
    responses(
        (status = 204, description = "It goes back: its gateway is asked"),
    ),
    extensions(("x-problems" = json!(["payment_not_found", "payment_settled", "payment_id_used_twice", "payment_charged_back", "notice_not_understood"]))),
)]
pub async fn hand_back(
    State(app): State<Arc<App>>,
    Operator(by): Operator,
    Id(payment): Id<PaymentId>,
) -> Result<StatusCode, Problem> {
    reply(app.payments.owed.hand_back(payment, &by.actor).await?)
}

/// Close a payment that was settled elsewhere.
///
/// The money has been dealt with by other means. If the refund of its order was asked for, or the payment was charged
/// back, the order becomes refunded. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/payments/{id}/close", operation_id = "closePayment", tag = "payments", security(("admin" = [])),
    params(("id" = PaymentId, Path, description = "Id of the payment in the list")),
    request_body = Noted,
    responses(
        (status = 204, description = "It is closed: now or before, and then with its first note"),
    ),
    extensions(("x-problems" = json!(["payment_not_found", "payment_settled"]))),
)]
pub async fn close(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(payment): Id<PaymentId>,
    Valid(Noted { note }): Valid<Noted>,
) -> Result<StatusCode, Problem> {
    reply(app.payments.owed.close(payment, note, &by.actor).await?)
}

fn reply(settled: Settled) -> Result<StatusCode, Problem> {
    let conflict = |code, detail| Err(Problem::of(code, detail));
    match settled {
        Settled::Done => Ok(StatusCode::NO_CONTENT),
        Settled::NotFound => {
            Err(Problem::of("payment_not_found", "there is no payment with this id"))
        }
        Settled::DoesNotWait => {
            conflict("payment_settled", "nothing is left to do about this payment")
        }
        Settled::IdUsedTwice => conflict(
            "payment_id_used_twice",
            "the gateway knows the id for another payment: return the money by the gateway's own means, then close this payment with a note",
        ),
        Settled::NotUnderstood => conflict(
            "notice_not_understood",
            "no amount of this notice is known: settle by the gateway's own means what it is about, then close it with a note",
        ),
        Settled::ChargedBack => conflict(
            "payment_charged_back",
            "the gateway has taken the money back already: close this payment with a note",
        ),
    }
}
