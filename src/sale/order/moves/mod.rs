//! The moves of an order from one status to the next.
//!
//! # Model
//!
//! ```text
//! unpaid -> paid -> redeemed               (paid at once if it costs nothing)
//!    |        \--> refunding -> refunded      (at once if the payment is charged back)
//!    |--> cancelled
//!    \--> expired
//! ```
//!
//! No way leads back, so an order that isn't in the status where a move begins will never be there again.
//!
//! # Authority
//!
//! Postgres decides, by one conditional UPDATE for each move that names the status it begins in. Of two moves that
//! race for an order one changes a row, and the other finds none to change.
//!
//! # The unit
//!
//! Unpaid, paid, redeemed and refunding orders hold a unit. The move that ends that (cancelled, expired, refunded)
//! notes in the same transaction that the unit comes back (`sale/order/give_back/pass.rs`), and takes it off `sold`.
//!
//! # Locks
//!
//! Rows are locked in this order: orders (of several, those that are locked are skipped, or all are locked in the
//! order of their ids), redemptions, stock returns, sales in coupon order, payments. The worker's write transaction inserts its
//! orders before it counts them as sold, also in coupon order. So no transactions wait for each other in a circle.

// Answers to the caller of a move.
mod answers;

// Redeeming.
pub mod redeem;

// Many orders closed together, of which Postgres may refuse some.
pub(in crate::sale) mod in_parts;

// All unpaid orders of a coupon, cancelled.
mod cancel_unpaid;

// Old orders are deleted.
pub mod old;

// Source of a request for a move.
mod asker;

// The outcome of a move.
mod moved;

// Bound on orders that are cancelled to claim anew.
mod bound;

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, PgPool};

use crate::base::shutdown::Shutdown;
use crate::kit::postgres;
use crate::sale::audit::{Action, Actor};
use crate::sale::coupon::model::CouponKind;
use crate::sale::coupon::stock;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::give_back::stock_returns;
use crate::sale::order::give_back::stock_returns::StockReturn;
use crate::sale::order::model::OrderStatus;
use crate::sale::order::model::PayMethod;
use crate::sale::order::write::ClosedOrders;
use crate::sale::{Failure, repeated};

pub use asker::Asker;
pub use moved::Moved;

/// One way of an order.
pub(in crate::sale) struct Move {
    /// Status in which the move begins.
    from: OrderStatus,
    /// Statuses in which the move has happened; the first is where it leads.
    there: &'static [OrderStatus],
}

/// unpaid -> paid
pub(in crate::sale) const PAY: Move =
    Move { from: OrderStatus::Unpaid, there: &[OrderStatus::Paid, OrderStatus::Redeemed] };
/// paid -> refunding
pub(in crate::sale) const REFUND: Move =
    Move { from: OrderStatus::Paid, there: &[OrderStatus::Refunding, OrderStatus::Refunded] };
/// unpaid -> cancelled
const CANCEL: Move = Move { from: OrderStatus::Unpaid, there: &[OrderStatus::Cancelled] };

/// Moves orders. Clones share the pool.
#[derive(Clone)]
pub struct OrderMoves {
    pool: PgPool,
    /// Owner of transactions that a request must not break off half-way.
    shutdown: Shutdown,
    closed: ClosedOrders,
}

/// An order that has just given up its unit, if it had one.
#[derive(Debug)]
struct Closed {
    order_id: OrderId,
    coupon_id: CouponId,
    user_id: UserId,
    kind: CouponKind,
}

impl OrderMoves {
    /// Moves of orders in this database, without a bound on closed ones.
    pub fn new(pool: PgPool, shutdown: Shutdown) -> Self {
        Self { pool, shutdown, closed: ClosedOrders { most: 0 } }
    }

    /// The database.
    pub(in crate::sale) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Cancels the user's unpaid order.
    pub async fn cancel(&self, user: UserId, order: OrderId) -> Result<Moved, Failure> {
        self.cancel_as(Asker::Buyer(user), order).await
    }

    /// Cancels the unpaid order of any user, for this reason.
    pub async fn cancel_for_buyer(
        &self,
        order: OrderId,
        reason: String,
        by: &Actor,
    ) -> Result<Moved, Failure> {
        self.cancel_as(Asker::Staff { by: by.clone(), reason }, order).await
    }

    async fn cancel_as(&self, asker: Asker, order: OrderId) -> Result<Moved, Failure> {
        let moves = self.clone();
        self.to_the_end(async move { repeated(|| moves.cancel_now(&asker, order)).await }).await
    }

    /// Closes unpaid orders whose time is over, as expired, or as cancelled if the staff has ended it; up to `limit`,
    /// oldest first; locked and postponed orders are skipped, and
    /// those of the coupons in `but`. Returns their number.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or refuses to close one of them; nothing is closed then.
    pub(in crate::sale) async fn expire(
        &self,
        but: &BTreeSet<CouponId>,
        limit: u32,
    ) -> sqlx::Result<usize> {
        let but: Vec<i64> = but.iter().map(|coupon| coupon.get()).collect();
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let closed = sqlx::query_as!(
            Closed,
            // An array in place of a join: a plan that doesn't know the number of due orders might read all unpaid
            // ones. The status isn't asked for again, because these orders are locked; together with the array, a plan
            // from before they were unpaid would search all unpaid ones for each of them.
            r#"WITH due AS (
                   SELECT id FROM orders
                   WHERE status = 'unpaid' AND pay_by < now() AND coupon_id <> ALL($2)
                     AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'expiry' AND item = orders.id)
                   ORDER BY pay_by LIMIT $1 FOR UPDATE SKIP LOCKED)
               UPDATE orders SET status = CASE WHEN cancel_reason IS NULL THEN 'expired' ELSE 'cancelled' END,
                                 expired_at = CASE WHEN cancel_reason IS NULL THEN now() END,
                                 cancelled_at = CASE WHEN cancel_reason IS NOT NULL THEN now() END,
                                 updated_at = now()
               WHERE orders.id = ANY(ARRAY(SELECT id FROM due))
               RETURNING orders.id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                         user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
            i64::from(limit),
            &but,
        )
        .fetch_all(&mut *tx)
        .await?;
        return_units(&mut tx, &closed).await?;
        tx.commit().await?;
        Ok(closed.len())
    }

    /// The orders that [`expire`](Self::expire) would close, each with its coupon; locked ones included.
    pub(in crate::sale) async fn due(
        &self,
        but: &BTreeSet<CouponId>,
        limit: u32,
    ) -> sqlx::Result<Vec<(OrderId, CouponId)>> {
        let but: Vec<i64> = but.iter().map(|coupon| coupon.get()).collect();
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let rows = sqlx::query!(
            r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId" FROM orders
               WHERE status = 'unpaid' AND pay_by < now() AND coupon_id <> ALL($2)
                 AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'expiry' AND item = orders.id)
               ORDER BY pay_by LIMIT $1"#,
            i64::from(limit),
            &but,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|row| (row.order_id, row.coupon_id)).collect())
    }

    /// Carries out `work` even if its request is dropped, so that a client that goes away breaks off no payment.
    pub(in crate::sale) async fn to_the_end<T: Send + 'static, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, Failure>
    where
        E: Into<Failure> + Send + 'static,
    {
        let done = self.shutdown.spawn(work).await;
        done.map_err(|_| Failure::from(sqlx::Error::WorkerCrashed))?.map_err(E::into)
    }

    async fn cancel_now(&self, asker: &Asker, order: OrderId) -> sqlx::Result<Moved> {
        if let Some(answer) = self.cannot(&CANCEL, order, asker.buyer()).await? {
            return Ok(answer);
        }
        if let Some(buyer) = asker.buyer()
            && let Some(refusal) = self.closed_too_many(buyer, order, true).await?
        {
            return Ok(refusal);
        }
        let moved = cancel(&self.pool, order, asker).await?;
        self.answer(&CANCEL, order, moved).await
    }
}

async fn cancel(pool: &PgPool, order: OrderId, asker: &Asker) -> sqlx::Result<bool> {
    let mut tx = postgres::begin(pool).await?;
    let closed = sqlx::query_as!(
        Closed,
        r#"UPDATE orders SET status = 'cancelled', cancelled_at = now(), updated_at = now()
           WHERE id = $1 AND status = 'unpaid'
           RETURNING id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                     user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
        order.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    return_units(&mut tx, &closed).await?;
    if !closed.is_empty() {
        let statuses = (OrderStatus::Unpaid, OrderStatus::Cancelled);
        asker.note(&mut tx, Action::CancelOrder, order, statuses).await?;
    }
    tx.commit().await?;
    Ok(!closed.is_empty())
}

/// Locks an order until the end of the transaction, if it is there.
pub(in crate::sale) async fn hold(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<()> {
    sqlx::query!("SELECT FROM orders WHERE id = $1 FOR UPDATE", order.get())
        .fetch_optional(tx)
        .await?;
    Ok(())
}

/// Status of an order.
///
/// # Errors
///
/// When the order is not there.
pub(in crate::sale) async fn status(
    tx: &mut PgConnection,
    order: OrderId,
) -> sqlx::Result<OrderStatus> {
    sqlx::query_scalar!(
        r#"SELECT status AS "status: OrderStatus" FROM orders WHERE id = $1"#,
        order.get(),
    )
    .fetch_one(tx)
    .await
}

/// Makes an order paid, and its redemption code. False if it wasn't unpaid.
pub(in crate::sale) async fn pay(
    tx: &mut PgConnection,
    order: OrderId,
    method: PayMethod,
) -> sqlx::Result<bool> {
    let paid = sqlx::query_scalar!(
        r#"WITH paid AS (
               UPDATE orders SET status = 'paid', paid_at = now(), pay_method = $2, updated_at = now()
               WHERE id = $1 AND status = 'unpaid' RETURNING id),
           coded AS (INSERT INTO redemptions (order_id) SELECT id FROM paid ON CONFLICT DO NOTHING)
           SELECT count(*) AS "count!" FROM paid"#,
        order.get(),
        method.as_str(),
    )
    .fetch_one(tx)
    .await?;
    Ok(paid == 1)
}

/// Whether the order costs nothing.
pub(in crate::sale) async fn is_free(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT coalesce(pay_cents = 0, false) AS "is_free!" FROM orders WHERE id = $1"#,
        order.get(),
    )
    .fetch_one(pool)
    .await
}

/// Begins the refund of a paid order. False if it wasn't paid.
pub(in crate::sale) async fn ask_refund(
    tx: &mut PgConnection,
    order: OrderId,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE orders SET status = 'refunding', refunding_at = now(), updated_at = now()
         WHERE id = $1 AND status = 'paid'",
        order.get(),
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends a refund: the money is back, and the unit comes back. Nothing if it has been back before.
pub(in crate::sale) async fn refunded(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<()> {
    let closed = sqlx::query_as!(
        Closed,
        r#"UPDATE orders SET status = 'refunded', refunded_at = now(), updated_at = now()
           WHERE id = $1 AND status = 'refunding'
           RETURNING id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                     user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
        order.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    return_units(tx, &closed).await
}

/// Ends a paid order whose money the gateway has taken back, and the unit comes back.
pub(in crate::sale) async fn charge_back(
    tx: &mut PgConnection,
    order: OrderId,
) -> sqlx::Result<()> {
    let closed = sqlx::query_as!(
        Closed,
        r#"UPDATE orders SET status = 'refunded', refunding_at = coalesce(refunding_at, now()), refunded_at = now(),
                             updated_at = now()
           -- Its buyer may have asked for a refund a moment ago.
           WHERE id = $1 AND status IN ('paid', 'refunding')
           RETURNING id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                     user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
        order.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    return_units(tx, &closed).await
}

/// Keeps the unit of a paid order whose money the gateway has taken back: the order waits as if its refund were under
/// way, and can't be redeemed. False if it wasn't paid.
pub(in crate::sale) async fn keep_charged_back(
    tx: &mut PgConnection,
    order: OrderId,
) -> sqlx::Result<bool> {
    ask_refund(tx, order).await
}

/// Makes a cancelled order of an accepted claim that never became an order, so that its buyer leaves Redis. The claim
/// never counted as sold. Nothing if it is an order after all, or if there is no such sale or it is archived: its order may
/// have been deleted. False if its order id belongs to another order.
pub(in crate::sale) async fn cancel_unwritten(
    tx: &mut PgConnection,
    claim: StockReturn,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, pay_cents, currency, pay_by, claimed_at, status, cancelled_at)
         SELECT $1, id, kind, $3, pay_cents, currency, now(), least($4, now()), 'cancelled', now() FROM coupons
         WHERE id = $2 AND kind = 'flash'
           AND NOT EXISTS (SELECT FROM flash_sales WHERE coupon_id = $2 AND archived_at IS NOT NULL)
         ON CONFLICT DO NOTHING",
        claim.order_id.get(),
        claim.coupon_id.get(),
        claim.user_id.get(),
        claim.order_id.time(),
    )
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() == 1 {
        stock_returns::insert(tx, &[claim]).await?;
        return Ok(true);
    }
    sqlx::query_scalar!(
        r#"SELECT NOT EXISTS (SELECT FROM orders
                              WHERE id = $1 AND (coupon_id != $2 OR user_id != $3)) AS "ours!""#,
        claim.order_id.get(),
        claim.coupon_id.get(),
        claim.user_id.get(),
    )
    .fetch_one(tx)
    .await
}

/// Makes cancelled orders of all open dead letters of this coupon, so that their units come back. A letter is left
/// out if its order id, or its order, is there already.
pub(in crate::sale) async fn cancel_letters(
    tx: &mut PgConnection,
    coupon: CouponId,
) -> sqlx::Result<()> {
    let closed = sqlx::query_as!(
        Closed,
        r#"INSERT INTO orders (id, coupon_id, kind, user_id, pay_cents, currency, pay_by, claimed_at, status, cancelled_at)
           SELECT order_id, coupon_id, 'flash', user_id, pay_cents, currency, now(),
                  least(to_timestamp(1640995200 + (order_id >> 32)), now()), 'cancelled', now()
           FROM dead_letters JOIN coupons ON coupons.id = coupon_id
           WHERE coupon_id = $1 AND resolved_at IS NULL ORDER BY order_id
           ON CONFLICT DO NOTHING
           RETURNING id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                     user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
        coupon.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    // These claims were never counted as sold.
    stock_returns::insert(tx, &returns_of(&closed)).await
}

/// Notes that units come back, in the transaction that has closed their orders. Regular coupons have none.
async fn return_units(tx: &mut PgConnection, closed: &[Closed]) -> sqlx::Result<()> {
    let returns = returns_of(closed);
    stock_returns::insert(&mut *tx, &returns).await?;
    let mut units: BTreeMap<CouponId, i64> = BTreeMap::new();
    for one in &returns {
        *units.entry(one.coupon_id).or_default() += 1;
    }
    for (coupon, units) in units {
        stock::subtract_sold(&mut *tx, coupon, units).await?;
    }
    Ok(())
}

fn returns_of(closed: &[Closed]) -> Vec<StockReturn> {
    let flash = closed.iter().filter(|closed| closed.kind == CouponKind::Flash);
    let unit = |&Closed { order_id, coupon_id, user_id, .. }: &Closed| StockReturn {
        order_id,
        coupon_id,
        user_id,
    };
    flash.map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_orders_of_flash_coupons_give_a_unit_back() {
        let closed = |order, kind| Closed {
            order_id: OrderId::new(order).expect("an id"),
            coupon_id: CouponId::compose(order, 1),
            user_id: UserId::new(40 + order).expect("an id"),
            kind,
        };
        let closed = [
            closed(1, CouponKind::Flash),
            closed(2, CouponKind::Regular),
            closed(3, CouponKind::Flash),
        ];
        let returns: Vec<_> = returns_of(&closed)
            .iter()
            .map(|one| (one.order_id.get(), one.coupon_id.sequence(), one.user_id.get()))
            .collect();
        assert_eq!(returns, [(1, 1, 41), (3, 3, 43)]);
    }
}
