//! Retention: records that have served their time are deleted, each kind after the days of its setting.
//!
//! | record | begins to age | guard |
//! |---|---|---|
//! | payment | when it has gone back or was closed | the mark in `settings` (`sale/payment/past.rs`) |
//! | opened payment | when the gateway is asked about it no more | |
//! | stock return | when it is done | an order is closed once; if Redis goes back by more than these days, a comparison names the buyers |
//! | dead letter | when it is closed | its unit is not on its way back |
//! | restock | when its coupon ends | an ended coupon takes no restock, so a repeat adds nothing |
//! | record of a comparison | when it begins | |
//! | record of a recovery | when the lane was closed | a newer one of the lane has ended |
//!
//! Entries of the book of changes have a pass of their own (`sale/audit.rs`). So have orders, which move into a history with
//! the payments that they have taken ([`history`]).
//!
//! Each process walks the tables for itself, from their beginning after its start, some pages in each run. So a run
//! reads as much whether much or nothing has to go, and rows that stay cost the others time, and nothing else.

// Orders that are over move into the history.
pub mod history;

// Months of the history.
pub mod months;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::config::Config;
use crate::base::limits;
use crate::kit::id;
use crate::kit::postgres::{self, Page};
use crate::sale::coupon::restocks;
use crate::sale::order::past::forget;
use crate::sale::payment::past;
use crate::sale::reconcile::runs;
use crate::sale::recovery::records;

/// Times for which records are kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Payments that have gone back or were closed.
    pub payments: Duration,
    /// Done stock returns, and opened payments that are asked about no more.
    pub returns: Duration,
    /// Closed dead letters.
    pub dead_letters: Duration,
    /// Restocks of coupons that have ended.
    pub restocks: Duration,
    /// Comparisons.
    pub comparisons: Duration,
    /// Recoveries.
    pub recoveries: Duration,
}

impl Kept {
    /// The times of these settings.
    pub fn of(config: &Config) -> Self {
        let days = |days: u32| Duration::from_hours(24 * u64::from(days));
        Self {
            payments: days(config.payments_days),
            returns: days(config.returns_days),
            dead_letters: days(config.dead_letters_days),
            restocks: days(config.restocks_days),
            comparisons: days(config.comparisons_days),
            recoveries: days(config.recoveries_days),
        }
    }
}

/// Numbers of deleted records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Payments.
    pub payments: u64,
    /// Opened payments.
    pub opened_payments: u64,
    /// Stock returns.
    pub stock_returns: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Restocks.
    pub restocks: u64,
    /// Records of comparisons.
    pub comparisons: u64,
    /// Records of recoveries.
    pub recoveries: u64,
}

/// A table that is walked.
#[derive(Clone, Copy)]
enum Table {
    Payments,
    OpenedPayments,
    StockReturns,
    DeadLetters,
    Restocks,
}

/// Deletes old records.
pub struct Retention {
    pool: PgPool,
    kept: Kept,
    /// Key of the last row that was looked at, for each table; 0 before the first one.
    walked: [AtomicI64; 5],
}

impl Retention {
    /// Deletes from this database, after these times.
    pub fn new(pool: PgPool, kept: Kept) -> Self {
        Self { pool, kept, walked: Default::default() }
    }

    /// Looks at some pages of each table, and deletes what is too old. By the clock of Postgres.
    pub async fn pass(&self) -> sqlx::Result<Forgotten> {
        let (pool, kept) = (&self.pool, &self.kept);
        let now = postgres::time(pool).await?;
        let forgotten = Forgotten {
            payments: self.walk(Table::Payments, now).await?,
            opened_payments: self.walk(Table::OpenedPayments, now).await?,
            stock_returns: self.walk(Table::StockReturns, now).await?,
            dead_letters: self.walk(Table::DeadLetters, now).await?,
            restocks: self.walk(Table::Restocks, now).await?,
            comparisons: runs::forget(pool, now - kept.comparisons, limits::RETENTION_BATCH)
                .await?,
            recoveries: records::forget(pool, now - kept.recoveries, limits::RETENTION_BATCH)
                .await?,
        };
        if forgotten != Forgotten::default() {
            tracing::info!(?forgotten, "old records were deleted");
        }
        Ok(forgotten)
    }

    /// Goes on for some pages, and begins again behind the end. Returns the number of deleted rows.
    async fn walk(&self, table: Table, now: DateTime<Utc>) -> sqlx::Result<u64> {
        let walked = &self.walked[table as usize];
        let mut deleted = 0;
        for _ in 0..limits::PASS_BATCHES_MAX {
            let page = self.page(table, walked.load(Ordering::Relaxed), now).await?;
            deleted += page.deleted;
            walked.store(page.last.unwrap_or(0), Ordering::Relaxed);
            if page.last.is_none() {
                break;
            }
        }
        Ok(deleted)
    }

    async fn page(&self, table: Table, behind: i64, now: DateTime<Utc>) -> sqlx::Result<Page> {
        let (pool, limit) = (&self.pool, limits::RETENTION_BATCH);
        let Kept { payments, returns, dead_letters, .. } = self.kept;
        match table {
            Table::Payments => past::forget(pool, behind, now - payments, limit).await,
            Table::OpenedPayments => past::forget_opened(pool, behind, now - returns, limit).await,
            Table::StockReturns => {
                let range = (behind, id::first_at(now - returns));
                forget::stock_returns(pool, range, now - returns, limit).await
            }
            Table::DeadLetters => {
                forget::dead_letters(pool, behind, now - dead_letters, limit).await
            }
            Table::Restocks => {
                restocks::forget(pool, behind, now - self.kept.restocks, limit).await
            }
        }
    }
}
