//! May the figures be believed? What was answered is compared with what the stores hold.

use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::figures::Void;
use crate::load::scenario::Book;
use flash_sale::coupon::buyers::count::count_sale;
use flash_sale::log::LogState;
use flash_sale::store::ids::{CouponId, Lane};
use flash_sale::store::installation;
use flash_sale::store::keys::Keys;
use flash_sale::store::redis::Redis;

/// Time in which Redis has to answer, also beside a load that takes all there is.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for the worker to write all accepted claims.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(300);
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// Pause between two counts of rows, which cost more.
const ROWS_POLL: Duration = Duration::from_millis(20);
/// Findings that are spelled out; `flash-sale reconcile` prints them all.
const FINDINGS_MAX: usize = 20;
/// Start of a line with a disagreement, as `flash-sale reconcile` prints it.
const DISAGREE: &str = "DISAGREE ";

/// Looks into the stores of a service, from outside.
#[derive(Clone)]
pub struct Judge {
    pub pool: PgPool,
    pub redis: Redis,
    pub keys: Keys,
    /// The process of our only connection to Postgres.
    pub backend: u32,
    appended_before: u64,
    /// The measured binary compares the stores: only the same version knows what stands in them.
    reconcile: Vec<OsString>,
}

/// The law of conservation over a whole run: what was answered 202 = stock sold = orders ever accepted = rows =
/// distinct buyers <= units on offer, and Redis and Postgres agree about everything they hold.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    pub accepted: u64,
    /// Claims without a known outcome; each may have taken a unit or not.
    pub unknown: u64,
    pub stock_sold: i64,
    pub appended: u64,
    pub rows: i64,
    pub distinct_buyers: i64,
    pub total: i64,
    /// Violations. A single one makes the run void.
    pub findings: Vec<String>,
}

impl Judge {
    /// Connects to the stores of a service.
    pub async fn connect(
        binary: &Path,
        redis_url: &str,
        database_url: &str,
    ) -> anyhow::Result<Self> {
        let redis = Redis::with_timeout(redis_url, PATIENCE)?;
        let options = PgConnectOptions::from_str(database_url)?;
        let urls = ["reconcile", "--redis-url", redis_url, "--database-url", database_url];
        // One connection, so that its process is known and its CPU time isn't counted; and no time limit, because
        // reading every order of a long run takes a while.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(
                options
                    .application_name("flash-sale-bench")
                    // Further processes would be taken for the service's.
                    .options([("max_parallel_workers_per_gather", "0")]),
            )
            .await
            .context("Postgres can't be used")?;
        let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await?;
        let mut judge = Self {
            pool,
            redis,
            keys: Keys::new("fs"),
            backend: backend.unsigned_abs(),
            appended_before: 0,
            reconcile: [vec![binary.into()], urls.map(OsString::from).to_vec()].concat(),
        };
        judge.appended_before = judge.log().await?.1;
        Ok(judge)
    }

    /// Orders that wait to be written.
    pub async fn in_flight(&self) -> anyhow::Result<u64> {
        Ok(self.log().await?.0)
    }

    /// All lanes of the service.
    pub async fn lanes(&self) -> sqlx::Result<impl Iterator<Item = Lane> + use<>> {
        Ok(Lane::all(installation::read(&self.pool).await?.lanes))
    }

    /// Orders in flight, and orders ever accepted.
    async fn log(&self) -> anyhow::Result<(u64, u64)> {
        let mut in_flight = 0;
        let mut appended = 0;
        for lane in self.lanes().await? {
            let log = LogState::of(&self.redis, &self.keys, lane).await?;
            in_flight += log.unwritten;
            appended += log.unwritten + log.written;
        }
        Ok((in_flight, appended))
    }

    /// Waits until everything accepted has been written. Returns how long that took.
    pub async fn drain(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        loop {
            match self.log().await?.0 {
                0 => return Ok(began.elapsed()),
                left if began.elapsed() > DRAIN_WITHIN => {
                    let seconds = DRAIN_WITHIN.as_secs();
                    let late =
                        format!("{left} accepted claims were not written within {seconds} s");
                    return Err(Void(late).into());
                }
                _ => tokio::time::sleep(DRAIN_POLL).await,
            }
        }
    }

    /// Waits until the sale has as many rows, by the word of Postgres alone: an older service may log its orders in
    /// another format.
    pub async fn until_rows(&self, coupon: CouponId, accepted: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let rows = self.count(coupon).await?;
            if rows.unsigned_abs() >= accepted {
                return Ok(());
            }
            if began.elapsed() > DRAIN_WITHIN {
                let seconds = DRAIN_WITHIN.as_secs();
                let late =
                    format!("{rows} of {accepted} accepted claims were rows after {seconds} s");
                return Err(Void(late).into());
            }
            tokio::time::sleep(ROWS_POLL).await;
        }
    }

    /// Judges all that was sold. Nothing may be in flight.
    pub async fn judge(&self, books: &[Book]) -> anyhow::Result<Verdict> {
        let disagreements = self.disagreements().await?;
        let mut verdict = Verdict::default();
        for book in books {
            let mut sold = Sold::default();
            if let Some(coupon) = book.coupon {
                (sold.rows, sold.buyers) = self.rows(coupon).await?;
                let sale = count_sale(&self.redis, &self.keys, coupon).await?;
                sold.stock = sale.total.unwrap_or(0) - sale.stock.unwrap_or(0);
            }
            verdict.findings.extend(sold.compare(book));
            verdict.add(book, &sold);
        }
        verdict.appended = self.log().await?.1 - self.appended_before;
        if i64::try_from(verdict.appended) != Ok(verdict.stock_sold) {
            verdict.findings.push(format!(
                "{} orders were accepted into the order log, but {} units were sold; or another client uses this service",
                verdict.appended, verdict.stock_sold
            ));
        }
        verdict.findings.extend(disagreements.into_iter().take(FINDINGS_MAX));
        Ok(verdict)
    }

    /// Number of orders.
    pub async fn count(&self, coupon: CouponId) -> sqlx::Result<i64> {
        let sql = "SELECT count(*) FROM orders WHERE coupon_id = $1";
        sqlx::query_scalar(sql).bind(coupon.get()).fetch_one(&self.pool).await
    }

    /// Numbers of orders and of their users.
    async fn rows(&self, coupon: CouponId) -> sqlx::Result<(i64, i64)> {
        let sql = "SELECT count(*), count(DISTINCT user_id) FROM orders WHERE coupon_id = $1";
        sqlx::query_as(sql).bind(coupon.get()).fetch_one(&self.pool).await
    }

    /// The disagreements between the stores, in words.
    async fn disagreements(&self) -> anyhow::Result<Vec<String>> {
        let mut command = tokio::process::Command::new(&self.reconcile[0]);
        command.args(&self.reconcile[1..]);
        let output = command.output().await.context("the stores can't be compared")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found: Vec<String> =
            text.lines().filter_map(|l| l.strip_prefix(DISAGREE)).map(str::to_owned).collect();
        if !output.status.success() && found.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("the stores can't be compared: {}", said.trim());
        }
        Ok(found)
    }
}

/// Figures of one slice in the stores.
#[derive(Default)]
struct Sold {
    stock: i64,
    rows: i64,
    buyers: i64,
}

impl Sold {
    fn compare(&self, book: &Book) -> Option<String> {
        let Self { stock, rows, buyers } = self;
        let least = i64::try_from(book.accepted).unwrap_or(i64::MAX);
        let most = i64::try_from(book.accepted + book.unknown).unwrap_or(i64::MAX);
        let agrees = stock == rows && rows == buyers && *rows <= book.total;
        if agrees && (least..=most).contains(rows) {
            return None;
        }
        Some(format!(
            "{}: {} claims were answered 202 and {} are unknown, but {stock} units are gone, {rows} orders are written for {buyers} buyers, of {} units",
            book.scenario, book.accepted, book.unknown, book.total
        ))
    }
}

impl Verdict {
    fn add(&mut self, book: &Book, sold: &Sold) {
        self.accepted += book.accepted;
        self.unknown += book.unknown;
        self.total += book.total;
        self.stock_sold += sold.stock;
        self.rows += sold.rows;
        self.distinct_buyers += sold.buyers;
    }

    /// An error if the run is void.
    pub fn believe(&self) -> anyhow::Result<()> {
        match self.findings.first() {
            Some(finding) => Err(Void(finding.clone()).into()),
            None => Ok(()),
        }
    }

    /// In one line.
    pub fn sentence(&self) -> String {
        let Self { accepted, stock_sold, appended, rows, distinct_buyers, total, .. } = self;
        format!(
            "{accepted} answered 202, {stock_sold} units sold, {appended} orders accepted, {rows} rows, {distinct_buyers} distinct buyers, of {total} units: {}",
            if self.findings.is_empty() { "consistent" } else { "NOT CONSISTENT" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_too_many_or_an_order_too_few_is_found() {
        let book = Book { accepted: 10, unknown: 2, total: 20, ..Book::default() };
        let sold = |stock, rows, buyers| Sold { stock, rows, buyers }.compare(&book);
        assert_eq!(sold(10, 10, 10), None);
        assert_eq!(sold(12, 12, 12), None, "what is unknown may have happened");
        for (stock, rows, buyers) in [(9, 9, 9), (13, 13, 13), (11, 10, 10), (10, 10, 9)] {
            assert!(sold(stock, rows, buyers).is_some(), "{stock} {rows} {buyers}");
        }
        let oversold = Book { total: 5, ..book.clone() };
        assert!(Sold { stock: 10, rows: 10, buyers: 10 }.compare(&oversold).is_some());
    }
}
