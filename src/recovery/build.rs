//! Builds sales from one snapshot of Postgres (units, buyers and terms), and replaces damaged ones.

use std::collections::HashSet;

use sqlx::PgConnection;

use super::records::{LostClaim, Outcome, WITHOUT_UNIT};
use crate::base::limits;
use crate::coupon::buyers;
use crate::coupon::buyers::shards::{SENTINEL, Shards};
use crate::coupon::stock::{self, SaleToBuild};
use crate::order::{dead_letter, live};
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::postgres;
use crate::store::redis::{Link, is_data_error};
use crate::store::script::VariadicScript;
use crate::store::{Failure, Stores};

pub(super) struct Builder {
    stores: Stores,
    switch: VariadicScript,
}

/// A sale that has been built beside the one in use.
struct Built {
    sale: SaleToBuild,
    shards: Shards,
    buyers: i64,
    /// Claims of dead letters for which there is no unit.
    without_unit: Vec<LostClaim>,
}

impl Builder {
    pub(super) fn new(stores: &Stores) -> Self {
        let switch = VariadicScript::new(include_str!("../../lua/switch_sale.lua"));
        Self { stores: stores.clone(), switch }
    }

    /// Builds a sale and replaces the one in Redis. Does nothing for a sale that has been archived.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or another recovery has begun; the sale in Redis stays as it is then.
    pub(super) async fn build(
        &self,
        link: &Link,
        coupon: CouponId,
        epoch: i64,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let Some(built) = self.build_beside(coupon, epoch).await? else {
            return Ok(());
        };
        self.switch(link, coupon, epoch, &built).await?;
        stock::set_applied(&self.stores.pool, coupon, built.sale.revision).await?;
        outcome.built += 1;
        outcome.buyers += built.buyers;
        outcome.lost.extend(built.without_unit);
        Ok(())
    }

    /// Fills new shards from one snapshot.
    async fn build_beside(&self, coupon: CouponId, epoch: i64) -> Result<Option<Built>, Failure> {
        let mut snapshot = postgres::begin_snapshot(&self.stores.pool).await?;
        let Some(sale) = stock::to_build(&mut snapshot, coupon).await? else {
            snapshot.rollback().await?;
            return Ok(None);
        };
        let shards = Shards::for_units(sale.total).of_version(epoch);
        let filled = self.fill(&mut snapshot, coupon, &sale, shards).await;
        if filled.is_err() {
            // Left behind, they would fill a full Redis further with each attempt.
            let Stores { keys, .. } = &self.stores;
            let redis = self.stores.redis(coupon.lane());
            let _ = buyers::unlink(redis, keys, coupon, shards).await;
        }
        snapshot.rollback().await?;
        let (buyers, without_unit) = filled?;
        Ok(Some(Built { sale, shards, buyers, without_unit }))
    }

    /// Makes shards, and fills them with the snapshot's buyers. Returns the number of buyers, and the claims of dead
    /// letters for which there is no unit.
    async fn fill(
        &self,
        snapshot: &mut PgConnection,
        coupon: CouponId,
        sale: &SaleToBuild,
        shards: Shards,
    ) -> Result<(i64, Vec<LostClaim>), Failure> {
        self.make_shards(coupon, shards).await?;
        let mut buyers = 0;
        let mut after = None;
        loop {
            let page = live::live_page(&mut *snapshot, coupon, after, live::SNAPSHOT_PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            buyers += i64::try_from(page.len()).unwrap_or(i64::MAX);
            self.remember(coupon, shards, &page).await?;
        }
        let room = usize::try_from(sale.total - buyers).unwrap_or(0);
        let (holding, without_unit) = letters(snapshot, coupon, room).await?;
        self.remember(coupon, shards, &holding).await?;
        buyers += i64::try_from(holding.len()).unwrap_or(i64::MAX);
        Ok((buyers, without_unit))
    }

    /// Removes shards that the attempt of this epoch has left, unless the sale uses them. It can't come to use them any
    /// more, because the lane has a newer epoch.
    pub(super) async fn remove_unfinished(
        &self,
        coupon: CouponId,
        epoch: i64,
    ) -> Result<(), Failure> {
        let Stores { pool, keys, .. } = &self.stores;
        let redis = self.stores.redis(coupon.lane());
        if self.present(coupon).await?.is_none_or(|present| present.version() != epoch) {
            let shards = Shards::for_units(stock::total(pool, coupon).await?);
            buyers::unlink(redis, keys, coupon, shards.of_version(epoch)).await?;
        }
        Ok(())
    }

    /// Shards of the sale in Redis; `None` if the sale is missing or can't be read.
    async fn present(&self, coupon: CouponId) -> Result<Option<Shards>, Failure> {
        match buyers::shards(self.stores.redis(coupon.lane()), &self.stores.keys, coupon).await {
            Err(error) if is_data_error(&error) => Ok(None),
            present => Ok(present?),
        }
    }

    async fn make_shards(&self, coupon: CouponId, shards: Shards) -> Result<(), Failure> {
        let Stores { keys, .. } = &self.stores;
        let redis = self.stores.redis(coupon.lane());
        let all: Vec<u32> = shards.all().collect();
        for part in all.chunks(limits::SHARDS_AT_A_TIME) {
            let mut commands = redis::pipe();
            for shard in part {
                let key = shards.key(keys, coupon, *shard);
                commands.cmd("HSET").arg(key).arg(SENTINEL).arg("");
            }
            redis.query_all::<i64>(&commands).await?;
        }
        Ok(())
    }

    async fn remember(
        &self,
        coupon: CouponId,
        shards: Shards,
        page: &[(UserId, OrderId)],
    ) -> Result<(), Failure> {
        let Stores { keys, .. } = &self.stores;
        let redis = self.stores.redis(coupon.lane());
        for part in page.chunks(limits::BUYERS_AT_A_TIME) {
            let mut names = keys.shards(coupon, shards.version());
            let mut commands = redis::pipe();
            for (user, order) in part {
                let shard = names.name(shards.of(*user));
                commands.cmd("HSET").arg(shard).arg(user.get()).arg(order.get());
            }
            redis.query_all::<i64>(&commands).await?;
        }
        Ok(())
    }

    /// Removes the old shards in the same step: nothing would name them afterwards.
    async fn switch(
        &self,
        link: &Link,
        coupon: CouponId,
        epoch: i64,
        built: &Built,
    ) -> Result<(), Failure> {
        let keys = &self.stores.keys;
        let Built { sale, shards, buyers, .. } = built;
        let before = self.present(coupon).await?.unwrap_or(Shards::for_units(sale.total));
        let mut names = vec![keys.lane(coupon.lane()), keys.coupon(coupon)];
        if before != *shards {
            names.extend(before.all().map(|shard| before.key(keys, coupon, shard)));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let numbers = [
            epoch,
            sale.opens_at.timestamp_millis(),
            sale.closes_at.timestamp_millis(),
            sale.total - buyers,
            sale.total,
        ];
        let words = (sale.state.as_str(), &sale.load_id, sale.revision, shards.to_string());
        let reply: String = self.switch.run(link, &names, (&numbers[..], words)).await?;
        match reply.as_str() {
            "SWITCHED" => Ok(()),
            "FENCED" => Err(Failure::Recovering(coupon.lane())),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }
}

/// The open dead letters that hold a unit, by order id, as far as there are units, and the claims of the others. A user
/// with a live order, or with an older letter, gets no second unit.
async fn letters(
    snapshot: &mut PgConnection,
    coupon: CouponId,
    room: usize,
) -> Result<(Vec<(UserId, OrderId)>, Vec<LostClaim>), Failure> {
    let mut holding = Vec::new();
    let mut without_unit = Vec::new();
    let mut users = HashSet::new();
    for (user, order) in dead_letter::without_live_order(snapshot, coupon).await? {
        if holding.len() < room && users.insert(user) {
            holding.push((user, order));
            continue;
        }
        without_unit.push(LostClaim {
            coupon_id: coupon,
            user_id: user,
            order_id: order,
            reason: WITHOUT_UNIT.to_owned(),
        });
    }
    Ok((holding, without_unit))
}
