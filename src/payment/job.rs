//! The job over payments: checks held and opened ones, and has money refunded.

use super::gateway::http::AtGateway;
use super::gateway::{Gateway, Refunding};
use super::model::{PaymentReason, PaymentStatus};
use super::{Payments, refusal, rows};
use crate::base::limits;
use crate::kit::signed_http::NoAnswer;
use crate::order::dead_letter;
use crate::order::model::PayMethod;
use crate::store::Failure;
use crate::store::ids::{OrderId, PaymentId};
use crate::store::job::Job;
use crate::store::postgres;

/// Only payments held for this reason are checked here: the order may have been written by now, or may never be.
const UNKNOWN: Option<PaymentReason> = Some(PaymentReason::UnknownOrder);

/// A held payment that is due for a check.
struct Held {
    id: PaymentId,
    order: OrderId,
    method: PayMethod,
    amount_cents: i64,
    currency: Option<String>,
    /// Whether the payment has been held for longer than the service waits for an order.
    is_overdue: bool,
}

/// Requests of one kind that the gateway left without an answer in one run of the job. A gateway may fail at one
/// payment for ever, so a single failure says nothing about the others.
#[derive(Default)]
pub(super) struct Unanswered {
    in_a_row: u32,
    pub(super) last: Option<Failure>,
}

impl Unanswered {
    pub(super) fn add(&mut self, failure: Failure) {
        self.in_a_row += 1;
        self.last = Some(failure);
    }

    /// The gateway has answered.
    pub(super) fn end_row(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether to stop asking the gateway in this run.
    pub(super) fn is_away(&self) -> bool {
        self.in_a_row >= limits::GATEWAY_UNANSWERED_MAX
    }
}

impl Payments {
    /// Checks held payments again, and asks the gateway about opened ones. Then asks gateways to refund payments, each
    /// at intervals until the refund is confirmed. Postpones a payment that Postgres refuses to change, or whose refund
    /// the gateway refuses, and goes on with the others. Returns the number of refunds confirmed.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or the gateway has left a request without an answer. In the second case,
    /// everything else is done first, except further requests of that kind to a gateway that is away.
    pub async fn refund_job(&self) -> Result<usize, Failure> {
        let mut tries = self.postponed.begin(Job::Refunds).await?;
        let held = self.held_due().await?;
        for held in &held {
            let tried = self.check_again(held).await.map_err(Failure::from);
            tries.settle(held.id.get(), tried).await?;
        }
        let checks = match &self.gateway {
            Some(gateway) => self.check_opened(gateway).await?,
            None => Unanswered::default(),
        };
        let mut refunded = 0;
        let mut refunds = Unanswered::default();
        let due = self.to_refund().await?;
        for payment in &due {
            if refunds.is_away() && payment.gateway == Gateway::External {
                continue;
            }
            match self.ask_for_refund(payment).await {
                Err(Failure::Gateway(words)) => {
                    refunds.add(Failure::Gateway(format!("payment {}: {words}", payment.id)));
                    if let Err(refusal) = self.asked(payment.id).await.map_err(Failure::from) {
                        tries.settle(payment.id.get(), Err::<(), _>(refusal)).await?;
                    }
                }
                tried => {
                    if payment.gateway == Gateway::External {
                        refunds.end_row();
                    }
                    let settled = tries.settle(payment.id.get(), tried).await?;
                    refunded += usize::from(settled == Some(true));
                }
            }
        }
        if let Some(failure) = refunds.last.or(checks.last) {
            return Err(failure);
        }
        // If there are more, some postponed payments may not have been seen.
        if held.len().max(due.len()) < limits::REFUNDS_BATCH as usize {
            tries.end().await?;
        }
        Ok(refunded)
    }

    /// Held payments that are due for a check.
    async fn held_due(&self) -> sqlx::Result<Vec<Held>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let due = sqlx::query_as!(
            Held,
            r#"SELECT id AS "id: PaymentId", order_id AS "order!: OrderId", method AS "method!: PayMethod",
                      amount_cents AS "amount_cents!",
                      currency, created_at < now() - make_interval(secs => $1) AS "is_overdue!"
               FROM payments
               WHERE next_check_at <= now() AND status = 'held' AND notice IS NULL
                 AND NOT EXISTS (SELECT FROM postponed
                                 WHERE job = 'refunds' AND item = payments.id AND next_try_at > now())
               ORDER BY next_check_at LIMIT $2"#,
            limits::HELD_PAYMENT_PATIENCE.as_secs_f64(),
            i64::from(limits::REFUNDS_BATCH),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Gives the money to the order if the order is there now. Has it refunded if the order has been unknown for too
    /// long.
    async fn check_again(&self, held: &Held) -> sqlx::Result<()> {
        let mut tx = postgres::begin(&self.pool).await?;
        let reason = match self.moves.find(held.order).await? {
            Some(due) => {
                let refusal = refusal(&due, held.amount_cents, held.currency.as_deref());
                self.pay_order(&mut tx, held.order, held.method, refusal).await?
            }
            // The order of an open dead letter may be written once an administrator has decided.
            None if held.is_overdue && !dead_letter::is_open(&self.pool, held.order).await? => {
                UNKNOWN
            }
            None => {
                rows::check_later(&mut tx, held.id).await?;
                return tx.commit().await;
            }
        };
        let now = (PaymentStatus::for_reason(reason), reason);
        match rows::leave_hold(&mut tx, held.id, UNKNOWN, now).await? {
            true => tx.commit().await,
            // An administrator, or a chargeback, was faster.
            false => tx.rollback().await,
        }
    }

    /// The payments about which gateways haven't been asked for longest. Without a gateway that takes requests, only
    /// those that the service itself has to refund.
    async fn to_refund(&self) -> sqlx::Result<Vec<Refunding>> {
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let due = sqlx::query_as!(
            Refunding,
            r#"SELECT id AS "id: PaymentId", gateway AS "gateway: Gateway", gateway_payment_id,
                      amount_cents AS "amount_cents!"
               FROM payments
               WHERE status = 'refunding' AND refund_asked_at < now() - make_interval(secs => $1)
                 AND ($3 OR gateway = 'in_process')
                 AND NOT EXISTS (SELECT FROM postponed
                                 WHERE job = 'refunds' AND item = payments.id AND next_try_at > now())
               ORDER BY refund_asked_at, id LIMIT $2"#,
            limits::REFUND_RETRY_PAUSE.as_secs_f64(),
            i64::from(limits::REFUNDS_BATCH),
            self.gateway.is_some(),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(due)
    }

    /// False if the gateway will confirm the refund later.
    async fn ask_for_refund(&self, payment: &Refunding) -> Result<bool, Failure> {
        let Refunding { gateway, gateway_payment_id, amount_cents, .. } = payment;
        let state = match (gateway, &self.gateway) {
            (Gateway::InProcess, _) => Ok(AtGateway::Refunded),
            // Can't be asked: the gateway refunds on its own.
            (Gateway::External, None) => return Ok(false),
            (Gateway::External, Some(client)) => {
                client.refund(payment.key(), gateway_payment_id, *amount_cents).await
            }
        };
        match state {
            Ok(AtGateway::Refunded) => {
                self.refunded(*gateway, gateway_payment_id).await?;
                Ok(true)
            }
            Ok(AtGateway::Refunding) => {
                self.asked(payment.id).await?;
                Ok(false)
            }
            Ok(state) => {
                Err(Failure::RefundRefused(format!("it says that the payment is {state:?}")))
            }
            Err(NoAnswer::Refused(status, words)) => {
                Err(Failure::RefundRefused(format!("{status}: {words}")))
            }
            Err(NoAnswer::Unknown(words)) => Err(Failure::Gateway(words)),
        }
    }

    /// Notes that the gateway has been asked. It will confirm, or is asked again after a pause.
    async fn asked(&self, payment: PaymentId) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE payments SET refund_asked_at = now(), updated_at = now()
             WHERE id = $1 AND status = 'refunding'",
            payment.get(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
