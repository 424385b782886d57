//! Payments opened at a gateway that takes requests. The payer is sent there, and the gateway's callback completes the
//! payment.
//!
//! The row is written before the request, so that every payment at the gateway is known here. If the answer is lost,
//! the request is repeated under the same key: by the payer's next try, or by the job, whatever has become of the
//! order, since the gateway may have taken the money. The job also finds out about a lost callback, by asking the
//! gateway at growing intervals. A payment is postponed, under its order, if Postgres refuses to note it or to pay the
//! order with it, or if the gateway has given no answer about it for [`limits::OPENED_UNHEARD_LONG`]: the money may
//! have been taken, and no other list has the payment.
//!
//! A gateway may close a payment that has not been paid. The row then stands for the next payment, with a key of its
//! own, which is opened when the payer comes back. If the gateway takes money for a closed payment after all, its
//! callback says so, and the money is handled like any other.

use super::gateway::Gateway;
use super::gateway::http::{AtGateway, Found, HttpGateway, Opened, Opening};
use super::job::Unanswered;
use super::model::ToBePaid;
use super::rows::Payment;
use super::{Paying, Payments};
use crate::base::limits;
use crate::kit::signed_http::NoAnswer;
use crate::order::model::{Order, PayMethod};
use crate::store::Failure;
use crate::store::ids::OrderId;
use crate::store::job::Job;
use crate::store::postgres;

/// An opened payment that is due for a check.
struct Waiting {
    id: i64,
    order: OrderId,
    method: PayMethod,
    /// Number of the payment among those of the same order and method.
    number: i32,
    amount_cents: i64,
    currency: String,
    /// `None` if the gateway's answer was lost.
    payment_id: Option<String>,
    /// Whether the gateway has given no answer for so long that a person has to ask.
    is_unheard: bool,
}

/// The gateway's id of a payment, and its state there; or no answer.
type Answer = Result<(String, Found), NoAnswer>;

impl Payments {
    /// Opens a payment of the order, or finds the open one. A repeat opens no second one.
    pub(super) async fn open(
        &self,
        gateway: &HttpGateway,
        due: Order,
        method: PayMethod,
    ) -> Result<Paying, Failure> {
        let Order { order_id: order, pay_cents: amount_cents, currency, pay_by, .. } = due;
        let (number, known) = self.begin_opening(order, method, amount_cents, &currency).await?;
        let opened = match known {
            Some(opened) => opened,
            None => {
                let opening = Opening {
                    key: key(order, method, number),
                    order_id: order,
                    method,
                    amount_cents,
                    currency: currency.clone(),
                    pay_by,
                };
                match gateway.open(&opening).await {
                    Ok(opened) => self.note_opened(&opening, number, opened).await?,
                    Err(NoAnswer::Refused(_, words)) => return Ok(Paying::Refused(words)),
                    Err(NoAnswer::Unknown(words)) => return Err(Failure::Gateway(words)),
                }
            }
        };
        let Opened { payment_id, pay_url } = opened;
        Ok(Paying::Opened(ToBePaid { payment_id, pay_url, amount_cents, currency, pay_by }))
    }

    /// Number of the payment that is open or to be opened, and the gateway's answer, if there was one.
    async fn begin_opening(
        &self,
        order: OrderId,
        method: PayMethod,
        amount_cents: i64,
        currency: &str,
    ) -> sqlx::Result<(i32, Option<Opened>)> {
        let row = sqlx::query!(
            "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_check_at)
             VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
             -- The payer is here again, so the gateway is asked about it again, too, and soon.
             ON CONFLICT ON CONSTRAINT opened_payments_once DO UPDATE
             SET closed_at = NULL, checks = 0, updated_at = now(),
                 next_check_at = least(opened_payments.next_check_at, excluded.next_check_at)
             RETURNING number, gateway_payment_id, pay_url",
            order.get(),
            method.as_str(),
            amount_cents,
            currency,
            limits::OPENED_CHECK_PAUSE.as_secs_f64(),
        )
        .fetch_one(&self.pool)
        .await?;
        let opened = match (row.gateway_payment_id, row.pay_url) {
            (Some(payment_id), Some(pay_url)) => Some(Opened { payment_id, pay_url }),
            _ => None,
        };
        Ok((row.number, opened))
    }

    async fn note_opened(
        &self,
        opening: &Opening,
        number: i32,
        opened: Opened,
    ) -> sqlx::Result<Opened> {
        sqlx::query!(
            "UPDATE opened_payments SET gateway_payment_id = $4, pay_url = $5, updated_at = now()
             WHERE order_id = $1 AND method = $2 AND number = $3 AND gateway_payment_id IS NULL",
            opening.order_id.get(),
            opening.method.as_str(),
            number,
            opened.payment_id,
            opened.pay_url,
        )
        .execute(&self.pool)
        .await?;
        Ok(opened)
    }

    /// Asks the gateway about opened payments that are due: an answer or a callback may have been lost. If the gateway
    /// says that a payment is paid, it counts as confirmed, with the gateway's amount if there is one.
    pub(super) async fn check_opened(&self, gateway: &HttpGateway) -> Result<Unanswered, Failure> {
        let mut tries = self.postponed.begin(Job::Openings).await?;
        let mut unanswered = Unanswered::default();
        let due = self.opened_due().await?;
        for waiting in &due {
            let order = waiting.order;
            let mut checked = self.check_one(gateway, waiting).await;
            if let Err(Failure::Gateway(words)) = checked {
                let words = format!("opened payment of order {order}: {words}");
                checked = self.ask_after_a_pause(waiting.id).await.map_err(Failure::from);
                if waiting.is_unheard && checked.is_ok() {
                    checked = Err(Failure::Unheard(words.clone()));
                }
                unanswered.add(Failure::Gateway(words));
                if unanswered.is_away() {
                    return Ok(unanswered);
                }
            } else {
                unanswered.end_row();
            }
            tries.settle(order.get(), checked).await?;
        }
        // If there are more, some postponed payments may not have been seen.
        if due.len() < limits::OPENED_BATCH as usize {
            tries.end().await?;
        }
        Ok(unanswered)
    }

    async fn check_one(&self, gateway: &HttpGateway, waiting: &Waiting) -> Result<(), Failure> {
        let (payment_id, found) = match self.ask(gateway, waiting).await? {
            Ok(answer) => answer,
            Err(NoAnswer::Refused(..)) => return Ok(self.ask_later(waiting.id, true).await?),
            Err(NoAnswer::Unknown(words)) => return Err(Failure::Gateway(words)),
        };
        match found.state {
            AtGateway::Open => self.ask_later(waiting.id, true).await?,
            // The refund may fail, and the money pays nothing before that is known.
            AtGateway::Refunding => self.ask_later(waiting.id, false).await?,
            AtGateway::Paid | AtGateway::Refunded => {
                let payment = Payment {
                    order: waiting.order,
                    gateway: Gateway::External,
                    id: payment_id.clone(),
                    method: waiting.method,
                    amount_cents: found.amount_cents.unwrap_or(waiting.amount_cents),
                    currency: found.currency,
                };
                self.received(payment).await?;
                if found.state == AtGateway::Refunded {
                    self.refunded(Gateway::External, &payment_id).await?;
                }
                self.close_opened(waiting.id).await?;
            }
            AtGateway::Closed => self.begin_next(waiting.id, &payment_id).await?,
        }
        Ok(())
    }

    /// The gateway's id of a payment, and its state there. If the answer to its opening was lost, opens it again under
    /// the same key, since the gateway may have taken the money.
    async fn ask(&self, gateway: &HttpGateway, waiting: &Waiting) -> sqlx::Result<Answer> {
        let Waiting { order, method, number, amount_cents, .. } = *waiting;
        let payment_id = match &waiting.payment_id {
            Some(payment_id) => payment_id.clone(),
            None => {
                let due = self.moves.find(order).await?.ok_or(sqlx::Error::RowNotFound)?;
                let opening = Opening {
                    key: key(order, method, number),
                    order_id: order,
                    method,
                    amount_cents,
                    currency: waiting.currency.clone(),
                    pay_by: due.pay_by,
                };
                match gateway.open(&opening).await {
                    Ok(opened) => self.note_opened(&opening, number, opened).await?.payment_id,
                    Err(no_answer) => return Ok(Err(no_answer)),
                }
            }
        };
        Ok(gateway.query(&payment_id).await.map(|found| (payment_id, found)))
    }

    /// Opened payments that are due for a check.
    async fn opened_due(&self) -> sqlx::Result<Vec<Waiting>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let due = sqlx::query_as!(
            Waiting,
            r#"SELECT id, order_id AS "order: OrderId", method AS "method: PayMethod", number, amount_cents,
                      currency, gateway_payment_id AS payment_id,
                      updated_at < now() - make_interval(secs => $2) AS "is_unheard!"
               FROM opened_payments
               WHERE closed_at IS NULL AND next_check_at <= now()
                 AND NOT EXISTS (SELECT FROM postponed
                                 WHERE job = 'openings' AND item = order_id AND next_try_at > now())
               ORDER BY next_check_at LIMIT $1"#,
            i64::from(limits::OPENED_BATCH),
            limits::OPENED_UNHEARD_LONG.as_secs_f64(),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Asks again after twice the last pause. If `ends`, because no money is known to have been taken, stops after
    /// three days. A concurrent check by another process doesn't count.
    async fn ask_later(&self, opened: i64, ends: bool) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments
             SET checks = checks + 1, updated_at = now(),
                 next_check_at = now() + make_interval(secs => least(3600, $2 * 2 ^ least(checks + 1, 10))),
                 closed_at = CASE WHEN $4 AND checks + 1 >= $3 THEN now() END
             WHERE id = $1 AND next_check_at <= now()",
            opened,
            limits::OPENED_CHECK_PAUSE.as_secs_f64(),
            limits::OPENED_CHECKS_MAX,
            ends,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Asks again after a pause: a gateway may fail at this payment only, and the others go on. Keeps the time of the
    /// last answer, so that a payment without any answer is given up in the end.
    async fn ask_after_a_pause(&self, opened: i64) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments
             SET next_check_at = now() + make_interval(secs => $2),
                 closed_at = CASE WHEN updated_at < now() - make_interval(secs => $3) THEN now() END
             WHERE id = $1",
            opened,
            limits::OPENED_CHECK_PAUSE.as_secs_f64(),
            limits::OPENED_UNHEARD_MAX.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The gateway has closed this payment. The next one is opened when the payer comes back.
    async fn begin_next(&self, opened: i64, closed: &str) -> sqlx::Result<()> {
        sqlx::query!(
            // Another process may have noted the same just before.
            "UPDATE opened_payments
             SET number = number + 1, gateway_payment_id = NULL, pay_url = NULL, checks = 0, closed_at = now(),
                 updated_at = now()
             WHERE id = $1 AND gateway_payment_id = $2",
            opened,
            closed,
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

/// Idempotency key of a payment: always the same for the same payment.
fn key(order: OrderId, method: PayMethod, number: i32) -> String {
    match number {
        1 => format!("pay-{order}-{}", method.as_str()),
        _ => format!("pay-{order}-{}-{number}", method.as_str()),
    }
}
