//! Facts that Redis has: sales, logs, and the words of all processes.

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

/// Facts of one look.
#[derive(Clone, Debug)]
pub struct InRedis {
    /// Time that Redis needs to answer PING.
    pub ping: Duration,
    /// The sales that it has, of those that were asked for.
    pub sales: HashMap<CouponId, RedisSaleSeen>,
    /// The logs of each lane; `None` for a lane whose log can't be read.
    pub logs: Vec<(Lane, Option<LogNumbers>)>,
    /// All processes.
    pub together: Together,
}

/// A sale in Redis.
#[derive(Clone, Debug)]
pub struct RedisSaleSeen {
    /// Terms that decide claims.
    pub(super) terms: Option<RedisSale>,
    /// Its last census, with its time in ms.
    pub(super) units: Option<(Units, i64)>,
}

/// A producer's looks: what it remembers from one to the next.
#[derive(Default)]
pub struct RedisLooks {
    number: u32,
    processes: Processes,
    units: HashMap<CouponId, (Units, i64)>,
}

impl RedisLooks {
    /// Looks at these sales, which Postgres says are in Redis, with their units sold; and at all else.
    pub async fn look(
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

    /// Counts the buyers of these sales, now and then. A sale that can't be read has no count.
    async fn count(
        &mut self,
        sources: &Sources,
        sales: &[(CouponId, i64)],
        now_ms: i64,
    ) -> Result<(), Failure> {
        let Stores { fleet, keys, .. } = &sources.stores;
        let is_due = self.number.is_multiple_of(limits::BOARD_LOOKS_PER_CENSUS);
        self.units.retain(|coupon, _| sales.iter().any(|(sale, _)| sale == coupon));
        for (coupon, sold) in sales {
            if !is_due && self.units.contains_key(coupon) {
                continue;
            }
            let redis = fleet.of(coupon.lane());
            match Units::look(redis, keys, *coupon, *sold).await.map_err(Failure::from) {
                Err(failure) if failure.is_of_item() => {
                    let units = Units { conserved: Some(false), ..Units::default() };
                    self.units.insert(*coupon, (units, now_ms));
                }
                // The numbers of the other servers don't wait for one that is away.
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
            let look = async { LogNumbers::look(fleet.of(lane), keys, lane, &state?).await };
            logs.push((lane, look.await.ok()));
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
        // Neither a server that is away nor a key of another type is a reason to show no other sale.
        let replies: Vec<RedisResult<Vec<Option<String>>>> =
            redis.query_each(&commands).await.unwrap_or_default();
        let read = |(coupon, reply): (&CouponId, RedisResult<Vec<Option<String>>>)| {
            Some((*coupon, RedisSale::read(&reply.ok()?)?))
        };
        terms.extend(sales.iter().zip(replies).filter_map(read));
    }
    terms
}
