//! Places on users' lists of unpaid orders.

use crate::kit::redis::Link;
use crate::kit::script::Script;
use crate::sale::Failure;
use crate::sale::ids::{Lane, OrderId, UserId};
use crate::sale::keys::Keys;

/// Takes orders off the lists.
pub struct Places {
    keys: Keys,
    free: Script<1>,
}

impl Places {
    /// Lists under these names.
    pub fn new(keys: Keys) -> Self {
        Self { keys, free: Script::new(include_str!("../../../../lua/free_place.lua")) }
    }

    /// Takes orders of a lane off their users' lists, given as [`pairs`]. May be repeated.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn free(&self, link: &Link, lane: Lane, pairs: &[i64]) -> Result<(), Failure> {
        if pairs.is_empty() {
            return Ok(());
        }
        let _freed: i64 = self.free.run(link, [&self.keys.unpaid(lane)], pairs).await?;
        Ok(())
    }
}

/// User and order of each, as the scripts take them.
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
