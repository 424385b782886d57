//! Claims for the rows: order ids that grow, users in no order, one sale.

use chrono::{DateTime, Utc};
use flash_sale::base::clock::Clock;

/// As long as the ids of orders.
const FIRST_ORDER: u64 = 600_000_000_000_000_000;
/// Users are spread over so many ids.
const USERS: u64 = 1 << 40;

/// Columns of a batch, in the order of the ids.
#[derive(Default)]
pub struct Claims {
    pub ids: Vec<i64>,
    pub coupons: Vec<i64>,
    pub users: Vec<i64>,
    pub times: Vec<DateTime<Utc>>,
}

impl Claims {
    /// So many claims on this coupon, numbered from `first` on.
    pub fn numbered(first: u64, claims: usize, coupon: i64) -> Self {
        let numbers = first..first + claims as u64;
        Self {
            ids: numbers.clone().map(order).collect(),
            coupons: vec![coupon; claims],
            users: numbers.map(user).collect(),
            times: vec![Clock::System.now(); claims],
        }
    }

    /// The same claims in the order of their users.
    pub fn by_user(&self) -> Self {
        let mut places: Vec<usize> = (0..self.len()).collect();
        places.sort_by_key(|at| self.users[*at]);
        let sorted = |column: &[i64]| places.iter().map(|at| column[*at]).collect();
        Self {
            ids: sorted(&self.ids),
            coupons: sorted(&self.coupons),
            users: sorted(&self.users),
            times: self.times.clone(),
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Order id of the claim with this number.
pub fn order(number: u64) -> i64 {
    i64::try_from(FIRST_ORDER + number).unwrap_or(i64::MAX)
}

/// User of the claim with this number: another one for each, because the steps are a bijection of 40 bits.
pub fn user(number: u64) -> i64 {
    let mut mixed = number % USERS;
    for factor in [0x9E37_79B9_7F4A_7C15_u64, 0xBF58_476D_1CE4_E5B9] {
        mixed = mixed.wrapping_mul(factor) % USERS;
        mixed ^= mixed >> 20;
    }
    i64::try_from(mixed + 1).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_claim_has_a_user_of_its_own_and_neighbours_are_far_apart() {
        let users: HashSet<i64> = (0..100_000).map(user).collect();
        assert_eq!(users.len(), 100_000);
        let near = (0..1_000).filter(|number| (user(*number) - user(number + 1)).abs() < 1 << 20);
        assert!(near.count() < 10);
    }
}
