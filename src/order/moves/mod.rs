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
//! Postgres decides, by one conditional UPDATE that names the statuses in which the move begins. Of two moves that
//! race for an order one changes a row, and the other finds none to change.
//!
//! # The unit
//!
//! Unpaid, paid, redeemed and refunding orders hold a unit. The move that ends that (cancelled, expired, refunded)
//! notes in the same transaction that the unit comes back (`order/give_back/pass.rs`), and takes it off `sold`.
//!
//! # Locks
//!
//! Rows are locked in this order: orders (of several, those that are locked are skipped, or all are locked in the
//! order of their ids), redemptions, stock returns, sales in coupon order, payments. The worker's write transaction inserts its
//! orders before it counts them as sold, also in coupon order. So no transactions wait for each other in a circle. Only
//! claims that are written for the second time lock their sales first (`order/write.rs`): should they meet such a move,
//! Postgres breaks off one of the two, which is tried again.

// Redeeming.
pub mod redeem;

// All unpaid orders of a coupon, cancelled.
mod cancel_unpaid;

// Old orders are deleted.
pub mod old;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sqlx::{PgConnection, PgPool};

use crate::base::shutdown::Shutdown;
use crate::coupon::model::CouponKind;
use crate::coupon::stock;
use crate::order::closed::ClosedOrders;
use crate::order::give_back::stock_returns;
use crate::order::give_back::stock_returns::StockReturn;
use crate::order::model::OrderStatus::{Cancelled, Paid, Redeemed, Refunded, Refunding, Unpaid};
use crate::order::model::{Order, OrderStatus, PayMethod};
use crate::order::read;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::postgres;
use crate::store::{Failure, repeated};

/// One way of an order.
pub(crate) struct Move {
    /// Statuses in which the move begins.
    from: &'static [OrderStatus],
    /// Statuses in which the move has happened; the first is where it leads.
    there: &'static [OrderStatus],
}

/// The order is paid for.
pub(crate) const PAY: Move = Move { from: &[Unpaid], there: &[Paid, Redeemed] };
/// The order is given up before it is paid.
pub(crate) const CANCEL: Move = Move { from: &[Unpaid], there: &[Cancelled] };
/// The order is used.
const REDEEM: Move = Move { from: &[Paid], there: &[Redeemed] };
/// The money is asked for. Also an order whose payment is charged back, and that keeps its unit, waits like that.
pub(crate) const REFUND: Move = Move { from: &[Paid], there: &[Refunding, Refunded] };
/// The money is back.
pub(crate) const REFUNDED: Move = Move { from: &[Refunding], there: &[Refunded] };
/// The gateway has taken the money back. Its buyer may have asked for a refund a moment ago.
pub(crate) const CHARGE_BACK: Move = Move { from: &[Paid, Refunding], there: &[Refunded] };

impl Move {
    /// The answer about an order that stands somewhere after the move has been asked for.
    fn judge(&self, order: Order) -> Moved {
        if self.there.contains(&order.status) {
            return Moved::There(Box::new(order));
        }
        Moved::Impossible { from: order.status, to: self.there[0] }
    }
}

/// Outcome of a request to move an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The order has been moved there: by this call, or before.
    There(Box<Order>),
    /// The user has no such order.
    NotFound,
    /// The order has another status, from which no way leads to the requested one.
    Impossible {
        /// Present status.
        from: OrderStatus,
        /// Requested status.
        to: OrderStatus,
    },
    /// The buyer has closed as many orders of this flash coupon as may be; the next one can be cancelled after this time.
    TooManyClosed(Duration),
}

/// Source of a request to move an order.
#[derive(Clone, Debug)]
pub enum Asker {
    /// The buyer, who knows no orders of others.
    Buyer(UserId),
    /// An administrator, for the buyer; entered in the book of changes.
    Staff {
        /// The administrator.
        by: Actor,
        /// Reason, in words.
        reason: String,
    },
}

impl Asker {
    /// The user whose orders alone may be moved; none for the staff.
    pub(crate) fn buyer(&self) -> Option<UserId> {
        match self {
            Self::Buyer(user) => Some(*user),
            Self::Staff { .. } => None,
        }
    }

    /// Enters a move by the staff in the book of changes.
    pub(crate) async fn note(
        &self,
        tx: &mut PgConnection,
        action: Action,
        order: OrderId,
        the_move: &Move,
    ) -> sqlx::Result<()> {
        let Self::Staff { by, reason } = self else {
            return Ok(());
        };
        let event = Event::of(action, order.get())
            .before(json!({ "status": the_move.from[0] }))
            .after(json!({ "status": the_move.there[0], "reason": reason }));
        audit::note(tx, by, event).await
    }
}

/// Moves orders. Clones share the pool.
#[derive(Clone)]
pub struct OrderMoves {
    pool: PgPool,
    /// Owner of transactions that a request must not break off half-way.
    shutdown: Shutdown,
    /// Bound on orders that their buyer closes.
    closed: ClosedOrders,
}

impl OrderMoves {
    /// Moves of orders in this database, with this bound on closed ones.
    pub fn new(pool: PgPool, shutdown: Shutdown, closed: ClosedOrders) -> Self {
        Self { pool, shutdown, closed }
    }

    /// The database.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// One order, of any user.
    pub async fn find(&self, order: OrderId) -> sqlx::Result<Option<Order>> {
        read::find(&self.pool, order).await
    }

    /// Cancels an unpaid order.
    pub async fn cancel(&self, asker: Asker, order: OrderId) -> Result<Moved, Failure> {
        let moves = self.clone();
        self.to_the_end(async move { repeated(|| moves.cancel_now(&asker, order)).await }).await
    }

    async fn cancel_now(&self, asker: &Asker, order: OrderId) -> sqlx::Result<Moved> {
        let found = match self.begin(&CANCEL, order, asker.buyer()).await? {
            Ok(found) => found,
            Err(answer) => return Ok(answer),
        };
        if asker.buyer().is_some()
            && let Some(refusal) = self.closed_too_many(&found, false).await?
        {
            return Ok(refusal);
        }
        let mut tx = postgres::begin(&self.pool).await?;
        let moved = make(&mut tx, order, &CANCEL).await?;
        if moved {
            asker.note(&mut tx, Action::CancelOrder, order, &CANCEL).await?;
        }
        tx.commit().await?;
        self.answer(&CANCEL, order, moved).await
    }

    /// The order where the move begins; or the answer if it isn't there, or isn't this user's. The UPDATE of the move tells
    /// whether it succeeds.
    pub(crate) async fn begin(
        &self,
        the_move: &Move,
        order: OrderId,
        user: Option<UserId>,
    ) -> sqlx::Result<Result<Order, Moved>> {
        let found = self.find(order).await?;
        let Some(found) = found.filter(|found| user.is_none_or(|user| user == found.user_id))
        else {
            return Ok(Err(Moved::NotFound));
        };
        Ok(match the_move.from.contains(&found.status) {
            true => Ok(found),
            false => Err(the_move.judge(found)),
        })
    }

    /// The answer after the move has been tried.
    pub(crate) async fn answer(
        &self,
        the_move: &Move,
        order: OrderId,
        moved: bool,
    ) -> sqlx::Result<Moved> {
        let found = self.find(order).await?.ok_or(sqlx::Error::RowNotFound)?;
        // The order may have gone on already.
        Ok(if moved { Moved::There(Box::new(found)) } else { the_move.judge(found) })
    }

    /// The refusal if the buyer of this order has closed as many of its flash coupon as may be, by refunds or at all.
    pub(crate) async fn closed_too_many(
        &self,
        order: &Order,
        only_refunded: bool,
    ) -> sqlx::Result<Option<Moved>> {
        let of = (order.coupon_id, order.user_id);
        let wait = self.closed.wait(&self.pool, of, CouponKind::Flash, only_refunded).await?;
        Ok(wait.map(Moved::TooManyClosed))
    }

    /// Carries out `work` even if its request is dropped, so that a client that goes away breaks off no payment.
    pub(crate) async fn to_the_end<T: Send + 'static, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, Failure>
    where
        E: Into<Failure> + Send + 'static,
    {
        let done = self.shutdown.spawn(work).await;
        done.map_err(|_| Failure::from(sqlx::Error::WorkerCrashed))?.map_err(E::into)
    }
}

/// Makes a move of an order. False if the order isn't where the move begins.
pub(crate) async fn make(
    tx: &mut PgConnection,
    order: OrderId,
    the_move: &Move,
) -> sqlx::Result<bool> {
    let to = the_move.there[0];
    let from: Vec<String> = the_move.from.iter().map(|from| from.as_str().to_owned()).collect();
    let moved = sqlx::query_as!(
        StockReturn,
        r#"UPDATE orders SET status = $2, updated_at = now(),
                  redeemed_at = CASE WHEN $2 = 'redeemed' THEN now() END,
                  cancelled_at = CASE WHEN $2 = 'cancelled' THEN now() END,
                  refunding_at = CASE WHEN $2 IN ('refunding', 'refunded') THEN coalesce(refunding_at, now()) END,
                  refunded_at = CASE WHEN $2 = 'refunded' THEN now() END
           WHERE id = $1 AND status = ANY($3)
           RETURNING id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                     kind AS "kind: CouponKind""#,
        order.get(),
        to.as_str(),
        &from,
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(closed) = moved.as_ref().filter(|_| !to.is_live()) {
        return_units(tx, std::slice::from_ref(closed)).await?;
    }
    Ok(moved.is_some())
}

/// Makes an order paid, and its redemption code. False if it wasn't unpaid.
pub(crate) async fn pay(
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

/// Locks an order until the end of the transaction. Its status; `None` if it isn't there.
pub(crate) async fn hold(
    tx: &mut PgConnection,
    order: OrderId,
) -> sqlx::Result<Option<OrderStatus>> {
    sqlx::query_scalar!(
        r#"SELECT status AS "status: OrderStatus" FROM orders WHERE id = $1 FOR UPDATE"#,
        order.get(),
    )
    .fetch_optional(tx)
    .await
}

/// Closes the unpaid orders among these, as expired, or as cancelled if the staff has ended their time; all or none. Locked
/// ones are skipped. Returns their number.
///
/// # Errors
///
/// When Postgres doesn't answer, or refuses to close one of them; nothing is closed then.
pub(crate) async fn close(pool: &PgPool, orders: &[OrderId]) -> sqlx::Result<usize> {
    let ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
    let mut tx = postgres::begin_planning(pool).await?;
    let closed = sqlx::query_as!(
        StockReturn,
        // The status isn't asked for beside the array: a plan from before these were unpaid would search all unpaid ones for
        // each of them.
        r#"WITH these AS (
               SELECT id, status FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED)
           UPDATE orders SET status = CASE WHEN cancel_reason IS NULL THEN 'expired' ELSE 'cancelled' END,
                             expired_at = CASE WHEN cancel_reason IS NULL THEN now() END,
                             cancelled_at = CASE WHEN cancel_reason IS NOT NULL THEN now() END,
                             updated_at = now()
           WHERE orders.id = ANY(ARRAY(SELECT id FROM these WHERE these.status = 'unpaid'))
           RETURNING orders.id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                     user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    return_units(&mut tx, &closed).await?;
    tx.commit().await?;
    Ok(closed.len())
}

/// Makes a cancelled order of an accepted claim that never became an order, so that its buyer leaves Redis. The claim
/// never counted as sold. Nothing if it is an order after all, or if there is no such sale or it is archived: its order may
/// have been deleted. False if its order id belongs to another order.
pub(crate) async fn cancel_unwritten(
    tx: &mut PgConnection,
    (order, coupon, user): (OrderId, CouponId, UserId),
) -> sqlx::Result<bool> {
    let closed = sqlx::query_as!(
        StockReturn,
        r#"INSERT INTO orders (id, coupon_id, kind, user_id, pay_cents, currency, pay_by, claimed_at, status, cancelled_at)
           SELECT $1, id, kind, $3, pay_cents, currency, now(), least($4, now()), 'cancelled', now() FROM coupons
           WHERE id = $2 AND kind = 'flash'
             AND NOT EXISTS (SELECT FROM flash_sales WHERE coupon_id = $2 AND archived_at IS NOT NULL)
           ON CONFLICT DO NOTHING
           RETURNING id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                     kind AS "kind: CouponKind""#,
        order.get(),
        coupon.get(),
        user.get(),
        order.time(),
    )
    .fetch_all(&mut *tx)
    .await?;
    stock_returns::insert(tx, &closed).await?;
    if !closed.is_empty() {
        return Ok(true);
    }
    sqlx::query_scalar!(
        r#"SELECT NOT EXISTS (SELECT FROM orders
                              WHERE id = $1 AND (coupon_id != $2 OR user_id != $3)) AS "ours!""#,
        order.get(),
        coupon.get(),
        user.get(),
    )
    .fetch_one(tx)
    .await
}

/// Notes that units come back, in the transaction that has closed their orders, and takes them off `sold`.
async fn return_units(tx: &mut PgConnection, closed: &[StockReturn]) -> sqlx::Result<()> {
    stock_returns::insert(&mut *tx, closed).await?;
    let mut units: BTreeMap<CouponId, i64> = BTreeMap::new();
    for one in closed.iter().filter(|one| one.kind == CouponKind::Flash) {
        *units.entry(one.coupon_id).or_default() += 1;
    }
    for (coupon, units) in units {
        stock::subtract_sold(&mut *tx, coupon, units).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_has_happened_in_the_statuses_that_it_leads_to() {
        for (the_move, there, to) in [
            (PAY, &[Paid, Redeemed][..], Paid),
            (REFUND, &[Refunding, Refunded], Refunding),
            (CANCEL, &[Cancelled], Cancelled),
        ] {
            for status in OrderStatus::ALL {
                let order = Order::example(7, 1, status);
                let answer = match there.contains(&status) {
                    true => Moved::There(Box::new(order.clone())),
                    false => Moved::Impossible { from: status, to },
                };
                assert_eq!(the_move.judge(order), answer);
            }
        }
    }
}
