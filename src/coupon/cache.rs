//! Coupons as shoppers read them, kept in the memory of the process for [`limits::LEFT_SHOWN_MAX`]: so a sale costs each
//! store at most five questions a second, however many read it. Whoever finds nothing asks, and the others wait for the
//! answer, or are told the failure. An id without a coupon is remembered like one with a coupon.
//!
//! # What is not promised
//!
//! A change, and a claim, is seen that much later, also by who has made it if another reader has just asked. Edits name a
//! revision, which Postgres compares.

use moka::future::Cache;

use crate::base::limits;
use crate::coupon::read::CouponReader;
use crate::kit::tagged::TaggedJson;
use crate::store::Failure;
use crate::store::ids::CouponId;

/// Keeps coupons. Clones share them.
#[derive(Clone)]
pub struct CouponCache {
    stored: CouponReader,
    bodies: Cache<CouponId, Option<TaggedJson>>,
}

impl CouponCache {
    /// Knows nothing yet.
    pub fn new(stored: CouponReader) -> Self {
        let bodies = Cache::builder()
            .max_capacity(limits::COUPONS_SHOWN_MAX)
            .time_to_live(limits::LEFT_SHOWN_MAX)
            .build();
        Self { stored, bodies }
    }

    /// The coupon, in JSON; `None` if there is none.
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
