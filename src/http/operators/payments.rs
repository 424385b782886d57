//! Payments that wait, for administrators: no order has the money, or it is on its way back.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::auth::{Admin, Operator};
use crate::http::extract::{Id, Valid};
use crate::http::frame::reply::Json;
use crate::http::page::{List, PageParams};
use crate::http::problem::Problem;
use crate::http::words::Noted;
use crate::sale::ids::{OrderId, PaymentId};
use crate::sale::payment::model::PaymentReason;
use crate::sale::payment::owed::{OwedFilter, OwedPayment, Settled};

/// Part of the payments, and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// `true`: those that waited once, and have gone back or were closed. Without it, those that wait.
    #[param(inline, nullable = false)]
    settled: Option<bool>,
    /// Only those of this reason.
    #[param(inline, nullable = false)]
    reason: Option<PaymentReason>,
    /// Only those for this order.
    #[param(inline, nullable = false, value_type = Option<OrderId>)]
    order: Option<OrderId>,
}

/// A page of payments that wait, newest first.
#[derive(Serialize, ToSchema)]
pub struct OwedPage {
    payments: Vec<OwedPayment>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<PaymentId>,
}

/// Payments that wait, newest first.
///
/// Each waits for an order, a gateway or an administrator, and has advice. With `settled`, those whose wait is over.
#[utoipa::path(
    get, path = "/v1/payments/owed", operation_id = "listOwedPayments", tag = "payments", params(Asked, PageParams<PaymentId>), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of payments", body = OwedPage),
    ),
)]
pub async fn owed(
    State(app): State<Arc<App>>,
    _: Operator,
    List(asked, page): List<Asked, PaymentId>,
) -> Result<Json<OwedPage>, Problem> {
    let filter = OwedFilter {
        settled: asked.settled == Some(true),
        reason: asked.reason,
        order: asked.order,
    };
    let found = app.payments.owed.list(&filter, page.cursor, page.look()).await?;
    let (payments, next_cursor) = page.cut(found, |payment| payment.payment_id);
    Ok(Json(OwedPage { payments, next_cursor }))
}

/// Hand a held payment back to its payer.
///
/// Its gateway is asked to refund it. Safe to repeat.
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
/// Its money has been dealt with by other means. An order whose refund was asked for is refunded then. Safe to repeat.
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
