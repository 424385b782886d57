//! Withdrawn claims: the places in Redis of dead letters that an operator has discarded.
//!
//! # Model
//!
//! The buyer of a dead letter holds a place in Redis, and Redis counts a unit for it. Whether that unit exists is
//! another question. As long as the user of each live order is a buyer, total = stock + buyers says that no live
//! order has the letter's unit, so the unit can be returned to stock. After a roll-back of Redis there are live
//! orders whose users are no buyers, and for each of them Redis has offered one unit twice. A letter's unit is then
//! one of those: returned to stock, it would be claimed, that claim would be `oversold` as well, and so on.
//!
//! So a place goes to the first of these:
//!
//! 1. to the live order that the same user has;
//! 2. to a live order of the sale whose user is no buyer, so that this user can't claim twice any more;
//! 3. to no user, as far as Redis has more stock and buyers than the total;
//! 4. to the stock, as far as live orders leave units, or the stock is below 0.
//!
//! The first two and the last keep total = stock + buyers, and the third restores it. Each brings the set of buyers
//! closer to the set of live orders.
//!
//! # The cases
//!
//! * `oversold` after a roll-back of Redis: 2, for as many letters as Redis has forgotten buyers.
//! * `conflict` after a roll-back, because the user has claimed a second time: 1.
//! * `oversold` because `sold` was too high: 4. `sold` is counted anew first; else the unit would be claimed, and that
//!   claim would be `oversold` as well.
//! * An entry that was made by hand: its user holds no unit by that order, and nothing changes. If a buyer was made
//!   by hand, too: 3.
//!
//! # Authority
//!
//! Postgres decides which orders are live: the rows of heirs are locked until Redis has been told, and the sale's row
//! while its orders are counted. Redis decides which users are buyers: the script compares both ends of each place.
//!
//! # What each failure does
//!
//! * The process dies at any point: the return is still open, and its next pass begins anew. The script knows a place
//!   that has been passed on.
//! * The heir claims in between, or its order is closed: that place waits for the next pass.
//! * The sale, or a shard of its buyers, is missing in Redis: all its places wait.
//! * A call of the script is carried out after it has timed out: the heir's order may be closed by then, and its return
//!   done. The comparison names such a buyer (`not_given_back`), and the repair mends it.
//!
//! # What is not promised
//!
//! A place may be passed on late: looking for heirs may read every live order of the sale, some thousands in each turn
//! (`forgotten.rs`), and places that wait are tried less and less often. Units of closed orders and other sales don't
//! wait for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use crate::base::limits;
use crate::kit::postgres;
use crate::kit::redis::Redis;
use crate::kit::script::VariadicScript;
use crate::sale::buyers;
use crate::sale::buyers::census::{Census, census};
use crate::sale::buyers::shards::Shards;
use crate::sale::coupon::load::Loader;
use crate::sale::coupon::stock;
use crate::sale::fence::LaneStates;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::keys::Keys;
use crate::sale::order::give_back::forgotten::Searches;
use crate::sale::{Failure, Stores};

/// A buyer, and the order by which the user is one.
pub(super) type Place = (UserId, OrderId);

/// Fate of the place of a withdrawn claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The user is no buyer by this order any more, and no unit has to come back.
    Done,
    /// The unit exists, and has to be returned to stock.
    ToStock,
    /// The fate can't be told now.
    Waits,
    /// An heir is being looked for still.
    Sought,
}

/// A sale in Redis, in units.
struct Count {
    /// Stock and buyers, less the total.
    surplus: usize,
    /// Units that the stock lacks to be 0; so many can come back without being offered.
    below_zero: usize,
}

/// Decides the fate of the places of withdrawn claims.
pub(super) struct Withdrawals {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    pass_on: VariadicScript,
    searches: Searches,
    loader: Arc<Loader>,
    lanes: Arc<LaneStates>,
}

impl Withdrawals {
    /// A decider over these stores.
    pub(super) fn new(stores: &Stores, loader: Arc<Loader>, lanes: Arc<LaneStates>) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        let pass_on = VariadicScript::new(include_str!("../../../../lua/pass_on.lua"));
        let searches = Searches::default();
        Self { pool, redis, keys, pass_on, searches, loader, lanes }
    }

    /// Passes places on. Returns the fate of each, by order.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; what has been passed on by then stays so.
    pub(super) async fn settle(
        &self,
        coupon: CouponId,
        places: &[Place],
    ) -> Result<BTreeMap<OrderId, Fate>, Failure> {
        let all = |fate| places.iter().map(|(_, order)| (*order, fate)).collect();
        let Some(count) = self.count(coupon).await? else {
            return Ok(all(Fate::Waits));
        };
        let mut fates: BTreeMap<OrderId, Fate> = all(Fate::Done);
        let held = self.held(coupon, places).await?;
        let (heirs, has_all) = self.heirs(coupon, &held).await?;
        let (inherited, mut left): (Vec<Place>, Vec<Place>) =
            held.into_iter().partition(|(_, order)| heirs.contains_key(order));
        if !has_all {
            fates.extend(left.drain(..).map(|(_, order)| (order, Fate::Sought)));
        }
        let to_nobody: Vec<Place> = left.drain(..count.surplus.min(left.len())).collect();
        for part in inherited.chunks(limits::GIVE_BACK_UNITS_MAX) {
            fates.extend(self.pass_on(coupon, part, &heirs).await?);
        }
        for part in to_nobody.chunks(limits::GIVE_BACK_UNITS_MAX) {
            fates.extend(self.pass_on(coupon, part, &HashMap::new()).await?);
        }
        fates.extend(self.return_to_stock(coupon, &left, count.below_zero).await?);
        Ok(fates)
    }

    /// Counts the sale in Redis; `None` while Redis lacks the sale or buyers of it.
    async fn count(&self, coupon: CouponId) -> Result<Option<Count>, Failure> {
        let census = census(&self.redis, &self.keys, coupon).await?;
        let Census { buyers, shards_missing: 0, total: Some(total), stock: Some(stock), .. } =
            census
        else {
            return match self.loader.missing(coupon).await {
                // Archived, or an alarm has been raised.
                Ok(_) | Err(Failure::DataLost(_)) => Ok(None),
                Err(error) => Err(error),
            };
        };
        let units = |number: i64| usize::try_from(number).unwrap_or(0);
        Ok(Some(Count { surplus: units(stock + buyers - total), below_zero: units(-stock) }))
    }

    /// The places among these that their users still hold.
    async fn held(&self, coupon: CouponId, places: &[Place]) -> Result<Vec<Place>, Failure> {
        let users = places.iter().map(|(user, _)| *user);
        let orders = buyers::orders_of(&self.redis, &self.keys, coupon, users).await?;
        let held = places.iter().zip(orders).filter(|((_, order), held)| *held == Some(*order));
        Ok(held.map(|(place, _)| *place).collect())
    }

    /// The live orders that these places go to, by the order of the place; and false while there may be others.
    async fn heirs(
        &self,
        coupon: CouponId,
        places: &[Place],
    ) -> Result<(HashMap<OrderId, Place>, bool), Failure> {
        let own = self.live_orders_of(coupon, places).await?;
        let own_of = |(user, order): &Place| Some((*order, (*user, *own.get(user)?)));
        let mut heirs: HashMap<OrderId, Place> = places.iter().filter_map(own_of).collect();
        let others = places.len() - heirs.len();
        let stores = (&self.pool, &self.redis, &self.keys);
        let epoch = self.lanes.epoch(coupon.lane());
        let found = self.searches.go_on(stores, (coupon, epoch), others).await?;
        let without = places.iter().filter(|(user, _)| !own.contains_key(user));
        heirs.extend(without.map(|(_, order)| *order).zip(found.forgotten));
        Ok((heirs, found.is_all))
    }

    async fn live_orders_of(
        &self,
        coupon: CouponId,
        places: &[Place],
    ) -> sqlx::Result<HashMap<UserId, OrderId>> {
        let users: Vec<i64> = places.iter().map(|(user, _)| user.get()).collect();
        let rows = sqlx::query!(
            r#"SELECT user_id AS "user_id: UserId", id AS "id: OrderId" FROM orders
               WHERE coupon_id = $1 AND user_id = ANY($2) AND kind = 'flash'
                 AND is_live(status)"#,
            coupon.get(),
            &users,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.user_id, row.id)).collect())
    }

    /// Passes these places on, each to its heir, or ends it where it has none.
    async fn pass_on(
        &self,
        coupon: CouponId,
        places: &[Place],
        heirs: &HashMap<OrderId, Place>,
    ) -> Result<Vec<(OrderId, Fate)>, Failure> {
        let mut tx = postgres::begin(&self.pool).await?;
        let live = lock_live(&mut tx, heirs, places).await?;
        let may_go =
            |(_, order): &&Place| heirs.get(order).is_none_or(|(_, heir)| live.contains(heir));
        let (going, waiting): (Vec<&Place>, Vec<&Place>) = places.iter().partition(may_go);
        let told = self.tell(coupon, &going, heirs).await;
        // The transaction has changed nothing; other processes wait for its rows.
        tx.rollback().await?;
        let fates = going.iter().map(|(_, order)| *order).zip(told?);
        Ok(fates.chain(waiting.iter().map(|(_, order)| (*order, Fate::Waits))).collect())
    }

    async fn tell(
        &self,
        coupon: CouponId,
        places: &[&Place],
        heirs: &HashMap<OrderId, Place>,
    ) -> Result<Vec<Fate>, Failure> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let shards = buyers::shards(&self.redis, &self.keys, coupon).await?.unwrap_or(Shards::ONE);
        let key_of = |user| shards.key(&self.keys, coupon, shards.of(user));
        let mut names = vec![self.keys.coupon(coupon), self.keys.lane(coupon.lane())];
        let mut arguments = vec![
            coupon.to_string(),
            self.lanes.epoch(coupon.lane()).to_string(),
            shards.to_string(),
            self.keys.additions_channel(),
        ];
        for (user, order) in places {
            let heir = heirs.get(order);
            names.extend([key_of(*user), key_of(heir.map_or(*user, |(heir, _)| *heir))]);
            arguments.extend([user.to_string(), order.to_string()]);
            arguments.push(heir.map_or_else(String::new, |(heir, _)| heir.to_string()));
            arguments.push(heir.map_or_else(String::new, |(_, order)| order.to_string()));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let link = self.redis.link().await?;
        let replies: Vec<String> = self.pass_on.run(&link, &names, &arguments[..]).await?;
        self.understand(coupon, places.len(), &replies).await
    }

    async fn understand(
        &self,
        coupon: CouponId,
        places: usize,
        replies: &[String],
    ) -> Result<Vec<Fate>, Failure> {
        match replies {
            [code] if ["NOT_LOADED", "LOST"].contains(&code.as_str()) => {}
            [code] if code == "STALE" => self.lanes.refresh().await?,
            [code] if code == "RECOVERING" => return Err(self.lanes.suspect(coupon.lane())),
            codes if codes.len() == places => {
                let passed_on = codes.iter().filter(|code| *code == "PASSED_ON").count();
                if passed_on > 0 {
                    tracing::warn!(
                        %coupon,
                        places = passed_on,
                        "Redis had forgotten live orders, or had buyers that had claimed nothing: places of discarded dead letters have made up for it"
                    );
                }
                return codes.iter().map(|code| fate(code)).collect();
            }
            _ => return Err(Failure::UnknownReply(replies.join(" "))),
        }
        Ok(iter::repeat_n(Fate::Waits, places).collect())
    }

    /// Places that no live order needs. Their units exist as far as the live orders leave some, counted while the sale's
    /// row is locked.
    async fn return_to_stock(
        &self,
        coupon: CouponId,
        places: &[Place],
        below_zero: usize,
    ) -> Result<Vec<(OrderId, Fate)>, Failure> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let units_left = match stock::recount_sold(&self.pool, coupon).await? {
            Some(counted) => self.units_left(coupon, counted).await?,
            // More live orders than units.
            None => 0,
        };
        let units = units_left.max(below_zero);
        let fates = iter::repeat_n(Fate::ToStock, units).chain(iter::repeat(Fate::Waits));
        Ok(places.iter().map(|(_, order)| *order).zip(fates).collect())
    }

    /// Units that no live order has, after `sold` has been counted. Returns `sold` as it was, and as it is.
    async fn units_left(
        &self,
        coupon: CouponId,
        (before, live_orders): (i64, i64),
    ) -> Result<usize, Failure> {
        if before != live_orders {
            tracing::warn!(%coupon, sold = before, live_orders, "`sold` didn't count the live orders, and does now");
        }
        let total = sqlx::query_scalar!(
            "SELECT total FROM flash_sales WHERE coupon_id = $1",
            coupon.get(),
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(usize::try_from(total - live_orders).unwrap_or(0))
    }
}

fn fate(code: &str) -> Result<Fate, Failure> {
    match code {
        "PASSED_ON" | "NOT_HELD" => Ok(Fate::Done),
        "TAKEN" => Ok(Fate::Waits),
        _ => Err(Failure::UnknownReply(code.to_owned())),
    }
}

/// Locks the orders that these places go to, so that they stay as they are. Returns those that are still live.
async fn lock_live(
    tx: &mut PgConnection,
    heirs: &HashMap<OrderId, Place>,
    places: &[Place],
) -> sqlx::Result<HashSet<OrderId>> {
    let orders = places.iter().filter_map(|(_, order)| heirs.get(order));
    let orders: Vec<i64> = orders.map(|(_, order)| order.get()).collect();
    let live = sqlx::query_scalar!(
        r#"SELECT id AS "id: OrderId" FROM orders
           WHERE id = ANY($1) AND is_live(status)
           ORDER BY id FOR SHARE"#,
        &orders,
    )
    .fetch_all(tx)
    .await?;
    Ok(live.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_tells_the_fate_of_a_place() {
        for (code, expected) in [
            ("PASSED_ON", Some(Fate::Done)),
            ("NOT_HELD", Some(Fate::Done)),
            ("TAKEN", Some(Fate::Waits)),
            ("", None),
            ("passed_on", None),
        ] {
            assert_eq!(fate(code).ok(), expected, "{code}");
        }
    }
}
