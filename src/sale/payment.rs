//! Money for orders, and its way back. Owner of the table `payments`.
//!
//! # Model
//!
//! A row is money that a gateway has taken. It is written in the transaction in which its order becomes paid
//! (*accepted*), or finds that it can't any more: then the row says so from the beginning (*refunding*), and the
//! money goes back. So money is never swallowed, whoever wins a race.
//!
//! # What each failure does
//!
//! * A confirmation comes twice, or at the same moment in two places: the gateway's id of the payment is
//!   unique, and the second one is answered like the first.
//! * The order expired, was cancelled, or was paid by another payment while this one was made: handed back.

use sqlx::{PgConnection, PgPool};

use super::Failure;
use super::gateway::{self, Gateway, PayMethod};
use super::ids::{OrderId, UserId};
use super::order_moves::{self, Moved, OrderMoves, PAY};
use crate::base::shutdown::Shutdown;

/// Takes payments. Clones share the pool.
#[derive(Clone)]
pub struct Payments {
    pool: PgPool,
    moves: OrderMoves,
    /// Runs transactions that a request must not break off half-way.
    shutdown: Shutdown,
}

/// Money that a gateway has taken.
#[derive(Clone, Debug)]
struct Payment {
    order: OrderId,
    gateway: Gateway,
    /// The gateway's id of it.
    id: String,
    method: PayMethod,
    amount_cents: i64,
}

/// Why money goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefundReason {
    TooLate,
    PaidTwice,
}

impl Payments {
    /// Payments in this database.
    pub fn new(pool: PgPool, moves: OrderMoves, shutdown: Shutdown) -> Self {
        Self { pool, moves, shutdown }
    }

    /// The user pays their unpaid order. Whoever comes too late is told so, and keeps their money.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn pay(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
    ) -> Result<Moved, Failure> {
        let payments = self.clone();
        // A task of its own: dropping a `begin` half-way can poison the connection (sqlx#4393).
        let paid = self.shutdown.spawn(async move { payments.pay_now(user, order, method).await });
        Ok(paid.await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }

    async fn pay_now(
        &self,
        user: UserId,
        order: OrderId,
        method: PayMethod,
    ) -> sqlx::Result<Moved> {
        // Before any money moves.
        if let Some(answer) = self.moves.cannot(&PAY, order, Some(user)).await? {
            return Ok(answer);
        }
        let payment = Payment {
            order,
            gateway: Gateway::InProcess,
            id: gateway::charge(order),
            method,
            amount_cents: self.price(order).await?,
        };
        let paid = self.settle(&payment).await?;
        self.moves.answer(&PAY, order, paid).await
    }

    /// What the order's coupon costs now.
    async fn price(&self, order: OrderId) -> sqlx::Result<i64> {
        sqlx::query_scalar!(
            "SELECT pay_cents FROM coupons JOIN orders ON coupon_id = coupons.id WHERE orders.id = $1",
            order.get(),
        )
        .fetch_one(&self.pool)
        .await
    }

    /// Writes down money that has been taken: it pays its order, or goes back. True if it has paid it now.
    async fn settle(&self, payment: &Payment) -> sqlx::Result<bool> {
        let mut tx = self.pool.begin().await?;
        let paid = order_moves::pay(&mut tx, payment.order, payment.method).await?;
        let refund = match paid {
            true => None,
            false => Some(why_not(&mut tx, payment.order).await?),
        };
        insert(&mut tx, payment, refund).await?;
        tx.commit().await?;
        Ok(paid)
    }
}

/// Why an order takes no money any more.
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

impl RefundReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::TooLate => "too_late",
            Self::PaidTwice => "paid_twice",
        }
    }
}
