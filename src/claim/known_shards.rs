//! Shards of sales, as this process has learned them from the script's replies.
//!
//! Each call looks up the shards of its sale first, so a look-up takes no more than a shared lock. Shards that were
//! forgotten cost one more round trip.

use std::collections::HashMap;
use std::sync::RwLock;

use crate::base::limits;
use crate::coupon::buyers::shards::Shards;
use crate::store::ids::CouponId;

#[derive(Default)]
pub struct KnownShards(RwLock<HashMap<CouponId, Shards>>);

impl KnownShards {
    pub fn of(&self, coupon: CouponId) -> Option<Shards> {
        self.0.read().expect("no holder of this lock panics").get(&coupon).copied()
    }

    /// Notes the shards of a sale. If there are too many sales, all others are forgotten.
    pub fn note(&self, coupon: CouponId, shards: Shards) {
        let mut known = self.0.write().expect("no holder of this lock panics");
        if known.len() >= limits::SHARDS_MEMORY_COUPONS_MAX {
            known.clear();
        }
        known.insert(coupon, shards);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_shards_of_each_sale_are_remembered() {
        let known = KnownShards::default();
        let coupon = |number| CouponId::compose(number, 1);
        let of = |count| Shards::new(count).expect("some");
        assert_eq!(known.of(coupon(1)), None);
        for (number, count) in [(1, 2), (2, 3), (1, 4)] {
            known.note(coupon(number), of(count));
        }
        assert_eq!((known.of(coupon(1)), known.of(coupon(2))), (Some(of(4)), Some(of(3))));
    }

    #[test]
    fn too_many_sales_are_forgotten() {
        let known = KnownShards::default();
        let coupon =
            |number: usize| CouponId::compose(i64::try_from(number).expect("it is small") + 1, 1);
        let sales = limits::SHARDS_MEMORY_COUPONS_MAX;
        for number in 0..=sales {
            known.note(coupon(number), Shards::ONE);
        }
        assert_eq!(known.of(coupon(sales - 1)), None);
        assert_eq!(known.of(coupon(sales)), Some(Shards::ONE));
    }
}
