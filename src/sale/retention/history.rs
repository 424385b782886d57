//! Orders that are over move into the history, with their payments, redemptions and stock returns.
//!
//! # Model
//!
//! An order is over when it is redeemed, cancelled, expired or refunded, its sale has been archived and has left Redis (a
//! regular coupon has none), and nothing of it is under way: no unit, no money, no open dead letter. `--orders-days` after
//! its last change it moves. A batch moves in one transaction, which locks the orders, raises the retention mark to the
//! newest of them, and counts them (`sale/order/history/`). Each process walks the orders for itself, in the order of
//! their ids, some pages in each run.
//!
//! A month of the history whose end is `--history-months` ago is dropped, and with it its payments. The counts stay, so a
//! comparison of the stores knows how many orders there have been.
//!
//! # What each failure does
//!
//! * Killed at any point: a batch has moved as a whole, or not at all.
//! * Two processes at once: each skips the orders that the other has locked, or finds them gone.
//! * Postgres refuses a row: its batch is halved until the culprit stands alone, which is postponed; the others move.
//! * A month can't be made or dropped now, because a reader holds its table: the next run tries again.
//! * The log brings the entry of an order again that has moved: see `sale/order/history/mod.rs`.
//! * A gateway names a payment of an order that has moved: the order comes back, and moves again `--orders-days` later. If
//!   its month has been dropped, the payment is unknown, and is held for an administrator (`sale/payment/past.rs`).
//!
//! # What is not promised
//!
//! A paid order that is never redeemed stays: its buyer may still come. An order that is claimed long before it is over is
//! kept for a shorter time, because its month is that of the claim.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::months::{self, Month};
use crate::base::config::Config;
use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::kit::{id, postgres};
use crate::sale::order::history::moved;
use crate::sale::pass::Pass;
use crate::sale::payment::past;
use crate::sale::postponed::Postponed;
use crate::sale::{Failure, installation};

/// Moves orders into the history, and drops old months.
pub struct History {
    pool: PgPool,
    postponed: Postponed,
    metrics: Arc<Metrics>,
    /// Time from the last change of an order to its move; none to leave all orders where they are.
    after: Option<Duration>,
    /// Months of the history that are kept behind the present one; 0 for all.
    months: u32,
    walk: Mutex<Walk>,
}

/// The way of this process through the orders.
struct Walk {
    /// The last order that was looked at; 0 before the first one.
    behind: i64,
    /// Time at which this round began.
    began: Instant,
    /// Time at which the last round began that has ended.
    ended_began: Instant,
    /// The months that are there, as the last run saw them.
    months: BTreeSet<Month>,
}

impl History {
    /// Moves in this database, by these settings.
    pub fn new(pool: PgPool, postponed: Postponed, metrics: Arc<Metrics>, config: &Config) -> Self {
        let days = u64::from(config.orders_days);
        let now = Instant::now();
        Self {
            pool,
            postponed,
            metrics,
            after: (days > 0).then(|| Duration::from_hours(24 * days)),
            months: config.history_months,
            walk: Mutex::new(Walk {
                behind: 0,
                began: now,
                ended_began: now,
                months: BTreeSet::new(),
            }),
        }
    }

    /// Moves due orders for a bounded time, and postponed ones that are due again; then drops months whose time is over. By
    /// the clock of Postgres. Returns the number of orders moved.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or a reader holds the table of a month; batches before that have moved.
    pub async fn pass(&self) -> Result<usize, Failure> {
        let mut walk = self.walk.lock().await;
        let done = self.run(&mut walk).await;
        // Also of a run that has failed: its age is what an alarm looks at.
        self.show(&walk);
        if let Ok(moved @ 1..) = done {
            tracing::info!(orders = moved, "orders have moved into the history");
        }
        done
    }

    async fn run(&self, walk: &mut Walk) -> Result<usize, Failure> {
        let now = postgres::time(&self.pool).await?;
        walk.months = months::all(&self.pool).await?;
        let mut moved = 0;
        if let Some(after) = self.after {
            moved += self.walk(walk, now - after).await?;
            moved += self.postponed_ones(now - after, &mut walk.months).await?;
        }
        self.drop_old(now, &mut walk.months).await?;
        Ok(moved)
    }

    /// Goes on for some pages, and begins again behind the end.
    async fn walk(&self, walk: &mut Walk, before: DateTime<Utc>) -> Result<usize, Failure> {
        let mut done = 0;
        for _ in 0..limits::PASS_BATCHES_MAX {
            let mut tx = postgres::begin_planning(&self.pool).await?;
            let range = (walk.behind, id::first_at(before));
            let looked = moved::look(&mut tx, range, before, limits::HISTORY_BATCH).await?;
            tx.commit().await?;
            done += self.move_what_can_be(&looked.over, before, &mut walk.months).await?;
            walk.behind = looked.last.unwrap_or(0);
            if looked.last.is_none() {
                walk.ended_began = walk.began;
                walk.began = Instant::now();
                break;
            }
        }
        Ok(done)
    }

    async fn postponed_ones(
        &self,
        before: DateTime<Utc>,
        there: &mut BTreeSet<Month>,
    ) -> Result<usize, Failure> {
        let mut tries = self.postponed.begin(Pass::History).await?;
        let mut done = 0;
        for order in tries.due() {
            let tried = self.move_these(&[order], before, there).await.map_err(Failure::from);
            done += tries.settle(order, tried).await?.unwrap_or(0);
        }
        Ok(done)
    }

    /// Moves those of these orders that may, and postpones those that can't. Returns the number moved.
    async fn move_what_can_be(
        &self,
        orders: &[i64],
        before: DateTime<Utc>,
        there: &mut BTreeSet<Month>,
    ) -> Result<usize, Failure> {
        let mut done = 0;
        let mut parts = vec![orders];
        while let Some(part) = parts.pop() {
            match self.move_these(part, before, there).await.map_err(Failure::from) {
                Ok(moved) => done += moved,
                // Also a lock that is waited for in vain: months are made and dropped, and locked orders are skipped.
                Err(failure) if !failure.is_of_item() => return Err(failure),
                Err(failure) if part.len() == 1 => {
                    self.postponed.note(Pass::History, part, &failure.to_string()).await?;
                }
                Err(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(done)
    }

    /// Moves those of these orders that may, all or none, with all that belongs to them.
    async fn move_these(
        &self,
        orders: &[i64],
        before: DateTime<Utc>,
        there: &mut BTreeSet<Month>,
    ) -> sqlx::Result<usize> {
        if orders.is_empty() {
            return Ok(0);
        }
        for month in orders.iter().map(|order| Month::of_order(*order)) {
            if !there.contains(&month) {
                months::make(&self.pool, month).await?;
                there.insert(month);
            }
        }
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let moved = move_in(&mut tx, orders, before).await;
        // Not left to the drop of `tx`, which rolls back some time later: until then the next try would find these orders
        // locked, and leave them out.
        match moved {
            Ok(_) => tx.commit().await?,
            Err(_) => tx.rollback().await?,
        }
        moved.inspect(|moved| self.metrics.orders_moved.increment(*moved as u64))
    }

    async fn drop_old(&self, now: DateTime<Utc>, there: &mut BTreeSet<Month>) -> sqlx::Result<()> {
        if self.months == 0 {
            return Ok(());
        }
        let kept = there.split_off(&Month::of(now).back(self.months));
        for month in std::mem::replace(there, kept) {
            months::drop(&self.pool, month).await?;
            tracing::info!(begins = %month.begins(), "a month of the history is dropped");
        }
        Ok(())
    }

    fn show(&self, walk: &Walk) {
        let oldest = walk.months.first().map_or(0, |month| month.begins().timestamp());
        let waiting =
            if self.after.is_some() { walk.ended_began.elapsed() } else { Duration::ZERO };
        let gauges = vec![
            Gauge::plain("flash_sale_history_months", walk.months.len() as f64),
            Gauge::plain("flash_sale_history_oldest_month_timestamp_seconds", oldest as f64),
            Gauge::plain("flash_sale_history_waiting_seconds", waiting.as_secs_f64()),
        ];
        self.metrics.gauges.replace("history", gauges);
    }
}

async fn move_in(
    tx: &mut PgConnection,
    orders: &[i64],
    before: DateTime<Utc>,
) -> sqlx::Result<usize> {
    let orders = moved::lock_those_over(&mut *tx, orders, before).await?;
    if let Some(newest) = orders.last() {
        installation::orders_moved_to(&mut *tx, *newest).await?;
        moved::fix_prices(&mut *tx, &orders).await?;
        past::leave(&mut *tx, &orders).await?;
        moved::leave(tx, &orders).await?;
    }
    Ok(orders.len())
}
