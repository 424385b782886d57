//! Rows of payments.

use sqlx::{PgConnection, PgPool};

use super::gateway::Gateway;
use super::model::{PaymentReason, PaymentStatus};
use crate::base::limits;
use crate::order::model::PayMethod;
use crate::order::moves;
use crate::store::ids::{OrderId, PaymentId};
use crate::store::postgres;

/// Money that a gateway has taken.
#[derive(Clone)]
pub(super) struct Payment {
    pub(super) order: OrderId,
    pub(super) gateway: Gateway,
    /// The gateway's id of the payment.
    pub(super) id: String,
    pub(super) method: PayMethod,
    pub(super) amount_cents: i64,
    /// `None` if the gateway named none, and the order is unknown.
    pub(super) currency: Option<String>,
}

impl Payment {
    /// The same money under an id of its own, because the gateway's id belongs to another payment. Gateways' ids have
    /// no spaces, so it can't clash.
    pub(super) fn under_a_used_id(&self) -> Self {
        Self { id: format!("{} for {}", self.id, self.order), ..self.clone() }
    }
}

/// What decides about a payment's refund.
pub(super) struct Named {
    pub(super) id: PaymentId,
    pub(super) order: OrderId,
    pub(super) status: PaymentStatus,
    pub(super) reason: Option<PaymentReason>,
}

/// Inserts a payment. Returns its id if it is new. The gateway isn't asked about it any more. `look` says who decides
/// about a held payment.
pub(super) async fn insert(
    tx: &mut PgConnection,
    payment: &Payment,
    status: PaymentStatus,
    reason: Option<PaymentReason>,
    check: Option<NextCheck>,
) -> sqlx::Result<Option<PaymentId>> {
    sqlx::query_scalar!(
        r#"WITH opened AS (
               UPDATE opened_payments SET closed_at = now(), updated_at = now()
               WHERE order_id = $1 AND gateway_payment_id = $3 AND $2 = 'external' AND closed_at IS NULL)
           INSERT INTO payments
               (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, refunding_at, currency,
                next_check_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $6 = 'refunding' THEN now() END, $8,
                   CASE WHEN $6 = 'held' THEN CASE WHEN $9 THEN now() ELSE 'infinity' END END)
           ON CONFLICT ON CONSTRAINT payments_once DO NOTHING
           RETURNING id AS "id: PaymentId""#,
        payment.order.get(),
        payment.gateway.as_str(),
        payment.id,
        payment.method.as_str(),
        payment.amount_cents,
        status.as_str(),
        reason.map(PaymentReason::as_str),
        payment.currency,
        check == Some(NextCheck::ByJob),
    )
    .fetch_optional(tx)
    .await
}

/// Begins the refund of the payment that has paid this order. False if there is none.
pub(super) async fn refund_accepted(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE payments SET status = 'refunding', refund_reason = 'asked_for', refunding_at = now(), updated_at = now()
         -- Both say the same; an index that finds the payment by its order is there for the second.
         WHERE order_id = $1 AND status = 'accepted' AND refund_reason IS NULL",
        order.get(),
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether an order that isn't there may have been deleted with its payments.
pub(super) async fn may_be_deleted(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    Ok(order.time() < postgres::time(pool).await? - limits::ORDER_KEPT_MIN)
}

/// Deletes the payments of these orders, which the caller has locked. Keeps payments that are held or being refunded:
/// they came after the orders were checked, and go on without them.
pub async fn delete_of(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM opened_payments WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "DELETE FROM payments WHERE order_id = ANY($1) AND status IN ('accepted', 'refunded', 'closed')",
        orders,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The payment with this id of its gateway.
pub(super) async fn named(
    tx: &mut PgConnection,
    gateway: Gateway,
    payment_id: &str,
) -> sqlx::Result<Option<Named>> {
    sqlx::query_as!(
        Named,
        r#"SELECT id AS "id: PaymentId", order_id AS "order!: OrderId", status AS "status: PaymentStatus",
                  refund_reason AS "reason: PaymentReason"
           FROM payments WHERE gateway = $1 AND gateway_payment_id = $2"#,
        gateway.as_str(),
        payment_id,
    )
    .fetch_optional(tx)
    .await
}

/// The same, and locks its order until the transaction ends, because an order is deleted with its payments.
///
/// # Errors
///
/// When the order has been deleted meanwhile. The gateway then sends its notice again.
pub(super) async fn hold_named(
    tx: &mut PgConnection,
    gateway: Gateway,
    payment_id: &str,
) -> sqlx::Result<Option<Named>> {
    let Some(found) = named(&mut *tx, gateway, payment_id).await? else {
        return Ok(None);
    };
    moves::hold(&mut *tx, found.order).await?;
    named(tx, gateway, payment_id).await?.map(Some).ok_or(sqlx::Error::RowNotFound)
}

/// Notes that the money has been returned. A `reason` replaces the one before.
pub(super) async fn refunded(
    tx: &mut PgConnection,
    payment: PaymentId,
    reason: Option<PaymentReason>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE payments
         SET status = 'refunded', refund_reason = coalesce($2, refund_reason), refunded_at = now(), updated_at = now(),
             next_check_at = NULL
         WHERE id = $1 AND status IN ('accepted', 'refunding', 'held')",
        payment.get(),
        reason.map(PaymentReason::as_str),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Holds a payment after a chargeback, until an administrator has decided about its order.
pub(super) async fn hold_charged_back(
    tx: &mut PgConnection,
    payment: PaymentId,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE payments SET status = 'held', refund_reason = 'charged_back', next_check_at = 'infinity', updated_at = now()
         WHERE id = $1 AND status = 'accepted'",
        payment.get(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Who decides about a held payment next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCheck {
    /// The job, once the order is there.
    ByJob,
    ByAdministrator,
}

/// Holds a notice that can't be understood, under its hash. Returns the row's id if it is new.
pub(super) async fn hold_notice(pool: &PgPool, notice: &[u8]) -> sqlx::Result<Option<PaymentId>> {
    sqlx::query_scalar!(
        r#"INSERT INTO payments (gateway, gateway_payment_id, status, refund_reason, notice, next_check_at)
           VALUES ('external', 'notice ' || encode(sha256($1), 'hex'), 'held', 'not_understood', $1, 'infinity')
           ON CONFLICT ON CONSTRAINT payments_once DO NOTHING RETURNING id AS "id: PaymentId""#,
        notice,
    )
    .fetch_optional(pool)
    .await
}

/// Has a held payment checked again after a pause.
pub(super) async fn check_later(tx: &mut PgConnection, payment: PaymentId) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE payments SET next_check_at = now() + make_interval(secs => $2), updated_at = now()
         WHERE id = $1 AND status = 'held'",
        payment.get(),
        limits::HELD_PAYMENT_PAUSE.as_secs_f64(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Ends the hold of a payment. False if it isn't held any more, or for another reason than `was`: money that was
/// charged back meanwhile mustn't be refunded once more.
pub(super) async fn leave_hold(
    tx: &mut PgConnection,
    payment: PaymentId,
    was: Option<PaymentReason>,
    (status, reason): (PaymentStatus, Option<PaymentReason>),
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE payments SET status = $2, refund_reason = $3, updated_at = now(),
                             refunding_at = CASE WHEN $2 = 'refunding' THEN now() END, next_check_at = NULL
         WHERE id = $1 AND status = 'held' AND refund_reason IS NOT DISTINCT FROM $4",
        payment.get(),
        status.as_str(),
        reason.map(PaymentReason::as_str),
        was.map(PaymentReason::as_str),
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}
