//! Counts of a process, told to the others once a second.
//!
//! Redis keeps the last word of each process for [`limits::BOARD_HEARD_MAX`]. The word of a process that is silent for
//! longer is gone, and only its name is left in the list of processes. All counts grow from the start of the process, so a word
//! that is missed is no loss.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use redis::RedisResult;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::base::clock::Clock;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::tally::Counts;
use crate::base::telemetry::Metrics;
use crate::base::usage;
use crate::kit::redis::Redis;
use crate::sale::Stores;
use crate::sale::keys::Keys;
use crate::sale::log::backlog::Backlog;
use crate::sale::payment::gateway::Checkout;

/// Claims by kind of answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimCounts {
    /// A unit, or an order.
    pub accepted: u64,
    /// Told that no unit is left.
    pub sold_out: u64,
    /// Told the order of an earlier claim.
    pub repeats: u64,
    /// Sent away to come again: overloaded, or the outcome is unknown.
    pub shed: u64,
    /// All other answers.
    pub others: u64,
}

/// Last word of a process. Fields of another version are ignored, and missing ones are 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Word {
    /// Host and process number.
    pub name: String,
    /// Roles of the process.
    pub roles: Vec<String>,
    /// Where its users pay, if it answers them.
    pub checkout: Option<Checkout>,
    /// Level of durability that it was told to keep, if any.
    pub durability: Option<String>,
    /// Time of the word, by the clock of the process.
    pub at_ms: i64,
    /// Start of the process.
    pub started_ms: i64,
    /// Whether the process stops soon.
    pub stopping: bool,
    /// Requests that it has answered.
    pub requests: u64,
    /// Connections of clients that are open.
    pub connections: u64,
    /// Claims that it has answered.
    pub claims: ClaimCounts,
    /// Rows that it has written.
    pub rows: u64,
    /// Claims that waited to be written at its last look.
    pub waiting: u64,
    /// Time of the processor that it has used.
    pub cpu_ms: Option<u64>,
    /// Bytes in memory.
    pub memory_bytes: Option<u64>,
    /// Times of its answers to claims.
    pub answers: Counts,
    /// Times from claims to the rows that it has written.
    pub claims_to_rows: Counts,
}

/// The counts of one second, as they stand in the list of the last minutes: time, claims, rows, claims that waited.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Second(pub i64, pub ClaimCounts, pub u64, pub u64);

/// Tells the counts of this process.
pub struct Presence {
    redis: Redis,
    keys: Keys,
    /// Unique name among all processes that ever were.
    id: String,
    /// What stays the same: roles and settings.
    about: Word,
    started_at: DateTime<Utc>,
    backlog: Arc<Backlog>,
    metrics: Arc<Metrics>,
    clock: Clock,
    shutdown: Shutdown,
}

impl Presence {
    /// A process that has said nothing yet. `about` has its roles and settings.
    pub fn new(
        stores: &Stores,
        about: Word,
        (backlog, metrics): (&Arc<Backlog>, &Arc<Metrics>),
        clock: Clock,
        shutdown: Shutdown,
    ) -> Self {
        let Stores { redis, keys, .. } = stores.clone();
        let id = Uuid::new_v4().simple().to_string();
        let (backlog, metrics) = (backlog.clone(), metrics.clone());
        let started_at = clock.now();
        Self { redis, keys, id, about, started_at, backlog, metrics, clock, shutdown }
    }

    /// Tells the counts now.
    pub async fn pass(&self) -> RedisResult<()> {
        let word = self.word();
        let second = Second(word.at_ms, word.claims, word.rows, word.waiting);
        let [word_text, second] = [serde_json::to_string(&word), serde_json::to_string(&second)]
            .map(|text| text.expect("counts can be written as JSON"));
        let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (names, past) = (self.keys.processes(), self.keys.process_past(&self.id));
        let points = isize::try_from(limits::BOARD_PAST_POINTS).unwrap_or(isize::MAX);
        let kept = ms(limits::BOARD_SILENT_KEPT);
        let mut commands = redis::pipe();
        commands
            .set_options(
                self.keys.process(&self.id),
                word_text,
                redis::SetOptions::default().with_expiration(redis::SetExpiry::PX(
                    ms(limits::BOARD_HEARD_MAX).unsigned_abs(),
                )),
            )
            .rpush(&past, second)
            .ltrim(&past, -points, -1)
            .pexpire(&past, kept)
            .zadd(&names, &self.id, word.at_ms)
            .zrembyscore(&names, "-inf", word.at_ms - kept)
            .pexpire(&names, kept);
        self.redis.query_all::<redis::Value>(&commands).await.map(drop)
    }

    /// Tells the others that this process ends.
    pub async fn leave(&self) -> RedisResult<()> {
        let mut commands = redis::pipe();
        commands.zrem(self.keys.processes(), &self.id).del(self.keys.process(&self.id));
        self.redis.query_all::<redis::Value>(&commands).await.map(drop)
    }

    fn word(&self) -> Word {
        let tally = &self.metrics.tally;
        let (opened, closed) = &tally.connections;
        let cpu_ms = usage::cpu_time().and_then(|time| u64::try_from(time.as_millis()).ok());
        Word {
            name: process_name(),
            at_ms: self.clock.now().timestamp_millis(),
            started_ms: self.started_at.timestamp_millis(),
            stopping: self.shutdown.is_announced(),
            requests: tally.requests.get(),
            connections: opened.get().saturating_sub(closed.get()),
            claims: ClaimCounts::of(self.metrics.claims()),
            rows: tally.rows.get(),
            waiting: self.backlog.orders(),
            cpu_ms,
            memory_bytes: usage::memory_bytes(),
            answers: tally.answers.counts(),
            claims_to_rows: tally.to_rows.counts(),
            ..self.about.clone()
        }
    }
}

/// The last words of all processes that have told any of late.
pub async fn heard(redis: &Redis, keys: &Keys) -> RedisResult<Vec<Word>> {
    let mut command = redis::cmd("ZRANGE");
    let names: Vec<String> = redis.query(command.arg(keys.processes()).arg(0).arg(-1)).await?;
    let mut words = redis::pipe();
    for name in &names {
        words.get(keys.process(name));
    }
    let words: Vec<Option<String>> = redis.query_all(&words).await?;
    let words = words.into_iter().flatten();
    Ok(words.filter_map(|word| serde_json::from_str(&word).ok()).collect())
}

impl ClaimCounts {
    fn of(claims: impl Iterator<Item = (&'static str, u64)>) -> Self {
        let by_code: BTreeMap<&str, u64> = claims.collect();
        let mut counts = Self::default();
        for (code, count) in by_code {
            *match code {
                "accepted" | "created" => &mut counts.accepted,
                "sold_out" => &mut counts.sold_out,
                "already_claimed" => &mut counts.repeats,
                "overloaded" | "unavailable" => &mut counts.shed,
                _ => &mut counts.others,
            } += count;
        }
        counts
    }
}

fn process_name() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    format!("{}-{}", host.unwrap_or_default(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_by_the_kind_of_their_answers() {
        let claims = [
            ("accepted", 1),
            ("created", 10),
            ("sold_out", 100),
            ("already_claimed", 1_000),
            ("overloaded", 10_000),
            ("unavailable", 100_000),
            ("sale_paused", 1_000_000),
            ("anything_else", 10_000_000),
        ];
        let counts = ClaimCounts::of(claims.into_iter());
        let expected = ClaimCounts {
            accepted: 11,
            sold_out: 100,
            repeats: 1_000,
            shed: 110_000,
            others: 11_000_000,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_process_is_named_by_its_host_and_its_number() {
        let name = process_name();
        assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
    }
}
