//! Users' lists of unpaid orders in a lane, built from Postgres.
//!
//! The lists are built from one snapshot, and of the claims in the log that are no rows yet, under a key that carries the
//! epoch of the recovery. They take the place of those in use in one step. An order that is paid or closed meanwhile leaves
//! the new lists once the lane is open: no return of a place is closed before.

use std::collections::HashSet;

use sqlx::PgConnection;

use crate::kit::postgres;
use crate::kit::redis::Link;
use crate::kit::script::Script;
use crate::sale::ids::{Lane, OrderId, UserId};
use crate::sale::order::give_back::places::pairs;
use crate::sale::order::live;
use crate::sale::{Failure, Stores};

/// Builds the lists of lanes.
pub(super) struct ListBuilder {
    stores: Stores,
    list: Script<2>,
    switch: Script<3>,
    /// Unpaid orders that a user may hold in a lane; 0 for no bound: then there are no lists.
    bound: u32,
}

impl ListBuilder {
    pub(super) fn new(stores: &Stores, bound: u32) -> Self {
        Self {
            stores: stores.clone(),
            list: Script::new(include_str!("../../../lua/list_unpaid.lua")),
            switch: Script::new(include_str!("../../../lua/switch_unpaid.lua")),
            bound,
        }
    }

    /// Removes lists that these recoveries have left behind.
    pub(super) async fn remove(
        &self,
        link: &Link,
        lane: Lane,
        epochs: &[i64],
    ) -> Result<(), Failure> {
        let mut command = redis::cmd("UNLINK");
        epochs.iter().for_each(|epoch| {
            command.arg(self.stores.keys.unpaid_built(lane, *epoch));
        });
        Ok(link.query(&command).await?)
    }

    /// Builds the lists of a closed lane, and puts them in the place of the present ones.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or another recovery has begun; the present lists stay then.
    pub(super) async fn build(
        &self,
        link: &Link,
        lane: Lane,
        epoch: i64,
        in_flight: &[(UserId, OrderId)],
    ) -> Result<(), Failure> {
        let built = self.fill_and_switch(link, (lane, epoch), in_flight).await;
        if built.is_err() {
            // They would fill a full Redis further with each attempt.
            let _ = self.remove(link, lane, &[epoch]).await;
        }
        built
    }

    async fn fill_and_switch(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        in_flight: &[(UserId, OrderId)],
    ) -> Result<(), Failure> {
        if self.bound > 0 {
            let mut snapshot = postgres::begin_snapshot(&self.stores.pool).await?;
            let filled = self.fill(&mut snapshot, link, (lane, epoch), in_flight).await;
            snapshot.rollback().await?;
            filled?;
        }
        let keys = &self.stores.keys;
        let names = [keys.lane(lane), keys.unpaid(lane), keys.unpaid_built(lane, epoch)];
        let names = names.each_ref().map(String::as_str);
        let reply: String = self.switch.run(link, names, epoch).await?;
        match reply.as_str() {
            "SWITCHED" => Ok(()),
            "FENCED" => Err(Failure::recovering(lane)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    /// Claims in flight become rows meanwhile: each is listed once.
    async fn fill(
        &self,
        snapshot: &mut PgConnection,
        link: &Link,
        (lane, epoch): (Lane, i64),
        in_flight: &[(UserId, OrderId)],
    ) -> Result<(), Failure> {
        let mut waiting: HashSet<(UserId, OrderId)> = in_flight.iter().copied().collect();
        let mut after = None;
        loop {
            let page = live::unpaid_page(&mut *snapshot, after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.order);
            let of_lane = page.iter().filter(|unpaid| unpaid.coupon.lane() == lane);
            let of_lane: Vec<_> = of_lane.map(|unpaid| (unpaid.user, unpaid.order)).collect();
            for claim in &of_lane {
                waiting.remove(claim);
            }
            self.list(link, (lane, epoch), &of_lane).await?;
        }
        let waiting: Vec<_> = waiting.into_iter().collect();
        for page in waiting.chunks(live::PAGE) {
            self.list(link, (lane, epoch), page).await?;
        }
        Ok(())
    }

    async fn list(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        claims: &[(UserId, OrderId)],
    ) -> Result<(), Failure> {
        if claims.is_empty() {
            return Ok(());
        }
        let keys = &self.stores.keys;
        let names = [keys.lane(lane), keys.unpaid_built(lane, epoch)];
        let names = names.each_ref().map(String::as_str);
        let arguments = (epoch, &pairs(claims.iter().copied())[..]);
        let reply: String = self.list.run(link, names, arguments).await?;
        match reply.as_str() {
            "LISTED" => Ok(()),
            "FENCED" => Err(Failure::recovering(lane)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }
}
