//! Counts of a process, told to the others once a second.
//!
//! Redis keeps the last word of each process for [`limits::BOARD_HEARD_MAX`]. The word of a process that is silent for
//! longer is gone, and only its name is left in the list of processes. All counts grow from the start of the process, so a word
//! that is missed is no loss.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use redis::RedisResult;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::base::clock::Clock;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::tally::Counts;
use crate::base::telemetry::Metrics;
use crate::base::usage;
use crate::payment::gateway::Checkout;
use crate::store::Stores;
use crate::store::keys::Keys;
use crate::store::redis::Redis;

/// Claims by kind of answer: counts, or rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Claims<T> {
    /// A unit, or an order.
    pub accepted: T,
    /// Told that no unit is left.
    pub sold_out: T,
    /// Told the order of an earlier claim.
    pub repeats: T,
    /// Sent away to come again: overloaded, or the outcome is unknown.
    pub shed: T,
    /// All other answers.
    pub others: T,
}

impl<T: Copy> Claims<T> {
    /// What each kind and that of `other` make together.
    pub fn with<U>(&self, other: &Self, make: impl Fn(T, T) -> U) -> Claims<U> {
        Claims {
            accepted: make(self.accepted, other.accepted),
            sold_out: make(self.sold_out, other.sold_out),
            repeats: make(self.repeats, other.repeats),
            shed: make(self.shed, other.shed),
            others: make(self.others, other.others),
        }
    }
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
    pub claims: Claims<u64>,
    /// Rows that it has written.
    pub rows: u64,
    /// Time of the processor that it has used.
    pub cpu_ms: Option<u64>,
    /// Bytes in memory.
    pub memory_bytes: Option<u64>,
    /// Times of its answers to claims.
    pub answers: Counts,
    /// Times from claims to the rows that it has written.
    pub claims_to_rows: Counts,
}

/// Tells the counts of this process.
pub struct Presence {
    redis: Redis,
    keys: Keys,
    /// Unique name among all processes that ever were.
    id: String,
    /// What stays the same: roles and settings.
    about: Word,
    started_at: DateTime<Utc>,
    metrics: Arc<Metrics>,
    clock: Clock,
    shutdown: Shutdown,
}

impl Presence {
    /// A process that has said nothing yet. `about` has its roles and settings.
    pub fn new(
        stores: &Stores,
        about: Word,
        metrics: Arc<Metrics>,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Self {
        let (redis, keys) = (stores.fleet.first().clone(), stores.keys.clone());
        let id = Uuid::new_v4().simple().to_string();
        let started_at = clock.now();
        Self { redis, keys, id, about, started_at, metrics, clock, shutdown }
    }

    /// Tells the counts now.
    pub async fn pass(&self) -> RedisResult<()> {
        let word = self.word();
        let text = serde_json::to_string(&word).expect("counts can be written as JSON");
        let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (names, kept) = (self.keys.processes(), ms(limits::BOARD_SILENT_KEPT));
        let heard = redis::SetExpiry::PX(ms(limits::BOARD_HEARD_MAX).unsigned_abs());
        let expires = redis::SetOptions::default().with_expiration(heard);
        let mut commands = redis::pipe();
        commands
            .set_options(self.keys.process(&self.id), text, expires)
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
            claims: counts(self.metrics.claims()),
            rows: tally.rows.get(),
            cpu_ms,
            memory_bytes: usage::memory_bytes(),
            answers: tally.answers.counts(),
            claims_to_rows: tally.to_rows.counts(),
            ..self.about.clone()
        }
    }
}

/// Each process that has told anything of late: its id, the time of its last word, and that word, unless it is silent now.
pub async fn words(redis: &Redis, keys: &Keys) -> RedisResult<Vec<(String, i64, Option<Word>)>> {
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.processes()).arg(0).arg(-1).arg("WITHSCORES");
    let names: Vec<(String, f64)> = redis.query(&command).await?;
    let mut commands = redis::pipe();
    for (id, _) in &names {
        commands.get(keys.process(id));
    }
    let texts: Vec<Option<String>> = redis.query_all(&commands).await?;
    let word = |text: Option<String>| serde_json::from_str(&text?).ok();
    let words = names.into_iter().zip(texts);
    Ok(words.map(|((id, at), text)| (id, at as i64, word(text))).collect())
}

fn counts(claims: impl Iterator<Item = (&'static str, u64)>) -> Claims<u64> {
    let mut counts = Claims::default();
    for (code, count) in claims {
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

/// Name of this process: its host, and its number there.
pub fn process_name() -> String {
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
        let counts = counts(claims.into_iter());
        let expected = Claims {
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
