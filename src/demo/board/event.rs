//! Events for the watchers of the board. Each event is the whole state. An unknown fact is null, never zero.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::in_postgres::{InPostgres, Records};
use super::in_redis::{InRedis, RedisSaleSeen};
use super::presence::{Claims, process_name};
use super::processes::Process;
use super::sources::Sources;
use crate::base::limits;
use crate::coupon::model::Coupon;
use crate::fence::LaneState;
use crate::log::numbers::LogNumbers;
use crate::recovery::reconcile::gauges::Units;
use crate::store::Failure;
use crate::store::durability;
use crate::store::ids::{CouponId, Lane};

/// Facts from the last reads of the stores, and when each was read.
#[derive(Default)]
pub struct Seen {
    pub redis: Check<InRedis>,
    pub postgres: Check<InPostgres>,
}

pub struct Check<T> {
    /// The facts of the last read that succeeded.
    pub facts: Option<T>,
    /// When that read ended, in ms since 1970 and on the monotonic clock.
    at: Option<(i64, Instant)>,
    /// Whether a read has ended, successfully or not.
    pub is_begun: bool,
    has_failed: bool,
}

impl<T> Default for Check<T> {
    fn default() -> Self {
        Self { facts: None, at: None, is_begun: false, has_failed: false }
    }
}

impl<T> Check<T> {
    /// Notes the end of a read at this time.
    pub fn note(&mut self, checked: Result<T, Failure>, now_ms: i64) {
        self.is_begun = true;
        self.has_failed = checked.is_err();
        match checked {
            Ok(facts) => (self.facts, self.at) = (Some(facts), Some((now_ms, Instant::now()))),
            Err(error) => tracing::debug!(%error, "a store of the board can't be read"),
        }
    }

    /// Whether the store answers: its last read succeeded, and isn't long ago.
    pub fn is_fresh(&self) -> bool {
        !self.has_failed && self.at.is_some_and(|(_, at)| at.elapsed() < limits::BOARD_HEARD_MAX)
    }

    fn line(
        &self,
        name: &'static str,
        ping: fn(&T) -> Duration,
        detail: String,
        is_fault: bool,
    ) -> StoreLine {
        let ping_ms = self.facts.as_ref().map(|facts| ping(facts).as_secs_f64() * 1_000.0);
        let at = self.at.map(|(ms, _)| ms);
        StoreLine { name, is_there: self.is_fresh(), at, ping_ms, detail, is_fault }
    }
}

/// One second, summed over all processes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Point {
    /// Time of the point, in ms since 1970.
    pub t_ms: i64,
    /// Claims per second.
    #[serde(flatten)]
    pub claims: Claims<f64>,
    /// Orders written per second.
    pub rows: f64,
    /// Claims that waited to be written; null if unknown.
    pub waiting: Option<u64>,
}

/// The board, as its watchers see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BoardEvent {
    /// Time of the event, in ms since 1970.
    pub now: i64,
    /// The process that made this event: if a store doesn't answer, it didn't answer this process.
    process: String,
    /// The last second.
    point: Point,
    /// Half of the claims of the last 10 s were answered within this time; null without any.
    p50_ms: Option<f64>,
    /// 99 of 100 of these claims were answered within this time; null without any.
    p99_ms: Option<f64>,
    /// 99 of 100 claims of the last 10 s were rows within this time; null without any.
    row_p99_ms: Option<f64>,
    /// Accepted claims that wait to be written; null while the logs can't be read.
    backlog: Option<u64>,
    /// Age of the oldest of them; 0 without any.
    oldest_ms: Option<u64>,
    /// The newest sales that aren't over, and after them the newest others; at most 20.
    sales: Vec<SaleLine>,
    #[serde(flatten)]
    records: Records,
    /// Processes of the installation that were heard in the last 10 minutes.
    processes: Vec<Process>,
    /// State of each lane, and of its log.
    lanes: Vec<LaneLine>,
    /// Redis and Postgres.
    stores: Vec<StoreLine>,
}

/// A sale on the board.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct SaleLine {
    coupon_id: CouponId,
    title: String,
    /// State of the sale: as Redis has it, which decides claims, or as Postgres has it if Redis lacks the sale.
    state: String,
    /// Total of the sale.
    total: i64,
    /// Units left; null if Redis can't tell.
    left: Option<i64>,
    /// Start of the window, in ms since 1970.
    opens_ms: i64,
    /// End of the window, in ms since 1970, exclusive.
    closes_ms: i64,
    /// Revision in Postgres.
    revision: i64,
    /// True if Redis may not have the newest revision yet.
    is_pending: bool,
    /// Whether Redis should have the sale.
    in_redis: bool,
    /// The units of a sale in Redis, counted every few seconds; null without a count.
    units: Option<UnitsLine>,
}

/// Result of the last count of a sale's units.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UnitsLine {
    /// Time of the count, in ms since 1970.
    at: i64,
    #[serde(flatten)]
    units: Units,
    /// Claims in review: open dead letters of the sale.
    in_review: usize,
}

/// A lane, and its log.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct LaneLine {
    lane: i32,
    /// Whether the lane takes claims.
    is_open: bool,
    /// Claims that a worker has read and not yet written; null if the log can't be read.
    pending: Option<u64>,
    /// Claims that no worker has read; null if the log can't be read.
    unread: Option<u64>,
    /// Age of the oldest of all these claims, in ms.
    oldest_ms: Option<u64>,
}

/// Redis or Postgres.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct StoreLine {
    /// `redis` or `postgres`.
    name: &'static str,
    /// Whether the store has answered within the last 5 s.
    is_there: bool,
    /// Time of its last answer, in ms since 1970; null before the first.
    at: Option<i64>,
    /// How long that answer took, in ms.
    ping_ms: Option<f64>,
    /// For Redis, the durability level, and why it isn't kept if it isn't; for Postgres, connections in use.
    detail: String,
    /// Whether the detail describes a fault.
    is_fault: bool,
}

impl BoardEvent {
    pub(super) fn of(now: i64, seen: &Seen, sources: &Sources) -> Self {
        let redis = seen.redis.facts.as_ref();
        let postgres = seen.postgres.facts.as_ref();
        // Old counts would look like current ones.
        let fresh = redis.filter(|_| seen.redis.is_fresh());
        let together = fresh.map(|redis| redis.together.clone()).unwrap_or_default();
        let log = fresh.and_then(|redis| all_logs(&redis.logs));
        let backlog = log.map(|log| log.pending + log.unread);
        let claims = together.claims;
        let point = Point { t_ms: now, claims, rows: together.rows, waiting: backlog };
        Self {
            now,
            process: process_name(),
            point,
            p50_ms: together.p50_ms,
            p99_ms: together.p99_ms,
            row_p99_ms: together.row_p99_ms,
            backlog,
            oldest_ms: log.map(|log| log.oldest_entry_ms),
            sales: postgres.map(|postgres| sales(postgres, fresh)).unwrap_or_default(),
            records: postgres.map(|postgres| postgres.records.clone()).unwrap_or_default(),
            processes: together.processes,
            lanes: lanes(sources, fresh),
            stores: stores(seen, sources),
        }
    }
}

/// The sum over all logs; `None` if one of them can't be read.
fn all_logs(logs: &[(Lane, Option<LogNumbers>)]) -> Option<LogNumbers> {
    logs.iter().try_fold(LogNumbers::default(), |sum, (_, log)| Some(sum.with((*log)?)))
}

fn sales(postgres: &InPostgres, redis: Option<&InRedis>) -> Vec<SaleLine> {
    postgres.sales.iter().filter_map(|coupon| sale(coupon, postgres, redis)).collect()
}

fn sale(coupon: &Coupon, postgres: &InPostgres, redis: Option<&InRedis>) -> Option<SaleLine> {
    let Coupon { id, row, sale } = coupon;
    let stored = sale.as_ref()?;
    let loaded = postgres.loaded.iter().find(|loaded| loaded.coupon == *id);
    let seen = redis.and_then(|redis| redis.sales.get(id));
    let terms = seen.and_then(|seen| seen.terms);
    let mut line = SaleLine {
        coupon_id: *id,
        title: row.title.clone(),
        state: row.state.as_str().to_owned(),
        total: stored.total,
        left: stored.left,
        opens_ms: stored.opens_at.timestamp_millis(),
        closes_ms: stored.closes_at.timestamp_millis(),
        revision: row.revision,
        is_pending: loaded.is_some_and(|loaded| loaded.applied_revision < row.revision),
        in_redis: loaded.is_some(),
        units: seen.and_then(|seen| units(seen, postgres.in_review.get(id).copied())),
    };
    if let Some(terms) = terms {
        line.state = terms.state.as_str().to_owned();
        (line.total, line.left) = (terms.total, terms.stock);
        (line.opens_ms, line.closes_ms) = (terms.opens_ms, terms.closes_ms);
        line.is_pending = terms.revision < row.revision;
    }
    Some(line)
}

fn units(seen: &RedisSaleSeen, in_review: Option<usize>) -> Option<UnitsLine> {
    let (units, at) = seen.units.clone()?;
    Some(UnitsLine { at, units, in_review: in_review.unwrap_or_default() })
}

fn lanes(sources: &Sources, redis: Option<&InRedis>) -> Vec<LaneLine> {
    let lane = |(lane, state): (Lane, LaneState)| {
        let logs = redis.map(|redis| &redis.logs[..]).unwrap_or_default();
        let log = logs.iter().find(|(known, _)| *known == lane).and_then(|(_, log)| *log);
        LaneLine {
            lane: lane.get(),
            is_open: state.is_open,
            pending: log.map(|log| log.pending),
            unread: log.map(|log| log.unread),
            oldest_ms: log.map(|log| log.oldest_entry_ms),
        }
    };
    sources.lanes.all().into_iter().map(lane).collect()
}

fn stores(seen: &Seen, sources: &Sources) -> Vec<StoreLine> {
    let (level, fault) = durability::report(&sources.durability);
    let told = fault.as_ref().map_or_else(|| level.to_string(), |it| format!("{level}: {it}"));
    let pool = &sources.stores.pool;
    let in_use = (pool.size() as usize).saturating_sub(pool.num_idle());
    let used = format!("{in_use} / {}", pool.options().get_max_connections());
    vec![
        seen.redis.line("redis", |facts| facts.ping, told, fault.is_some()),
        seen.postgres.line("postgres", |facts| facts.ping, used, false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_logs_are_added_up_unless_one_cannot_be_read() {
        let numbers =
            |pending, unread, oldest_entry_ms| LogNumbers { pending, unread, oldest_entry_ms };
        let lane = Lane::numbered;
        let (first, second) = (Some(numbers(1, 20, 5)), Some(numbers(3, 40, 9)));
        let sum = all_logs(&[(lane(0), first), (lane(1), second)]).expect("both can be read");
        assert_eq!((sum.pending, sum.unread, sum.oldest_entry_ms), (4, 60, 9));
        assert!(all_logs(&[(lane(0), first), (lane(1), None)]).is_none());
        let none = all_logs(&[]).expect("there is none");
        assert_eq!((none.pending, none.unread, none.oldest_entry_ms), (0, 0, 0));
    }

    #[test]
    fn units_are_those_of_the_last_count_with_the_letters_of_the_sale() {
        let counted = Units { left: Some(2), conserved: Some(false), ..Units::default() };
        let seen = RedisSaleSeen { terms: None, units: Some((counted, 9)) };
        let line = units(&seen, Some(5)).expect("they were counted");
        assert_eq!((line.at, line.units.left, line.in_review), (9, Some(2), 5));
        assert_eq!(units(&seen, None).expect("they were counted").in_review, 0);
        assert!(units(&RedisSaleSeen { terms: None, units: None }, Some(5)).is_none());
    }
}
