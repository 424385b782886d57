//! Holds of payments, as rows.

use sqlx::PgConnection;

use super::model::{PaymentReason, PaymentStatus};
use crate::sale::ids::PaymentId;

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

/// Has a payment looked at no more.
pub(super) async fn end_hold(tx: &mut PgConnection, payment: PaymentId) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM held_payments WHERE payment_id = $1", payment.get())
        .execute(tx)
        .await?;
    Ok(())
}

/// Ends the hold of a payment. False if it isn't held any more.
pub(super) async fn leave_hold(
    tx: &mut PgConnection,
    payment: PaymentId,
    status: PaymentStatus,
    reason: Option<PaymentReason>,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE payments SET status = $2, refund_reason = $3, updated_at = now(),
                             refunding_at = CASE WHEN $2 = 'refunding' THEN now() END
         WHERE id = $1 AND status = 'held'",
        payment.get(),
        status.as_str(),
        reason.map(PaymentReason::as_str),
    )
    .execute(&mut *tx)
    .await?;
    end_hold(tx, payment).await?;
    Ok(done.rows_affected() == 1)
}
