//! Units on their way back to Redis, and places among a user's unpaid orders. Owner of the table `stock_returns`.
//!
//! # Model
//!
//! Whoever closes an order writes a row here, in the same transaction. The pass below reads the open rows,
//! runs `lua/give_back.lua`, and closes them. Wherever it dies, it is run again: the script gives a unit
//! back only if the buyer's order id in Redis is still the one that was closed, so a unit comes back once, and
//! a user who has claimed anew in the meantime keeps the new order.
//!
//! While `--unpaid-orders-max` is set, the claim script keeps a list of each user's unpaid orders. An order leaves
//! it (`lua/free_place.lua`) when its unit comes back, and when it is paid: then only its *place* does, and its
//! payment writes the row. Orders leave by their id, so that a repeat frees nothing twice.
//!
//! The order of a discarded dead letter has a row here as well. Redis counts a unit for it that may not exist, so
//! `sale/withdrawal.rs` decides what becomes of its place.
//!
//! # What each failure does
//!
//! * Redis or Postgres away: the rows wait.
//! * The sale is missing in Redis, which has lost data: an alarm, and its rows wait; the others go on.
//! * Two processes run the pass at the same moment: the second one finds nothing left to give.
//!
//! # What is not promised
//!
//! When a unit comes back: soon, as long as both stores answer. Until then its buyer is still one, and is
//! told the order that was closed.

use std::collections::{BTreeMap, HashSet};
use std::iter;
use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use super::ids::{CouponId, OrderId, UserId};
use super::keys::Keys;
use super::shards::Shards;
use super::warm_up::WarmUp;
use super::withdrawal::{Fate, Place, Withdrawals};
use super::{Failure, Stores, buyers, dead_letter};
use crate::base::limits;
use crate::kit::redis::Redis;
use crate::kit::script::{Script, VariadicScript};

/// A unit that has to come back.
#[derive(Clone, Debug)]
pub struct StockReturn {
    /// The order that was closed.
    pub order_id: OrderId,
    /// Of this coupon.
    pub coupon_id: CouponId,
    /// Its buyer.
    pub user_id: UserId,
}

/// Gives units back to Redis.
pub struct StockReturns {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    give_back: VariadicScript,
    free_place: Script<1>,
    withdrawals: Withdrawals,
    /// Knows the epoch, and raises the alarm.
    warm_up: Arc<WarmUp>,
}

/// An open row.
struct Open {
    order_id: OrderId,
    coupon_id: CouponId,
    user_id: UserId,
    what: String,
    /// Whether there is a unit in it that Redis has to be given.
    has_unit: bool,
}

impl StockReturns {
    /// Puts the parts together.
    pub fn new(stores: &Stores, warm_up: Arc<WarmUp>) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        let give_back = VariadicScript::new(include_str!("../../lua/give_back.lua"));
        let free_place = Script::new(include_str!("../../lua/free_place.lua"));
        let withdrawals = Withdrawals::new(stores, warm_up.clone());
        Self { pool, redis, keys, give_back, free_place, withdrawals, warm_up }
    }

    /// Gives back what is due, for a bounded time. Returns how many rows it has closed.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; what has been given back by then may be tried again.
    pub async fn pass(&self) -> Result<usize, Failure> {
        let mut done = 0;
        for _ in 0..limits::PASS_BATCHES_MAX {
            let open = self.next().await?;
            let closed = self.give_all_back(&open).await?;
            done += closed;
            // Those that could not be given back have moved to the end, and are tried by the next pass.
            if open.len() < limits::STOCK_RETURNS_BATCH as usize || closed == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// The rows that have waited longest for a try.
    async fn next(&self) -> sqlx::Result<Vec<Open>> {
        sqlx::query_as!(
            Open,
            r#"SELECT order_id AS "order_id: OrderId", stock_returns.coupon_id AS "coupon_id: CouponId",
                      user_id AS "user_id: UserId", what,
                      -- Nobody can claim a unit of an archived sale any more.
                      (what = 'unit' AND archived_at IS NULL) AS "has_unit!"
               FROM stock_returns JOIN flash_sales USING (coupon_id)
               WHERE done_at IS NULL ORDER BY stock_returns.updated_at LIMIT $1"#,
            i64::from(limits::STOCK_RETURNS_BATCH),
        )
        .fetch_all(&self.pool)
        .await
    }

    async fn give_all_back(&self, open: &[Open]) -> Result<usize, Failure> {
        let mut done = 0;
        let mut by_coupon: BTreeMap<CouponId, Vec<&Open>> = BTreeMap::new();
        for one in open {
            by_coupon.entry(one.coupon_id).or_default().push(one);
        }
        let letters = self.letters_among(open).await?;
        let is_letter = |one: &&Open| one.has_unit && letters.contains(&one.order_id);
        let mut withdrawn = Vec::new();
        for (coupon, returns) in by_coupon {
            let (letters, returns): (Vec<_>, Vec<_>) = returns.into_iter().partition(is_letter);
            withdrawn.push((coupon, letters));
            for part in returns.chunks(limits::GIVE_BACK_UNITS_MAX) {
                done += self.give_part_back(coupon, part).await?;
            }
        }
        // Last, since looking for heirs may take a while.
        for (coupon, letters) in withdrawn.iter().filter(|(_, letters)| !letters.is_empty()) {
            done += self.withdraw(*coupon, letters).await?;
        }
        Ok(done)
    }

    /// Those of these orders that were dead letters: their units may not exist.
    async fn letters_among(&self, open: &[Open]) -> sqlx::Result<HashSet<OrderId>> {
        let orders: Vec<i64> = open.iter().map(|one| one.order_id.get()).collect();
        dead_letter::among(&self.pool, &orders).await
    }

    /// Deals with the places of discarded dead letters.
    async fn withdraw(&self, coupon: CouponId, letters: &[&Open]) -> Result<usize, Failure> {
        self.free_places(coupon, letters).await?;
        let places: Vec<Place> = letters.iter().map(|one| (one.user_id, one.order_id)).collect();
        let fates = self.withdrawals.settle(coupon, &places).await?;
        let of = |fate| -> Vec<&Open> {
            letters.iter().filter(|one| fates[&one.order_id] == fate).copied().collect()
        };
        let done = of(Fate::Done);
        close(&self.pool, &done).await?;
        postpone(&self.pool, &of(Fate::Waits)).await?;
        let mut closed = done.len();
        for part in of(Fate::ToStock).chunks(limits::GIVE_BACK_UNITS_MAX) {
            closed += self.give_part_back(coupon, part).await?;
        }
        Ok(closed)
    }

    async fn free_places(&self, coupon: CouponId, returns: &[&Open]) -> Result<(), Failure> {
        let unpaid_key = self.keys.unpaid(coupon.lane());
        let link = self.redis.link().await?;
        let _freed: i64 = self.free_place.run(&link, [&unpaid_key], &pairs(returns)[..]).await?;
        Ok(())
    }

    async fn give_part_back(&self, coupon: CouponId, returns: &[&Open]) -> Result<usize, Failure> {
        self.free_places(coupon, returns).await?;
        let (units, places): (Vec<_>, Vec<_>) = returns.iter().partition(|one| one.has_unit);
        close(&self.pool, &places).await?;
        if units.is_empty() {
            return Ok(places.len());
        }
        if self.give_back(coupon, &units).await? {
            close(&self.pool, &units).await?;
            return Ok(returns.len());
        }
        postpone(&self.pool, &units).await?;
        Ok(places.len())
    }

    /// False if the sale can't take anything back now.
    async fn give_back(&self, coupon: CouponId, units: &[&Open]) -> Result<bool, Failure> {
        let shards = buyers::shards(&self.redis, &self.keys, coupon).await?.unwrap_or(Shards::ONE);
        let of_users = units.iter().map(|one| self.keys.buyers(coupon, shards.of(one.user_id)));
        let names: Vec<String> = iter::once(self.keys.coupon(coupon)).chain(of_users).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (epoch, channel) = (self.warm_up.epoch(), self.keys.returns_channel());
        let arguments = (coupon.get(), epoch, shards.count(), channel, &pairs(units)[..]);
        let link = self.redis.link().await?;
        let replies: Vec<String> = self.give_back.run(&link, &names, arguments).await?;
        let answers = |code: &String| code == "GIVEN_BACK" || code == "NOT_HELD";
        match &replies[..] {
            [code] if code == "NOT_LOADED" => {
                match self.warm_up.missing(coupon).await {
                    // Since these rows were read: the next pass closes them.
                    Ok(_) | Err(Failure::DataLost(_)) => Ok(false),
                    Err(error) => Err(error),
                }
            }
            [code] if code == "STALE" => {
                self.warm_up.refresh_epoch().await?;
                Ok(false)
            }
            codes if codes.len() == units.len() && codes.iter().all(answers) => Ok(true),
            _ => Err(Failure::UnknownReply(replies.join(" "))),
        }
    }
}

/// User and order of each, as the scripts take them.
fn pairs(returns: &[&Open]) -> Vec<i64> {
    returns.iter().flat_map(|one| [one.user_id.get(), one.order_id.get()]).collect()
}

/// Writes down units that have to come back, in the transaction that closes their orders.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub(super) async fn insert(tx: &mut PgConnection, returns: &[StockReturn]) -> sqlx::Result<()> {
    let orders: Vec<i64> = returns.iter().map(|one| one.order_id.get()).collect();
    let coupons: Vec<i64> = returns.iter().map(|one| one.coupon_id.get()).collect();
    let users: Vec<i64> = returns.iter().map(|one| one.user_id.get()).collect();
    sqlx::query!(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id)
         SELECT * FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[])",
        &orders,
        &coupons,
        &users,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Writes the return of a closed order down once more: it was done, or never written, and yet its buyer is
/// still one in Redis. False if the order isn't closed; nothing has changed then.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub(super) async fn write_again(pool: &PgPool, back: &StockReturn) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id)
         SELECT id, coupon_id, user_id FROM orders
         WHERE id = $1 AND coupon_id = $2 AND user_id = $3 AND kind = 'flash'
           AND status IN ('cancelled', 'expired', 'refunded')
         ON CONFLICT (order_id, what) DO UPDATE SET done_at = NULL, updated_at = now()",
        back.order_id.get(),
        back.coupon_id.get(),
        back.user_id.get(),
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Writes down that an order is no longer unpaid, in the transaction in which it is paid. Only flash coupons have
/// places.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub(super) async fn insert_place(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
         SELECT id, 'place', coupon_id, user_id FROM orders WHERE id = $1 AND kind = 'flash'",
        order.get(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Writes down again that an order leaves its user's list of unpaid orders. False if it is unpaid, or isn't this
/// user's; nothing has changed then.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub(super) async fn write_place_again(
    pool: &PgPool,
    user: UserId,
    order: OrderId,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
         SELECT id, 'place', coupon_id, user_id FROM orders
         WHERE id = $1 AND user_id = $2 AND kind = 'flash' AND status <> 'unpaid'
         ON CONFLICT (order_id, what) DO UPDATE SET done_at = NULL, updated_at = now()",
        order.get(),
        user.get(),
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Those of these closed orders whose unit hasn't come back yet.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn open_among(pool: &PgPool, orders: &[i64]) -> sqlx::Result<HashSet<OrderId>> {
    let open = sqlx::query_scalar!(
        r#"SELECT order_id AS "order_id: OrderId" FROM stock_returns
           WHERE order_id = ANY($1) AND what = 'unit' AND done_at IS NULL"#,
        orders,
    )
    .fetch_all(pool)
    .await?;
    Ok(open.into_iter().collect())
}

/// How many units are on their way back; of one coupon, or of all.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn count_open(pool: &PgPool, coupon: Option<CouponId>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM stock_returns
           WHERE done_at IS NULL AND what = 'unit' AND coupon_id = coalesce($1, coupon_id)"#,
        coupon.map(CouponId::get),
    )
    .fetch_one(pool)
    .await
}

async fn close(pool: &PgPool, returns: &[&Open]) -> sqlx::Result<()> {
    if returns.is_empty() {
        return Ok(());
    }
    let (orders, whats) = names(returns);
    sqlx::query!(
        "UPDATE stock_returns SET done_at = now(), updated_at = now()
         FROM UNNEST($1::bigint[], $2::text[]) AS done (id, of)
         WHERE order_id = done.id AND what = done.of AND done_at IS NULL",
        &orders,
        &whats,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Lets the others come first.
async fn postpone(pool: &PgPool, returns: &[&Open]) -> sqlx::Result<()> {
    let (orders, whats) = names(returns);
    sqlx::query!(
        "UPDATE stock_returns SET updated_at = now()
         FROM UNNEST($1::bigint[], $2::text[]) AS tried (id, of)
         WHERE order_id = tried.id AND what = tried.of AND done_at IS NULL",
        &orders,
        &whats,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// What names the rows: an order that is paid and then refunded has two.
fn names(returns: &[&Open]) -> (Vec<i64>, Vec<String>) {
    returns.iter().map(|one| (one.order_id.get(), one.what.clone())).unzip()
}
