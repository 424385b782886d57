//! Ids that coupons can have: a filter before Postgres without an entry for each coupon.
//!
//! An id is `sequence << 10 | lane`. The sequence is given out by Postgres, and the lane follows from it and from the
//! number of lanes at that time ([`CouponId::compose`]). Lanes only grow, and each sequence up to the newest coupon's was
//! given out before that coupon was read. So an id is no coupon's if its sequence is above the newest one's, or if its
//! lane follows from the sequence for no number of lanes up to the present one. Of ids that are made up, in a row or at
//! random, hardly any is left: with one lane, only those of creations that were broken off. With more lanes, as many per
//! coupon as there are lanes, less one; each of these costs one query a second, and is remembered within bounds.
//!
//! One question to Postgres, about the newest coupon, serves all ids that are asked for within
//! [`limits::NEWEST_COUPON_MEMORY`]. A new coupon begins another generation, here and, by a message, in each other process.

use moka::future::Cache;

use crate::base::limits;
use crate::sale::Failure;
use crate::sale::coupon::read::{CouponReader, Newest};
use crate::sale::ids::CouponId;

/// Knows the newest coupon.
pub struct ExistingIds {
    stored: CouponReader,
    /// By generation.
    newest: Cache<u64, Newest>,
}

impl ExistingIds {
    /// Knows nothing yet.
    pub fn new(stored: CouponReader) -> Self {
        let newest =
            Cache::builder().max_capacity(4).time_to_live(limits::NEWEST_COUPON_MEMORY).build();
        Self { stored, newest }
    }

    /// Whether a coupon may have this id, by an answer of this generation. A coupon that another process has created a moment ago may be overlooked until
    /// its message comes, [`limits::NEWEST_COUPON_MEMORY`] at most.
    pub async fn may_be(&self, (generation, coupon): (u64, CouponId)) -> Result<bool, Failure> {
        let asked = async { self.stored.newest().await.map_err(Failure::from) };
        let newest = self.newest.try_get_with(generation, asked).await?;
        let reaches = |newest: CouponId| coupon.sequence() <= newest.sequence();
        Ok(newest.coupon.is_some_and(reaches) && coupon.is_composed(newest.lanes))
    }
}
