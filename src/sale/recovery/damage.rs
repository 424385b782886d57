//! Sales that Redis has not kept as they were approved.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;

use super::records;
use crate::base::limits;
use crate::kit::redis::Link;
use crate::kit::script::Script;
use crate::sale::buyers::census::census;
use crate::sale::coupon::stock::{self, LoadedSale};
use crate::sale::fence;
use crate::sale::fence::table::NotedBeat;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::order::give_back::stock_returns;
use crate::sale::order::{dead_letter, live};
use crate::sale::receipts::book::Receipt;
use crate::sale::{Failure, Stores, buyers};

/// Result of a look at the sales of a lane.
#[derive(Default)]
pub(super) struct Damage {
    /// Sales that are as they were.
    pub kept: Vec<CouponId>,
    /// Sales that have to be built anew.
    pub damaged: Vec<CouponId>,
    /// Number of both that were taken over into the epoch of the recovery.
    pub adopted: i64,
}

/// Looks at the sales of a closed lane, and takes them over into the epoch of its recovery.
pub(super) struct Assessor {
    stores: Stores,
    adopt: Script<2>,
}

impl Assessor {
    pub(super) fn new(stores: &Stores) -> Self {
        let adopt = Script::new(include_str!("../../../lua/adopt_sale.lua"));
        Self { stores: stores.clone(), adopt }
    }

    /// Looks at the sales that Redis has to hold. With another beat than the noted one, none of them is believed:
    /// Redis is of another time. Nor without any.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or another recovery has begun.
    pub(super) async fn look(
        &self,
        link: &Link,
        lane: Lane,
        epoch: i64,
        believed: Option<&NotedBeat>,
        receipts: &[Receipt],
    ) -> Result<Damage, Failure> {
        let beat = self.beat(link, lane).await?;
        let noted = believed.filter(|noted| beat.is_some_and(|beat| noted.allows(beat)));
        let is_present = noted.is_some();
        let mut damage = Damage::default();
        let mut whole = Vec::new();
        for sale in stock::loaded_in(&self.stores.pool, lane).await? {
            let coupon = sale.coupon;
            let adopted = self.adopt(link, coupon, epoch, &sale.load_id).await?;
            damage.adopted += i64::from(adopted);
            let generation =
                if adopted && is_present { self.generation(&sale).await? } else { None };
            match generation {
                Some(generation) => whole.push((coupon, generation)),
                None => damage.damaged.push(coupon),
            }
        }
        let (mut kept, built_in_vain) = self.finished(lane, whole).await?;
        damage.damaged.extend(built_in_vain);
        if !is_present {
            stock::remove_again(&self.stores.pool, lane).await?;
        }
        if let Some(noted) = noted
            && !kept.is_empty()
        {
            let since = noted.at - TimeDelta::from_std(limits::BEAT_MARGIN).unwrap_or_default();
            let recent = live::claimed_since(&self.stores.pool, lane, since).await?;
            let promised = receipts.iter().map(Receipt::claim);
            let letters = dead_letter::holding_since(&self.stores.pool, lane, since).await?;
            let of_kept =
                promised.chain(recent).chain(letters).filter(|(coupon, ..)| kept.contains(coupon));
            let behind = self.behind(of_kept).await?;
            kept.retain(|coupon| !behind.contains(coupon));
            damage.damaged.extend(behind);
            // A unit may have come back in the time that Redis has lost. Coming back twice changes nothing.
            stock_returns::run_again(&self.stores.pool, lane, since).await?;
            self.note_units(lane, epoch, &kept).await?;
        }
        damage.kept = kept.into_iter().collect();
        Ok(damage)
    }

    /// Notes which dead letters of these sales hold a unit: Redis says that, because it is believed. An earlier recovery may
    /// have noted others, for a sale that it built and didn't put in the place of the present one, or that Redis has lost.
    async fn note_units(
        &self,
        lane: Lane,
        epoch: i64,
        kept: &BTreeSet<CouponId>,
    ) -> Result<(), Failure> {
        let Stores { pool, redis, keys } = &self.stores;
        let kept: Vec<i64> = kept.iter().map(|coupon| coupon.get()).collect();
        for coupon in dead_letter::coupons_with_open(pool, &kept).await? {
            let held = fence::table::begin_in(pool, lane, epoch).await?;
            let mut tx = held.ok_or_else(|| Failure::recovering(lane))?;
            let letters = dead_letter::without_live_order(&mut tx, coupon).await?;
            for part in letters.chunks(live::PAGE) {
                let users = part.iter().map(|(_, user, _)| *user);
                let held = buyers::orders_of(redis, keys, coupon, users).await?;
                let holding =
                    part.iter().zip(held).filter(|((.., order), held)| *held == Some(*order));
                let holding: Vec<i64> = holding.map(|((letter, ..), _)| *letter).collect();
                let all: Vec<i64> = part.iter().map(|(letter, ..)| *letter).collect();
                dead_letter::note_units_among(&mut tx, &all, &holding).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    async fn beat(&self, link: &Link, lane: Lane) -> Result<Option<i64>, Failure> {
        let mut command = redis::cmd("HGET");
        Ok(link.query(command.arg(self.stores.keys.lane(lane)).arg("beat")).await?)
    }

    /// False if Redis doesn't hold the sale of the noted load.
    async fn adopt(
        &self,
        link: &Link,
        coupon: CouponId,
        epoch: i64,
        load_id: &str,
    ) -> Result<bool, Failure> {
        let keys = &self.stores.keys;
        let names = [keys.lane(coupon.lane()), keys.coupon(coupon)];
        let names = names.each_ref().map(String::as_str);
        let reply: String = self.adopt.run(link, names, (epoch, load_id)).await?;
        match reply.as_str() {
            "ADOPTED" => Ok(true),
            "MISSING" => Ok(false),
            "FENCED" => Err(Failure::recovering(coupon.lane())),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    /// The generation of a sale that is whole: one with its newest revision, all of its shards, and as many units and
    /// buyers together as its total.
    async fn generation(&self, sale: &LoadedSale) -> Result<Option<i64>, Failure> {
        let Stores { redis, keys, .. } = &self.stores;
        match census(redis, keys, sale.coupon).await.map_err(Failure::from) {
            Ok(census) => {
                let is_newest = census.revision >= Some(sale.revision);
                let is_whole = is_newest && census.shards_missing == 0 && census.is_conserved();
                Ok(is_whole.then_some(census.generation))
            }
            Err(failure) if failure.is_of_item() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The sales, and those among them that an unfinished recovery has built. Entries that such a recovery had written are
    /// in the log again if Redis has gone back meanwhile, and their claims may be no buyers of the sale that it built.
    async fn finished(
        &self,
        lane: Lane,
        whole: Vec<(CouponId, i64)>,
    ) -> Result<(BTreeSet<CouponId>, BTreeSet<CouponId>), Failure> {
        let epochs: BTreeSet<i64> = whole.iter().map(|(_, generation)| *generation).collect();
        let epochs: Vec<i64> = epochs.into_iter().filter(|generation| *generation > 0).collect();
        let unfinished = records::unfinished_among(&self.stores.pool, lane, &epochs).await?;
        let (built_in_vain, kept): (Vec<_>, Vec<_>) =
            whole.into_iter().partition(|(_, generation)| unfinished.contains(generation));
        let coupons =
            |sales: Vec<(CouponId, i64)>| sales.into_iter().map(|(coupon, _)| coupon).collect();
        Ok((coupons(kept), coupons(built_in_vain)))
    }

    /// Sales with one of these orders whose user is no buyer by it.
    async fn behind(
        &self,
        orders: impl Iterator<Item = (CouponId, UserId, OrderId)>,
    ) -> Result<Vec<CouponId>, Failure> {
        let mut behind = Vec::new();
        for (coupon, orders) in by_coupon(orders) {
            for page in orders.chunks(live::PAGE) {
                if !are_buyers(&self.stores, coupon, page).await? {
                    behind.push(coupon);
                    break;
                }
            }
        }
        Ok(behind)
    }
}

/// User and order of each claim, by coupon.
pub(super) fn by_coupon(
    claims: impl Iterator<Item = (CouponId, UserId, OrderId)>,
) -> BTreeMap<CouponId, Vec<(UserId, OrderId)>> {
    let mut by_coupon: BTreeMap<CouponId, Vec<(UserId, OrderId)>> = BTreeMap::new();
    for (coupon, user, order) in claims {
        by_coupon.entry(coupon).or_default().push((user, order));
    }
    by_coupon
}

/// Whether each of these users is a buyer by this order. False for a sale that can't be read.
pub(super) async fn are_buyers(
    stores: &Stores,
    coupon: CouponId,
    orders: &[(UserId, OrderId)],
) -> Result<bool, Failure> {
    let users = orders.iter().map(|(user, _)| *user);
    match buyers::orders_of(&stores.redis, &stores.keys, coupon, users).await {
        Err(failure) if failure.is_of_item() => Ok(false),
        held => Ok(orders.iter().zip(held?).all(|((_, order), held)| held == Some(*order))),
    }
}
