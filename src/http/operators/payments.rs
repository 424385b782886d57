//! Payments that wait, for administrators: no order has the money, or it is on its way back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::extract::{Id, Params, Valid};
use crate::http::page::{Page, cut_page};
use crate::http::problem::Problem;
use crate::sale::ids::PaymentId;
use crate::sale::payment::owed::{OwedPayment, Settled};

/// A page of payments that wait, newest first.
#[derive(Serialize, ToSchema)]
pub struct OwedPage {
    payments: Vec<OwedPayment>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<PaymentId>,
}

/// Payments that wait for an order, a gateway or an administrator, newest first, each with advice.
#[utoipa::path(
    get, path = "/v1/payments/owed", tag = "payments", params(Page<PaymentId>), security(("token" = [])),
    responses(
        (status = 200, description = "A page of payments", body = OwedPage),
        (status = 400, description = "`invalid_query`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn owed(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(page): Params<Page<PaymentId>>,
) -> Result<Json<OwedPage>, Problem> {
    let limit = page.limit(limits::PAGE_PAYMENTS_MAX)?;
    let found = app.payments.owed.list(page.cursor, limit + 1).await?;
    let (payments, next_cursor) = cut_page(found, limit, |payment| payment.payment_id);
    Ok(Json(OwedPage { payments, next_cursor }))
}

/// Hand a held payment back to its payer. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/payments/{id}/hand-back", tag = "payments", security(("token" = [])),
    params(("id" = String, Path, description = "Payment, by the id in the list")),
    responses(
        (status = 204, description = "It goes back: its gateway is asked"),
        (status = 400, description = "`invalid_id`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`payment_not_found`"),
        (status = 409, description = "`payment_settled`: an order has it, or it is closed; `payment_id_used_twice`: its gateway knows the id for another payment"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn hand_back(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(payment): Id<PaymentId>,
) -> Result<StatusCode, Problem> {
    reply(app.payments.owed.hand_back(payment).await?)
}

/// End of the wait for a payment.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    /// Account of the money, for the books: 1 to 1,000 characters.
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    note: String,
}

/// Close a payment whose money has been dealt with by other means. An order whose refund was asked for is refunded
/// then. Safe to repeat.
#[utoipa::path(
    post, path = "/v1/payments/{id}/close", tag = "payments", security(("token" = [])),
    params(("id" = String, Path, description = "Payment, by the id in the list")),
    request_body = Closing,
    responses(
        (status = 204, description = "It is closed: now or before, and then with its first note"),
        (status = 400, description = "`invalid_id` or `malformed_json`"),
        (status = 401, description = "`invalid_token`"),
        (status = 403, description = "`forbidden`"),
        (status = 404, description = "`payment_not_found`"),
        (status = 409, description = "`payment_settled`: an order has it, or the money is back"),
        (status = 413, description = "`body_too_large`"),
        (status = 415, description = "`unsupported_media_type`"),
        (status = 422, description = "`invalid_body`"),
        (status = 503, description = "`unavailable`"),
    ),
)]
pub async fn close(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(payment): Id<PaymentId>,
    Valid(Closing { note }): Valid<Closing>,
) -> Result<StatusCode, Problem> {
    reply(app.payments.owed.close(payment, note).await?)
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
    }
}

/// Postgres stores no NUL, and blanks are no account.
fn in_words(note: &str, _: &()) -> garde::Result {
    if note.trim().is_empty() || note.contains('\0') {
        return Err(garde::Error::new("say in words what has become of the money"));
    }
    Ok(())
}
