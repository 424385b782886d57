//! A large table beside an empty one: bytes for an order, reads by key, and inserts, also with changes of an index or a
//! setting.

use std::time::Instant;

use serde::Serialize;

use super::claims::{order, user};
use super::shapes::AS_IT_IS;
use super::table::{COUPON, Cost, Table};
use super::ways::run;
use crate::arguments::rows::Way;
use crate::figures::Spread;
use crate::service::target::Target;

/// Orders that are written by one statement.
const PART: u64 = 1_000_000;
/// Orders of each sale among those that are there before.
const ORDERS_OF_A_SALE: u64 = 1_000_000;
/// Reads of a kind.
const READS: u64 = 20_000;
/// Rows in a batch.
const BATCH: usize = 1_000;

/// A change of the large table, or of the session that writes it.
struct Phase {
    name: &'static str,
    statements: &'static str,
    way: Way,
}

/// One after the other on the same table, each in turns with an empty table.
const PHASES: [Phase; 5] = [
    Phase { name: "as it is", statements: "", way: Way::UnnestInList },
    Phase { name: "batches sorted by user", statements: "", way: Way::ByUser },
    Phase {
        name: "wal_compression = lz4 (without lz4: on)",
        statements: "SELECT set_config('wal_compression',
                         CASE WHEN 'lz4' = ANY(enumvals) THEN 'lz4' ELSE 'on' END, false)
                     FROM pg_settings WHERE name = 'wal_compression'",
        way: Way::UnnestInList,
    },
    Phase {
        name: "by user within 262,144 order ids, in place of orders_of_user",
        statements:
            "RESET wal_compression; DROP INDEX orders_of_user; SET maintenance_work_mem = '512MB';
                     CREATE INDEX orders_of_user_by_time ON orders ((id >> 18), user_id, id)",
        way: Way::UnnestInList,
    },
    Phase {
        name: "without orders_of_user",
        statements: "DROP INDEX orders_of_user_by_time",
        way: Way::UnnestInList,
    },
];

/// A large table beside an empty one.
#[derive(Debug, Serialize)]
pub struct Large {
    pub phases: Vec<Inserts>,
    pub sizes: [Size; 2],
}

/// Inserts into both tables, in turns.
#[derive(Debug, Serialize)]
pub struct Inserts {
    pub name: &'static str,
    pub empty: Vec<Cost>,
    pub large: Vec<Cost>,
}

/// Reads of a table, and its size.
#[derive(Debug, Serialize)]
pub struct Size {
    pub orders: u64,
    pub by_id: Reads,
    pub live: Reads,
    /// Bytes for an order: the table first, then each index.
    pub bytes: Vec<(String, f64)>,
}

/// Reads by a key, each of another row.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Reads {
    pub p50_us: f64,
    pub p99_us: f64,
    /// CPU time of Postgres for a read, in microseconds.
    pub cpu_us: f64,
}

/// Measures an empty table and one of so many orders.
pub async fn measure(
    target: &Target,
    orders: u64,
    rows: u64,
    rounds: u32,
    say: impl Fn(String),
) -> anyhow::Result<Large> {
    let mut empty = Table::create(target, "empty", AS_IT_IS).await?;
    let mut large = Table::create(target, "large", AS_IT_IS).await?;
    load(&mut large, orders, &say).await?;
    empty.write(Way::UnnestInList, READS, BATCH).await?;
    say("reads".to_owned());
    let sizes = [size(&mut empty).await?, size(&mut large).await?];
    let mut phases = Vec::new();
    for phase in PHASES {
        say(format!("inserts: {}", phase.name));
        run(&mut large.connection, phase.statements).await?;
        let mut inserts = Inserts { name: phase.name, empty: Vec::new(), large: Vec::new() };
        for round in 0..rounds {
            let turns = if round % 2 == 0 { [false, true] } else { [true, false] };
            for is_large in turns {
                if is_large {
                    inserts.large.push(large.write(phase.way, rows, BATCH).await?);
                } else {
                    empty.empty().await?;
                    inserts.empty.push(empty.write(phase.way, rows, BATCH).await?);
                }
            }
        }
        phases.push(inserts);
    }
    empty.remove(target).await?;
    large.remove(target).await?;
    Ok(Large { phases, sizes })
}

/// Fills the table, a part at a time; users are those of [`user`], in the same order.
async fn load(table: &mut Table, orders: u64, say: &impl Fn(String)) -> anyhow::Result<()> {
    // Faster than one by one, and as dense as a table can be.
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "SELECT indexname::text, indexdef FROM pg_indexes
         WHERE tablename = 'orders' AND indexname != 'orders_pkey'",
    )
    .fetch_all(&mut table.connection)
    .await?;
    for (name, _) in &indexes {
        run(&mut table.connection, &format!("DROP INDEX {name}")).await?;
    }
    run(&mut table.connection, "ALTER TABLE orders SET (autovacuum_enabled = off)").await?;
    while table.next < orders {
        let first = table.next;
        let part = PART.min(orders - first);
        say(format!("{first} of {orders} orders are there"));
        let numbers: Vec<u64> = (first..first + part).collect();
        for numbers in numbers.chunks(100_000) {
            let ids: Vec<i64> = numbers.iter().map(|number| order(*number)).collect();
            let users: Vec<i64> = numbers.iter().map(|number| user(*number)).collect();
            let sale = |number: &u64| COUPON + 1_024 * (1 + (number / ORDERS_OF_A_SALE) as i64);
            let coupons: Vec<i64> = numbers.iter().map(sale).collect();
            sqlx::query(
                "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, paid_at, pay_method)
                 SELECT id, coupon_id, 'flash', user_id, now(), 'paid', now(), 'balance'
                 FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[]) AS claim (id, coupon_id, user_id)",
            )
            .bind(ids)
            .bind(coupons)
            .bind(users)
            .execute(&mut table.connection)
            .await?;
        }
        table.next += part;
    }
    run(&mut table.connection, "SET maintenance_work_mem = '512MB'").await?;
    for (name, definition) in &indexes {
        say(format!("{name} is made"));
        run(&mut table.connection, definition).await?;
    }
    run(&mut table.connection, "RESET maintenance_work_mem").await?;
    run(&mut table.connection, "VACUUM ANALYZE orders").await?;
    Ok(run(&mut table.connection, "ALTER TABLE orders RESET (autovacuum_enabled)").await?)
}

async fn size(table: &mut Table) -> anyhow::Result<Size> {
    run(&mut table.connection, "VACUUM ANALYZE orders").await?;
    let by_id =
        reads(table, "SELECT count(user_id) FROM orders WHERE id = $1 AND user_id = $2").await?;
    let live = "SELECT count(id) FROM orders
                WHERE coupon_id = $1 AND user_id = $2
                  AND (kind = 'regular' AND status = 'unpaid' OR kind = 'flash' AND is_live(status))";
    let live = reads(table, live).await?;
    Ok(Size { orders: table.next, by_id, live, bytes: bytes(table).await? })
}

/// Reads rows in no order by a query of two keys, of which the second is the user.
async fn reads(table: &mut Table, sql: &'static str) -> anyhow::Result<Reads> {
    let last = table.next;
    let by_id = sql.contains("WHERE id");
    let keys = "SELECT id, coupon_id, user_id FROM orders WHERE id = ANY($1)";
    let numbers = (0..READS).map(|read| user(read) as u64 % last);
    let ids: Vec<i64> = numbers.map(order).collect();
    let mut keys: Vec<(i64, i64, i64)> =
        sqlx::query_as(keys).bind(ids).fetch_all(&mut table.connection).await?;
    keys.sort_by_key(|(_, _, user)| *user);
    let mut latencies = Vec::new();
    let cost = table
        .measure(keys.len() as u64, async |table| {
            for (id, coupon, user) in &keys {
                let key = if by_id { id } else { coupon };
                let began = Instant::now();
                let query = sqlx::query_scalar::<_, i64>(sql).bind(key).bind(user);
                let found = query.fetch_one(&mut table.connection).await?;
                latencies.push(began.elapsed().as_secs_f64() * 1e6);
                anyhow::ensure!(found == 1, "{found} rows were found");
            }
            Ok(())
        })
        .await?;
    let p50_us = Spread::of(latencies.iter().copied()).map_or(0.0, |spread| spread.median);
    latencies.sort_by(f64::total_cmp);
    let p99_us = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    Ok(Reads { p50_us, p99_us, cpu_us: cost.cpu_us })
}

async fn bytes(table: &mut Table) -> anyhow::Result<Vec<(String, f64)>> {
    let sizes = "SELECT relname::text, pg_relation_size(oid)::double precision / (SELECT count(*) FROM orders)
                 FROM pg_class WHERE oid = 'orders'::regclass
                    OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'orders'::regclass)
                 ORDER BY relkind DESC, relname";
    Ok(sqlx::query_as(sizes).fetch_all(&mut table.connection).await?)
}
