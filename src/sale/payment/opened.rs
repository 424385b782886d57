//! Payments opened at a gateway that takes requests: the payer is sent there, and its callback completes the payment.
//!
//! The row comes before the request, so that no payment is opened that is unknown here. An answer that gets lost is
//! asked for again under the same key: by the payer's next try, and by a pass, whatever has become of the order, since
//! the gateway may have taken the money. A callback that gets lost is found by the same pass, which asks the gateway
//! with growing pauses.

use std::sync::Arc;

use super::gateway::Gateway;
use super::gateway::http::{AtGateway, Found, HttpGateway, Opened, Opening};
use super::model::ToBePaid;
use super::{Due, Paying, Payments};
use crate::base::limits;
use crate::kit::signed_http::NoAnswer;
use crate::sale::Failure;
use crate::sale::ids::OrderId;
use crate::sale::order::model::PayMethod;

/// An opened payment that is due for a look.
struct Waiting {
    id: i64,
    order: OrderId,
    method: PayMethod,
    amount_cents: i64,
    currency: String,
    /// None if the gateway's answer got lost.
    payment_id: Option<String>,
}

/// The gateway's id of a payment, and its state there; or no answer.
type Answer = Result<(String, Found), NoAnswer>;

impl Payments {
    /// Opens a payment of the order, or finds the one that is open. Repeats open no second one.
    pub(super) async fn open(
        &self,
        gateway: &Arc<HttpGateway>,
        order: OrderId,
        method: PayMethod,
        due: Due,
    ) -> Result<Paying, Failure> {
        let Due { pay_cents: amount_cents, currency, pay_by } = due;
        let known = self.begin_opening(order, method, amount_cents, &currency).await?;
        let opened = match known {
            Some(opened) => opened,
            None => {
                let opening = Opening {
                    pay_by,
                    ..self.opening(order, method, amount_cents, currency.clone())
                };
                match gateway.open(&opening).await {
                    Ok(opened) => self.note_opened(order, method, opened).await?,
                    Err(NoAnswer::Refused(_, words)) => return Ok(Paying::Refused(words)),
                    Err(NoAnswer::Unknown(words)) => return Err(Failure::Gateway(words)),
                }
            }
        };
        let Opened { payment_id, pay_url } = opened;
        Ok(Paying::Opened(ToBePaid { payment_id, pay_url, amount_cents, currency, pay_by }))
    }

    /// The request for a payment of the order. The same request has the same key, however often it is made.
    fn opening(
        &self,
        order: OrderId,
        method: PayMethod,
        amount_cents: i64,
        currency: String,
    ) -> Opening {
        let order_id = self.ids.public(order);
        let key = format!("pay-{order_id}-{}", method.as_str());
        Opening { key, order_id, method, amount_cents, currency, pay_by: None }
    }

    /// The payment that is open, if the gateway has answered.
    async fn begin_opening(
        &self,
        order: OrderId,
        method: PayMethod,
        amount_cents: i64,
        currency: &str,
    ) -> sqlx::Result<Option<Opened>> {
        let row = sqlx::query!(
            "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at)
             VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
             -- The payer is here again, so the gateway is asked about it again, too.
             ON CONFLICT ON CONSTRAINT opened_payments_once DO UPDATE SET closed_at = NULL, updated_at = now()
             RETURNING gateway_payment_id, pay_url",
            order.get(),
            method.as_str(),
            amount_cents,
            currency,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(match (row.gateway_payment_id, row.pay_url) {
            (Some(payment_id), Some(pay_url)) => Some(Opened { payment_id, pay_url }),
            _ => None,
        })
    }

    async fn note_opened(
        &self,
        order: OrderId,
        method: PayMethod,
        opened: Opened,
    ) -> sqlx::Result<Opened> {
        sqlx::query!(
            "UPDATE opened_payments SET gateway_payment_id = $3, pay_url = $4, updated_at = now()
             WHERE order_id = $1 AND method = $2 AND gateway_payment_id IS NULL",
            order.get(),
            method.as_str(),
            opened.payment_id,
            opened.pay_url,
        )
        .execute(&self.pool)
        .await?;
        Ok(opened)
    }

    /// Asks the gateway about opened payments that are due: an answer or a callback may have got lost. A payment that
    /// the gateway says is paid is taken as if it had said so by itself: the amount is the gateway's, if it tells one.
    pub(super) async fn look_at_opened(&self, gateway: &HttpGateway) -> Result<(), Failure> {
        for waiting in self.opened_due().await? {
            let (payment_id, found) = match self.ask(gateway, &waiting).await? {
                Ok(answer) => answer,
                Err(NoAnswer::Refused(..)) => {
                    self.ask_later(waiting.id).await?;
                    continue;
                }
                Err(NoAnswer::Unknown(words)) => {
                    self.ask_after_a_pause(waiting.id).await?;
                    return Err(Failure::Gateway(words));
                }
            };
            match found.state {
                AtGateway::Open => self.ask_later(waiting.id).await?,
                AtGateway::Paid | AtGateway::Refunding | AtGateway::Refunded => {
                    let Waiting { order, method, amount_cents, .. } = waiting;
                    let name = (Gateway::External, payment_id);
                    let taken = (found.amount_cents.unwrap_or(amount_cents), found.currency);
                    self.received(name, order, method, taken).await?;
                    self.close_opened(waiting.id).await?;
                }
                AtGateway::Closed => self.close_opened(waiting.id).await?,
            }
        }
        Ok(())
    }

    /// The gateway's id of a payment, and the state there. If the answer to its opening got lost, the payment is opened
    /// once more, under the same key: the gateway may have taken the money.
    async fn ask(&self, gateway: &HttpGateway, waiting: &Waiting) -> sqlx::Result<Answer> {
        let Waiting { order, method, amount_cents, .. } = *waiting;
        let payment_id = match &waiting.payment_id {
            Some(payment_id) => payment_id.clone(),
            None => {
                let pay_by = self.due(order).await?.and_then(|due| due.pay_by);
                let opening = self.opening(order, method, amount_cents, waiting.currency.clone());
                match gateway.open(&Opening { pay_by, ..opening }).await {
                    Ok(opened) => self.note_opened(order, method, opened).await?.payment_id,
                    Err(no_answer) => return Ok(Err(no_answer)),
                }
            }
        };
        Ok(gateway.query(&payment_id).await.map(|found| (payment_id, found)))
    }

    async fn opened_due(&self) -> sqlx::Result<Vec<Waiting>> {
        sqlx::query_as!(
            Waiting,
            r#"SELECT id, order_id AS "order: OrderId", method AS "method: PayMethod", amount_cents,
                      currency, gateway_payment_id AS payment_id
               FROM opened_payments WHERE closed_at IS NULL AND next_look_at <= now()
               ORDER BY next_look_at LIMIT $1"#,
            i64::from(limits::OPENED_BATCH),
        )
        .fetch_all(&self.pool)
        .await
    }

    /// Asks again after a pause twice as long as the last one, unless that has gone on for long.
    async fn ask_later(&self, opened: i64) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments
             SET looks = looks + 1, updated_at = now(),
                 next_look_at = now() + make_interval(secs => least(3600, $2 * 2 ^ least(looks + 1, 10))),
                 closed_at = CASE WHEN created_at < now() - make_interval(secs => $3) THEN now() END
             WHERE id = $1",
            opened,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
            limits::OPENED_PATIENCE.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Asks again after a pause: a gateway may fail at this payment only, and the others and all refunds go on.
    async fn ask_after_a_pause(&self, opened: i64) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments SET next_look_at = now() + make_interval(secs => $2), updated_at = now()
             WHERE id = $1",
            opened,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    async fn close_opened(&self, opened: i64) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments SET closed_at = now(), updated_at = now() WHERE id = $1",
            opened,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
