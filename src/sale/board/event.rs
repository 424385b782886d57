//! Events for the watchers of the board. Each is the whole state; a fact that isn't known is null, and never a zero.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::figures::{Point, Process};
use super::in_postgres::InPostgres;
use super::in_redis::{InRedis, RedisSaleSeen};
use super::look::Seen;
use super::sources::Sources;
use crate::base::limits;
use crate::sale::coupon::model::Coupon;
use crate::sale::fence::LaneState;
use crate::sale::ids::{CouponId, Lane, RunId};
use crate::sale::log::numbers::LogNumbers;
use crate::sale::operations::{OpenCount, OpenItem};
use crate::sale::reconcile::runs::{Finding, Run};
use crate::sale::recovery::records::Recovery;

/// The board.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BoardEvent {
    /// Time of the event, in ms since 1970.
    pub now: i64,
    /// The last second.
    pub point: Point,
    /// Half of the claims of the last 10 s were answered within this time; null without any.
    p50_ms: Option<f64>,
    /// 99 of 100 of them were.
    p99_ms: Option<f64>,
    /// 99 of 100 claims of the last 10 s were rows within this time; null without any.
    row_p99_ms: Option<f64>,
    /// Accepted claims that wait to be written; null while the logs can't be read.
    backlog: Option<u64>,
    /// Age of the oldest of them; 0 without any.
    oldest_ms: Option<u64>,
    /// The newest sales that aren't over, and behind them the newest others; at most 20.
    sales: Vec<SaleLine>,
    /// What waits for a person, counted by kind; null while Postgres has not been seen.
    waits: Option<Vec<OpenCount>>,
    /// The newest of each kind, at most 20.
    waiting: Vec<OpenItem>,
    /// Comparisons, newest first, at most 30.
    runs: Vec<RunLine>,
    /// Findings of the last comparison that ended well, at most 20.
    findings: Vec<Finding>,
    /// Recoveries of lanes, newest first, at most 5.
    recoveries: Vec<Recovery>,
    /// Processes of the installation that were heard in the last 10 minutes.
    processes: Vec<Process>,
    /// Lanes.
    lanes: Vec<LaneLine>,
    /// Both stores.
    stores: Vec<StoreLine>,
}

/// A sale on the board.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct SaleLine {
    coupon_id: CouponId,
    title: String,
    /// Name of its state: Redis's, which decides claims, while Redis has the sale.
    state: String,
    /// Units on offer.
    total: i64,
    /// Units left; null while Redis can't tell.
    left: Option<i64>,
    /// Start of the window, in ms since 1970.
    opens_ms: i64,
    /// End of the window, in ms since 1970; not part of it.
    closes_ms: i64,
    /// Revision that Postgres has.
    revision: i64,
    /// True if Redis is not known to have the newest revision.
    is_pending: bool,
    /// Whether Redis has to hold the sale.
    in_redis: bool,
    /// The units of a sale in Redis, counted every few seconds.
    units: Option<UnitsLine>,
}

/// Units of a sale, counted.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UnitsLine {
    /// Time of the count, in ms since 1970.
    at: i64,
    /// Units on offer, by Redis.
    total: Option<i64>,
    /// Units left, by Redis, at the same moment.
    left: Option<i64>,
    /// Users who hold a unit, by Redis, at the same moment; null for a sale with too many to be counted.
    buyers: Option<i64>,
    /// Whether total = left + buyers; null if they weren't counted.
    conserved: Option<bool>,
    /// Units sold, by Postgres.
    sold: Option<i64>,
    /// Claims in review: open dead letters of the sale.
    in_review: Option<usize>,
}

/// A comparison on the board.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct RunLine {
    run_id: RunId,
    started_at: DateTime<Utc>,
    /// Null while it runs, and for ever if its process died.
    finished_at: Option<DateTime<Utc>>,
    /// Failure of a store that ended it.
    failure: Option<String>,
    /// Sales that were compared.
    sales: Option<i64>,
    /// Orders on their way to Postgres.
    in_flight: Option<i64>,
    /// Number of disagreements; 0 is the only good number.
    disagreements: Option<i64>,
}

/// A lane.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct LaneLine {
    lane: i32,
    /// Whether claims are taken.
    is_open: bool,
    /// Claims in the hands of a worker; null while its log can't be read.
    pending: Option<u64>,
    /// Claims that no worker has read.
    unread: Option<u64>,
    /// Age of the oldest of both.
    oldest_ms: Option<u64>,
}

/// A store.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct StoreLine {
    /// `redis` or `postgres`.
    name: &'static str,
    /// Whether it has answered within the last 5 s.
    is_there: bool,
    /// Time of its last answer, in ms since 1970; null before the first.
    at: Option<i64>,
    /// Time of that answer.
    ping_ms: Option<f64>,
    /// The level at which claims are confirmed, and why it isn't kept now, if so; or connections in use.
    detail: String,
    /// Whether the detail is a fault.
    is_fault: bool,
}

impl BoardEvent {
    /// The board, as it was last seen.
    pub(super) fn of(now: i64, seen: &Seen, sources: &Sources) -> Self {
        let redis = seen.redis.facts.as_ref();
        let postgres = seen.postgres.facts.as_ref();
        // Counts that are no longer told would look like present ones.
        let fresh = redis.filter(|_| seen.redis.is_fresh());
        let together = fresh.map(|redis| redis.together.clone()).unwrap_or_default();
        let log = fresh.and_then(|redis| all_logs(&redis.logs));
        let backlog = log.map(|log| log.pending + log.unread);
        let claims = together.claims;
        let point = Point { t_ms: now, claims, rows: together.rows, waiting: backlog };
        let runs = postgres.map(|postgres| &postgres.runs[..]).unwrap_or_default();
        let compared = runs.iter().find(|run| run.disagreements.is_some());
        Self {
            now,
            point,
            p50_ms: together.p50_ms,
            p99_ms: together.p99_ms,
            row_p99_ms: together.row_p99_ms,
            backlog,
            oldest_ms: log.map(|log| log.oldest_entry_ms),
            sales: postgres.map(|postgres| sales(postgres, fresh)).unwrap_or_default(),
            waits: postgres.map(|postgres| postgres.waits.clone()),
            waiting: postgres.map(|postgres| postgres.waiting.clone()).unwrap_or_default(),
            runs: runs.iter().map(RunLine::from).collect(),
            findings: compared.map(newest_findings).unwrap_or_default(),
            recoveries: postgres.map(|postgres| postgres.recoveries.clone()).unwrap_or_default(),
            processes: together.processes,
            lanes: lanes(sources, fresh),
            stores: vec![store_of_redis(seen, sources), store_of_postgres(seen, sources)],
        }
    }
}

fn newest_findings(run: &Run) -> Vec<Finding> {
    run.findings.iter().take(limits::BOARD_ITEMS_MAX as usize).cloned().collect()
}

/// All logs together; `None` if one of them can't be read.
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
        line.state = terms.state.to_owned();
        (line.total, line.left) = (terms.total, terms.left);
        (line.opens_ms, line.closes_ms) = (terms.opens_ms, terms.closes_ms);
        line.is_pending = terms.revision < row.revision;
    }
    Some(line)
}

fn units(seen: &RedisSaleSeen, in_review: Option<usize>) -> Option<UnitsLine> {
    let (units, at) = seen.units.as_ref()?;
    Some(UnitsLine {
        at: *at,
        total: units.total,
        left: units.left,
        buyers: units.buyers,
        conserved: units.conserved,
        sold: units.sold,
        in_review: Some(in_review.unwrap_or_default()),
    })
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

fn store_of_redis(seen: &Seen, sources: &Sources) -> StoreLine {
    let (level, fault) = sources.durability.report();
    StoreLine {
        name: "redis",
        is_there: seen.redis.is_fresh(),
        at: seen.redis.at_ms(),
        ping_ms: seen.redis.facts.as_ref().map(|facts| facts.ping.as_secs_f64() * 1_000.0),
        is_fault: fault.is_some(),
        detail: fault.map_or_else(|| level.to_string(), |fault| format!("{level}: {fault}")),
    }
}

fn store_of_postgres(seen: &Seen, sources: &Sources) -> StoreLine {
    let pool = &sources.stores.pool;
    let in_use = pool.size() as usize - pool.num_idle().min(pool.size() as usize);
    StoreLine {
        name: "postgres",
        is_there: seen.postgres.is_fresh(),
        at: seen.postgres.at_ms(),
        ping_ms: seen.postgres.facts.as_ref().map(|facts| facts.ping.as_secs_f64() * 1_000.0),
        is_fault: false,
        detail: format!("{in_use} / {}", pool.options().get_max_connections()),
    }
}

impl From<&Run> for RunLine {
    fn from(run: &Run) -> Self {
        Self {
            run_id: run.run_id,
            started_at: run.started_at,
            finished_at: run.finished_at,
            failure: run.failure.clone(),
            sales: run.sales,
            in_flight: run.in_flight,
            disagreements: run.disagreements,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::reconcile::gauges::Units;

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
        let counted = Units {
            total: Some(1),
            left: Some(2),
            buyers: Some(3),
            conserved: Some(false),
            sold: Some(4),
        };
        let seen = RedisSaleSeen { terms: None, units: Some((counted, 9)) };
        let line = units(&seen, Some(5)).expect("they were counted");
        assert_eq!((line.at, line.total, line.left, line.buyers), (9, Some(1), Some(2), Some(3)));
        assert_eq!((line.conserved, line.sold, line.in_review), (Some(false), Some(4), Some(5)));
        assert_eq!(units(&seen, None).expect("they were counted").in_review, Some(0));
        assert!(units(&RedisSaleSeen { terms: None, units: None }, Some(5)).is_none());
    }
}
