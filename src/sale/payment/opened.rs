//! Payments opened at a gateway that takes requests: the payer is sent there, and its callback completes the payment.
//!
//! The row comes before the request, so that no payment is opened that is unknown here. An answer that gets lost is
//! asked for again under the same key: by the payer's next try, and by a pass, whatever has become of the order, since
//! the gateway may have taken the money. A callback that gets lost is found by the same pass, which asks the gateway
//! with growing pauses. A payment that Postgres refuses to note, or to pay its order with, is postponed under its order;
//! so is a row that Postgres refuses to change, whatever the gateway answers.
//!
//! A gateway may close a payment that has not been paid. The row then begins its next payment, under a key of its own,
//! which is opened when the payer comes back. Money that the gateway takes for a closed payment all the same is told by
//! callback, and goes the way of all money.

use std::sync::Arc;

use super::gateway::Gateway;
use super::gateway::http::{AtGateway, Found, HttpGateway, Opened, Opening};
use super::model::ToBePaid;
use super::{Due, Paying, Payments, Unanswered, rows};
use crate::base::limits;
use crate::kit::postgres;
use crate::kit::signed_http::NoAnswer;
use crate::sale::Failure;
use crate::sale::ids::OrderId;
use crate::sale::order::model::PayMethod;
use crate::sale::pass::Pass;
use crate::sale::postponed::Tries;

/// An opened payment that is due for a look.
struct Waiting {
    id: i64,
    order: OrderId,
    method: PayMethod,
    /// Number of the payment among those of order and method.
    number: i32,
    amount_cents: i64,
    currency: String,
    /// None if the gateway's answer got lost.
    payment_id: Option<String>,
    /// Time for which the gateway has been asked and has given no answer, in seconds; below 0 before the look is due.
    unheard_s: f64,
}

/// End of the looks at an opened payment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The payer had three days since the last visit.
    PatienceEnds,
    /// The end of the payment is known: its money was taken, and is in no book here yet.
    Known,
}

/// Consequence of a look that has no answer.
enum Unheard {
    /// None: a callback has told of the money, and an answer would add nothing.
    InTheBooks,
    /// The gateway is asked again after a pause.
    AskedAgain,
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
        let (number, known) = self.begin_opening(order, method, amount_cents, &currency).await?;
        let opened = match known {
            Some(opened) => opened,
            None => {
                let due = Due { pay_cents: amount_cents, currency: currency.clone(), pay_by };
                match gateway.open(&self.opening(order, method, number, due)).await {
                    Ok(opened) => self.note_opened(order, method, number, opened).await?,
                    Err(NoAnswer::Refused(_, words)) => return Ok(Paying::Refused(words)),
                    Err(NoAnswer::Unknown(words)) => return Err(Failure::Gateway(words)),
                }
            }
        };
        let Opened { payment_id, pay_url } = opened;
        Ok(Paying::Opened(ToBePaid { payment_id, pay_url, amount_cents, currency, pay_by }))
    }

    /// The request for the payment with this number. The same request has the same key, however often it is made.
    fn opening(&self, order_id: OrderId, method: PayMethod, number: i32, due: Due) -> Opening {
        let Due { pay_cents: amount_cents, currency, pay_by } = due;
        let key = match number {
            1 => format!("pay-{order_id}-{}", method.as_str()),
            _ => format!("pay-{order_id}-{}-{number}", method.as_str()),
        };
        Opening { key, order_id, method, amount_cents, currency, pay_by }
    }

    /// Number of the payment that is open or to be opened, and the gateway's answer, if there has been one.
    async fn begin_opening(
        &self,
        order: OrderId,
        method: PayMethod,
        amount_cents: i64,
        currency: &str,
    ) -> sqlx::Result<(i32, Option<Opened>)> {
        let row = sqlx::query!(
            "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at)
             VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
             -- The payer is here again, so the gateway is asked about it again, too, and soon.
             ON CONFLICT ON CONSTRAINT opened_payments_once DO UPDATE
             SET closed_at = NULL, looks = 0, updated_at = now(),
                 next_look_at = least(opened_payments.next_look_at, excluded.next_look_at)
             RETURNING number, gateway_payment_id, pay_url",
            order.get(),
            method.as_str(),
            amount_cents,
            currency,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
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
        order: OrderId,
        method: PayMethod,
        number: i32,
        opened: Opened,
    ) -> sqlx::Result<Opened> {
        sqlx::query!(
            "UPDATE opened_payments SET gateway_payment_id = $4, pay_url = $5, updated_at = now()
             WHERE order_id = $1 AND method = $2 AND number = $3 AND gateway_payment_id IS NULL",
            order.get(),
            method.as_str(),
            number,
            opened.payment_id,
            opened.pay_url,
        )
        .execute(&self.pool)
        .await?;
        Ok(opened)
    }

    /// Asks the gateway about opened payments that are due: an answer or a callback may have got lost. A payment that
    /// the gateway says is paid is taken as if it had said so by itself: the amount is the gateway's, if it tells one. A
    /// payment about which it goes on giving no answer, though it answers about others, is postponed: its money may have
    /// been taken, and stands in no other list.
    pub(super) async fn look_at_opened(
        &self,
        gateway: &HttpGateway,
    ) -> Result<Unanswered, Failure> {
        let mut tries = self.postponed.begin(Pass::Openings).await?;
        let mut unanswered = Unanswered::default();
        let mut is_heard = false;
        let (mut done, mut unheard) = (Vec::new(), Vec::new());
        let due = tries.due();
        for waiting in self.opened_due(&due).await? {
            let order = waiting.order;
            match self.look_at(gateway, &waiting).await {
                Err(Failure::Gateway(words)) => {
                    let words = format!("opened payment of order {order}: {words}");
                    let failure = Failure::Gateway(words);
                    match self.note_unheard(&waiting).await {
                        Ok(Unheard::InTheBooks) => {}
                        Ok(Unheard::AskedAgain) => {
                            tries.put_off(order.get(), &failure).await?;
                            unheard.push((waiting, failure.to_string()));
                        }
                        Err(refusal) => self.put_aside(&mut tries, &waiting, refusal).await?,
                    }
                    unanswered.add(failure);
                }
                looked => {
                    is_heard = true;
                    unanswered.end_row();
                    match looked {
                        Ok(()) => done.push(order),
                        Err(failure) => self.put_aside(&mut tries, &waiting, failure).await?,
                    }
                }
            }
            if unanswered.is_away() {
                break;
            }
        }
        // Not before: another payment of the same order may have failed, and then its note stays.
        for order in done {
            tries.settle(order.get(), Ok(())).await?;
        }
        let patience =
            if is_heard { limits::OPENED_UNHEARD_MIN } else { limits::OPENED_UNHEARD_LONG };
        for (waiting, error) in unheard {
            let order = waiting.order.get();
            if waiting.unheard_s > patience.as_secs_f64() && !due.contains(&order) {
                self.postponed.note(Pass::Openings, &[order], &error).await?;
            }
        }
        if !unanswered.is_away() {
            tries.end().await?;
        }
        Ok(unanswered)
    }

    /// Postpones a payment that can't be dealt with, and has it wait for its pause.
    async fn put_aside(
        &self,
        tries: &mut Tries<'_>,
        waiting: &Waiting,
        failure: Failure,
    ) -> Result<(), Failure> {
        tries.settle(waiting.order.get(), Err::<(), _>(failure)).await?;
        match self.ask_after_a_pause(waiting.id).await.map_err(Failure::from) {
            // The row takes no change at all: its note alone makes the pause.
            Err(refusal) if self.postponed.is_of_item(&refusal).await? => Ok(()),
            asked => asked,
        }
    }

    /// Notes that the gateway has given no answer about this payment.
    async fn note_unheard(&self, waiting: &Waiting) -> Result<Unheard, Failure> {
        if self.is_in_the_books(waiting).await? {
            self.close_opened(waiting.id).await?;
            Ok(Unheard::InTheBooks)
        } else {
            self.ask_after_a_pause(waiting.id).await?;
            Ok(Unheard::AskedAgain)
        }
    }

    async fn is_in_the_books(&self, waiting: &Waiting) -> sqlx::Result<bool> {
        match &waiting.payment_id {
            Some(payment_id) => rows::is_known(&self.pool, (Gateway::External, payment_id)).await,
            None => Ok(false),
        }
    }

    async fn look_at(&self, gateway: &HttpGateway, waiting: &Waiting) -> Result<(), Failure> {
        let (payment_id, found) = match self.ask(gateway, waiting).await? {
            Ok(answer) => answer,
            Err(NoAnswer::Refused(..)) => {
                return Ok(self.ask_later(waiting.id, Until::PatienceEnds).await?);
            }
            Err(NoAnswer::Unknown(words)) => return Err(Failure::Gateway(words)),
        };
        match found.state {
            AtGateway::Open => self.ask_later(waiting.id, Until::PatienceEnds).await?,
            // The money may stay after all, and pays nothing before that is known.
            AtGateway::Refunding => self.ask_later(waiting.id, Until::Known).await?,
            AtGateway::Paid | AtGateway::Refunded => {
                let Waiting { order, method, amount_cents, .. } = *waiting;
                let name = (Gateway::External, payment_id.clone());
                let taken = (found.amount_cents.unwrap_or(amount_cents), found.currency);
                self.received(name, order, method, taken).await?;
                if found.state == AtGateway::Refunded {
                    self.refunded(Gateway::External, &payment_id).await?;
                }
                self.close_opened(waiting.id).await?;
            }
            AtGateway::Closed => self.begin_next(waiting.id, &payment_id).await?,
        }
        Ok(())
    }

    /// The gateway's id of a payment, and the state there. If the answer to its opening got lost, the payment is opened
    /// once more, under the same key: the gateway may have taken the money.
    async fn ask(&self, gateway: &HttpGateway, waiting: &Waiting) -> sqlx::Result<Answer> {
        let Waiting { order, method, number, amount_cents, .. } = *waiting;
        let payment_id = match &waiting.payment_id {
            Some(payment_id) => payment_id.clone(),
            None => {
                let Due { pay_by, .. } = self.due(order).await?.ok_or(sqlx::Error::RowNotFound)?;
                let currency = waiting.currency.clone();
                let due = Due { pay_cents: amount_cents, currency, pay_by };
                match gateway.open(&self.opening(order, method, number, due)).await {
                    Ok(opened) => self.note_opened(order, method, number, opened).await?.payment_id,
                    Err(no_answer) => return Ok(Err(no_answer)),
                }
            }
        };
        Ok(gateway.query(&payment_id).await.map(|found| (payment_id, found)))
    }

    /// Opened payments to look at now: those that are due, without postponed ones, and those of these postponed orders.
    async fn opened_due(&self, postponed: &[i64]) -> sqlx::Result<Vec<Waiting>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let due = sqlx::query_as!(
            Waiting,
            r#"SELECT id, order_id AS "order: OrderId", method AS "method: PayMethod", number, amount_cents,
                      currency, gateway_payment_id AS payment_id,
                      extract(epoch FROM now() - updated_at)::float8 - least(3600, $3 * 2 ^ least(looks, 10)) AS "unheard_s!"
               FROM opened_payments
               WHERE closed_at IS NULL AND id = ANY(ARRAY(
                   (SELECT id FROM opened_payments
                    WHERE closed_at IS NULL AND next_look_at <= now()
                      AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'openings' AND item = order_id)
                    ORDER BY next_look_at LIMIT $1)
                   UNION ALL
                   SELECT id FROM opened_payments WHERE order_id = ANY($2)))
               ORDER BY next_look_at"#,
            i64::from(limits::OPENED_BATCH),
            postponed,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Asks again after a pause twice as long as the last one, unless that has gone on for too long. A look that wasn't due,
    /// or that another process has made at the same time, doesn't count.
    async fn ask_later(&self, opened: i64, until: Until) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments
             SET looks = looks + 1, updated_at = now(),
                 next_look_at = now() + make_interval(secs => least(3600, $2 * 2 ^ least(looks + 1, 10))),
                 closed_at = CASE WHEN $4 AND looks + 1 >= $3 THEN now() END
             WHERE id = $1 AND next_look_at <= now()",
            opened,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
            limits::OPENED_LOOKS_MAX,
            until == Until::PatienceEnds,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Asks again after a pause: a gateway may fail at this payment only, and the others and all refunds go on. The time
    /// of the last answer stays, and a payment that never has one is given up in the end.
    async fn ask_after_a_pause(&self, opened: i64) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE opened_payments
             SET next_look_at = now() + make_interval(secs => $2),
                 closed_at = CASE WHEN updated_at < now() - make_interval(secs => $3) THEN now() END
             WHERE id = $1",
            opened,
            limits::OPENED_LOOK_PAUSE.as_secs_f64(),
            limits::OPENED_UNHEARD_MAX.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The gateway has closed this payment: the next one is opened when the payer comes back.
    async fn begin_next(&self, opened: i64, closed: &str) -> sqlx::Result<()> {
        sqlx::query!(
            // Another process may have noted the same a moment ago.
            "UPDATE opened_payments
             SET number = number + 1, gateway_payment_id = NULL, pay_url = NULL, looks = 0, closed_at = now(),
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
