//! The buyers of a sale, as Redis has them: user id -> order id, in shards.
//!
//! Each reader first asks Redis for the shards, and doesn't remember them: that costs a question, but no answer comes
//! from a wrong shard.

// A sale as Redis has it at one moment.
pub mod count;

// Number of shards of a sale, and the shard of a user.
pub mod shards;

use std::collections::VecDeque;

use redis::{ErrorKind, RedisError, RedisResult};

use crate::base::limits;
use crate::coupon::buyers::shards::{SENTINEL, Shards};
use crate::store::Failure;
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::keys::Keys;
use crate::store::redis::Redis;

/// Buyers read from Redis at a time; more would hold up all other clients.
const PAGE: usize = 1_000;

/// Most shards of a page: the fewer buyers the last page had, the more shards the next one has.
const PAGE_SHARDS_MAX: usize = 256;
/// Shards of the first page, which suit a sold-out sale.
const PAGE_SHARDS: usize = 32;
/// Least number of fields that one call reads of a shard that is no longer a listpack.
const SHARD_FIELDS_MIN: usize = 32;

/// Shards of this sale; `None` if Redis doesn't hold the sale.
///
/// # Errors
///
/// When Redis doesn't answer, or holds a value that names no shards.
pub async fn shards(redis: &Redis, keys: &Keys, coupon: CouponId) -> RedisResult<Option<Shards>> {
    let mut command = redis::cmd("HGET");
    command.arg(keys.coupon(coupon)).arg("shards");
    let shards: Option<String> = redis.query(&command).await?;
    let unreadable = |why: &'static str| RedisError::from((ErrorKind::UnexpectedReturnType, why));
    shards.map(|shards| shards.parse().map_err(unreadable)).transpose()
}

/// Whether Redis has the shard that this user belongs to.
pub async fn can_tell(
    redis: &Redis,
    keys: &Keys,
    coupon: CouponId,
    user: UserId,
) -> RedisResult<bool> {
    let Some(shards) = shards(redis, keys, coupon).await? else {
        return Ok(false);
    };
    let mut command = redis::cmd("HEXISTS");
    redis.query(command.arg(shards.key(keys, coupon, shards.of(user))).arg(SENTINEL)).await
}

/// The order by which each of these users is a buyer; `None` for a user who isn't one.
///
/// # Errors
///
/// When Redis doesn't answer, or holds a value that is no id.
pub async fn orders_of(
    redis: &Redis,
    keys: &Keys,
    coupon: CouponId,
    users: impl ExactSizeIterator<Item = UserId>,
) -> Result<Vec<Option<OrderId>>, Failure> {
    // A pipeline without a command is an error, not an empty reply.
    if users.len() == 0 {
        return Ok(Vec::new());
    }
    let Some(shards) = shards(redis, keys, coupon).await? else {
        return Ok(vec![None; users.len()]);
    };
    let mut commands = redis::pipe();
    for user in users {
        commands.cmd("HGET").arg(shards.key(keys, coupon, shards.of(user))).arg(user.get());
    }
    let orders: Vec<Option<String>> = redis.query_all(&commands).await?;
    let parse = |order: String| order.parse().map_err(|_| Failure::UnknownReply(order));
    orders.into_iter().map(|order| order.map(parse).transpose()).collect()
}

/// Removes shards of a sale, as far as they are there.
pub async fn unlink(
    redis: &Redis,
    keys: &Keys,
    coupon: CouponId,
    shards: Shards,
) -> RedisResult<()> {
    let names: Vec<String> = shards.all().map(|shard| shards.key(keys, coupon, shard)).collect();
    for part in names.chunks(limits::SHARDS_AT_A_TIME) {
        redis.query::<()>(redis::cmd("UNLINK").arg(part)).await?;
    }
    Ok(())
}

/// All buyers of a sale, page by page. A user who is a buyer from beginning to end is on a page, perhaps on two (see
/// SCAN). A user who becomes one or ceases to be one meanwhile may be missed.
pub struct Pages<'a> {
    redis: &'a Redis,
    keys: &'a Keys,
    coupon: CouponId,
    shards: Shards,
    /// Shards that haven't been read to their end, each with the cursor to go on from.
    unread: VecDeque<(u32, u64)>,
    /// Number of shards of the next page.
    at_a_time: usize,
}

impl<'a> Pages<'a> {
    /// Begins at the first page; there is none if Redis doesn't hold the sale.
    pub async fn begin(redis: &'a Redis, keys: &'a Keys, coupon: CouponId) -> RedisResult<Self> {
        let shards = shards(redis, keys, coupon).await?;
        let unread = shards.map_or(0..0, Shards::all).map(|shard| (shard, 0)).collect();
        let shards = shards.unwrap_or(Shards::ONE);
        Ok(Self { redis, keys, coupon, shards, unread, at_a_time: PAGE_SHARDS })
    }

    /// The next page, which may be empty; `None` when all have been read.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or holds a value that is no id.
    pub async fn next(&mut self) -> Result<Option<Vec<(UserId, OrderId)>>, Failure> {
        let part: Vec<_> = self.unread.drain(..self.unread.len().min(self.at_a_time)).collect();
        if part.is_empty() {
            return Ok(None);
        }
        let fields = (PAGE / part.len()).max(SHARD_FIELDS_MIN);
        let mut commands = redis::pipe();
        for (shard, cursor) in &part {
            let key = self.shards.key(self.keys, self.coupon, *shard);
            commands.cmd("HSCAN").arg(key).arg(cursor).arg("COUNT").arg(fields);
        }
        let scanned: Vec<(u64, Vec<String>)> = self.redis.query_all(&commands).await?;
        let mut page = Vec::with_capacity(PAGE);
        for ((shard, _), (cursor, words)) in part.into_iter().zip(scanned) {
            let buyers = words.chunks_exact(2).filter(|pair| pair[0] != SENTINEL);
            for buyer in buyers.map(pair) {
                page.push(buyer?);
            }
            if cursor != 0 {
                self.unread.push_back((shard, cursor));
            }
        }
        self.at_a_time = match page.len() {
            few if few < PAGE / 2 => (2 * self.at_a_time).min(PAGE_SHARDS_MAX),
            many if many > PAGE => (self.at_a_time / 2).max(1),
            _ => self.at_a_time,
        };
        Ok(Some(page))
    }
}

fn pair(words: &[String]) -> Result<(UserId, OrderId), Failure> {
    let unknown = || Failure::UnknownReply(words.join(" "));
    Ok((words[0].parse().map_err(|_| unknown())?, words[1].parse().map_err(|_| unknown())?))
}
