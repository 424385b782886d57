//! Arguments of the scripts that free places and release units.

use crate::store::ids::{OrderId, UserId};

/// User and order of each, as the scripts expect them.
pub fn pairs(orders: impl Iterator<Item = (UserId, OrderId)>) -> Vec<i64> {
    orders.flat_map(|(user, order)| [user.get(), order.get()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_user_and_order_in_turn() {
        let pair =
            |user, order| (UserId::new(user).expect("an id"), OrderId::new(order).expect("an id"));
        assert_eq!(pairs([pair(42, 7), pair(41, 8)].into_iter()), [42, 7, 41, 8]);
        assert_eq!(pairs(std::iter::empty()), [0; 0]);
    }
}
