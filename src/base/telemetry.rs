//! Telemetry: log lines for people, metrics for machines.

use std::collections::HashMap;
use std::hash::Hasher;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::ValueEnum;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use siphasher::sip128::{Hasher128, SipHasher13};
use tracing_subscriber::EnvFilter;
use uuid::Uuid;

use super::gauges::Gauges;
use super::limits;
use super::plain_text::LogLines;
use super::tally::{Count, Tally};

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Sentences for a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// Sends log lines to standard error. `filter` has the syntax of
/// [`EnvFilter`](https://docs.rs/tracing-subscriber/0.3/tracing_subscriber/filter/struct.EnvFilter.html).
///
/// # Errors
///
/// When `filter` can't be parsed, or another subscriber is installed.
pub fn log_to_stderr(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    // sqlx logs each new connection that we refuse, at every try. The refusal is logged where it is made.
    let filter = EnvFilter::try_new(filter)?.add_directive("sqlx_core::pool::inner=off".parse()?);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LogLines(std::io::stderr()))
        // If standard error has no reader, the subscriber would write its complaint there, and panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!(error))
}

/// Makes request ids. The random part is drawn once per process, because that costs a system call; a counter follows.
#[derive(Debug)]
pub struct RequestIds {
    key: SipHasher13,
    next: AtomicU64,
}

impl RequestIds {
    /// An id that no other request in any process has, and from which no other id can be guessed.
    pub fn next(&self) -> Uuid {
        let mut name = self.key;
        name.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        Uuid::from_u128(name.finish128().as_u128())
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        let key = SipHasher13::new_with_key(Uuid::new_v4().as_bytes());
        Self { key, next: AtomicU64::default() }
    }
}

/// Lets a line through now and then, so that lasting trouble doesn't fill the disk.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Option<Instant>,
}

impl LogThrottle {
    /// Whether a line may be written now: at most one per [`limits::LOG_LINE_PAUSE`].
    pub fn allows(&mut self) -> bool {
        let now = Instant::now();
        let allowed = self.last.is_none_or(|last| now - last >= limits::LOG_LINE_PAUSE);
        if allowed {
            self.last = Some(now);
        }
        allowed
    }
}

/// Why the service closes a connection before its client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionEnd {
    /// There was no traffic for too long.
    Idle,
    /// The client didn't read a reply.
    Unread,
    /// A new connection needed the place, and this one had been idle for longest.
    Room,
}

impl ConnectionEnd {
    const NAMES: [(Self, &'static str); 3] =
        [(Self::Idle, "idle"), (Self::Unread, "unread"), (Self::Room, "room")];
}

/// What became of a claim that a recovery found in neither store, or without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoveryFate {
    /// A process had its unwritten claim, and it became an order.
    Unwritten,
    /// Only Redis had it, and it became an order.
    Harvested,
    /// Its user has a newer order.
    Superseded,
    /// There was no unit for it.
    WithoutUnit,
    /// Postgres takes it neither as an order nor as a dead letter.
    Refused,
    /// Nothing says whose it was.
    Unknown,
}

impl RecoveryFate {
    const NAMES: [(Self, &'static str); 6] = [
        (Self::Unwritten, "unwritten"),
        (Self::Harvested, "harvested"),
        (Self::Superseded, "superseded"),
        (Self::WithoutUnit, "accepted_without_unit"),
        (Self::Refused, "refused"),
        (Self::Unknown, "unknown"),
    ];
}

pub struct RecoveryMetrics {
    /// How often lanes were closed to be compared with Postgres.
    pub lanes_closed: Counter,
    /// Lanes that this process knows to be closed.
    pub lanes_recovering: Gauge,
    /// How long a lane was closed.
    pub lane_closed_seconds: Histogram,
    claims: HashMap<RecoveryFate, Counter>,
}

impl RecoveryMetrics {
    /// Registers with the recorder of the calling thread.
    fn new() -> Self {
        let claims = |(fate, name): (RecoveryFate, &'static str)| {
            (fate, counter!("flash_sale_recovered_claims_total", "outcome" => name))
        };
        Self {
            lanes_closed: counter!("flash_sale_lanes_closed_total"),
            lanes_recovering: gauge!("flash_sale_lanes_recovering"),
            lane_closed_seconds: histogram!(LANE_CLOSED),
            claims: RecoveryFate::NAMES.map(claims).into(),
        }
    }

    pub fn count(&self, fate: RecoveryFate, claims: u64) {
        self.claims[&fate].increment(claims);
    }
}

/// The metrics of one service. Handles are made once, so that counting costs one atomic addition.
///
/// There is no process-wide recorder: two services in one process (as in tests) have separate counts.
pub struct Metrics {
    page: PrometheusHandle,
    /// Gauges that jobs have computed.
    pub gauges: Gauges,
    /// Counts that this process can read back.
    pub tally: Tally,
    /// Makes metrics whose labels become known only while the service runs.
    recorder: Arc<PrometheusRecorder>,
    /// Requests refused for lack of an identity (401) or a right (403).
    unauthenticated: Counter,
    forbidden: Counter,
    /// Requests that failed because of a fault of the service.
    pub requests_failed: Counter,
    /// Time from a claim to its row in `orders`, by the clocks of Redis and the worker.
    pub claim_to_row_seconds: Histogram,
    pub connections: Gauge,
    connections_closed: HashMap<ConnectionEnd, Counter>,
    claims: HashMap<&'static str, (Counter, Count)>,
    /// Failures by job: runs that were aborted, and items that were postponed.
    job_failures: HashMap<&'static str, Counter>,
    /// Requests refused unread because their client had asked too often, by the name of the limit.
    rate_limited: HashMap<&'static str, Counter>,
    /// Accepted claims that wait to be written, in all lanes; read every [`limits::BACKLOG_PERIOD`].
    pub backlog: Gauge,
    /// Queries for orders that requests wait for.
    pub order_checks: Counter,
    /// Rows that the worker has written to `orders`.
    pub orders_written: Counter,
    /// Claims that were read again and already had a row.
    pub orders_repeated: Counter,
    /// Claims left pending because their buyer's lock was held elsewhere.
    pub lock_contended: Counter,
    /// Dead letters that the worker has written.
    pub dead_letters: Counter,
    /// Losses of data that were found in Redis. Any value above 0 needs an operator.
    pub data_lost: Counter,
    pub recovery: RecoveryMetrics,
    /// Unwritten claims that were dropped before their claims were known to be committed.
    pub unwritten_claims_dropped: Counter,
    /// Comparisons of the stores that were aborted because a store didn't answer.
    pub reconcile_failed: Counter,
    /// Reads of an issuer's public keys that failed.
    pub key_set_failures: Counter,
    /// Old orders that the retention job deleted.
    pub orders_deleted: Counter,
}

fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(CLAIM_TO_ROW.into()), &SECONDS_OF_WAITING)?
        .set_buckets_for_metric(Matcher::Full(LANE_CLOSED.into()), &SECONDS_OF_WAITING)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?;
    Ok(builder.build_recorder())
}

impl Metrics {
    /// Registers every metric, so that each is on the page from the start. `claim_outcomes` and `jobs` are the label
    /// values of the counters of claims and of failed jobs.
    ///
    /// # Errors
    ///
    /// Only if the buckets below are wrong.
    pub fn new(
        claim_outcomes: impl Iterator<Item = &'static str>,
        jobs: impl Iterator<Item = &'static str>,
    ) -> Result<Self, BuildError> {
        let recorder = Arc::new(recorder()?);
        let total = |name: &'static str| counter!(format!("flash_sale_{name}_total"));
        let refused = |status: &'static str| counter!("flash_sale_requests_refused_total", "status" => status);
        let closed = |(reason, name): (ConnectionEnd, &'static str)| {
            (reason, counter!("flash_sale_connections_closed_total", "reason" => name))
        };
        let claims = |outcome: &'static str| {
            let counter = counter!("flash_sale_claims_total", "outcome" => outcome);
            (outcome, (counter, Count::default()))
        };
        let rate_limited = |bound: &'static str| {
            (bound, counter!("flash_sale_rate_limited_total", "bound" => bound))
        };
        let job_failures =
            |job: &'static str| (job, counter!("flash_sale_job_failures_total", "name" => job));
        Ok(metrics::with_local_recorder(&*recorder, || Self {
            unauthenticated: refused("401"),
            forbidden: refused("403"),
            claim_to_row_seconds: histogram!(CLAIM_TO_ROW),
            connections: gauge!("flash_sale_connections"),
            connections_closed: ConnectionEnd::NAMES.map(closed).into(),
            claims: claim_outcomes.map(claims).collect(),
            job_failures: jobs.map(job_failures).collect(),
            requests_failed: total("requests_failed"),
            rate_limited: RATE_LIMITS.map(rate_limited).into(),
            backlog: gauge!("flash_sale_backlog_claims"),
            order_checks: total("order_checks"),
            orders_written: total("orders_written"),
            orders_repeated: total("orders_repeated"),
            lock_contended: total("lock_contended"),
            dead_letters: total("dead_letters"),
            data_lost: total("redis_data_lost"),
            recovery: RecoveryMetrics::new(),
            unwritten_claims_dropped: total("unwritten_claims_dropped"),
            reconcile_failed: total("reconcile_failed"),
            key_set_failures: total("key_set_failures"),
            orders_deleted: total("orders_deleted"),
            gauges: Gauges::default(),
            tally: Tally::default(),
            page: recorder.handle(),
            recorder: recorder.clone(),
        }))
    }

    /// Time from the head of a request to the head of its reply, for a route. `class` is the first digit of the status.
    pub fn http_seconds(&self, route: &str, class: usize) -> Histogram {
        metrics::with_local_recorder(&*self.recorder, || {
            histogram!(
                "flash_sale_http_request_duration_seconds",
                "route" => route.to_owned(), "class" => format!("{class}xx")
            )
        })
    }

    /// Counts a 401 or a 403; ignores other statuses.
    pub fn count_refused(&self, status: u16) {
        match status {
            401 => self.unauthenticated.increment(1),
            403 => self.forbidden.increment(1),
            _ => {}
        }
    }

    pub fn count_closed_connection(&self, reason: ConnectionEnd) {
        self.connections_closed[&reason].increment(1);
    }

    /// Counts a request that a limit refused.
    pub fn count_rate_limited(&self, bound: &'static str) {
        if let Some(counter) = self.rate_limited.get(bound) {
            counter.increment(1);
        }
    }

    pub fn count_claim(&self, outcome: &'static str) {
        if let Some((counter, count)) = self.claims.get(outcome) {
            counter.increment(1);
            count.add(1);
        }
    }

    /// Claims by outcome, since the start.
    pub fn claims(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.claims.iter().map(|(outcome, (_, count))| (*outcome, count.get()))
    }

    pub fn count_job_failures(&self, job: &'static str, failures: usize) {
        if let Some(counter) = self.job_failures.get(job) {
            counter.increment(failures as u64);
        }
    }

    /// Folds the samples of histograms into their buckets. Otherwise they pile up until a server reads the page.
    pub fn fold_samples(&self) {
        self.page.run_upkeep();
    }

    /// The page for a Prometheus server.
    pub fn page(&self) -> String {
        self.fold_samples();
        self.page.render() + &self.gauges.page()
    }
}

/// Names of the limits on how often a client may ask.
pub const RATE_LIMITS: [&str; 3] = ["user-claims", "user-requests", "anonymous-requests"];

/// Upper bounds of the buckets of durations: a claim takes less than a millisecond, a wait up to ten seconds.
const SECONDS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0];

const CLAIM_TO_ROW: &str = "flash_sale_claim_to_row_seconds";
const LANE_CLOSED: &str = "flash_sale_lane_closed_seconds";

/// Upper bounds of the buckets of waiting times: some milliseconds, or as long as Postgres is down.
const SECONDS_OF_WAITING: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];
