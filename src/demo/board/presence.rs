//! Counts of a process, which it reports to the others once a second.
//!
//! Redis keeps the last report of each process for [`limits::BOARD_HEARD_MAX`]. When a process has been silent for
//! longer, only its name is left, in the list of processes. All counts grow from the start of the process, so a missed
//! report loses nothing.

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

/// Claims by kind of answer, as counts or as rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Claims<T> {
    /// Answered with a new order.
    pub accepted: T,
    /// Refused, because no unit was left.
    pub sold_out: T,
    /// Answered with the order of an earlier claim.
    pub repeats: T,
    /// Told to come back: overloaded, or the outcome is unknown.
    pub shed: T,
    /// All other answers.
    pub others: T,
}

impl<T: Copy> Claims<T> {
    /// Combines each kind with that of `other`.
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

/// Last report of a process. Unknown fields from another version are ignored, and missing ones are 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Word {
    /// Host and process number.
    pub name: String,
    pub roles: Vec<String>,
    /// Where its users pay; `None` if it doesn't serve them.
    pub checkout: Option<Checkout>,
    /// The configured durability level, if any.
    pub durability: Option<String>,
    /// Time of the report, by the clock of the process, in ms since 1970.
    pub at_ms: i64,
    /// Start of the process, in ms since 1970.
    pub started_ms: i64,
    pub stopping: bool,
    pub requests: u64,
    pub connections: u64,
    /// Claims that it has answered.
    pub claims: Claims<u64>,
    pub rows: u64,
    /// Processor time that it has used.
    pub cpu_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Times of its answers to claims.
    pub answers: Counts,
    /// Times from claims to the rows that it has written.
    pub claims_to_rows: Counts,
}

/// Reports the counts of this process.
pub struct Presence {
    redis: Redis,
    keys: Keys,
    /// A random id, unique among all processes.
    id: String,
    /// The parts of the report that never change: roles and settings.
    about: Word,
    started_at: DateTime<Utc>,
    metrics: Arc<Metrics>,
    clock: Clock,
    shutdown: Shutdown,
}

impl Presence {
    /// Reports nothing yet. `about` has the roles and settings of the process.
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

    pub async fn run_once(&self) -> RedisResult<()> {
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

/// The processes that reported lately: id, time of the last report, and the report itself unless the process is silent
/// now.
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

/// Name of this process: its host and its process id.
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
