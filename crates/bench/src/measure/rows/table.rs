//! One shape of the table in a database of its own, and its costs.

use std::str::FromStr;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::claims::Claims;
use super::shapes::Shape;
use super::ways::run;
use crate::arguments::rows::Way;
use crate::service::cpu::Processes;
use crate::service::target::Target;

/// The one sale.
pub const COUPON: i64 = 1_024;

/// Its table, with one connection.
pub struct Table {
    pub connection: PgConnection,
    processes: Processes,
    name: String,
    /// Number of the next claim.
    pub next: u64,
}

/// Cost of some rows, or of other work on the table.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    pub rows: u64,
    /// CPU time of Postgres for a row, in microseconds.
    pub cpu_us: f64,
    /// Bytes of Postgres's log for a row.
    pub log_bytes: f64,
    /// Rows a second, the wait for the disk included.
    pub rows_per_second: f64,
}

impl Table {
    /// Makes a database with this name and shape, and one sale in it.
    pub async fn create(target: &Target, name: &str, shape: Shape) -> anyhow::Result<Self> {
        let servers = target.servers.as_ref().context("the servers are private")?;
        let options = PgConnectOptions::from_str(servers.database_url())?;
        let mut first = options.clone().connect().await?;
        run(&mut first, &format!("CREATE DATABASE {name}")).await?;
        first.close().await?;
        let options = options.database(name).application_name("flash-sale-bench");
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        flash_sale::sale::schema::migrate(&pool).await?;
        pool.close().await;
        let mut connection = options.connect().await?;
        run(&mut connection, shape.statements).await?;
        let sale = format!(
            "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
                 VALUES ({COUPON}, 'flash', '', '', '', 1, 1);
             INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total)
                 VALUES ({COUPON}, now(), now() + interval '1 day', 1000000000)"
        );
        run(&mut connection, &sale).await?;
        let processes = target.processes.clone();
        Ok(Self { connection, processes, name: name.to_owned(), next: 0 })
    }

    /// Removes all rows.
    pub async fn empty(&mut self) -> anyhow::Result<()> {
        Ok(run(&mut self.connection, "TRUNCATE orders CASCADE").await?)
    }

    /// Writes so many rows in batches, as the worker does, behind a checkpoint.
    pub async fn write(&mut self, way: Way, rows: u64, batch: usize) -> anyhow::Result<Cost> {
        way.prepare(&mut self.connection).await?;
        self.measure(rows, async |table| {
            let last = table.next + rows;
            while table.next < last {
                let claims = batch.min(usize::try_from(last - table.next)?);
                table.write_batch(way, &Claims::numbered(table.next, claims, COUPON)).await?;
            }
            Ok(())
        })
        .await
    }

    async fn write_batch(&mut self, way: Way, claims: &Claims) -> anyhow::Result<()> {
        let mut tx = self.connection.begin().await?;
        let written = way.write(&mut tx, claims).await?;
        anyhow::ensure!(written == claims.len() as u64, "{written} rows were written");
        sqlx::query(
            "UPDATE flash_sales SET sold = sold + $2, updated_at = now()
             WHERE coupon_id = $1 AND sold + $2 <= total",
        )
        .bind(COUPON)
        .bind(i64::try_from(claims.len())?)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        self.next += claims.len() as u64;
        Ok(())
    }

    /// The cost of work on so many rows, behind a checkpoint.
    pub async fn measure(
        &mut self,
        rows: u64,
        work: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Cost> {
        run(&mut self.connection, "CHECKPOINT").await?;
        let log_before = self.log().await?;
        let before = self.used_us()?;
        let began = Instant::now();
        work(self).await?;
        let seconds = began.elapsed().as_secs_f64();
        let used_us = self.used_us()? - before;
        let log_bytes = self.log().await? - log_before;
        let share = |all: f64| all / rows as f64;
        Ok(Cost {
            rows,
            cpu_us: share(used_us),
            log_bytes: share(log_bytes),
            rows_per_second: rows as f64 / seconds,
        })
    }

    /// Drops the database.
    pub async fn remove(self, target: &Target) -> anyhow::Result<()> {
        self.connection.close().await?;
        let servers = target.servers.as_ref().context("the servers are private")?;
        let mut first = PgConnectOptions::from_str(servers.database_url())?.connect().await?;
        run(&mut first, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await?;
        Ok(first.close().await?)
    }

    fn used_us(&self) -> anyhow::Result<f64> {
        self.processes.read().postgres.context("only Linux tells the CPU time of a process")
    }

    /// End of Postgres's log, in bytes.
    async fn log(&mut self) -> anyhow::Result<f64> {
        let end = "SELECT (pg_current_wal_insert_lsn() - '0/0')::double precision";
        Ok(sqlx::query_scalar(end).fetch_one(&mut self.connection).await?)
    }
}
