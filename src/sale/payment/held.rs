//! Held payments whose order wasn't known: the order may be written meanwhile, or never.

use sqlx::{Postgres, Transaction};

use super::model::{PaymentReason, PaymentStatus};
use super::{Payments, rows};
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::ids::{OrderId, PaymentId};
use crate::sale::order::dead_letter;
use crate::sale::order::model::PayMethod;

/// Why the payments are held that are looked at here.
const UNKNOWN: Option<PaymentReason> = Some(PaymentReason::UnknownOrder);

/// A held payment that is due for a look.
pub(super) struct Held {
    pub(super) id: PaymentId,
    order: OrderId,
    method: PayMethod,
    amount_cents: i64,
    currency: Option<String>,
    /// Whether the payment has been held for longer than an order is waited for.
    is_overdue: bool,
}

impl Payments {
    /// Held payments to look at now: those that are due, without postponed ones, and these postponed ones.
    pub(super) async fn held_due(&self, postponed: &[i64]) -> sqlx::Result<Vec<Held>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let due = sqlx::query_as!(
            Held,
            r#"SELECT id AS "id: PaymentId", order_id AS "order!: OrderId", method AS "method!: PayMethod",
                      amount_cents AS "amount_cents!",
                      currency, created_at < now() - make_interval(secs => $1) AS "is_overdue!"
               FROM payments
               WHERE status = 'held' AND notice IS NULL AND id = ANY(ARRAY(
                   (SELECT payment_id FROM held_payments
                    WHERE next_look_at <= now()
                      AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'refunds' AND item = payment_id)
                    ORDER BY next_look_at LIMIT $2)
                   UNION ALL
                   SELECT payment_id FROM held_payments WHERE payment_id = ANY($3)))
               ORDER BY id"#,
            limits::HELD_PAYMENT_PATIENCE.as_secs_f64(),
            i64::from(limits::REFUNDS_BATCH),
            postponed,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Gives the money to the order if it is there now. Gives the order up if it has been unknown for long.
    pub(super) async fn look_again(&self, held: &Held) -> sqlx::Result<()> {
        let Some(due) = self.due(held.order).await? else {
            // The order of a dead letter comes when an administrator has decided.
            if held.is_overdue && !dead_letter::is_open(&self.pool, held.order).await? {
                return self.give_up(held.id).await;
            }
            return self.look_later(held.id).await;
        };
        let refusal = due.refusal(held.amount_cents, held.currency.as_deref());
        let mut tx = postgres::begin(&self.pool).await?;
        let reason = self.pay_order(&mut tx, held.order, held.method, refusal).await?;
        let status =
            if reason.is_some() { PaymentStatus::Refunding } else { PaymentStatus::Accepted };
        leave(tx, held.id, (status, reason)).await
    }

    async fn give_up(&self, payment: PaymentId) -> sqlx::Result<()> {
        let tx = postgres::begin(&self.pool).await?;
        leave(tx, payment, (PaymentStatus::Refunding, UNKNOWN)).await
    }

    async fn look_later(&self, payment: PaymentId) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE held_payments SET next_look_at = now() + make_interval(secs => $2) WHERE payment_id = $1",
            payment.get(),
            limits::HELD_PAYMENT_PAUSE.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// Ends the hold, with all that the transaction has done for it. Nothing is done if an administrator or the payer's bank
/// has decided meanwhile.
async fn leave(
    mut tx: Transaction<'static, Postgres>,
    payment: PaymentId,
    now: (PaymentStatus, Option<PaymentReason>),
) -> sqlx::Result<()> {
    match rows::leave_hold(&mut tx, payment, UNKNOWN, now).await? {
        true => tx.commit().await,
        false => tx.rollback().await,
    }
}
