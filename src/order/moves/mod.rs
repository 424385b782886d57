//! Moves an order from one status to the next.
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
//! No move leads back, so an order that has left a status never returns to it.
//!
//! # Authority
//!
//! Postgres decides, by one conditional UPDATE that names the statuses in which the move begins. Of two moves that race
//! for an order, one changes the row, and the other finds nothing to change.
//!
//! # The unit
//!
//! Unpaid, paid, redeemed and refunding orders hold a unit. A move that ends this (to cancelled, expired or refunded)
//! takes the unit off `sold`, and notes in the same transaction that it has to be released (`order/release/job.rs`).
//!
//! # Locks
//!
//! Transactions lock rows in this order: orders by id (or they skip locked ones), redemptions, stock returns, sales by
//! coupon, payments. The worker inserts its orders before it counts them as sold, also by coupon. So transactions can't
//! deadlock. The one exception is the second try of a batch (`order/write.rs`), which locks sales first. If that meets
//! a move, Postgres aborts one of the two, which is retried.

// Redeems a paid order.
pub mod redeem;

// Cancels all unpaid orders of a coupon.
mod cancel_unpaid;

// Deletes old orders.
pub mod old;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sqlx::{PgConnection, PgPool};

use crate::base::shutdown::Shutdown;
use crate::coupon::model::CouponKind;
use crate::coupon::stock;
use crate::order::closed::ClosedOrders;
use crate::order::model::OrderStatus::{Cancelled, Paid, Redeemed, Refunded, Refunding, Unpaid};
use crate::order::model::{Order, OrderStatus, PayMethod};
use crate::order::read;
use crate::order::release::stock_returns;
use crate::order::release::stock_returns::StockReturn;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::postgres;
use crate::store::{Failure, repeated};

pub(crate) struct Move {
    /// Statuses in which the move begins.
    from: &'static [OrderStatus],
    /// Statuses in which the move has happened; the first is where it leads.
    there: &'static [OrderStatus],
}

pub(crate) const PAY: Move = Move { from: &[Unpaid], there: &[Paid, Redeemed] };
/// The order is cancelled before it is paid.
pub(crate) const CANCEL: Move = Move { from: &[Unpaid], there: &[Cancelled] };
const REDEEM: Move = Move { from: &[Paid], there: &[Redeemed] };
/// The refund is requested. An order that keeps its unit after a chargeback has the same status.
pub(crate) const REFUND: Move = Move { from: &[Paid], there: &[Refunding, Refunded] };
/// The money has been returned.
pub(crate) const REFUNDED: Move = Move { from: &[Refunding], there: &[Refunded] };
/// The gateway has taken the money back. The buyer may have requested a refund just before.
pub(crate) const CHARGE_BACK: Move = Move { from: &[Paid, Refunding], there: &[Refunded] };

impl Move {
    /// The answer for an order that isn't where the move begins.
    fn judge(&self, order: Order) -> Moved {
        if self.there.contains(&order.status) {
            return Moved::There(Box::new(order));
        }
        Moved::Impossible { from: order.status, to: self.there[0] }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The order has this status: by this call, or an earlier one.
    There(Box<Order>),
    NotFound,
    /// No move leads from the order's status to the requested one.
    Impossible {
        from: OrderStatus,
        to: OrderStatus,
    },
    /// The buyer has closed too many orders of this flash coupon, and may cancel the next one after this time.
    TooManyClosed(Duration),
}

#[derive(Clone, Debug)]
pub enum Asker {
    /// The buyer, who can't see orders of others.
    Buyer(UserId),
    /// An administrator, for the buyer. The move is noted in the audit log.
    Staff { by: Actor, reason: String },
}

impl Asker {
    /// The user who may move only their own orders; `None` for staff.
    pub(crate) fn buyer(&self) -> Option<UserId> {
        match self {
            Self::Buyer(user) => Some(*user),
            Self::Staff { .. } => None,
        }
    }

    /// Notes a move by staff in the audit log.
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
    /// Runs transactions that must not end with their request.
    shutdown: Shutdown,
    closed: ClosedOrders,
}

impl OrderMoves {
    pub fn new(pool: PgPool, shutdown: Shutdown, closed: ClosedOrders) -> Self {
        Self { pool, shutdown, closed }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// One order, of any user.
    pub async fn find(&self, order: OrderId) -> sqlx::Result<Option<Order>> {
        read::find(&self.pool, order).await
    }

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

    /// The order, if the move can begin; otherwise the answer. Another user's order isn't found. Only the UPDATE of the
    /// move tells whether it succeeds.
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

    /// The answer after the UPDATE.
    pub(crate) async fn answer(
        &self,
        the_move: &Move,
        order: OrderId,
        moved: bool,
    ) -> sqlx::Result<Moved> {
        let found = self.find(order).await?.ok_or(sqlx::Error::RowNotFound)?;
        // A later move may have changed the order already.
        Ok(if moved { Moved::There(Box::new(found)) } else { the_move.judge(found) })
    }

    /// The refusal, if the order's buyer has closed (or only refunded) too many orders of its flash coupon.
    pub(crate) async fn closed_too_many(
        &self,
        order: &Order,
        only_refunded: bool,
    ) -> sqlx::Result<Option<Moved>> {
        let of = (order.coupon_id, order.user_id);
        let wait = self.closed.wait(&self.pool, of, CouponKind::Flash, only_refunded).await?;
        Ok(wait.map(Moved::TooManyClosed))
    }

    /// Runs `work` to its end even if the request is dropped: a client that disconnects must not break off a payment.
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

/// Makes a move. False if the order isn't where the move begins.
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

/// Marks an order as paid, and makes its redemption code. False if the order wasn't unpaid.
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

/// Locks an order until the transaction ends. Returns its status; `None` if there is no such order.
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

/// Closes those of these orders that are unpaid: as expired, or as cancelled if staff ended their time to pay. Closes
/// all or none, but skips locked ones. Returns how many were closed.
///
/// # Errors
///
/// When Postgres doesn't answer, or refuses to close one of them; nothing is closed then.
pub(crate) async fn close(pool: &PgPool, orders: &[OrderId]) -> sqlx::Result<usize> {
    let ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
    let mut tx = postgres::begin_planning(pool).await?;
    let closed = sqlx::query_as!(
        StockReturn,
        // The status isn't part of the first WHERE: with a stale plan, Postgres would scan all unpaid orders for each
        // id of the array.
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

/// Makes a cancelled order of an accepted claim that never became one, so that its buyer leaves Redis. The claim never
/// counted as sold. Does nothing if the claim is an order already, or if the sale doesn't exist or is archived, since
/// its order may have been deleted. False if the order id belongs to another claim.
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

/// Notes that units have to be released, and takes them off `sold`. Part of the transaction that closes the orders.
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
