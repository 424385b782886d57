//! Facts from Redis: sales, logs, and the reports of all processes.

use std::collections::HashMap;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::Instant;

use super::presence;
use super::processes::{Processes, Together};
use super::sources::Sources;
use crate::base::limits;
use crate::coupon::live::RedisSale;
use crate::log::numbers::LogNumbers;
use crate::recovery::reconcile::gauges::Units;
use crate::store::ids::{CouponId, Lane};
use crate::store::{Failure, Stores};

#[derive(Clone, Debug)]
pub struct InRedis {
    /// How long Redis takes to answer PING.
    pub ping: Duration,
    /// The sales that Postgres says are in Redis.
    pub sales: HashMap<CouponId, RedisSaleSeen>,
    /// The log of each lane; `None` if it can't be read.
    pub logs: Vec<(Lane, Option<LogNumbers>)>,
    pub together: Together,
}

#[derive(Clone, Debug)]
pub struct RedisSaleSeen {
    /// The terms that decide claims; `None` if Redis lacks them.
    pub(super) terms: Option<RedisSale>,
    /// The last count of its units, and its time in ms since 1970.
    pub(super) units: Option<(Units, i64)>,
}

/// The producer's reads of Redis, and what it remembers between them.
#[derive(Default)]
pub struct RedisChecks {
    number: u32,
    processes: Processes,
    units: HashMap<CouponId, (Units, i64)>,
}

impl RedisChecks {
    /// Reads everything. `sales` are those that Postgres says are in Redis, with their units sold.
    pub async fn check(
        &mut self,
        sources: &Sources,
        sales: &[(CouponId, i64)],
    ) -> Result<InRedis, Failure> {
        let Stores { fleet, keys, .. } = &sources.stores;
        let redis = fleet.first();
        let began = Instant::now();
        redis.query::<Value>(&redis::cmd("PING")).await?;
        let ping = began.elapsed();
        let words = presence::words(redis, keys).await?;
        let now_ms = sources.clock.now().timestamp_millis();
        let together = self.processes.hear(words, now_ms);
        let terms = terms(sources, sales).await;
        self.count(sources, sales, now_ms).await?;
        let logs = self.logs(sources).await;
        let sales = sales.iter().map(|(coupon, _)| {
            let seen = RedisSaleSeen {
                terms: terms.get(coupon).copied(),
                units: self.units.get(coupon).cloned(),
            };
            (*coupon, seen)
        });
        let sales = sales.collect();
        Ok(InRedis { ping, sales, logs, together })
    }

    /// Counts the units of these sales, at every few reads. A sale whose keys can't be read counts as not conserved.
    async fn count(
        &mut self,
        sources: &Sources,
        sales: &[(CouponId, i64)],
        now_ms: i64,
    ) -> Result<(), Failure> {
        let Stores { fleet, keys, .. } = &sources.stores;
        let is_due = self.number.is_multiple_of(limits::BOARD_CHECKS_PER_COUNT);
        self.units.retain(|coupon, _| sales.iter().any(|(sale, _)| sale == coupon));
        for (coupon, sold) in sales {
            if !is_due && self.units.contains_key(coupon) {
                continue;
            }
            let redis = fleet.of(coupon.lane());
            match Units::check(redis, keys, *coupon, *sold).await.map_err(Failure::from) {
                Err(failure) if failure.is_of_item() => {
                    let units = Units { conserved: Some(false), ..Units::default() };
                    self.units.insert(*coupon, (units, now_ms));
                }
                // The numbers of other servers don't wait for a server that is down.
                Err(failure) if failure.is_of_redis() => {}
                units => drop(self.units.insert(*coupon, (units?, now_ms))),
            }
        }
        self.number += u32::from(!sales.is_empty());
        Ok(())
    }

    async fn logs(&self, sources: &Sources) -> Vec<(Lane, Option<LogNumbers>)> {
        let Stores { fleet, keys, .. } = &sources.stores;
        let mut logs = Vec::new();
        for (lane, state) in sources.backlog.states().await {
            let check = async { LogNumbers::check(fleet.of(lane), keys, lane, &state?).await };
            logs.push((lane, check.await.ok()));
        }
        logs
    }
}

async fn terms(sources: &Sources, sales: &[(CouponId, i64)]) -> HashMap<CouponId, RedisSale> {
    let Stores { fleet, keys, .. } = &sources.stores;
    let mut terms = HashMap::new();
    for (server, redis) in fleet.each().enumerate() {
        let of_server = sales.iter().map(|(coupon, _)| *coupon);
        let sales: Vec<_> =
            of_server.filter(|coupon| fleet.number(coupon.lane()) == server).collect();
        if sales.is_empty() {
            continue;
        }
        let mut commands = redis::pipe();
        for coupon in &sales {
            commands.cmd("HMGET").arg(keys.coupon(*coupon)).arg(RedisSale::FIELDS);
        }
        // A server that is down, or a key of another type, must not hide the other sales.
        let replies: Vec<RedisResult<Vec<Option<String>>>> =
            redis.query_each(&commands).await.unwrap_or_default();
        let read = |(coupon, reply): (&CouponId, RedisResult<Vec<Option<String>>>)| {
            Some((*coupon, RedisSale::read(&reply.ok()?)?))
        };
        terms.extend(sales.iter().zip(replies).filter_map(read));
    }
    terms
}
