//! Facts that Redis has: sales, logs, and the words of all processes.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::figures::Point;
use super::presence::{Second, Word};
use super::processes::{self, Processes, Together};
use super::sources::Sources;
use crate::base::limits;
use crate::sale::ids::{CouponId, Lane};
use crate::sale::live::RedisSale;
use crate::sale::log::numbers::LogNumbers;
use crate::sale::reconcile::gauges::Units;
use crate::sale::{Failure, Stores};

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
    /// The minutes before the first look.
    pub past: Vec<Point>,
}

/// A sale in Redis.
#[derive(Clone, Debug)]
pub struct RedisSaleSeen {
    /// Terms that decide claims.
    pub terms: Option<Terms>,
    /// Its last census, with its time in ms.
    pub units: Option<(Units, i64)>,
}

/// Terms that decide claims.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Name of the state.
    pub state: &'static str,
    /// Units left.
    pub left: Option<i64>,
    /// Units on offer.
    pub total: i64,
    /// Start of the window.
    pub opens_ms: i64,
    /// End of the window.
    pub closes_ms: i64,
    /// Revision that Redis has.
    pub revision: i64,
}

/// A producer's looks: what it remembers from one to the next.
#[derive(Default)]
pub struct RedisLooks {
    number: u32,
    processes: Processes,
    units: HashMap<CouponId, (Units, i64)>,
    past: Option<Vec<Point>>,
}

impl RedisLooks {
    /// Looks at these sales, which Postgres says are in Redis, with their units sold; and at all else.
    pub async fn look(
        &mut self,
        sources: &Sources,
        sales: &[(CouponId, i64)],
    ) -> Result<InRedis, Failure> {
        let Stores { redis, .. } = &sources.stores;
        let began = Instant::now();
        redis.query::<Value>(&redis::cmd("PING")).await?;
        let ping = began.elapsed();
        let words = self.words(sources).await?;
        let now_ms = sources.clock.now().timestamp_millis();
        let together = self.processes.hear(words, now_ms);
        let terms = terms(sources, sales).await?;
        self.count(sources, sales, now_ms).await?;
        let logs = self.logs(sources).await?;
        let sales = sales.iter().map(|(coupon, _)| {
            let seen = RedisSaleSeen {
                terms: terms.get(coupon).copied(),
                units: self.units.get(coupon).cloned(),
            };
            (*coupon, seen)
        });
        let sales = sales.collect();
        let past = self.past.clone().unwrap_or_default();
        Ok(InRedis { ping, sales, logs, together, past })
    }

    /// The names of all processes, with their last words; at first also their past.
    async fn words(
        &mut self,
        sources: &Sources,
    ) -> Result<Vec<(String, i64, Option<Word>)>, Failure> {
        let Stores { redis, keys, .. } = &sources.stores;
        let mut command = redis::cmd("ZRANGE");
        command.arg(keys.processes()).arg(0).arg(-1).arg("WITHSCORES");
        let names: Vec<(String, f64)> = redis.query(&command).await?;
        if names.is_empty() {
            self.past.get_or_insert_default();
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("MGET");
        for (id, _) in &names {
            command.arg(keys.process(id));
        }
        let words: Vec<Option<String>> = redis.query(&command).await?;
        if self.past.is_none() {
            let mut commands = redis::pipe();
            for (id, _) in &names {
                commands.lrange(keys.process_past(id), 0, -1);
            }
            let lists: Vec<Vec<String>> = redis.query_all(&commands).await?;
            let seconds = |list: &Vec<String>| -> Vec<Second> {
                list.iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
            };
            self.past = Some(processes::past(&lists.iter().map(seconds).collect::<Vec<_>>()));
        }
        let heard = |text: Option<String>| serde_json::from_str(&text?).ok();
        let words = names.into_iter().zip(words);
        Ok(words.map(|((id, at), text)| (id, at as i64, heard(text))).collect())
    }

    /// Counts the buyers of these sales, now and then. A sale that can't be read has no count.
    async fn count(
        &mut self,
        sources: &Sources,
        sales: &[(CouponId, i64)],
        now_ms: i64,
    ) -> Result<(), Failure> {
        let Stores { redis, keys, .. } = &sources.stores;
        let is_due = self.number.is_multiple_of(limits::BOARD_LOOKS_PER_CENSUS);
        self.units.retain(|coupon, _| sales.iter().any(|(sale, _)| sale == coupon));
        for (coupon, sold) in sales {
            if !is_due && self.units.contains_key(coupon) {
                continue;
            }
            match Units::look(redis, keys, *coupon, *sold).await.map_err(Failure::from) {
                Err(failure) if failure.is_of_item() => {
                    let units = Units { conserved: Some(false), ..Units::default() };
                    self.units.insert(*coupon, (units, now_ms));
                }
                units => drop(self.units.insert(*coupon, (units?, now_ms))),
            }
        }
        self.number += u32::from(!sales.is_empty());
        Ok(())
    }

    async fn logs(&self, sources: &Sources) -> Result<Vec<(Lane, Option<LogNumbers>)>, Failure> {
        let Stores { redis, keys, .. } = &sources.stores;
        let mut logs = Vec::new();
        for (lane, state) in sources.backlog.states().await? {
            let numbers = LogNumbers::look(redis, keys, lane, &state).await;
            logs.push((
                lane,
                match numbers.map_err(Failure::from) {
                    Err(failure) if failure.is_of_item() => None,
                    numbers => Some(numbers?),
                },
            ));
        }
        Ok(logs)
    }
}

async fn terms(
    sources: &Sources,
    sales: &[(CouponId, i64)],
) -> Result<HashMap<CouponId, Terms>, Failure> {
    let Stores { redis, keys, .. } = &sources.stores;
    if sales.is_empty() {
        return Ok(HashMap::new());
    }
    let mut commands = redis::pipe();
    for (coupon, _) in sales {
        commands.cmd("HMGET").arg(keys.coupon(*coupon)).arg(RedisSale::FIELDS);
    }
    // A key of another type is a finding of the comparison, and no reason to show no other sale.
    let replies: Vec<Result<Vec<Option<String>>, redis::RedisError>> =
        redis.query_each(&mut commands).await?;
    let read = |((coupon, _), reply): (&(CouponId, i64), Result<Vec<Option<String>>, _>)| {
        let sale = RedisSale::read(&reply.ok()?)?;
        let RedisSale { state, stock: left, total, opens_ms, closes_ms, revision } = sale;
        let state = state.as_str();
        Some((*coupon, Terms { state, left, total, opens_ms, closes_ms, revision }))
    };
    Ok(sales.iter().zip(replies).filter_map(read).collect())
}
