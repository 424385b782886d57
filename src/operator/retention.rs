//! Retention: what has served its time is deleted.
//!
//! | what | when | guard |
//! |---|---|---|
//! | an order that is over, with its payments, redemption, stock returns and dead letters | `--orders-days` after its last change | its sale is archived and gone from Redis, and nothing of it is under way (`order/moves/old.rs`) |
//! | a closed dead letter of a claim that is no order | as an order | the same |
//! | a done stock return | `--records-days` | an order is closed once; if Redis goes back by more than these days, a comparison names the buyers |
//! | the key of a restock | `--records-days` after its coupon has ended | an ended coupon takes no restock, so a repeat adds nothing |
//! | an entry of the audit log, the record of a comparison | `--records-days` | |
//! | an event, a try to deliver one | `--events-days` after the next one (`events/mod.rs`), after the try | |
//! | the record of a recovery | `--records-days` | its lost claims are settled, and a newer recovery of the lane has ended |
//!
//! Each process goes through the orders by itself, some pages in each run. A page is deleted in one transaction, by one
//! process at a time, so a process that is killed has deleted a page as a whole or not at all. If a gateway later names
//! a payment of a deleted order, the money is held for an administrator (`payment/rows.rs`).
//!
//! A paid order that is never redeemed stays: its buyer may still come.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::config::Config;
use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::coupon::restocks;
use crate::events::{self, webhooks};
use crate::order::moves::old;
use crate::payment::rows;
use crate::recovery::reconcile::runs;
use crate::recovery::records;
use crate::store::audit;
use crate::store::ids::order_id;
use crate::store::job::Ran;
use crate::store::postgres;

/// Deletes old orders and records.
pub struct Retention {
    pool: PgPool,
    metrics: Arc<Metrics>,
    /// Time for which an order is kept after its last change; `None` keeps all orders.
    orders: Option<Duration>,
    /// Time for which records are kept.
    records: Duration,
    /// Time for which events are kept.
    events: Duration,
    /// The last order that this process has looked at; 0 before the first one.
    behind: AtomicI64,
}

impl Retention {
    /// Deletes from this database, by these settings.
    pub fn new(pool: PgPool, metrics: Arc<Metrics>, config: &Config) -> Self {
        let days = |days: u32| Duration::from_hours(24 * u64::from(days));
        Self {
            pool,
            metrics,
            orders: (config.orders_days > 0).then(|| days(config.orders_days)),
            records: days(config.records_days),
            events: days(config.events_days),
            behind: AtomicI64::new(0),
        }
    }

    /// Deletes what is due by the clock of Postgres, a bounded number of batches.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or refuses to delete. The pages before stay deleted, and the next run goes on
    /// after the page that failed.
    pub async fn run_once(&self) -> sqlx::Result<Ran> {
        self.run_at(postgres::time(&self.pool).await?).await
    }

    /// The same, as of this time.
    ///
    /// # Errors
    ///
    /// As for [`run_once`](Self::run_once).
    pub async fn run_at(&self, now: DateTime<Utc>) -> sqlx::Result<Ran> {
        let mut ran = Ran::default();
        if let Some(kept) = self.orders {
            ran = self.orders(now - kept).await?;
            self.rows(|limit| self.letters(now - kept, limit)).await?;
        }
        let records = self.records(now - self.records).await?;
        let before = now - self.events;
        self.rows(|limit| events::forget(&self.pool, before, limit)).await?;
        self.rows(|limit| webhooks::forget(&self.pool, before, limit)).await?;
        if ran.items > 0 || records > 0 {
            tracing::info!(orders = ran.items, records, "old orders and records were deleted");
        }
        Ok(ran)
    }

    /// Goes on through the orders for some pages; after the last order, begins again.
    async fn orders(&self, before: DateTime<Utc>) -> sqlx::Result<Ran> {
        let mut deleted = 0;
        for _ in 0..limits::JOB_BATCHES_MAX {
            let range = (self.behind.load(Ordering::Relaxed), order_id::first_at(before));
            let mut tx = postgres::begin_planning(&self.pool).await?;
            if !old::alone(&mut tx).await? {
                break;
            }
            let page = old::page(&mut tx, range, limits::RETENTION_BATCH).await?;
            let is_full = page.len() >= limits::RETENTION_BATCH as usize;
            // Moves on before the page is deleted: a page that Postgres refuses to delete holds up no other.
            let behind = page.last().copied().filter(|_| is_full);
            self.behind.store(behind.unwrap_or(0), Ordering::Relaxed);
            let orders = old::lock(&mut tx, &page, before).await?;
            if !orders.is_empty() {
                rows::delete_of(&mut tx, &orders).await?;
                old::delete(&mut tx, &orders).await?;
            }
            tx.commit().await?;
            deleted += orders.len();
            self.metrics.orders_deleted.increment(orders.len() as u64);
            if !is_full {
                return Ok(Ran { items: deleted, goes_on: false });
            }
        }
        Ok(Ran { items: deleted, goes_on: deleted > 0 })
    }

    async fn letters(&self, before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        if !old::alone(&mut tx).await? {
            return Ok(0);
        }
        let deleted = old::delete_letters(&mut tx, before, limit).await?;
        tx.commit().await?;
        Ok(deleted)
    }

    /// Returns the number of deleted records.
    async fn records(&self, before: DateTime<Utc>) -> sqlx::Result<u64> {
        let pool = &self.pool;
        let end = order_id::first_at(before);
        let returns = self.rows(|limit| old::delete_returns(pool, end, before, limit)).await?;
        let restocks = self.rows(|limit| restocks::forget(pool, before, limit)).await?;
        let changes = self.rows(|limit| audit::forget(pool, before, limit)).await?;
        let runs = self.rows(|limit| runs::forget(pool, before, limit)).await?;
        let recoveries = self.rows(|limit| records::forget(pool, before, limit)).await?;
        Ok(returns + restocks + changes + runs + recoveries)
    }

    /// Deletes batches while they are full, at most [`limits::JOB_BATCHES_MAX`] of them. Returns the number of rows.
    async fn rows<F>(&self, delete: impl Fn(u32) -> F) -> sqlx::Result<u64>
    where
        F: Future<Output = sqlx::Result<u64>>,
    {
        let mut deleted = 0;
        for _ in 0..limits::JOB_BATCHES_MAX {
            let batch = delete(limits::RETENTION_BATCH).await?;
            deleted += batch;
            if batch < u64::from(limits::RETENTION_BATCH) {
                break;
            }
        }
        Ok(deleted)
    }
}
