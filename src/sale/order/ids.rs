//! Highest known numbers in order ids, told to the generator before it needs them.
//!
//! A Redis that goes back in time would hand out numbers again. The generator leaves out numbers that are known to be
//! taken: its own, and those of the newest orders and the newest entries of the log, which it is told here. So the
//! claim path asks no store (`kit/id.rs` says how much room is left for numbers that are not known).

use std::sync::Arc;

use chrono::NaiveDate;
use sqlx::PgPool;

use crate::base::clock::Clock;
use crate::base::limits;
use crate::kit::id::{self, IdGenerator};
use crate::kit::redis::Redis;
use crate::sale::ids::OrderId;
use crate::sale::keys::Keys;
use crate::sale::log;
use crate::sale::log::backlog::Backlog;
use crate::sale::{Failure, Stores};

/// Looks the numbers up.
pub struct OrderIds {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    backlog: Arc<Backlog>,
    ids: Arc<IdGenerator>,
    clock: Clock,
}

impl OrderIds {
    /// A reader over these stores that has looked once, before the first id.
    pub async fn informed(
        stores: &Stores,
        backlog: Arc<Backlog>,
        ids: Arc<IdGenerator>,
        clock: Clock,
    ) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        let ids = Self { pool, redis, keys, backlog, ids, clock };
        // A store that is away now is away for the first claims, too.
        if let Err(error) = ids.pass().await {
            tracing::debug!(%error, "the newest order ids could not be looked up");
        }
        ids
    }

    /// Learns the highest number of today's newest orders, and of the newest entries that aren't orders yet.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. The numbers of the other one have been learned.
    pub async fn pass(&self) -> Result<(), Failure> {
        let of_rows = self.learn_from_rows().await;
        self.learn_from_log().await?;
        Ok(of_rows?)
    }

    async fn learn_from_rows(&self) -> sqlx::Result<()> {
        if let Some(order) = highest_of(&self.pool, self.clock.now().date_naive()).await? {
            self.ids.learn(order.get());
        }
        Ok(())
    }

    async fn learn_from_log(&self) -> Result<(), Failure> {
        for (log, state) in self.backlog.states().await? {
            if state.unwritten > 0 {
                let newest = log::newest(&self.redis, &self.keys.log(log)).await?;
                newest.iter().for_each(|claim| self.ids.learn(claim.order_id.get()));
            }
        }
        Ok(())
    }
}

/// The order with the highest number among the newest of that day.
async fn highest_of(pool: &PgPool, day: NaiveDate) -> sqlx::Result<Option<OrderId>> {
    let ids = id::range_of(day);
    sqlx::query_scalar!(
        r#"SELECT id AS "id: OrderId"
           FROM (SELECT id FROM orders WHERE id BETWEEN $1 AND $2 ORDER BY id DESC LIMIT $3) AS newest
           ORDER BY id & 4294967295 DESC LIMIT 1"#,
        *ids.start(),
        *ids.end(),
        limits::NEWEST_ORDERS,
    )
    .fetch_optional(pool)
    .await
}
