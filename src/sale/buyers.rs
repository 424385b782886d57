//! The buyers of a sale, as Redis has them: user id -> order id.

use super::Failure;
use super::ids::{CouponId, OrderId, UserId};
use super::keys::Keys;
use crate::kit::redis::Redis;

/// Buyers read from Redis at a time; more would hold up everybody else.
const PAGE: usize = 1_000;

/// All buyers of a sale, page by page. Those who come or go meanwhile may be on a page or not, and some may
/// be there twice (see SCAN); whoever is a buyer from beginning to end is on one.
pub struct Pages<'a> {
    redis: &'a Redis,
    key: String,
    /// Where to go on; nothing after the last page.
    cursor: Option<String>,
}

impl<'a> Pages<'a> {
    /// Begins with the first page.
    pub fn new(redis: &'a Redis, keys: &Keys, coupon: CouponId) -> Self {
        Self { redis, key: keys.buyers(coupon), cursor: Some("0".to_owned()) }
    }

    /// The next page, which may be empty; `None` when all have been read.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or holds something that is no id.
    pub async fn next(&mut self) -> Result<Option<Vec<(UserId, OrderId)>>, Failure> {
        let Some(cursor) = self.cursor.take() else {
            return Ok(None);
        };
        let mut command = redis::cmd("HSCAN");
        command.arg(&self.key).arg(cursor).arg("COUNT").arg(PAGE);
        let (next, page): (String, Vec<String>) = self.redis.query(&command).await?;
        self.cursor = Some(next).filter(|next| next != "0");
        page.chunks_exact(2).map(pair).collect::<Result<_, _>>().map(Some)
    }
}

fn pair(words: &[String]) -> Result<(UserId, OrderId), Failure> {
    let unknown = || Failure::UnknownReply(words.join(" "));
    Ok((words[0].parse().map_err(|_| unknown())?, words[1].parse().map_err(|_| unknown())?))
}
