//! A set of (user, order) pairs in two numbers, so that two large sets can be compared without holding either.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::sale::ids::{OrderId, UserId};

/// Number of pairs, and sum of their hashes: the same in any order.
///
/// Both sides are hashed here and in one process, so the hash needs to be stable within one process only. Two sets
/// that differ have the same digest once in 2^64; no user chooses order ids, so none can aim at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Pairs.
    pub count: usize,
    sum: u64,
}

impl Digest {
    /// Adds one pair. A pair that is added twice counts twice.
    pub fn add(&mut self, user: UserId, order: OrderId) {
        let mut hasher = DefaultHasher::new();
        (user, order).hash(&mut hasher);
        self.count += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(pairs: &[(i64, i64)]) -> Digest {
        let mut digest = Digest::default();
        for &(user, order) in pairs {
            digest.add(UserId::new(user).expect("an id"), OrderId::new(order).expect("an id"));
        }
        digest
    }

    #[test]
    fn the_order_of_pairs_does_not_matter_and_everything_else_does() {
        let pairs = digest(&[(1, 10), (2, 20), (3, 30)]);
        assert_eq!(pairs, digest(&[(3, 30), (1, 10), (2, 20)]));
        for other in [
            &[(1, 10), (2, 20)][..],
            &[(1, 20), (2, 10), (3, 30)],
            &[(10, 1), (2, 20), (3, 30)],
            &[(1, 10), (2, 20), (3, 31)],
            &[(1, 10), (2, 20), (3, 30), (3, 30)],
        ] {
            assert_ne!(pairs, digest(other), "{other:?}");
        }
    }
}
