//! Search for live orders whose users are no buyers in Redis, in a sale of any size.
//!
//! A turn of the search reads so many orders at most that other sales wait for moments. The next turn goes on behind the
//! orders whose users were all buyers: in one epoch of a lane a live order's user is a buyer from the claim on, so these
//! need no second look. A search that has come to its end is not remembered.
//!
//! The place where a search goes on is in the memory of its process: another process begins at the first order.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sqlx::PgPool;

use crate::base::limits;
use crate::kit::redis::Redis;
use crate::sale::Failure;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::keys::Keys;
use crate::sale::order::live::missing_page;

/// Searches under way.
#[derive(Default)]
pub struct Searches(Mutex<HashMap<CouponId, Known>>);

/// Users of a sale up to `last` who were buyers in this epoch of the sale's lane, as far as they have live orders.
#[derive(Clone, Copy)]
struct Known {
    epoch: i64,
    last: Option<UserId>,
}

/// Result of one turn.
pub struct Found {
    /// Live orders without a buyer, as many as were asked for at most.
    pub forgotten: Vec<(UserId, OrderId)>,
    /// True if there are no others, or as many as were asked for.
    pub is_all: bool,
}

impl Searches {
    /// Searches on for up to `max` live orders without a buyer.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer.
    pub async fn go_on(
        &self,
        (pool, redis, keys): (&PgPool, &Redis, &Keys),
        (coupon, epoch): (CouponId, i64),
        max: usize,
    ) -> Result<Found, Failure> {
        let mut forgotten = Vec::new();
        let mut last = self.known(coupon, epoch);
        for _ in 0..limits::FORGOTTEN_PAGES {
            if forgotten.len() >= max {
                break;
            }
            let Some(missing) = missing_page(pool, redis, keys, coupon, &mut last).await? else {
                self.set(coupon, None);
                return Ok(Found { forgotten, is_all: true });
            };
            let gone = missing.into_iter().filter(|(_, in_redis)| in_redis.is_none());
            forgotten.extend(gone.map(|(order, _)| order));
            if forgotten.is_empty() {
                self.set(coupon, Some(Known { epoch, last }));
            }
        }
        forgotten.truncate(max);
        let is_all = forgotten.len() >= max;
        Ok(Found { forgotten, is_all })
    }

    fn known(&self, coupon: CouponId, epoch: i64) -> Option<UserId> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&coupon).filter(|known| known.epoch == epoch).and_then(|known| known.last)
    }

    fn set(&self, coupon: CouponId, known: Option<Known>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) => all.insert(coupon, known),
            None => all.remove(&coupon),
        };
    }
}
