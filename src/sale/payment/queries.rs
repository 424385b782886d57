//! Reading payments on their way back.

use super::Payments;
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::ids::PaymentId;
use crate::sale::payment::gateway::{Gateway, Refunding};

impl Payments {
    /// The payments about which gateways haven't been asked for the longest time, without postponed ones.
    pub(super) async fn to_give_back(&self) -> sqlx::Result<Vec<Refunding>> {
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let due = sqlx::query_as!(
            Refunding,
            // In two parts, because a condition with OR would read each refunding payment, even if all have just been
            // asked about. Both are sorted as one index is: sorted by id, the new ones would be looked for among all that
            // wait for their gateway.
            r#"WITH new AS (
                   SELECT id, gateway, gateway_payment_id, amount_cents FROM payments
                   WHERE status = 'refunding' AND refund_asked_at IS NULL
                     AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'refunds' AND item = payments.id)
                   ORDER BY refund_asked_at NULLS FIRST, id LIMIT $2),
               again AS (
                   SELECT id, gateway, gateway_payment_id, amount_cents FROM payments
                   WHERE status = 'refunding' AND refund_asked_at < now() - make_interval(secs => $1)
                     AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'refunds' AND item = payments.id)
                   ORDER BY refund_asked_at NULLS FIRST, id LIMIT $2)
               SELECT id AS "id!: PaymentId", gateway AS "gateway!: Gateway", gateway_payment_id AS "gateway_payment_id!",
                      amount_cents AS "amount_cents!"
               FROM (SELECT * FROM new UNION ALL SELECT * FROM again) AS due LIMIT $2"#,
            limits::REFUND_RETRY_PAUSE.as_secs_f64(),
            i64::from(limits::REFUNDS_BATCH),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(due)
    }

    /// The payments that the service itself has to refund, without postponed ones. For a service without a gateway to ask.
    pub(super) async fn to_give_back_here(&self) -> sqlx::Result<Vec<Refunding>> {
        sqlx::query_as!(
            Refunding,
            r#"SELECT id AS "id: PaymentId", gateway AS "gateway: Gateway", gateway_payment_id,
                      amount_cents AS "amount_cents!"
               FROM payments
               WHERE status = 'refunding' AND gateway = 'in_process'
                 AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'refunds' AND item = payments.id)
               ORDER BY id LIMIT $1"#,
            i64::from(limits::REFUNDS_BATCH),
        )
        .fetch_all(&self.pool)
        .await
    }

    /// The payments among these that still have to be refunded.
    pub(super) async fn refunding_among(&self, payments: &[i64]) -> sqlx::Result<Vec<Refunding>> {
        if payments.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let refunding = sqlx::query_as!(
            Refunding,
            r#"SELECT id AS "id: PaymentId", gateway AS "gateway: Gateway", gateway_payment_id,
                      amount_cents AS "amount_cents!"
               FROM payments
               WHERE id = ANY($1) AND status = 'refunding'"#,
            payments,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(refunding)
    }
}
