//! The buyers of a sale, as Redis has them: user id -> order id.

use super::Failure;
use super::ids::{CouponId, OrderId, UserId};
use super::keys::Keys;
use crate::kit::redis::Redis;

/// Buyers read from Redis at a time; more would hold up everybody else.
const PAGE: usize = 1_000;

/// Tells `each` about every buyer. Those who come or go meanwhile may be told of or not, and some may be
/// told of twice (see SCAN); whoever is there from beginning to end is told of.
///
/// # Errors
///
/// When Redis doesn't answer, or holds something that is no id.
pub async fn scan(
    redis: &Redis,
    keys: &Keys,
    coupon: CouponId,
    mut each: impl FnMut(UserId, OrderId),
) -> Result<(), Failure> {
    let mut cursor = "0".to_owned();
    loop {
        let mut command = redis::cmd("HSCAN");
        command.arg(keys.buyers(coupon)).arg(&cursor).arg("COUNT").arg(PAGE);
        let (next, page): (String, Vec<String>) = redis.query(&command).await?;
        for pair in page.chunks_exact(2) {
            let unknown = || Failure::UnknownReply(pair.join(" "));
            each(pair[0].parse().map_err(|_| unknown())?, pair[1].parse().map_err(|_| unknown())?);
        }
        if next == "0" {
            return Ok(());
        }
        cursor = next;
    }
}
