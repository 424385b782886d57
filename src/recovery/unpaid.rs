//! Builds a lane's lists of users' unpaid orders from Postgres.
//!
//! The lists are made of unpaid orders and of claims in the log without a row, under a key that has the epoch of the
//! recovery in its name. They replace the old lists in one step. If an order is paid or closed meanwhile, it leaves the
//! new lists once the lane is open, because no row of `stock_returns` is closed before.

use std::collections::{BTreeSet, HashMap};

use crate::base::limits;
use crate::order::live;
use crate::recovery::reconcile::compare::AcceptedClaim;
use crate::store::ids::{Lane, OrderId, UserId};
use crate::store::redis::Link;
use crate::store::script::Script;
use crate::store::{Failure, Stores};

pub(super) struct ListBuilder {
    stores: Stores,
    switch: Script<3>,
    /// Unpaid orders that a user may hold in a lane; 0 means no limit, and no lists.
    bound: u32,
}

impl ListBuilder {
    pub(super) fn new(stores: &Stores, bound: u32) -> Self {
        let switch = Script::new(include_str!("../../lua/switch_unpaid.lua"));
        Self { stores: stores.clone(), switch, bound }
    }

    /// Removes lists that the attempt of this epoch has left behind.
    pub(super) async fn remove(&self, link: &Link, lane: Lane, epoch: i64) -> Result<(), Failure> {
        let mut command = redis::cmd("UNLINK");
        Ok(link.query(command.arg(self.stores.keys.unpaid_built(lane, epoch))).await?)
    }

    /// Builds the lists of a closed lane, and replaces the old ones.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or another recovery has begun; the old lists stay then.
    pub(super) async fn build(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        in_flight: &[AcceptedClaim],
    ) -> Result<(), Failure> {
        let built = async {
            if self.bound > 0 {
                self.fill(link, (lane, epoch), in_flight).await?;
            }
            self.switch(link, (lane, epoch)).await
        };
        let built = built.await;
        if built.is_err() {
            // Left behind, they would fill a full Redis further with each attempt.
            let _ = self.remove(link, lane, epoch).await;
        }
        built
    }

    /// A claim in flight that has become a row is listed once.
    async fn fill(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        in_flight: &[AcceptedClaim],
    ) -> Result<(), Failure> {
        let mut lists: HashMap<UserId, BTreeSet<OrderId>> = HashMap::new();
        let mut add = |user, order| {
            lists.entry(user).or_default().insert(order);
        };
        in_flight.iter().for_each(|(user, order)| add(*user, *order));
        let mut behind = None;
        loop {
            let page = live::unpaid_page(&self.stores.pool, lane, behind).await?;
            let Some(last) = page.last() else { break };
            behind = Some(last.order);
            page.iter().for_each(|unpaid| add(unpaid.user, unpaid.order));
        }
        let lists: Vec<(UserId, BTreeSet<OrderId>)> = lists.into_iter().collect();
        for part in lists.chunks(limits::BUYERS_AT_A_TIME) {
            let mut command = redis::cmd("HSET");
            command.arg(self.stores.keys.unpaid_built(lane, epoch));
            for (user, orders) in part {
                let orders: Vec<String> = orders.iter().map(OrderId::to_string).collect();
                command.arg(user.get()).arg(orders.join(" "));
            }
            link.query::<i64>(&command).await?;
        }
        Ok(())
    }

    async fn switch(&self, link: &Link, (lane, epoch): (Lane, i64)) -> Result<(), Failure> {
        let keys = &self.stores.keys;
        let names = [keys.lane(lane), keys.unpaid(lane), keys.unpaid_built(lane, epoch)];
        let names = names.each_ref().map(String::as_str);
        let reply: String = self.switch.run(link, names, epoch).await?;
        match reply.as_str() {
            "SWITCHED" => Ok(()),
            "FENCED" => Err(Failure::Recovering(lane)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }
}
