//! Setups of sales, as the script's replies have told them to this process.
//!
//! Each call begins with the setup of its sale, and each promise with the durability in it. So a look costs a lock that
//! is shared, and no more. A forgotten setup costs one more round trip.

use std::collections::HashMap;
use std::sync::RwLock;

use crate::base::limits;
use crate::sale::buyers::shards::Setup;
use crate::sale::ids::CouponId;

/// Setups by sale.
#[derive(Default)]
pub struct Setups(RwLock<HashMap<CouponId, Setup>>);

impl Setups {
    /// The setup of a sale, if it has been told.
    pub fn of(&self, coupon: CouponId) -> Option<Setup> {
        self.0.read().expect("no holder of this lock panics").get(&coupon).copied()
    }

    /// Notes the setup of a sale. Where there are too many, those without a durability of their own are forgotten:
    /// without the others, a claim would be confirmed too early.
    pub fn note(&self, coupon: CouponId, setup: Setup) {
        let mut setups = self.0.write().expect("no holder of this lock panics");
        if setups.len() >= limits::SHARDS_MEMORY_COUPONS_MAX {
            setups.retain(|_, setup| setup.durability.is_some());
        }
        setups.insert(coupon, setup);
    }
}

#[cfg(test)]
mod tests {
    use crate::base::durability::Level;
    use crate::sale::buyers::shards::Shards;

    use super::*;

    #[test]
    fn the_last_setup_of_each_sale_is_remembered() {
        let setups = Setups::default();
        let coupon = |number| CouponId::compose(number, 1);
        let of = |count| Setup { shards: Shards::new(count).expect("some"), durability: None };
        assert_eq!(setups.of(coupon(1)), None);
        for (number, count) in [(1, 2), (2, 3), (1, 4)] {
            setups.note(coupon(number), of(count));
        }
        assert_eq!((setups.of(coupon(1)), setups.of(coupon(2))), (Some(of(4)), Some(of(3))));
    }

    #[test]
    fn a_durability_of_a_sale_is_not_forgotten_for_others() {
        let setups = Setups::default();
        let coupon =
            |number: usize| CouponId::compose(i64::try_from(number).expect("it is small") + 1, 1);
        let own = Setup { shards: Shards::ONE, durability: Some(Level::Postgres) };
        setups.note(coupon(0), own);
        let sales = limits::SHARDS_MEMORY_COUPONS_MAX;
        for number in 1..=sales {
            setups.note(coupon(number), Setup::GUESS);
        }
        assert_eq!(setups.of(coupon(0)), Some(own));
        assert_eq!(setups.of(coupon(1)), None, "the others are forgotten");
        assert_eq!(setups.of(coupon(sales - 1)), None, "no sooner than it has to be");
        assert_eq!(setups.of(coupon(sales)), Some(Setup::GUESS));
    }
}
