//! Payments that wait, for administrators: no order has the money, or it is on its way back.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::{Admin, Operator};
use crate::http::extract::{Id, Params, Valid};
use crate::http::frame::reply::Json;
use crate::http::page::{cut_page, page_limit};
use crate::http::problem::Problem;
use crate::http::words::{Words, in_words};
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
    /// `next_cursor` of the page before; nothing for the first.
    #[param(inline, nullable = false)]
    cursor: Option<PaymentId>,
    /// Items on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
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
    get, path = "/v1/payments/owed", operation_id = "listOwedPayments", tag = "payments", params(Asked), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of payments", body = OwedPage),
    ),
)]
pub async fn owed(
    State(app): State<Arc<App>>,
    _: Operator,
    Params(asked): Params<Asked>,
) -> Result<Json<OwedPage>, Problem> {
    let limit = page_limit(asked.limit, limits::PAGE_PAYMENTS_MAX)?;
    let filter = OwedFilter {
        settled: asked.settled == Some(true),
        reason: asked.reason,
        order: asked.order,
    };
    let found = app.payments.owed.list(&filter, asked.cursor, limit + 1).await?;
    let (payments, next_cursor) = cut_page(found, limit, |payment| payment.payment_id);
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

/// End of the wait for a payment.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    /// Account of the money, for the books: 1 to 1,000 characters, not only spaces.
    #[schema(value_type = Words)]
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    note: String,
}

/// Close a payment that was settled elsewhere.
///
/// Its money has been dealt with by other means. An order whose refund was asked for is refunded then. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/payments/{id}/close", operation_id = "closePayment", tag = "payments", security(("admin" = [])),
    params(("id" = PaymentId, Path, description = "Id of the payment in the list")),
    request_body = Closing,
    responses(
        (status = 204, description = "It is closed: now or before, and then with its first note"),
    ),
    extensions(("x-problems" = json!(["payment_not_found", "payment_settled"]))),
)]
pub async fn close(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(payment): Id<PaymentId>,
    Valid(Closing { note }): Valid<Closing>,
) -> Result<StatusCode, Problem> {
    reply(app.payments.owed.close(payment, note, &by.actor).await?)
}

fn reply(settled: Settled) -> Result<StatusCode, Problem> {
    let conflict = |code, detail| Err(Problem::new(StatusCode::CONFLICT, code, detail));
    match settled {
        Settled::Done => Ok(StatusCode::NO_CONTENT),
        Settled::NotFound => {
            Err(Problem::not_found("payment_not_found", "there is no payment with this id"))
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
