//! Claims on regular coupons: no stock and no window, so Postgres decides alone.

use std::time::Duration;

use redisson_locks::ReentrantLocks;
use sqlx::PgPool;

use crate::base::limits;
use crate::coupon::model::{CouponKind, CouponState};
use crate::coupon::stock;
use crate::order::closed::ClosedOrders;
use crate::order::model::Order;
use crate::order::write::Orders;
use crate::store::fleet::Fleet;
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::keys::Keys;
use crate::store::{Failure, Stores, repeated};

/// The answer to a claim on a regular coupon.
#[derive(Debug)]
pub enum RegularOutcome {
    /// The new order: unpaid, or paid if it costs nothing.
    Created(Order),
    /// The user has an order that is unpaid, or that cost nothing and isn't redeemed.
    AlreadyClaimed(OrderId),
    /// The user has closed as many orders of this coupon as allowed; the next claim is possible after this time.
    TooManyClosed(Duration),
    Paused,
    /// The coupon is no longer on offer.
    Ended,
}

pub struct RegularClaims {
    pool: PgPool,
    keys: Keys,
    locks: Fleet<ReentrantLocks>,
    orders: Orders,
    closed: ClosedOrders,
}

impl RegularClaims {
    pub fn new(
        stores: &Stores,
        locks: Fleet<ReentrantLocks>,
        orders: Orders,
        closed: ClosedOrders,
    ) -> Self {
        let Stores { pool, keys, .. } = stores.clone();
        Self { pool, keys, locks, orders, closed }
    }

    /// Creates an order, under the lock that every order creation of this user in this lane takes.
    ///
    /// # Errors
    ///
    /// [`Failure::LockBusy`] when the lock was held elsewhere for [`limits::LOCK_WAIT_MAX`]; otherwise
    /// when a store doesn't answer.
    pub async fn claim(&self, coupon: CouponId, user: UserId) -> Result<RegularOutcome, Failure> {
        let locks = self.locks.of(coupon.lane());
        let lock = locks.lock(self.keys.order_lock(coupon.lane(), user));
        let holder = locks.holder();
        let Some(guard) = lock.acquire(&holder, limits::LOCK_WAIT_MAX).await? else {
            return Err(Failure::LockBusy);
        };
        let outcome = self.create(coupon, user).await;
        // The answer doesn't wait for the release of the lock, whose result changes nothing: see below.
        drop(guard);
        outcome
    }

    async fn create(&self, coupon: CouponId, user: UserId) -> Result<RegularOutcome, Failure> {
        // Twice: the order that stood in the way of the first insert may be closed before it is looked up.
        for _ in 0..2 {
            // One statement, whose races are settled by constraints. So a lost lock does no harm here.
            let insert = || self.orders.insert_regular(coupon, user, self.closed);
            if let Some(id) = repeated(insert).await? {
                let order = self.orders.get(user, id).await?;
                return order.map(RegularOutcome::Created).ok_or(sqlx::Error::RowNotFound.into());
            }
            if let Some(unpaid) = self.orders.live_of(coupon, user).await? {
                return Ok(RegularOutcome::AlreadyClaimed(unpaid));
            }
            match stock::find(&self.pool, coupon).await?.map(|stored| stored.state()) {
                Some(CouponState::Paused) => return Ok(RegularOutcome::Paused),
                Some(CouponState::Ended) => return Ok(RegularOutcome::Ended),
                Some(CouponState::Active) | None => {}
            }
            let of = (coupon, user);
            let wait = self.closed.wait(&self.pool, of, CouponKind::Regular, false).await?;
            if let Some(wait) = wait {
                return Ok(RegularOutcome::TooManyClosed(wait));
            }
        }
        Err(Failure::OrderMoved(coupon))
    }
}
