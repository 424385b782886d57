//! Payments for orders, and refunds. Owns the tables `payments` and `opened_payments`.
//!
//! # Model
//!
//! A row is money that a gateway has taken. It is written in the transaction that marks its order as paid (*accepted*).
//! If the order can't be paid any more, the row says from the start that the money is being refunded (*refunding*),
//! until the gateway has confirmed the refund (*refunded*). Money that no order can take is *held*: the order is
//! unknown or not written yet, the gateway has used the payment's id before, or its notice can't be understood. So no
//! money is ever lost track of, whichever transaction wins a race, and whatever a gateway says.
//!
//! # Authority
//!
//! The gateway decides whether money has moved. Postgres decides which order it was for.
//!
//! # What each failure does
//!
//! * A confirmation comes twice, or in two places at once: the gateway's payment id is unique, and the second
//!   confirmation is answered like the first.
//! * The order expired, was cancelled, or was paid otherwise during the payment: the money is refunded.
//! * A confirmation names an order that isn't written yet: the payment is held until the order is there. An open dead
//!   letter is waited for. If the order stays unknown for an hour, the money is refunded.
//! * A confirmation uses the payment id of another order: both payments are kept, and an administrator decides about
//!   the second one.
//! * A signed notice can't be understood: its raw body is held, and an administrator decides. Unknown members are
//!   ignored.
//! * The gateway refunds a payment on its own (a *chargeback*): the order is refunded, and its unit is released. With
//!   `--chargeback-keeps-unit`, the order keeps its unit and can't be redeemed, and the payment is held until an
//!   administrator closes it. A redeemed order stays redeemed, and its payment is held, too. Each chargeback is in the
//!   audit log.
//! * The process dies after it has requested a refund and before it has noted the answer: the refund is requested
//!   again.
//! * Postgres refuses to note a refund: that payment is postponed (`store/postponed.rs`), and the others go on.
//! * The gateway gives no answer about a payment: it is asked again after a pause, and the others go on. After several
//!   requests in a row without an answer, the run takes the gateway for away (`job.rs`).
//! * No gateway is configured: a user who wants to pay is told so, and nothing is written. A user whose order is paid
//!   already gets the order.
//!
//! An order that costs nothing is paid when it is written, without a payment, and is refunded at once.
//!
//! # What is not promised
//!
//! A refund may be confirmed late. Until then its order keeps its unit, and the payment is listed among those that wait
//! for a person (`operator/operations.rs`).

// Payments opened at a gateway.
mod opened;

// The job over payments: checks held and opened ones, and has money refunded.
mod job;

// Payments that wait for a person, and the payments of an order.
pub mod owed;

// Rows of payments.
pub mod rows;

// Notices of an external gateway.
pub mod callback;

// Payment gateways.
pub mod gateway;

// A payment and its statuses.
pub mod model;

use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use crate::base::config::Config;
use crate::kit::signature::Signatures;
use crate::order::model::{Order, OrderStatus, PayMethod};
use crate::order::moves::{self, Asker, CHARGE_BACK, Moved, OrderMoves, PAY, REFUND, REFUNDED};
use crate::order::release::stock_returns;
use crate::payment::callback::{Notice, Receipt};
use crate::payment::gateway::http::HttpGateway;
use crate::payment::gateway::{Checkout, Gateway};
use crate::payment::model::{PaymentReason, PaymentStatus, ToBePaid};
use crate::payment::owed::OwedPayments;
use crate::payment::rows::{Named, NextCheck, Payment};
use crate::store::audit::Action;
use crate::store::ids::{OrderId, UserId};
use crate::store::postgres;
use crate::store::postponed::Postponed;
use crate::store::{Failure, repeated};

/// Takes payments and refunds them. Clones share the pool.
#[derive(Clone)]
pub struct Payments {
    /// Payments that wait for a person.
    pub owed: OwedPayments,
    pool: PgPool,
    moves: OrderMoves,
    checkout: Checkout,
    /// The gateway that takes requests, if there is one.
    gateway: Option<Arc<HttpGateway>>,
    postponed: Postponed,
    /// Whether users' unpaid orders are limited, so that paying one frees a place.
    unpaid_bounded: bool,
    /// Whether an order keeps its unit after a chargeback, until an administrator decides.
    chargeback_keeps_unit: bool,
}

/// The answer to a user who wants to pay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paying {
    /// The order is paid, can't be paid any more, or doesn't exist.
    Moved(Moved),
    /// The order has another price than the payer expects.
    PriceDiffers {
        /// In minor units.
        pay_cents: i64,
        /// ISO 4217.
        currency: String,
    },
    /// The order is unpaid, and its payer can now pay at an external gateway.
    Opened(ToBePaid),
    /// The gateway takes no money for this order, for this reason.
    Refused(String),
    /// The order is unpaid, and an external gateway that takes no requests takes the money for it.
    Elsewhere,
    /// The order is unpaid, and no gateway is configured.
    NoGateway,
}

impl Payments {
    pub fn new(pool: PgPool, moves: OrderMoves, postponed: Postponed, config: &Config) -> Self {
        Self {
            owed: OwedPayments::new(pool.clone(), moves.clone()),
            pool,
            moves,
            checkout: Checkout::of(config),
            gateway: HttpGateway::of(config).map(Arc::new),
            postponed,
            unpaid_bounded: config.unpaid_orders_max > 0,
            chargeback_keeps_unit: config.chargeback_keeps_unit,
        }
    }

    /// Signatures of the gateway that takes requests.
    pub fn signatures(&self) -> Option<&Signatures> {
        self.gateway.as_ref().map(|gateway| gateway.signatures())
    }

    /// Pays the user's unpaid order, if its price is the expected one (when one is given). A payment that comes too
    /// late is refused, and its money is refunded.
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

    /// Begins the refund of a paid order.
    pub async fn refund(&self, asker: Asker, order: OrderId) -> Result<Moved, Failure> {
        let payments = self.clone();
        let work = async move { repeated(|| payments.refund_now(&asker, order)).await };
        self.moves.to_the_end(work).await
    }

    /// Handles a gateway's notice; safe to repeat.
    pub async fn receive(&self, notice: Notice) -> Result<Receipt, Failure> {
        let payments = self.clone();
        let work = async move { repeated(|| payments.receive_now(notice.clone())).await };
        self.moves.to_the_end(work).await
    }

    /// Holds a signed notice that can't be understood, with its raw body, however often it comes.
    pub async fn hold_notice(&self, body: &[u8], fault: &str) -> Result<Receipt, Failure> {
        let held = repeated(|| rows::hold_notice(&self.pool, body)).await?;
        if let Some(payment) = held {
            tracing::warn!(%payment, fault, "a signed notice of the gateway can't be understood: it is held, as it was sent");
        }
        Ok(Receipt::Held(None, PaymentReason::NotUnderstood))
    }

    async fn pay_now(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
        expected_cents: Option<i64>,
    ) -> Result<Paying, Failure> {
        // Before any money moves.
        let due = match self.moves.begin(&PAY, order, Some(user)).await? {
            Ok(found) => found,
            Err(answer) => return Ok(Paying::Moved(answer)),
        };
        if let Some(refusal) = self.moves.closed_too_many(&due, true).await? {
            return Ok(Paying::Moved(refusal));
        }
        if expected_cents.is_some_and(|expected| expected != due.pay_cents) {
            let Order { pay_cents, currency, .. } = due;
            return Ok(Paying::PriceDiffers { pay_cents, currency });
        }
        match (self.checkout, &self.gateway) {
            // No gateway takes a payment of zero.
            _ if due.pay_cents == 0 => {}
            (Checkout::InProcess, _) => {}
            (Checkout::Opened, Some(gateway)) => return self.open(gateway, due, method).await,
            (Checkout::Elsewhere | Checkout::Opened, _) => return Ok(Paying::Elsewhere),
            (Checkout::Nowhere, _) => return Ok(Paying::NoGateway),
        }
        let (id, amount_cents) = (gateway::charge(order), due.pay_cents);
        let (gateway, currency) = (Gateway::InProcess, Some(due.currency));
        let payment = Payment { order, gateway, id, method, amount_cents, currency };
        let paid = self.settle(&payment, None).await?;
        Ok(self.moves.answer(&PAY, order, paid).await.map(Paying::Moved)?)
    }

    async fn refund_now(&self, asker: &Asker, order: OrderId) -> sqlx::Result<Moved> {
        let found = match self.moves.begin(&REFUND, order, asker.buyer()).await? {
            Ok(found) => found,
            Err(answer) => return Ok(answer),
        };
        let is_free = found.pay_cents == 0;
        // Otherwise the user could claim and refund for ever, since no payment limits that.
        if is_free
            && asker.buyer().is_some()
            && let Some(refusal) = self.moves.closed_too_many(&found, false).await?
        {
            return Ok(refusal);
        }
        let mut tx = postgres::begin(&self.pool).await?;
        let moved = moves::make(&mut tx, order, &REFUND).await?;
        if moved {
            match (rows::refund_accepted(&mut tx, order).await?, is_free) {
                (true, _) => {}
                (false, true) => _ = moves::make(&mut tx, order, &REFUNDED).await?,
                // Amount and holder of the refund would be unknown.
                (false, false) => return Err(sqlx::Error::RowNotFound),
            }
            asker.note(&mut tx, Action::RefundOrder, order, &REFUND).await?;
        }
        tx.commit().await?;
        self.moves.answer(&REFUND, order, moved).await
    }

    async fn receive_now(&self, notice: Notice) -> sqlx::Result<Receipt> {
        match notice {
            Notice::Refund { payment_id } => self.refunded(Gateway::External, &payment_id).await,
            Notice::Payment { payment_id: id, order_id: order, method, amount_cents, currency } => {
                let (gateway, method) = (Gateway::External, method.0);
                self.received(Payment { order, gateway, id, method, amount_cents, currency }).await
            }
        }
    }

    /// Notes money that a gateway says it has taken.
    async fn received(&self, mut payment: Payment) -> sqlx::Result<Receipt> {
        match self.moves.find(payment.order).await? {
            Some(due) => {
                let refusal = refusal(&due, payment.amount_cents, payment.currency.as_deref());
                payment.currency.get_or_insert(due.currency);
                self.settle(&payment, refusal).await?;
            }
            None => {
                let check = match rows::may_be_deleted(&self.pool, payment.order).await? {
                    // The payment may have paid the order before, so the money isn't refunded automatically.
                    true => NextCheck::ByAdministrator,
                    false => NextCheck::ByJob,
                };
                self.hold(&payment, PaymentReason::UnknownOrder, check).await?;
            }
        }
        self.receipt(&payment).await
    }

    /// Notes money that has been taken: it pays its order, or is refunded, at once if there is a `refusal`. True if it
    /// has paid the order by this call. Does nothing if the payment is noted already.
    async fn settle(
        &self,
        payment: &Payment,
        refusal: Option<PaymentReason>,
    ) -> sqlx::Result<bool> {
        let mut tx = postgres::begin(&self.pool).await?;
        let reason = self.pay_order(&mut tx, payment.order, payment.method, refusal).await?;
        let status = PaymentStatus::for_reason(reason);
        let new = rows::insert(&mut tx, payment, status, reason, None).await?.is_some();
        match new {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(reason.is_none() && new)
    }

    /// Marks an order as paid, unless there is a `refusal`. Returns the reason why the order takes no money.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; or when the order has been deleted meanwhile with its payments, of which this one
    /// may be a repeat. The gateway then confirms once more, and the payment is held.
    async fn pay_order(
        &self,
        tx: &mut PgConnection,
        order: OrderId,
        method: PayMethod,
        refusal: Option<PaymentReason>,
    ) -> sqlx::Result<Option<PaymentReason>> {
        if refusal.is_none() && moves::pay(&mut *tx, order, method).await? {
            if self.unpaid_bounded {
                stock_returns::insert_place(tx, order).await?;
            }
            return Ok(None);
        }
        let why_not = match moves::hold(tx, order).await?.ok_or(sqlx::Error::RowNotFound)? {
            OrderStatus::Cancelled | OrderStatus::Expired => PaymentReason::TooLate,
            _ => PaymentReason::PaidTwice,
        };
        Ok(Some(refusal.unwrap_or(why_not)))
    }

    /// Notes money that no order can take now. Does nothing if the payment is noted already.
    async fn hold(
        &self,
        payment: &Payment,
        reason: PaymentReason,
        check: NextCheck,
    ) -> sqlx::Result<()> {
        debug_assert!(PaymentReason::HELD.contains(&reason), "{reason:?}");
        let mut tx = postgres::begin(&self.pool).await?;
        let (status, why, check) = (PaymentStatus::Held, Some(reason), Some(check));
        if let Some(id) = rows::insert(&mut tx, payment, status, why, check).await? {
            let order = payment.order;
            tracing::warn!(payment = %id, %order, reason = reason.as_str(), "a gateway has taken money that no order can take");
        }
        tx.commit().await
    }

    /// The outcome of a payment that is noted.
    async fn receipt(&self, payment: &Payment) -> sqlx::Result<Receipt> {
        let mut connection = self.pool.acquire().await?;
        let row = rows::named(&mut connection, payment.gateway, &payment.id).await?;
        drop(connection);
        let row = row.ok_or(sqlx::Error::RowNotFound)?;
        let order = self.moves.find(payment.order).await?;
        if row.order != payment.order {
            let reason = PaymentReason::IdUsedTwice;
            let other = payment.under_a_used_id();
            self.hold(&other, reason, NextCheck::ByAdministrator).await?;
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

    /// Notes the refund of a payment. An order whose refund was requested is now refunded, and so is an order that is
    /// charged back, unless it keeps its unit.
    async fn refunded(&self, gateway: Gateway, payment_id: &str) -> sqlx::Result<Receipt> {
        let mut tx = postgres::begin(&self.pool).await?;
        let Some(found) = rows::hold_named(&mut tx, gateway, payment_id).await? else {
            return Ok(Receipt::NoPayment);
        };
        let is_charged_back = found.status == PaymentStatus::Accepted
            || found.reason == Some(PaymentReason::ChargedBack);
        if found.status == PaymentStatus::Accepted {
            self.charge_back(&mut tx, &found).await?;
        } else if !is_charged_back {
            if found.reason == Some(PaymentReason::AskedFor) {
                moves::make(&mut tx, found.order, &REFUNDED).await?;
            }
            rows::refunded(&mut tx, found.id, None).await?;
        }
        tx.commit().await?;
        let order = self.moves.find(found.order).await?;
        match is_charged_back {
            true => order.map(Receipt::ChargedBack).ok_or(sqlx::Error::RowNotFound),
            false => Ok(Receipt::Refunded(order)),
        }
    }

    /// The gateway has taken back the money of an order, which the caller has locked.
    async fn charge_back(&self, tx: &mut PgConnection, found: &Named) -> sqlx::Result<()> {
        let status = moves::hold(&mut *tx, found.order).await?;
        // The shop has lost goods and money, and an administrator has to know.
        let stays = match status.ok_or(sqlx::Error::RowNotFound)? {
            OrderStatus::Redeemed => true,
            // An order in refunding can't be redeemed.
            OrderStatus::Paid if self.chargeback_keeps_unit => {
                moves::make(&mut *tx, found.order, &REFUND).await?
            }
            _ => false,
        };
        if stays {
            return rows::hold_charged_back(tx, found.id).await;
        }
        moves::make(&mut *tx, found.order, &CHARGE_BACK).await?;
        rows::refunded(tx, found.id, Some(PaymentReason::ChargedBack)).await
    }
}

/// Why this amount doesn't pay the order. Without a currency, the gateway means the order's.
fn refusal(due: &Order, amount_cents: i64, currency: Option<&str>) -> Option<PaymentReason> {
    let is_wrong =
        amount_cents != due.pay_cents || currency.is_some_and(|currency| currency != due.currency);
    is_wrong.then_some(PaymentReason::WrongAmount)
}
