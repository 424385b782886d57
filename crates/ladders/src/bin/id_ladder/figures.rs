//! Figures: how fast ids come, and what they cost Postgres as a primary key.

use std::time::Duration;

use chrono::{DateTime, Utc};
use flash_sale::base::clock::Clock;
use ladders::essay::{figure, provenance, table};
use sqlx::PgPool;
use tokio::time::Instant;
use uuid::Uuid;

use crate::facts::Stores;
use crate::generator::{Generator, Kind, v7};

/// Time for making ids of one kind.
const MAKING: Duration = Duration::from_millis(800);
/// Rows of each kind, and of one INSERT.
const ROWS: i64 = 200_000;
const BATCH: i64 = 1_000;
/// Servers that make ids at the same time.
const SERVERS: i64 = 4;
/// Numbers that a server takes at a time.
const BLOCK: i64 = 1_000;

/// How fast one caller gets one id after the other.
pub async fn making(stores: &Stores) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let generator = Generator::new(kind, stores.server(&Clock::System, 0)?);
        let began = Instant::now();
        let mut made = 0_u64;
        while began.elapsed() < MAKING {
            // Snowflake has no id when its millisecond is full; the next millisecond has.
            made += u64::from(generator.next().await.is_ok());
        }
        let rate = made as f64 / began.elapsed().as_secs_f64();
        let each = generator.round_trips() as f64 * 1_000.0 / made.max(1) as f64;
        println!("{}: {rate:.0} ids/s", kind.name());
        rows.push(vec![kind.name().to_owned(), figure(rate), figure(each)]);
    }
    let head = ["kind", "ids/s of one caller", "round trips per 1,000 ids"];
    Ok(format!("{}\n\n{}", provenance(), table(&head, &rows)))
}

/// Order in which ids reach the table.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Ascending,
    Blocks,
    Snowflake,
    UuidV7,
    UuidV4,
}

impl Shape {
    const ALL: [Self; 5] =
        [Self::Ascending, Self::Blocks, Self::Snowflake, Self::UuidV7, Self::UuidV4];

    fn name(self) -> &'static str {
        match self {
            Self::Ascending => "ascending (auto-increment, INCR)",
            Self::Blocks => "blocks or segments of four servers in turns",
            Self::Snowflake => "Snowflake of four servers in turns",
            Self::UuidV7 => "UUIDv7",
            Self::UuidV4 => "UUIDv4",
        }
    }

    fn is_uuid(self) -> bool {
        matches!(self, Self::UuidV7 | Self::UuidV4)
    }

    /// The n-th id that reaches the table, a thousand in each millisecond.
    fn id(self, n: i64) -> String {
        let (server, of_server) = (n % SERVERS, n / SERVERS);
        match self {
            Self::Ascending => n.to_string(),
            Self::Blocks => {
                ((of_server / BLOCK * SERVERS + server) * BLOCK + of_server % BLOCK).to_string()
            }
            Self::Snowflake => (of_server << 22 | server << 12).to_string(),
            Self::UuidV7 => {
                let at = DateTime::<Utc>::from_timestamp_millis(1_780_336_800_000 + n / 1_000);
                v7(at.unwrap_or_default()).to_string()
            }
            Self::UuidV4 => Uuid::new_v4().to_string(),
        }
    }
}

/// Costs of ids as a primary key.
pub async fn storing(pool: &PgPool) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for shape in Shape::ALL {
        let line = store(pool, shape).await?;
        println!("{}: {} rows/s", shape.name(), line[1]);
        lines.push(line);
    }
    let head = [
        "order of the ids",
        "rows/s",
        "index, MB",
        "pages of the index",
        "bytes of the index per row",
        "write-ahead log, bytes per row",
    ];
    Ok(format!(
        "{}\n{} rows, {BATCH} in each INSERT; Postgres syncs each commit.\n\n{}",
        provenance(),
        figure(ROWS as f64),
        table(&head, &lines)
    ))
}

async fn store(pool: &PgPool, shape: Shape) -> anyhow::Result<Vec<String>> {
    let kind = if shape.is_uuid() { "uuid" } else { "bigint" };
    let make = format!(
        "DROP TABLE IF EXISTS ladder.stored; CREATE TABLE ladder.stored (id {kind} CONSTRAINT stored_key PRIMARY KEY); CHECKPOINT"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(make)).execute(pool).await?;
    // All as texts, so that the way to the server costs the same.
    let insert = format!("INSERT INTO ladder.stored SELECT unnest($1::text[])::{kind}");
    let log = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";
    let before: i64 = sqlx::query_scalar(log).fetch_one(pool).await?;
    let began = Instant::now();
    let mut stored = 0;
    while stored < ROWS {
        let first = stored;
        let ids: Vec<String> = (first..first + BATCH).map(|n| shape.id(n)).collect();
        sqlx::query(sqlx::AssertSqlSafe(insert.as_str())).bind(ids).execute(pool).await?;
        stored += BATCH;
    }
    let seconds = began.elapsed().as_secs_f64();
    let after: i64 = sqlx::query_scalar(log).fetch_one(pool).await?;
    let size = "SELECT size, size / current_setting('block_size')::bigint
         FROM pg_relation_size('ladder.stored_key') AS size";
    let (size, pages): (i64, i64) = sqlx::query_as(size).fetch_one(pool).await?;
    let of_rows = |number: i64| number as f64 / stored as f64;
    let numbers = [
        stored as f64 / seconds,
        size as f64 / 1e6,
        pages as f64,
        of_rows(size),
        of_rows(after - before),
    ];
    Ok([shape.name().to_owned()].into_iter().chain(numbers.map(figure)).collect())
}
