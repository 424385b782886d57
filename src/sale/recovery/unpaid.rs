//! Users' lists of unpaid orders in a lane, built from Postgres.
//!
//! The lists are built from one snapshot under a key that carries the epoch of the recovery, and take the place of those
//! in use in one step. Payments and cancellations go on meanwhile: an order that has left the lists in use before the
//! switch would be back. So each order of the snapshot is looked up once more after the switch, before the lane opens.
//! An order that is no longer unpaid leaves the new lists; one that changes later is taken off by the pass, which finds
//! the new lists.

use sqlx::PgConnection;

use super::records;
use crate::kit::postgres;
use crate::kit::redis::Link;
use crate::kit::script::Script;
use crate::sale::ids::{Lane, OrderId, UserId};
use crate::sale::order::give_back::places::{Places, pairs};
use crate::sale::order::live;
use crate::sale::{Failure, Stores};

/// Builds the lists of lanes.
pub(super) struct ListBuilder {
    stores: Stores,
    list: Script<2>,
    switch: Script<3>,
    places: Places,
    /// Unpaid orders that a user may hold in a lane; 0 for no bound: then there are no lists.
    bound: u32,
}

impl ListBuilder {
    pub(super) fn new(stores: &Stores, bound: u32) -> Self {
        Self {
            stores: stores.clone(),
            list: Script::new(include_str!("../../../lua/list_unpaid.lua")),
            switch: Script::new(include_str!("../../../lua/switch_unpaid.lua")),
            places: Places::new(stores.keys.clone()),
            bound,
        }
    }

    /// Removes lists that recoveries before this epoch have left behind.
    pub(super) async fn remove_unfinished(
        &self,
        link: &Link,
        lane: Lane,
        epoch: i64,
    ) -> Result<(), Failure> {
        let Stores { pool, keys, .. } = &self.stores;
        let unfinished = records::unfinished(pool, lane, epoch).await?;
        if unfinished.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("UNLINK");
        unfinished.iter().for_each(|one| {
            command.arg(keys.unpaid_built(lane, *one));
        });
        Ok(link.query(&command).await?)
    }

    /// Builds the lists of a closed lane, and puts them in the place of the present ones.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or another recovery has begun; the present lists stay then.
    pub(super) async fn build(&self, link: &Link, lane: Lane, epoch: i64) -> Result<(), Failure> {
        let built = self.fill_and_switch(link, lane, epoch).await;
        if built.is_err() {
            // They would fill a full Redis further with each attempt.
            let mut command = redis::cmd("UNLINK");
            command.arg(self.stores.keys.unpaid_built(lane, epoch));
            let _ = link.query::<i64>(&command).await;
        }
        let listed = built?;
        self.take_off(link, lane, &listed).await
    }

    /// Returns the orders on the new lists.
    async fn fill_and_switch(
        &self,
        link: &Link,
        lane: Lane,
        epoch: i64,
    ) -> Result<Vec<(UserId, OrderId)>, Failure> {
        let mut listed = Vec::new();
        if self.bound > 0 {
            let mut snapshot = postgres::begin_snapshot(&self.stores.pool).await?;
            let filled = self.fill(&mut snapshot, link, (lane, epoch), &mut listed).await;
            snapshot.rollback().await?;
            filled?;
        }
        let keys = &self.stores.keys;
        let names = [keys.lane(lane), keys.unpaid(lane), keys.unpaid_built(lane, epoch)];
        let names = names.each_ref().map(String::as_str);
        let reply: String = self.switch.run(link, names, epoch).await?;
        match reply.as_str() {
            "SWITCHED" => Ok(listed),
            "FENCED" => Err(Failure::recovering(lane)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    async fn fill(
        &self,
        snapshot: &mut PgConnection,
        link: &Link,
        (lane, epoch): (Lane, i64),
        listed: &mut Vec<(UserId, OrderId)>,
    ) -> Result<(), Failure> {
        let keys = &self.stores.keys;
        let names = [keys.lane(lane), keys.unpaid_built(lane, epoch)];
        let names = names.each_ref().map(String::as_str);
        let mut after = None;
        loop {
            let page = live::unpaid_page(&mut *snapshot, after).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.position());
            let of_lane = page.iter().filter(|unpaid| unpaid.coupon.lane() == lane);
            let of_lane: Vec<_> = of_lane.map(|unpaid| (unpaid.user, unpaid.order)).collect();
            if of_lane.is_empty() {
                continue;
            }
            let arguments = (epoch, &pairs(of_lane.iter().copied())[..]);
            let reply: String = self.list.run(link, names, arguments).await?;
            match reply.as_str() {
                "LISTED" => listed.extend(of_lane),
                "FENCED" => return Err(Failure::recovering(lane)),
                _ => return Err(Failure::UnknownReply(reply)),
            }
        }
    }

    /// Takes orders off the lists that are no longer unpaid.
    async fn take_off(
        &self,
        link: &Link,
        lane: Lane,
        listed: &[(UserId, OrderId)],
    ) -> Result<(), Failure> {
        for page in listed.chunks(live::PAGE) {
            let unpaid = live::unpaid_among(&self.stores.pool, page).await?;
            let gone = page.iter().filter(|(_, order)| !unpaid.contains(order)).copied();
            self.places.free(link, lane, &pairs(gone)).await?;
        }
        Ok(())
    }
}
