//! Coupons as shoppers read them, kept in the memory of the process for [`limits::LEFT_SHOWN_MAX`]. So a process asks
//! each store about a sale at most some five times a second, however many users read it. The first reader who finds
//! nothing asks, and the others wait for the answer or its failure. An id without a coupon is remembered, too.
//!
//! # What is not promised
//!
//! A change or a claim is seen up to that much later, even by the user who made it. Edits name a revision, which
//! Postgres compares.

use moka::future::Cache;

use crate::base::limits;
use crate::coupon::read::CouponReader;
use crate::kit::tagged::TaggedJson;
use crate::store::Failure;
use crate::store::ids::CouponId;

/// Clones share the coupons.
#[derive(Clone)]
pub struct CouponCache {
    stored: CouponReader,
    bodies: Cache<CouponId, Option<TaggedJson>>,
}

impl CouponCache {
    pub fn new(stored: CouponReader) -> Self {
        let bodies = Cache::builder()
            .max_capacity(limits::COUPONS_SHOWN_MAX)
            .time_to_live(limits::LEFT_SHOWN_MAX)
            .build();
        Self { stored, bodies }
    }

    /// The coupon, in JSON; `None` if there is no such coupon.
    pub async fn show(&self, coupon: CouponId) -> Result<Option<TaggedJson>, Failure> {
        let asked = async {
            let coupon = self.stored.get(coupon).await?;
            Ok::<_, Failure>(
                coupon.map(|found| TaggedJson::of_revision(found.row.revision, &found)),
            )
        };
        Ok(self.bodies.try_get_with(coupon, Box::pin(asked)).await?)
    }

    /// Forgets a coupon that this process has created or changed.
    pub async fn forget(&self, coupon: CouponId) {
        self.bodies.invalidate(&coupon).await;
    }
}
