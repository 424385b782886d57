//! Payments that wait for a person: held ones, and those whose refund the gateway hasn't confirmed.
//! `operator/operations.rs` lists them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use super::gateway::Gateway;
use super::model::{PaymentReason, PaymentStatus};
use super::rows;
use crate::order::model::PayMethod;
use crate::order::moves::{self, OrderMoves, REFUNDED};
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{OrderId, PaymentId};
use crate::store::postgres;
use crate::store::{Failure, repeated};

/// A payment of an order, in any status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OrderPayment {
    /// Our id of the payment.
    pub payment_id: PaymentId,
    /// Who holds the money.
    pub gateway: Gateway,
    /// The gateway's id of the payment.
    pub gateway_payment_id: String,
    /// Means of payment.
    pub method: PayMethod,
    /// The amount, in minor units.
    pub amount_cents: i64,
    /// Its currency (ISO 4217); null if the gateway named none and the order is unknown.
    pub currency: Option<String>,
    /// Status of the payment.
    pub status: PaymentStatus,
    /// Why the payment doesn't pay the order, or no longer pays it.
    pub reason: Option<PaymentReason>,
    /// Time at which the payment was noted.
    pub noted_at: DateTime<Utc>,
    /// Time at which the gateway was last asked for a refund.
    pub asked_at: Option<DateTime<Utc>>,
    /// Time at which the money was returned, or an administrator closed the payment.
    pub settled_at: Option<DateTime<Utc>>,
}

/// Payments that wait in one status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owed {
    pub status: PaymentStatus,
    pub payments: i64,
    /// Age of the oldest, in seconds; 0 without any.
    pub oldest_seconds: f64,
}

/// Outcome of an administrator's decision about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Settled, by this call or before.
    Done,
    NotFound,
    DoesNotWait,
    /// The gateway knows the id for another payment, so it can't be asked to refund this one.
    IdUsedTwice,
    /// The gateway has taken the money back already.
    ChargedBack,
    /// The row is a notice that can't be understood.
    NotUnderstood,
}

/// Advice about a payment. `about` is its reason, or `may_be_back` if the money may have been returned before.
pub fn advice(status: PaymentStatus, about: &str) -> &'static str {
    match (status, about) {
        (PaymentStatus::Refunded | PaymentStatus::Closed, _) => "Nothing is left to do.",
        (PaymentStatus::Held, "id_used_twice") => {
            "The gateway has used one id for two payments: ask it whether it took money twice, return that by the gateway's own means, then close the payment with a note."
        }
        (PaymentStatus::Held, "charged_back") => {
            "The gateway has taken the money back. A redeemed order stays redeemed; another one keeps its unit and can't be redeemed. Dispute that with the gateway, or close the payment with a note: a unit that was kept comes back."
        }
        (PaymentStatus::Held, "not_understood") => {
            "A signed notice of the gateway can't be understood, and may be about money. Ask the gateway what it means, settle that with its means, then close the payment with a note."
        }
        (PaymentStatus::Held, "may_be_back") => {
            "The order is so old that payments of its time have been deleted, so the money may have gone back before. Ask the gateway first. If the money is back, close the payment with a note; if not, hand it back."
        }
        (PaymentStatus::Held, _) => {
            "No order has this id yet. It is waited for, and after an hour the payment goes back by itself; if the order is a dead letter, decide about that one, or hand the payment back."
        }
        _ => {
            "The gateway hasn't confirmed the refund yet. If it takes no requests from here, refund it by the gateway's own means: its notice ends the wait, or close the payment with a note."
        }
    }
}

/// Settles payments that wait for a person. Clones share the pool.
#[derive(Clone)]
pub struct OwedPayments {
    pool: PgPool,
    moves: OrderMoves,
}

impl OwedPayments {
    pub fn new(pool: PgPool, moves: OrderMoves) -> Self {
        Self { pool, moves }
    }

    /// Payments for this order, oldest first.
    pub async fn of_order(&self, order: OrderId, limit: u32) -> sqlx::Result<Vec<OrderPayment>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let payments = sqlx::query_as!(
            OrderPayment,
            r#"SELECT id AS "payment_id!: PaymentId", gateway AS "gateway!: Gateway",
                      gateway_payment_id AS "gateway_payment_id!", method AS "method!: PayMethod",
                      amount_cents AS "amount_cents!", currency, status AS "status!: PaymentStatus",
                      refund_reason AS "reason: PaymentReason", created_at AS "noted_at!", nullif(refund_asked_at, '-infinity') AS asked_at,
                      coalesce(closed_at, refunded_at) AS settled_at
               FROM payments WHERE order_id = $1 ORDER BY id LIMIT $2"#,
            order.get(),
            i64::from(limit),
        );
        let payments = payments.fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(payments)
    }

    /// Has a held payment refunded. Does nothing if it is being refunded already.
    pub async fn hand_back(&self, payment: PaymentId, by: &Actor) -> Result<Settled, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        let work = async move { repeated(|| hand_back(&pool, payment, &by)).await };
        self.moves.to_the_end(work).await
    }

    /// Closes a waiting payment for an administrator, who has returned or kept the money by other means. If the order's
    /// refund was requested, or its payment was charged back, the order is refunded now.
    pub async fn close(
        &self,
        payment: PaymentId,
        note: String,
        by: &Actor,
    ) -> Result<Settled, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        let work = async move { repeated(|| close(&pool, payment, &note, &by)).await };
        self.moves.to_the_end(work).await
    }
}

/// Counts the payments that wait, by status; statuses without payments are included.
pub async fn count(pool: &PgPool) -> sqlx::Result<[Owed; 2]> {
    let mut owed = [PaymentStatus::Held, PaymentStatus::Refunding].map(|status| Owed {
        status,
        payments: 0,
        oldest_seconds: 0.0,
    });
    let counts = sqlx::query!(
        // The age counts as in the list of everything that waits for a person.
        r#"SELECT status AS "status: PaymentStatus", count(*) AS "payments!",
                  extract(epoch FROM now() - min(CASE WHEN refund_reason = 'charged_back' THEN updated_at
                                                      ELSE coalesce(refunding_at, created_at) END))::float8 AS "oldest!"
           FROM payments WHERE status IN ('held', 'refunding') GROUP BY status"#
    );
    for count in counts.fetch_all(pool).await? {
        for of in owed.iter_mut().filter(|of| of.status == count.status) {
            (of.payments, of.oldest_seconds) = (count.payments, count.oldest);
        }
    }
    Ok(owed)
}

async fn hand_back(pool: &PgPool, payment: PaymentId, by: &Actor) -> sqlx::Result<Settled> {
    let mut tx = postgres::begin(pool).await?;
    let Some(found) = find(&mut tx, payment).await? else {
        return Ok(Settled::NotFound);
    };
    match (found.status, found.reason) {
        (PaymentStatus::Refunding | PaymentStatus::Refunded, _) => Ok(Settled::Done),
        (PaymentStatus::Held, Some(PaymentReason::IdUsedTwice)) => Ok(Settled::IdUsedTwice),
        (PaymentStatus::Held, Some(PaymentReason::ChargedBack)) => Ok(Settled::ChargedBack),
        (PaymentStatus::Held, Some(PaymentReason::NotUnderstood)) => Ok(Settled::NotUnderstood),
        (PaymentStatus::Held, reason) => {
            rows::leave_hold(&mut tx, payment, reason, (PaymentStatus::Refunding, reason)).await?;
            let event = Event::of(Action::HandPaymentBack, payment.get())
                .before(json!({ "status": found.status }))
                .after(json!({ "status": PaymentStatus::Refunding }));
            audit::note(&mut tx, by, event).await?;
            tx.commit().await?;
            Ok(Settled::Done)
        }
        (PaymentStatus::Accepted | PaymentStatus::Closed, _) => Ok(Settled::DoesNotWait),
    }
}

async fn close(pool: &PgPool, payment: PaymentId, note: &str, by: &Actor) -> sqlx::Result<Settled> {
    let mut tx = postgres::begin(pool).await?;
    let Some(found) = find(&mut tx, payment).await? else {
        return Ok(Settled::NotFound);
    };
    match found.status {
        PaymentStatus::Closed => return Ok(Settled::Done),
        PaymentStatus::Held | PaymentStatus::Refunding => {}
        PaymentStatus::Accepted | PaymentStatus::Refunded => return Ok(Settled::DoesNotWait),
    }
    if matches!(found.reason, Some(PaymentReason::AskedFor | PaymentReason::ChargedBack))
        && let Some(order) = found.order
    {
        moves::make(&mut tx, order, &REFUNDED).await?;
    }
    sqlx::query!(
        "UPDATE payments SET status = 'closed', note = $2, closed_at = now(), next_check_at = NULL, updated_at = now()
         WHERE id = $1 AND status IN ('held', 'refunding')",
        payment.get(),
        note,
    )
    .execute(&mut *tx)
    .await?;
    let event = Event::of(Action::ClosePayment, payment.get())
        .before(json!({ "status": found.status }))
        .after(json!({ "status": PaymentStatus::Closed, "note": note }));
    audit::note(&mut tx, by, event).await?;
    tx.commit().await?;
    Ok(Settled::Done)
}

/// What decides how a payment may end.
struct Found {
    /// `None` for a notice that can't be understood.
    order: Option<OrderId>,
    status: PaymentStatus,
    reason: Option<PaymentReason>,
}

/// Locks the payment and its order until the transaction ends, so that neither a job nor a gateway settles them
/// meanwhile.
async fn find(tx: &mut PgConnection, payment: PaymentId) -> sqlx::Result<Option<Found>> {
    let order = sqlx::query_scalar!(
        r#"SELECT order_id AS "order: OrderId" FROM payments WHERE id = $1"#,
        payment.get(),
    );
    let Some(order) = order.fetch_optional(&mut *tx).await? else { return Ok(None) };
    if let Some(order) = order {
        moves::hold(&mut *tx, order).await?;
    }
    sqlx::query_as!(
        Found,
        r#"SELECT order_id AS "order: OrderId", status AS "status: PaymentStatus",
                  refund_reason AS "reason: PaymentReason"
           FROM payments WHERE id = $1 FOR UPDATE"#,
        payment.get(),
    )
    .fetch_optional(tx)
    .await
}
