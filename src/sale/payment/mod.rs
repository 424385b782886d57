//! Money for orders, and its way back. Owner of the table `payments`.
//!
//! # Model
//!
//! A row is money that a gateway has taken. The transaction in which its order becomes paid writes the row
//! (*accepted*). If the order can't be paid any more, the row says from the beginning that the money goes back
//! (*refunding*), until the gateway has confirmed the refund (*refunded*). So money is never swallowed, whichever
//! transaction wins a race.
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
//! * A confirmation names an order that isn't written yet: the gateway is told that there is none, and
//!   confirms again.
//! * Killed between asking the gateway for a refund and noting the answer: the gateway is asked again.
//! * Postgres refuses to note one refund: the payment is postponed (`sale/postponed.rs`), and the others go on.
//! * No gateway is here: a user who wants to pay is told so, and nothing is written. A user whose order is paid
//!   already is told the order.
//!
//! # What is not promised
//!
//! A refund may be confirmed late. Until then its order keeps its unit.

// Notices of a gateway elsewhere.
pub mod callback;

// Reading payments on their way back.
mod queries;

// The gateway: takes money, and refunds it.
pub mod gateway;

use sqlx::{PgConnection, PgPool};

use crate::base::config::Config;
use crate::sale::Failure;
use crate::sale::ids::{OrderId, UserId};
use crate::sale::order::give_back::stock_returns;
use crate::sale::order::model::PayMethod;
use crate::sale::order::moves::{self, Moved, OrderMoves, PAY, REFUND};
use crate::sale::pass::Pass;
use crate::sale::payment::callback::{Notice, Receipt};
use crate::sale::payment::gateway::{Checkout, Gateway, Refund, RefundReason, Refunding};
use crate::sale::postponed::Postponed;

/// Takes payments and refunds them. Clones share the pool.
#[derive(Clone)]
pub struct Payments {
    pool: PgPool,
    moves: OrderMoves,
    checkout: Checkout,
    postponed: Postponed,
    /// Whether users have a bound on their unpaid orders, so that paying one frees a place.
    unpaid_bounded: bool,
}

/// The answer to a user who wants to pay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paying {
    /// The order is paid, or can't be paid any more, or there is none.
    Moved(Moved),
    /// The order is unpaid, and a gateway elsewhere takes the money for it.
    Elsewhere,
    /// The order is unpaid, and no gateway takes money for it.
    NoGateway,
}

/// Money that a gateway has taken.
struct Payment {
    order: OrderId,
    gateway: Gateway,
    /// The gateway's id of the payment.
    id: String,
    method: PayMethod,
    amount_cents: i64,
}

impl Payments {
    /// Payments in this database, by these settings.
    pub fn new(pool: PgPool, moves: OrderMoves, postponed: Postponed, config: &Config) -> Self {
        let checkout = Checkout::of(config);
        let unpaid_bounded = config.unpaid_orders_max > 0;
        Self { pool, moves, checkout, postponed, unpaid_bounded }
    }

    /// Pays the user's unpaid order. A payment that comes too late is refused, and its money is refunded.
    pub async fn pay(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
    ) -> Result<Paying, Failure> {
        let payments = self.clone();
        self.moves.to_the_end(async move { payments.pay_now(user, order, method).await }).await
    }

    /// Begins the refund of the user's paid order.
    pub async fn refund(&self, user: UserId, order: OrderId) -> Result<Moved, Failure> {
        let payments = self.clone();
        self.moves.to_the_end(async move { payments.refund_now(user, order).await }).await
    }

    /// Takes a gateway's notice, any number of times.
    pub async fn receive(&self, notice: Notice) -> Result<Receipt, Failure> {
        let payments = self.clone();
        self.moves.to_the_end(async move { payments.receive_now(notice).await }).await
    }

    /// Asks gateways to refund payments, each payment once in a while until it is confirmed; then tries postponed
    /// ones again that are due. Returns the number confirmed. A payment whose refund can't be noted is postponed, and
    /// the others go on.
    pub async fn refund_pass(&self) -> Result<usize, Failure> {
        let new = self.to_give_back().await?;
        let mut tries = self.postponed.begin(Pass::Refunds).await?;
        let again = self.refunding_among(&tries.due()).await?;
        let mut refunded = 0;
        for payment in new.into_iter().chain(again) {
            let tried = self.give_back(&payment).await;
            refunded += usize::from(tries.settle(payment.id, tried).await? == Some(true));
        }
        tries.end().await?;
        Ok(refunded)
    }

    /// False if the gateway will confirm the refund later.
    async fn give_back(&self, payment: &Refunding) -> Result<bool, Failure> {
        match gateway::give_back(payment.gateway, &payment.gateway_payment_id) {
            Refund::Done => {
                self.refunded(payment.gateway, &payment.gateway_payment_id).await?;
                Ok(true)
            }
            Refund::Later => {
                self.asked(payment.id).await?;
                Ok(false)
            }
        }
    }

    async fn pay_now(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
    ) -> sqlx::Result<Paying> {
        // Before any money moves.
        if let Some(answer) = self.moves.cannot(&PAY, order, Some(user)).await? {
            return Ok(Paying::Moved(answer));
        }
        match self.checkout {
            Checkout::InProcess => {}
            Checkout::Elsewhere => return Ok(Paying::Elsewhere),
            Checkout::Nowhere => return Ok(Paying::NoGateway),
        }
        let amount_cents = self.price(order).await?.ok_or(sqlx::Error::RowNotFound)?;
        let id = gateway::charge(order);
        let payment = Payment { order, gateway: Gateway::InProcess, id, method, amount_cents };
        let paid = self.settle(&payment, None).await?;
        self.moves.answer(&PAY, order, paid).await.map(Paying::Moved)
    }

    async fn refund_now(&self, user: UserId, order: OrderId) -> sqlx::Result<Moved> {
        if let Some(answer) = self.moves.cannot(&REFUND, order, Some(user)).await? {
            return Ok(answer);
        }
        let mut tx = self.pool.begin().await?;
        let moved = moves::ask_refund(&mut tx, order).await?;
        if moved {
            refund_accepted(&mut tx, order).await?;
        }
        tx.commit().await?;
        self.moves.answer(&REFUND, order, moved).await
    }

    async fn receive_now(&self, notice: Notice) -> sqlx::Result<Receipt> {
        match notice {
            Notice::Refund { payment_id } => self.refunded(Gateway::External, &payment_id).await,
            Notice::Payment { payment_id: id, order_id: order, method, amount_cents } => {
                let Some(price) = self.price(order).await? else {
                    return Ok(Receipt::NoOrder);
                };
                let wrong = (amount_cents != price).then_some(RefundReason::WrongAmount);
                let method = method.0;
                let payment =
                    Payment { order, gateway: Gateway::External, id, method, amount_cents };
                self.settle(&payment, wrong).await?;
                self.receipt(&payment).await
            }
        }
    }

    /// The present price of the order's coupon, if there is such an order.
    async fn price(&self, order: OrderId) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar!(
            "SELECT pay_cents FROM coupons JOIN orders ON coupon_id = coupons.id WHERE orders.id = $1",
            order.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }

    /// Notes money that has been taken: it pays its order, or goes back, at once if there is a `refusal`. True if it
    /// has paid the order now. A payment that is there already changes nothing.
    async fn settle(&self, payment: &Payment, refusal: Option<RefundReason>) -> sqlx::Result<bool> {
        let mut tx = self.pool.begin().await?;
        let paid = refusal.is_none() && moves::pay(&mut tx, payment.order, payment.method).await?;
        let reason = match (paid, refusal) {
            (true, _) => None,
            (false, None) => Some(why_not(&mut tx, payment.order).await?),
            (false, refusal) => refusal,
        };
        if paid && self.unpaid_bounded {
            stock_returns::insert_place(&mut tx, payment.order).await?;
        }
        let new = insert(&mut tx, payment, reason).await?;
        match new {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(paid && new)
    }

    /// Outcome of a payment: now, or when it was confirmed first.
    async fn receipt(&self, payment: &Payment) -> sqlx::Result<Receipt> {
        let row = sqlx::query!(
            r#"SELECT order_id AS "order_id: OrderId", refund_reason AS "refund_reason: RefundReason"
               FROM payments WHERE gateway = $1 AND gateway_payment_id = $2"#,
            payment.gateway.as_str(),
            payment.id,
        )
        .fetch_one(&self.pool)
        .await?;
        if row.order_id != payment.order {
            return Ok(Receipt::OtherOrder);
        }
        let order = self.moves.find(payment.order).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(match row.refund_reason {
            // The payment has paid the order, whatever came later.
            None | Some(RefundReason::AskedFor) => Receipt::Accepted(order),
            Some(reason) => Receipt::HandedBack(order, reason),
        })
    }

    /// Notes that the gateway has been asked, and will confirm.
    async fn asked(&self, payment: i64) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE payments SET refund_asked_at = now(), updated_at = now()
             WHERE id = $1 AND status = 'refunding'",
            payment,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Notes the refund of a payment. If its buyer had asked for that, the order ends here.
    async fn refunded(&self, gateway: Gateway, payment_id: &str) -> sqlx::Result<Receipt> {
        let found = sqlx::query!(
            r#"SELECT id, order_id AS "order_id: OrderId", status = 'accepted' AS "accepted!",
                      coalesce(refund_reason = 'asked_for', false) AS "asked_for!"
               FROM payments WHERE gateway = $1 AND gateway_payment_id = $2"#,
            gateway.as_str(),
            payment_id,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(found) = found else {
            return Ok(Receipt::NoPayment);
        };
        if found.accepted {
            return Ok(Receipt::NotAskedFor);
        }
        let mut tx = self.pool.begin().await?;
        if found.asked_for {
            moves::refunded(&mut tx, found.order_id).await?;
        }
        sqlx::query!(
            "UPDATE payments SET status = 'refunded', refunded_at = now(), updated_at = now()
             WHERE id = $1 AND status = 'refunding'",
            found.id,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        let order = self.moves.find(found.order_id).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Receipt::Refunded(order))
    }
}

/// Reason why an order takes no money any more.
async fn why_not(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<RefundReason> {
    let closed = sqlx::query_scalar!(
        r#"SELECT status IN ('cancelled', 'expired') AS "closed!" FROM orders WHERE id = $1"#,
        order.get(),
    )
    .fetch_one(tx)
    .await?;
    Ok(if closed { RefundReason::TooLate } else { RefundReason::PaidTwice })
}

/// False if this payment is there already.
async fn insert(
    tx: &mut PgConnection,
    payment: &Payment,
    refund: Option<RefundReason>,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO payments
             (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
         VALUES ($1, $2, $3, $4, $5, CASE WHEN $6::text IS NULL THEN 'accepted' ELSE 'refunding' END, $6)
         ON CONFLICT ON CONSTRAINT payments_once DO NOTHING",
        payment.order.get(),
        payment.gateway.as_str(),
        payment.id,
        payment.method.as_str(),
        payment.amount_cents,
        refund.map(RefundReason::as_str),
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Begins the refund of the payment that has paid this order.
async fn refund_accepted(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<()> {
    let done = sqlx::query!(
        "UPDATE payments SET status = 'refunding', refund_reason = 'asked_for', updated_at = now()
         -- Both say the same; an index that finds the payment by its order is there for the second.
         WHERE order_id = $1 AND status = 'accepted' AND refund_reason IS NULL",
        order.get(),
    )
    .execute(tx)
    .await?;
    // A paid order without a payment: neither amount nor holder of a refund would be known.
    if done.rows_affected() == 1 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}
