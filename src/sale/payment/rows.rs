//! Payments and their holds, as rows.

use sqlx::{PgConnection, PgPool};

use super::gateway::Gateway;
use super::model::{PaymentReason, PaymentStatus};
use crate::sale::ids::{OrderId, PaymentId};
use crate::sale::order::moves;

/// A payment, as far as its refund depends on it.
pub(super) struct Named {
    pub(super) id: PaymentId,
    pub(super) order: OrderId,
    pub(super) status: PaymentStatus,
    pub(super) reason: Option<PaymentReason>,
}

/// True if `payments` has the payment of this gateway and id.
pub(super) async fn is_known(
    pool: &PgPool,
    (gateway, payment_id): (Gateway, &str),
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM payments WHERE gateway = $1 AND gateway_payment_id = $2) AS "known!""#,
        gateway.as_str(),
        payment_id,
    )
    .fetch_one(pool)
    .await
}

/// The payment that its gateway calls by this id.
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

/// The same, and its order is locked until the end of the transaction: an order is deleted with its payments.
///
/// # Errors
///
/// When the order was deleted meanwhile; its gateway tells again.
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

/// Notes that the money of a payment is back, for this reason if it is another one than before.
pub(super) async fn refunded(
    tx: &mut PgConnection,
    payment: PaymentId,
    reason: Option<PaymentReason>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE payments
         SET status = 'refunded', refund_reason = coalesce($2, refund_reason), refunded_at = now(), updated_at = now()
         WHERE id = $1 AND status IN ('accepted', 'refunding', 'held')",
        payment.get(),
        reason.map(PaymentReason::as_str),
    )
    .execute(&mut *tx)
    .await?;
    end_hold(tx, payment).await
}

/// Holds a payment that its gateway has taken back: an administrator decides about its order.
pub(super) async fn hold_charged_back(
    tx: &mut PgConnection,
    payment: PaymentId,
) -> sqlx::Result<()> {
    sqlx::query!(
        "WITH held AS (
             UPDATE payments SET status = 'held', refund_reason = 'charged_back', updated_at = now()
             WHERE id = $1 AND status = 'accepted' RETURNING id)
         INSERT INTO held_payments (payment_id, next_look_at) SELECT id, 'infinity' FROM held",
        payment.get(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The next look at a held payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A pass looks for the order.
    ByPass,
    /// An administrator decides.
    ByAdministrator,
}

/// Begins the hold of a payment.
pub(super) async fn begin_hold(
    tx: &mut PgConnection,
    payment: PaymentId,
    look: Look,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO held_payments (payment_id, next_look_at)
         VALUES ($1, CASE WHEN $2 THEN 'infinity' ELSE now() END)",
        payment.get(),
        look == Look::ByAdministrator,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Holds a notice that can't be understood, by its hash. Returns the row if it is new.
pub(super) async fn hold_notice(pool: &PgPool, notice: &[u8]) -> sqlx::Result<Option<PaymentId>> {
    sqlx::query_scalar!(
        r#"WITH held AS (
               INSERT INTO payments (gateway, gateway_payment_id, status, refund_reason, notice)
               VALUES ('external', 'notice ' || encode(sha256($1), 'hex'), 'held', 'not_understood', $1)
               ON CONFLICT ON CONSTRAINT payments_once DO NOTHING RETURNING id),
           looked AS (INSERT INTO held_payments (payment_id, next_look_at) SELECT id, 'infinity' FROM held)
           SELECT id AS "id: PaymentId" FROM held"#,
        notice,
    )
    .fetch_optional(pool)
    .await
}

/// Has a payment looked at no more.
pub(super) async fn end_hold(tx: &mut PgConnection, payment: PaymentId) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM held_payments WHERE payment_id = $1", payment.get())
        .execute(tx)
        .await?;
    Ok(())
}

/// Ends the hold of a payment. False if it isn't held any more, or for another reason than it `was`: money that was
/// charged back meanwhile doesn't go back once more.
pub(super) async fn leave_hold(
    tx: &mut PgConnection,
    payment: PaymentId,
    was: Option<PaymentReason>,
    (status, reason): (PaymentStatus, Option<PaymentReason>),
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE payments SET status = $2, refund_reason = $3, updated_at = now(),
                             refunding_at = CASE WHEN $2 = 'refunding' THEN now() END
         WHERE id = $1 AND status = 'held' AND refund_reason IS NOT DISTINCT FROM $4",
        payment.get(),
        status.as_str(),
        reason.map(PaymentReason::as_str),
        was.map(PaymentReason::as_str),
    )
    .execute(&mut *tx)
    .await?;
    end_hold(tx, payment).await?;
    Ok(done.rows_affected() == 1)
}
