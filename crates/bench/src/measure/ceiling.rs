//! The ceiling of writing orders: raw COPY of the same rows, into a table like `orders`, on the same Postgres.

use std::fmt::Write;
use std::str::FromStr;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::service::verdict::Judge;
use flash_sale::log::{Entries, LoggedClaim};
use flash_sale::store::ids::CouponId;

/// Time to pay that the rows have: any one will do.
const PAYMENT_WINDOW: Duration = Duration::from_secs(900);
/// Entries that are read from the log at a time.
const PAGE: usize = 10_000;

/// As `orders`, with all its constraints and indexes; foreign keys aren't part of LIKE.
const CREATE: &str = "
    CREATE TABLE bench_ceiling (LIKE orders INCLUDING ALL);
    DO $$
    DECLARE definition text;
    BEGIN
        FOR definition IN SELECT pg_get_constraintdef(oid) FROM pg_constraint
            WHERE conrelid = 'orders'::regclass AND contype = 'f'
        LOOP
            EXECUTE 'ALTER TABLE bench_ceiling ADD ' || definition;
        END LOOP;
    END
    $$";
/// The columns that the worker writes.
const COPY: &str = "COPY bench_ceiling (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by) FROM STDIN";

/// A table beside `orders`, filled as fast as Postgres takes it. It grows from round to round, as `orders` does.
pub struct Ceiling {
    connection: PgConnection,
}

/// Rows as COPY takes them, in batches.
pub struct Batches {
    batches: Vec<String>,
    pub rows: u64,
}

impl Ceiling {
    /// Makes the table.
    pub async fn create(database_url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(database_url)?;
        let mut connection = options.application_name("flash-sale-bench").connect().await?;
        sqlx::raw_sql(CREATE).execute(&mut connection).await?;
        Ok(Self { connection })
    }

    /// Copies the rows, one transaction for each batch. Returns how long that took.
    pub async fn copy(&mut self, batches: &Batches) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut copied = 0;
        for batch in &batches.batches {
            let mut copy = self.connection.copy_in_raw(COPY).await?;
            copy.send(batch.as_bytes()).await?;
            copied += copy.finish().await?;
        }
        let took = began.elapsed();
        anyhow::ensure!(copied == batches.rows, "{copied} of {} rows were copied", batches.rows);
        Ok(took)
    }

    pub async fn drop_table(mut self) -> anyhow::Result<()> {
        sqlx::raw_sql("DROP TABLE bench_ceiling").execute(&mut self.connection).await?;
        Ok(self.connection.close().await?)
    }
}

impl Batches {
    /// The claims on a coupon that stand in the order log, as the rows that they will become.
    pub async fn read(judge: &Judge, coupon: CouponId, batch: usize) -> anyhow::Result<Self> {
        let mut claims: Vec<LoggedClaim> = Vec::new();
        let mut from = "-".to_owned();
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(judge.keys.log(coupon.lane())).arg(&from).arg("+").arg("COUNT").arg(PAGE);
            let Entries(page) = judge.redis.query(&command).await?;
            let Some(last) = page.last() else { break };
            // "(": from behind this one on.
            from = format!("({}", last.id);
            for entry in page {
                anyhow::ensure!(
                    entry.unreadable.is_empty(),
                    "the order log holds an entry that is no claim"
                );
                claims.extend(entry.claims.iter().filter(|claim| claim.coupon_id == coupon));
            }
        }
        let batches = claims.chunks(batch).map(|batch| batch.iter().map(row).collect()).collect();
        Ok(Self { batches, rows: claims.len() as u64 })
    }
}

fn row(claim: &LoggedClaim) -> String {
    let mut row = String::new();
    let LoggedClaim { order_id, coupon_id, user_id, claimed_at, .. } = claim;
    let pay_by = (*claimed_at + PAYMENT_WINDOW).to_rfc3339();
    let claimed_at = claimed_at.to_rfc3339();
    let _ =
        writeln!(row, "{order_id}\t{coupon_id}\tflash\t{user_id}\t{claimed_at}\t1\tCNY\t{pay_by}");
    row
}
