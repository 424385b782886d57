//! Payments that wait: held ones, and those that go back and whose gateway hasn't confirmed that.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use super::gateway::Gateway;
use super::model::{PaymentReason, PaymentStatus};
use super::rows;
use crate::kit::postgres;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::{OrderId, PaymentId};
use crate::sale::order::model::PayMethod;
use crate::sale::order::moves::{self, OrderMoves};
use crate::sale::{Failure, repeated};

/// A payment that waits for an order, its gateway or an administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OwedPayment {
    /// Id of the payment here.
    pub payment_id: PaymentId,
    /// Holder of the money.
    pub gateway: Gateway,
    /// The gateway's id of the payment. Of an id that was used twice, the second payment has ` for ` and its order
    /// behind it.
    pub gateway_payment_id: String,
    /// The order that it was for; null for a notice that can't be understood.
    pub order_id: Option<OrderId>,
    /// The amount, in minor units; null for such a notice.
    pub amount_cents: Option<i64>,
    /// The notice that can't be understood, as it was sent; null for a payment.
    pub notice: Option<String>,
    /// Its currency (ISO 4217); null if neither the gateway nor an order tells it.
    pub currency: Option<String>,
    /// `held` or `refunding`; of settled ones `refunded` or `closed`.
    pub status: PaymentStatus,
    /// Reason why no order has the money.
    pub reason: PaymentReason,
    /// Time since which the payment waits.
    pub since: DateTime<Utc>,
    /// Time at which the gateway was last asked to refund it; null if it was not, or takes no requests.
    pub asked_at: Option<DateTime<Utc>>,
    /// Time at which the wait ended; null while the payment waits.
    pub settled_at: Option<DateTime<Utc>>,
    /// Words of the administrator who closed it.
    pub note: Option<String>,
    /// Advice in words.
    pub what_to_do: &'static str,
}

/// A payment of an order, whatever has become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OrderPayment {
    /// Id of the payment here.
    pub payment_id: PaymentId,
    /// Holder of the money.
    pub gateway: Gateway,
    /// The gateway's id of the payment.
    pub gateway_payment_id: String,
    /// Means of payment.
    pub method: PayMethod,
    /// The amount, in minor units.
    pub amount_cents: i64,
    /// Its currency (ISO 4217); null if the gateway named none, and no order is known.
    pub currency: Option<String>,
    /// Status of the payment.
    pub status: PaymentStatus,
    /// Reason why the payment doesn't pay the order, or pays it no longer.
    pub reason: Option<PaymentReason>,
    /// Time at which the payment was noted.
    pub noted_at: DateTime<Utc>,
    /// Time at which the gateway was last asked to refund it.
    pub asked_at: Option<DateTime<Utc>>,
    /// Time at which the money was back, or an administrator closed the payment.
    pub settled_at: Option<DateTime<Utc>>,
}

/// Number of payments that wait in one status, and the age of the oldest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owed {
    /// The status.
    pub status: PaymentStatus,
    /// Number of payments.
    pub payments: i64,
    /// Age of the oldest, in seconds; 0 without any.
    pub oldest_seconds: f64,
}

/// Outcome of an administrator's word about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Settled, by this call or before.
    Done,
    /// There is no such payment.
    NotFound,
    /// The payment doesn't wait.
    DoesNotWait,
    /// The gateway knows the id for another payment, so it can't be asked to refund this one.
    IdUsedTwice,
    /// The gateway has taken the money back already.
    ChargedBack,
    /// The row is a notice that can't be understood.
    NotUnderstood,
}

/// Payments that are asked for; each part narrows them down.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwedFilter {
    /// Those that have gone back or were closed, in place of those that wait.
    pub settled: bool,
    /// Those of this reason.
    pub reason: Option<PaymentReason>,
    /// Those for this order.
    pub order: Option<OrderId>,
}

/// Advice about a payment; of one that may have gone back before, `about` says `may_be_back` in place of its reason.
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
            "A signed notice of the gateway can't be understood, and may be about money: `notice` has it as it was sent. Ask the gateway what it means, settle that with its means, then close the payment with a note."
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

/// Lists payments that wait, and settles them. Clones share the pool.
#[derive(Clone)]
pub struct OwedPayments {
    pool: PgPool,
    moves: OrderMoves,
}

impl OwedPayments {
    /// Payments in this database.
    pub fn new(pool: PgPool, moves: OrderMoves) -> Self {
        Self { pool, moves }
    }

    /// Payments, newest first, from before the given one on.
    pub async fn list(
        &self,
        filter: &OwedFilter,
        before: Option<PaymentId>,
        limit: u32,
    ) -> sqlx::Result<Vec<OwedPayment>> {
        match filter.settled {
            true => settled(&self.pool, filter, before, limit).await,
            false => waiting(&self.pool, filter, before, limit).await,
        }
    }

    /// Payments for this order, oldest first.
    pub async fn of_order(&self, order: OrderId, limit: u32) -> sqlx::Result<Vec<OrderPayment>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let payments = sqlx::query_as!(
            OrderPayment,
            r#"SELECT id AS "payment_id!: PaymentId", gateway AS "gateway!: Gateway",
                      gateway_payment_id AS "gateway_payment_id!", method AS "method!: PayMethod",
                      amount_cents AS "amount_cents!", currency, status AS "status!: PaymentStatus",
                      refund_reason AS "reason: PaymentReason", created_at AS "noted_at!", refund_asked_at AS asked_at,
                      coalesce(closed_at, refunded_at) AS settled_at
               FROM payments WHERE order_id = $1 ORDER BY id LIMIT $2"#,
            order.get(),
            i64::from(limit),
        );
        let payments = payments.fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(payments)
    }

    /// Has a held payment refunded. Nothing for one that goes back already.
    pub async fn hand_back(&self, payment: PaymentId, by: &Actor) -> Result<Settled, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        let work = async move { repeated(|| hand_back(&pool, payment, &by)).await };
        self.moves.to_the_end(work).await
    }

    /// Ends the wait for a payment on an administrator's word: its money has gone back, or is kept, by other means. An
    /// order whose refund was asked for, or whose payment was charged back, is refunded then.
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

/// Payments that wait, newest first, from before the given one on.
async fn waiting(
    pool: &PgPool,
    filter: &OwedFilter,
    before: Option<PaymentId>,
    limit: u32,
) -> sqlx::Result<Vec<OwedPayment>> {
    let OwedFilter { reason, order, .. } = *filter;
    // Each filter has an index of its own, which a plan that knows no values can't choose.
    let mut tx = postgres::begin_planning(pool).await?;
    let rows = sqlx::query_as!(
        Row,
        // Each part by its own index; an OR would read all payments.
        r#"SELECT id AS "id!: PaymentId", gateway AS "gateway!: Gateway", gateway_payment_id AS "gateway_payment_id!",
                  order_id AS "order_id: OrderId", amount_cents, notice,
                  status AS "status!: PaymentStatus", refund_reason AS "reason!: PaymentReason",
                  CASE WHEN refund_reason = 'charged_back' THEN updated_at
                       ELSE coalesce(refunding_at, created_at) END AS "since!",
                  refund_asked_at, coalesce(closed_at, refunded_at) AS settled_at, note, may_be_back AS "may_be_back!",
                  coalesce(currency, (SELECT orders.currency FROM orders WHERE orders.id = order_id)) AS currency
           FROM (
               (SELECT payments.*, false AS may_be_back FROM payments
                WHERE status = 'refunding' AND id < coalesce($1, 9223372036854775807)
                  AND ($3::text IS NULL OR refund_reason = $3) AND ($4::bigint IS NULL OR order_id = $4)
                ORDER BY id DESC LIMIT $2)
               UNION ALL
               (SELECT payments.*, refund_reason = 'unknown_order' AND next_look_at = 'infinity'
                FROM held_payments JOIN payments ON payments.id = payment_id
                WHERE status = 'held' AND payment_id < coalesce($1, 9223372036854775807)
                  AND ($3::text IS NULL OR refund_reason = $3) AND ($4::bigint IS NULL OR order_id = $4)
                ORDER BY payment_id DESC LIMIT $2)) AS waiting
           ORDER BY id DESC LIMIT $2"#,
        before.map(PaymentId::get),
        i64::from(limit),
        reason.map(PaymentReason::as_str),
        order.map(OrderId::get),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(OwedPayment::from).collect())
}

/// Those of orders in the history, too.
async fn settled(
    pool: &PgPool,
    filter: &OwedFilter,
    before: Option<PaymentId>,
    limit: u32,
) -> sqlx::Result<Vec<OwedPayment>> {
    let mut tx = postgres::begin_planning(pool).await?;
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id AS "id!: PaymentId", gateway AS "gateway!: Gateway", gateway_payment_id AS "gateway_payment_id!",
                  order_id AS "order_id: OrderId", amount_cents, notice,
                  status AS "status!: PaymentStatus", refund_reason AS "reason!: PaymentReason",
                  coalesce(refunding_at, created_at) AS "since!", refund_asked_at,
                  coalesce(closed_at, refunded_at) AS settled_at, note, false AS "may_be_back!",
                  coalesce(currency, (SELECT orders.currency FROM orders WHERE orders.id = order_id)) AS currency
           FROM payments
           WHERE status IN ('refunded', 'closed') AND id < coalesce($1, 9223372036854775807)
             AND ($3::text IS NULL OR refund_reason = $3) AND ($4::bigint IS NULL OR order_id = $4)
           ORDER BY id DESC LIMIT $2"#,
        before.map(PaymentId::get),
        i64::from(limit),
        filter.reason.map(PaymentReason::as_str),
        filter.order.map(OrderId::get),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(OwedPayment::from).collect())
}

/// A payment that waits or has waited, as its row.
struct Row {
    id: PaymentId,
    gateway: Gateway,
    gateway_payment_id: String,
    order_id: Option<OrderId>,
    amount_cents: Option<i64>,
    notice: Option<Vec<u8>>,
    currency: Option<String>,
    status: PaymentStatus,
    reason: PaymentReason,
    since: DateTime<Utc>,
    refund_asked_at: Option<DateTime<Utc>>,
    settled_at: Option<DateTime<Utc>>,
    note: Option<String>,
    may_be_back: bool,
}

impl From<Row> for OwedPayment {
    fn from(row: Row) -> Self {
        Self {
            payment_id: row.id,
            gateway: row.gateway,
            gateway_payment_id: row.gateway_payment_id,
            order_id: row.order_id,
            amount_cents: row.amount_cents,
            notice: row.notice.map(|body| String::from_utf8_lossy(&body).into_owned()),
            currency: row.currency,
            status: row.status,
            reason: row.reason,
            since: row.since,
            asked_at: row.refund_asked_at,
            settled_at: row.settled_at,
            note: row.note,
            what_to_do: advice(
                row.status,
                if row.may_be_back { "may_be_back" } else { row.reason.as_str() },
            ),
        }
    }
}

/// Counts the payments that wait, by status; each status is there, also without any.
pub async fn count(pool: &PgPool) -> sqlx::Result<[Owed; 2]> {
    let row = sqlx::query!(
        r#"SELECT held.count AS "held!", held.oldest AS "held_oldest!",
                  refunding.count AS "refunding!", refunding.oldest AS "refunding_oldest!"
           FROM (SELECT count(*) AS count,
                        -- As in the list of payments that wait.
                        coalesce(extract(epoch FROM now() - min(
                            CASE WHEN refund_reason = 'charged_back' THEN payments.updated_at
                                 ELSE coalesce(refunding_at, payments.created_at) END)), 0)::float8 AS oldest
                 FROM held_payments JOIN payments ON payments.id = payment_id) AS held,
                (SELECT count(*) AS count,
                        coalesce(extract(epoch FROM now() - min(coalesce(refunding_at, created_at))), 0)::float8 AS oldest
                 FROM payments WHERE status = 'refunding') AS refunding"#
    )
    .fetch_one(pool)
    .await?;
    let owed = |status, payments, oldest_seconds| Owed { status, payments, oldest_seconds };
    Ok([
        owed(PaymentStatus::Held, row.held, row.held_oldest),
        owed(PaymentStatus::Refunding, row.refunding, row.refunding_oldest),
    ])
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
        moves::refunded(&mut tx, order).await?;
    }
    sqlx::query!(
        "UPDATE payments SET status = 'closed', note = $2, closed_at = now(), updated_at = now()
         WHERE id = $1 AND status IN ('held', 'refunding')",
        payment.get(),
        note,
    )
    .execute(&mut *tx)
    .await?;
    rows::end_hold(&mut tx, payment).await?;
    let event = Event::of(Action::ClosePayment, payment.get())
        .before(json!({ "status": found.status }))
        .after(json!({ "status": PaymentStatus::Closed, "note": note }));
    audit::note(&mut tx, by, event).await?;
    tx.commit().await?;
    Ok(Settled::Done)
}

/// A payment, as far as its end depends on it.
struct Found {
    /// None for a notice that can't be understood.
    order: Option<OrderId>,
    status: PaymentStatus,
    reason: Option<PaymentReason>,
}

/// The payment and its order are locked until the end of the transaction, so that neither a pass nor a gateway settles the
/// matter meanwhile.
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
