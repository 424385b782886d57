//! Money for orders, and its way back. Owner of the table `payments` and its history.
//!
//! # Model
//!
//! A row is money that a gateway has taken. The transaction in which its order becomes paid writes the row
//! (*accepted*). If the order can't be paid any more, the row says from the beginning that the money goes back
//! (*refunding*), until the gateway has confirmed the refund (*refunded*). Money that no order can take is *held*:
//! its order is unknown, or not written yet, or the gateway has used the payment's id before, or its notice can't be
//! understood. So money is never swallowed, whichever transaction wins a race, and whatever a gateway says.
//!
//! # Authority
//!
//! The gateway decides whether money has moved; Postgres decides which order it was for.
//!
//! # What each failure does
//!
//! * A confirmation comes twice, or at the same moment in two places: the gateway's id of the payment is unique, and
//!   the second one is answered like the first.
//! * The order expired, was cancelled, or was paid otherwise while it was being paid: the money is refunded.
//! * A confirmation names an order that isn't written yet: the payment is held until the order is there. An order that
//!   is a dead letter is waited for. A payment for an order that stays unknown for an hour goes back.
//! * A confirmation uses the id of a payment for another order: both are kept, and an administrator decides about the
//!   second one.
//! * A signed notice can't be understood: its raw body is held, and an administrator decides. Members that are unknown
//!   here change nothing.
//! * The gateway refunds a payment by itself (a *chargeback*): the order is refunded, and its unit comes back. With
//!   `--chargeback-keeps-unit`, the order keeps its unit and can't be redeemed, and the payment is held until an
//!   administrator closes it. An order that has been redeemed stays redeemed, and its payment is held, too. Each is an
//!   entry of the book of changes.
//! * Killed between asking the gateway for a refund and noting the answer: the gateway is asked again.
//! * Postgres refuses to note one refund: the payment is postponed (`sale/postponed.rs`), and the others go on.
//! * The gateway can't answer about one payment: the payment is asked about again after its pause, and the others go on.
//!   A run that gets no answer several times in a row takes the gateway for away (`Unanswered`).
//! * No gateway is here: a user who wants to pay is told so, and nothing is written. A user whose order is paid
//!   already is told the order.
//!
//! An order that costs nothing is paid when it is written, by no payment, and refunded at once.
//!
//! # What is not promised
//!
//! A refund may be confirmed late. Until then its order keeps its unit, and the payment is among those that wait
//! (`owed.rs`).

// Payments that were begun at a gateway.
pub mod opened;

// Held payments, looked at again.
mod held;

// Reading payments on their way back.
mod queries;

// Payments of orders that are deleted.
pub mod past;

// Payments that wait for an order, a gateway or an administrator.
pub mod owed;

// Holds of payments.
mod rows;

// Notices of a gateway elsewhere.
pub mod callback;

// The gateway: takes money, and refunds it.
pub mod gateway;

// A payment, and the states of its life.
pub mod model;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use crate::base::config::Config;
use crate::base::limits;
use crate::kit::postgres;
use crate::kit::signature::Signatures;
use crate::kit::signed_http::NoAnswer;
use crate::sale::audit::{Action, Actor};
use crate::sale::ids::{OrderId, PaymentId, UserId};
use crate::sale::order::give_back::stock_returns;
use crate::sale::order::model::{OrderStatus, PayMethod};
use crate::sale::order::moves::{self, Asker, Moved, OrderMoves, PAY, REFUND};
use crate::sale::pass::Pass;
use crate::sale::payment::callback::{Notice, Receipt};
use crate::sale::payment::gateway::http::{AtGateway, HttpGateway};
use crate::sale::payment::gateway::{Checkout, Gateway, Refunding};
use crate::sale::payment::model::{PaymentReason, PaymentStatus, ToBePaid};
use crate::sale::payment::owed::OwedPayments;
use crate::sale::payment::rows::{Look, Named};
use crate::sale::postponed::Postponed;
use crate::sale::{Failure, repeated};

/// Takes payments and refunds them. Clones share the pool.
#[derive(Clone)]
pub struct Payments {
    /// Payments that wait.
    pub owed: OwedPayments,
    pool: PgPool,
    moves: OrderMoves,
    checkout: Checkout,
    /// The gateway that takes requests, if there is one.
    gateway: Option<Arc<HttpGateway>>,
    postponed: Postponed,
    /// Whether users have a bound on their unpaid orders, so that paying one frees a place.
    unpaid_bounded: bool,
    /// Whether an order whose payment is charged back keeps its unit until an administrator decides.
    chargeback_keeps_unit: bool,
}

/// The answer to a user who wants to pay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paying {
    /// The order is paid, or can't be paid any more, or there is none.
    Moved(Moved),
    /// The order has this price, and not the one that the payer expects.
    PriceDiffers {
        /// In minor units.
        pay_cents: i64,
        /// Its currency (ISO 4217).
        currency: String,
    },
    /// The order is unpaid, and its payer pays at a gateway elsewhere now.
    Opened(ToBePaid),
    /// The gateway takes no money for this order, for this reason.
    Refused(String),
    /// The order is unpaid, and a gateway elsewhere, which takes no requests, takes the money for it.
    Elsewhere,
    /// The order is unpaid, and no gateway takes money for it.
    NoGateway,
}

/// Price and deadline of an order.
struct Due {
    pay_cents: i64,
    currency: String,
    pay_by: DateTime<Utc>,
}

/// Requests of one kind that the gateway has left without an answer, in one run of the pass. A gateway may fail at one
/// payment for ever, so a single failure says nothing about the others.
#[derive(Default)]
struct Unanswered {
    in_a_row: u32,
    last: Option<Failure>,
}

/// Money that a gateway has taken.
#[derive(Clone)]
struct Payment {
    order: OrderId,
    gateway: Gateway,
    /// The gateway's id of the payment.
    id: String,
    method: PayMethod,
    amount_cents: i64,
    /// None if its gateway hasn't named it, and the order is unknown.
    currency: Option<String>,
}

impl Payments {
    /// Payments in this database, by these settings.
    pub fn new(pool: PgPool, moves: OrderMoves, postponed: Postponed, config: &Config) -> Self {
        let checkout = Checkout::of(config);
        let unpaid_bounded = config.unpaid_orders_max > 0;
        let owed = OwedPayments::new(pool.clone(), moves.clone());
        let gateway = HttpGateway::of(config).map(Arc::new);
        let chargeback_keeps_unit = config.chargeback_keeps_unit;
        Self {
            owed,
            pool,
            moves,
            checkout,
            gateway,
            postponed,
            unpaid_bounded,
            chargeback_keeps_unit,
        }
    }

    /// Signatures of the gateway that takes requests, if there is one.
    pub fn signatures(&self) -> Option<&Signatures> {
        self.gateway.as_ref().map(|gateway| gateway.signatures())
    }

    /// Pays the user's unpaid order, at the price that is expected, if one is. A payment that comes too late is refused,
    /// and its money is refunded.
    pub async fn pay(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
        expected_cents: Option<i64>,
    ) -> Result<Paying, Failure> {
        let payments = self.clone();
        let paying =
            async move { repeated(|| payments.pay_now(user, order, method, expected_cents)).await };
        self.moves.to_the_end(paying).await
    }

    /// Begins the refund of the user's paid order.
    pub async fn refund(&self, user: UserId, order: OrderId) -> Result<Moved, Failure> {
        refund(&self.pool, &self.moves, Asker::Buyer(user), order).await
    }

    /// Begins the refund of the paid order of any user, as [`refund_for_buyer`].
    pub async fn refund_for_buyer(
        &self,
        order: OrderId,
        reason: String,
        by: &Actor,
    ) -> Result<Moved, Failure> {
        refund_for_buyer(&self.pool, &self.moves, order, reason, by).await
    }

    /// Takes a gateway's notice, any number of times.
    pub async fn receive(&self, notice: Notice) -> Result<Receipt, Failure> {
        let payments = self.clone();
        let work = async move { repeated(|| payments.receive_now(notice.clone())).await };
        self.moves.to_the_end(work).await
    }

    /// Holds a signed notice that can't be understood, with its raw body; once, however often it comes.
    pub async fn hold_notice(&self, body: &[u8], fault: &str) -> Result<Receipt, Failure> {
        let held = repeated(|| rows::hold_notice(&self.pool, body)).await?;
        if let Some(payment) = held {
            tracing::warn!(%payment, fault, "a signed notice of the gateway can't be understood: it is held, as it was sent");
        }
        Ok(Receipt::Held(None, PaymentReason::NotUnderstood))
    }

    /// Looks at held payments again, and asks the gateway about opened ones. Then asks gateways to refund payments, each
    /// payment once in a while until it is confirmed. Postponed ones are tried again when they are due. Returns the
    /// number of refunds confirmed. A payment that Postgres refuses to change, or whose refund its gateway refuses, is
    /// postponed, and the others go on.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or the gateway has left a request without an answer. All else is done in the second
    /// case, unless the gateway is away; refunds that need no gateway elsewhere are done then, too.
    pub async fn refund_pass(&self) -> Result<usize, Failure> {
        let mut tries = self.postponed.begin(Pass::Refunds).await?;
        for held in self.held_due(&tries.due()).await? {
            let tried = self.look_again(&held).await.map_err(Failure::from);
            tries.settle(held.id.get(), tried).await?;
        }
        let looks = match &self.gateway {
            Some(gateway) => self.look_at_opened(gateway).await?,
            None => Unanswered::default(),
        };
        let new = match &self.gateway {
            Some(_) => self.to_give_back().await?,
            None => self.to_give_back_here().await?,
        };
        let again = self.refunding_among(&tries.due()).await?;
        let mut refunded = 0;
        let mut refunds = Unanswered::default();
        for payment in new.into_iter().chain(again) {
            if refunds.is_away() && payment.gateway == Gateway::External {
                continue;
            }
            match self.give_back(&payment).await {
                Err(Failure::Gateway(words)) => {
                    let failure = Failure::Gateway(format!("payment {}: {words}", payment.id));
                    match self.asked(payment.id).await.map_err(Failure::from) {
                        Ok(()) => tries.put_off(payment.id.get(), &failure).await?,
                        refused => {
                            tries.settle(payment.id.get(), refused).await?;
                        }
                    }
                    refunds.add(failure);
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
        match refunds.last.or(looks.last) {
            Some(failure) => Err(failure),
            None => tries.end().await.map(|()| refunded).map_err(Failure::from),
        }
    }

    /// False if the gateway will confirm the refund later.
    async fn give_back(&self, payment: &Refunding) -> Result<bool, Failure> {
        let Refunding { gateway, gateway_payment_id, amount_cents, .. } = payment;
        let state = match (gateway, &self.gateway) {
            (Gateway::InProcess, _) => Ok(AtGateway::Refunded),
            // Nothing is asked: the gateway refunds by itself.
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

    async fn pay_now(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
        expected_cents: Option<i64>,
    ) -> Result<Paying, Failure> {
        // Before any money moves.
        if let Some(answer) = self.moves.cannot(&PAY, order, Some(user)).await? {
            return Ok(Paying::Moved(answer));
        }
        if let Some(refusal) = self.moves.closed_too_many(user, order, false).await? {
            return Ok(Paying::Moved(refusal));
        }
        let due = self.due(order).await?.ok_or(sqlx::Error::RowNotFound)?;
        if expected_cents.is_some_and(|expected| expected != due.pay_cents) {
            let Due { pay_cents, currency, .. } = due;
            return Ok(Paying::PriceDiffers { pay_cents, currency });
        }
        match (self.checkout, &self.gateway) {
            // No gateway takes a payment of nothing.
            _ if due.pay_cents == 0 => {}
            (Checkout::InProcess, _) => {}
            (Checkout::Opened, Some(gateway)) => {
                return self.open(gateway, order, method, due).await;
            }
            (Checkout::Elsewhere | Checkout::Opened, _) => return Ok(Paying::Elsewhere),
            (Checkout::Nowhere, _) => return Ok(Paying::NoGateway),
        }
        let (id, amount_cents) = (gateway::charge(order), due.pay_cents);
        let (gateway, currency) = (Gateway::InProcess, Some(due.currency));
        let payment = Payment { order, gateway, id, method, amount_cents, currency };
        let paid = self.settle(&payment, None).await?;
        Ok(self.moves.answer(&PAY, order, paid).await.map(Paying::Moved)?)
    }

    async fn receive_now(&self, notice: Notice) -> sqlx::Result<Receipt> {
        match notice {
            Notice::Refund { payment_id } => self.refunded(Gateway::External, &payment_id).await,
            Notice::Payment { payment_id: id, order_id, method, amount_cents, currency } => {
                let (name, order) = ((Gateway::External, id), order_id);
                self.received(name, order, method.0, (amount_cents, currency)).await
            }
        }
    }

    /// Notes money that a gateway says it has taken.
    async fn received(
        &self,
        (gateway, id): (Gateway, String),
        order: OrderId,
        method: PayMethod,
        (amount_cents, currency): (i64, Option<String>),
    ) -> sqlx::Result<Receipt> {
        let mut payment = Payment { order, gateway, id, method, amount_cents, currency };
        match self.due(order).await? {
            Some(due) => {
                let refusal = due.refusal(amount_cents, payment.currency.as_deref());
                payment.currency.get_or_insert(due.currency);
                self.settle(&payment, refusal).await?;
            }
            None => {
                let look = match past::may_be_deleted(&self.pool, order).await? {
                    // The payment may have paid the order before, so no money goes back by itself.
                    true => Look::ByAdministrator,
                    false => Look::ByPass,
                };
                self.hold(&payment, PaymentReason::UnknownOrder, look).await?;
            }
        }
        self.receipt(&payment).await
    }

    /// Price and deadline of the order, if it is there.
    async fn due(&self, order: OrderId) -> sqlx::Result<Option<Due>> {
        sqlx::query_as!(
            Due,
            "SELECT pay_cents, currency, pay_by FROM orders WHERE id = $1",
            order.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }

    /// Notes money that has been taken: it pays its order, or goes back, at once if there is a `refusal`. True if it
    /// has paid the order now. A payment that is there already changes nothing.
    async fn settle(
        &self,
        payment: &Payment,
        refusal: Option<PaymentReason>,
    ) -> sqlx::Result<bool> {
        let mut tx = postgres::begin(&self.pool).await?;
        let reason = self.pay_order(&mut tx, payment.order, payment.method, refusal).await?;
        let status =
            if reason.is_some() { PaymentStatus::Refunding } else { PaymentStatus::Accepted };
        let new = insert(&mut tx, payment, status, reason).await?.is_some();
        match new {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(reason.is_none() && new)
    }

    /// Makes an order paid, unless there is a `refusal`. Returns the reason why the order takes no money.
    async fn pay_order(
        &self,
        tx: &mut PgConnection,
        order: OrderId,
        method: PayMethod,
        refusal: Option<PaymentReason>,
    ) -> sqlx::Result<Option<PaymentReason>> {
        if refusal.is_some() {
            // Deleted meanwhile with its payments, this one may be a repeat: the gateway tells again, and it is held.
            moves::hold(&mut *tx, order).await?;
            moves::status(tx, order).await?;
            return Ok(refusal);
        }
        if !moves::pay(&mut *tx, order, method).await? {
            return why_not(tx, order).await.map(Some);
        }
        if self.unpaid_bounded {
            stock_returns::insert_place(tx, order).await?;
        }
        Ok(None)
    }

    /// Notes money that no order can take now. A payment that is there already changes nothing.
    async fn hold(&self, payment: &Payment, reason: PaymentReason, look: Look) -> sqlx::Result<()> {
        debug_assert!(PaymentReason::HELD.contains(&reason), "{reason:?}");
        let mut tx = postgres::begin(&self.pool).await?;
        if let Some(id) = insert(&mut tx, payment, PaymentStatus::Held, Some(reason)).await? {
            rows::begin_hold(&mut tx, id, look).await?;
            let order = payment.order;
            tracing::warn!(payment = %id, %order, reason = reason.as_str(), "a gateway has taken money that no order can take");
        }
        tx.commit().await
    }

    /// Outcome of a payment: now, or when it was confirmed first.
    async fn receipt(&self, payment: &Payment) -> sqlx::Result<Receipt> {
        let row = sqlx::query!(
            r#"SELECT order_id AS "order_id!: OrderId", status AS "status: PaymentStatus",
                      refund_reason AS "reason: PaymentReason"
               FROM payments WHERE gateway = $1 AND gateway_payment_id = $2"#,
            payment.gateway.as_str(),
            payment.id,
        )
        .fetch_one(&self.pool)
        .await?;
        let order = self.moves.find(payment.order).await?;
        if row.order_id != payment.order {
            let reason = PaymentReason::IdUsedTwice;
            let other = payment.under_a_used_id();
            self.hold(&other, reason, Look::ByAdministrator).await?;
            return Ok(Receipt::Held(order, reason));
        }
        Ok(match (row.reason, row.status) {
            // The payment has paid the order, whatever came later.
            (None | Some(PaymentReason::AskedFor | PaymentReason::ChargedBack), _) => {
                Receipt::Accepted(order.ok_or(sqlx::Error::RowNotFound)?)
            }
            (Some(reason), PaymentStatus::Held) => Receipt::Held(order, reason),
            (Some(reason), _) => Receipt::HandedBack(order, reason),
        })
    }

    /// Notes that the gateway has been asked: it will confirm, or is asked again after a pause.
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

    /// Notes the refund of a payment. An order that waits for it ends here; so does one whose payment is charged back,
    /// unless it keeps its unit.
    async fn refunded(&self, gateway: Gateway, payment_id: &str) -> sqlx::Result<Receipt> {
        let mut tx = postgres::begin(&self.pool).await?;
        let Some(found) = rows::hold_named(&mut tx, gateway, payment_id).await? else {
            return Ok(Receipt::NoPayment);
        };
        match (found.status, found.reason) {
            (PaymentStatus::Accepted, _) => {
                self.charge_back(&mut tx, &found).await?;
                tx.commit().await?;
                return self.charged_back(found.order).await;
            }
            (_, Some(PaymentReason::ChargedBack)) => return self.charged_back(found.order).await,
            (_, Some(PaymentReason::AskedFor)) => moves::refunded(&mut tx, found.order).await?,
            _ => {}
        }
        rows::refunded(&mut tx, found.id, None).await?;
        tx.commit().await?;
        Ok(Receipt::Refunded(self.moves.find(found.order).await?))
    }

    /// The gateway has taken back the money of an order, which is locked.
    async fn charge_back(&self, tx: &mut PgConnection, found: &Named) -> sqlx::Result<()> {
        match moves::status(&mut *tx, found.order).await? {
            // The shop has lost goods and money, and an administrator has to know.
            OrderStatus::Redeemed => rows::hold_charged_back(&mut *tx, found.id).await,
            OrderStatus::Paid if self.chargeback_keeps_unit => {
                moves::keep_charged_back(&mut *tx, found.order).await?;
                rows::hold_charged_back(&mut *tx, found.id).await
            }
            _ => {
                moves::charge_back(&mut *tx, found.order).await?;
                rows::refunded(&mut *tx, found.id, Some(PaymentReason::ChargedBack)).await
            }
        }
    }

    /// Outcome of a chargeback: now, or when it was told first.
    async fn charged_back(&self, order: OrderId) -> sqlx::Result<Receipt> {
        let order = self.moves.find(order).await?;
        Ok(Receipt::ChargedBack(order.ok_or(sqlx::Error::RowNotFound)?))
    }
}

impl Unanswered {
    fn add(&mut self, failure: Failure) {
        self.in_a_row += 1;
        self.last = Some(failure);
    }

    /// The gateway is there: it has answered.
    fn end_row(&mut self) {
        self.in_a_row = 0;
    }

    /// True for a gateway that is asked no more in this run.
    fn is_away(&self) -> bool {
        self.in_a_row >= limits::GATEWAY_UNANSWERED_MAX
    }
}

impl Due {
    /// The reason why this amount doesn't pay the order; a gateway that names no currency means the order's.
    fn refusal(&self, amount_cents: i64, currency: Option<&str>) -> Option<PaymentReason> {
        let is_wrong = amount_cents != self.pay_cents
            || currency.is_some_and(|currency| currency != self.currency);
        is_wrong.then_some(PaymentReason::WrongAmount)
    }
}

impl Payment {
    /// The same money under an id of its own: the gateway's id is that of another payment. Ids of gateways have no
    /// spaces.
    fn under_a_used_id(&self) -> Self {
        Self { id: format!("{} for {}", self.id, self.order), ..self.clone() }
    }
}

/// Begins the refund of the paid order of any user, for this reason.
pub async fn refund_for_buyer(
    pool: &PgPool,
    moves: &OrderMoves,
    order: OrderId,
    reason: String,
    by: &Actor,
) -> Result<Moved, Failure> {
    refund(pool, moves, Asker::Staff { by: by.clone(), reason }, order).await
}

async fn refund(
    pool: &PgPool,
    moves: &OrderMoves,
    asker: Asker,
    order: OrderId,
) -> Result<Moved, Failure> {
    let (pool, of) = (pool.clone(), moves.clone());
    let work = async move { repeated(|| refund_now(&pool, &of, &asker, order)).await };
    moves.to_the_end(work).await
}

async fn refund_now(
    pool: &PgPool,
    moves: &OrderMoves,
    asker: &Asker,
    order: OrderId,
) -> sqlx::Result<Moved> {
    if let Some(answer) = moves.cannot(&REFUND, order, asker.buyer()).await? {
        return Ok(answer);
    }
    let is_free = moves::is_free(pool, order).await?;
    // Claim and refund would go round for ever, and no payment in between has a bound.
    if is_free
        && let Some(buyer) = asker.buyer()
        && let Some(refusal) = moves.closed_too_many(buyer, order, true).await?
    {
        return Ok(refusal);
    }
    let mut tx = postgres::begin(pool).await?;
    let moved = moves::ask_refund(&mut tx, order).await?;
    if moved {
        match (refund_accepted(&mut tx, order).await?, is_free) {
            (true, _) => {}
            (false, true) => moves::refunded(&mut tx, order).await?,
            // Neither amount nor holder of a refund would be known.
            (false, false) => return Err(sqlx::Error::RowNotFound),
        }
        let statuses = (OrderStatus::Paid, OrderStatus::Refunding);
        asker.note(&mut tx, Action::RefundOrder, order, statuses).await?;
    }
    tx.commit().await?;
    moves.answer(&REFUND, order, moved).await
}

/// Reason why an order takes no money any more.
async fn why_not(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<PaymentReason> {
    let closed = sqlx::query_scalar!(
        r#"SELECT status IN ('cancelled', 'expired') AS "closed!" FROM orders WHERE id = $1"#,
        order.get(),
    )
    .fetch_one(tx)
    .await?;
    Ok(if closed { PaymentReason::TooLate } else { PaymentReason::PaidTwice })
}

/// The payment's row, if it is new.
async fn insert(
    tx: &mut PgConnection,
    payment: &Payment,
    status: PaymentStatus,
    reason: Option<PaymentReason>,
) -> sqlx::Result<Option<PaymentId>> {
    let new = sqlx::query_scalar!(
        r#"INSERT INTO payments
               (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, refunding_at, currency)
           VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $6 = 'refunding' THEN now() END, $8)
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
    );
    new.fetch_optional(tx).await
}

/// Begins the refund of the payment that has paid this order. False without one.
async fn refund_accepted(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<bool> {
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
