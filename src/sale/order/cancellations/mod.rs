//! All unpaid orders of a coupon, cancelled at an administrator's word: its price was wrong, say.
//!
//! # Model
//!
//! The request writes a job. A pass of the workers closes the job's orders in batches, first claim first, and each batch
//! is one transaction: the orders are cancelled, their units come back, and the job counts them. The orders themselves
//! are the progress: a cancelled order waits for no job.
//!
//! # Authority
//!
//! Postgres decides, by the job's time: orders claimed before are cancelled, and later ones are left alone. A claim of
//! before that still waits in the order log becomes a row later, so a job ends only once the log of its lane has no
//! entry that is as old as the job.
//!
//! # What each failure does
//!
//! * A process dies in the middle: its last batch is rolled back or whole, and any other process goes on.
//! * Two processes work on one job: the second finds the orders of its batch cancelled, and counts none.
//! * An order is paid meanwhile: whichever is first wins (`sale/order/moves/mod.rs`). A paid order stays.
//! * Postgres fails at one job, which is very large, say: the others go on, and the pass says so.
//! * Postgres refuses to close an order: the order is postponed, and the others go on. The job stays open for it.
//! * Redis doesn't answer: the orders are cancelled all the same, and the job ends later.
//!
//! # What is not promised
//!
//! The claim's time is of Redis's clock, and the job's of Postgres's: a claim within their difference may be on either
//! side. Pause the coupon first where that matters.

use std::iter;

use serde_json::json;

use crate::base::limits;
use crate::kit::postgres;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::{CouponId, JobId, OrderId};
use crate::sale::keys::LogId;
use crate::sale::log::LogState;
use crate::sale::log::numbers::{LogNumbers, Oldest};
use crate::sale::order::moves::OrderMoves;
use crate::sale::order::moves::in_parts::Closing;
use crate::sale::order::moves::jobs::{self, Job, OpenJob};
use crate::sale::pass::Pass;
use crate::sale::postponed::Postponed;
use crate::sale::{Failure, Stores};

/// Answer to a request for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The job, as far as it has come.
    Job(Job),
    /// A request for another reason has begun a job of this coupon under this key.
    KeyReused,
    /// There is no such coupon.
    NoCoupon,
}

/// Cancels the unpaid orders of coupons.
pub struct Cancellations {
    stores: Stores,
    moves: OrderMoves,
    postponed: Postponed,
    /// Oldest entries of the logs, as this process has seen them.
    oldest: Oldest,
}

impl Cancellations {
    /// Jobs over these stores.
    pub fn new(stores: &Stores, moves: OrderMoves, postponed: Postponed) -> Self {
        Self { stores: stores.clone(), moves, postponed, oldest: Oldest::default() }
    }

    /// Asks for all unpaid orders of a coupon to be cancelled, once for each key: a repeat for the same reason finds the
    /// job.
    pub async fn ask(
        &self,
        coupon: CouponId,
        key: &str,
        reason: &str,
        by: &Actor,
    ) -> Result<Asked, Failure> {
        let (pool, by) = (self.stores.pool.clone(), by.clone());
        let (name, words) = (key.to_owned(), reason.to_owned());
        let asked = async move {
            let mut tx = postgres::begin(&pool).await?;
            if let Some(job) = jobs::begin(&mut tx, coupon, &name, &words).await? {
                let event = Event::of(Action::CancelUnpaidOrders, coupon.get());
                let values = json!({ "job_id": job, "key": name, "reason": words });
                audit::note(&mut tx, &by, event.after(values)).await?;
            }
            tx.commit().await
        };
        self.moves.to_the_end(asked).await?;
        let Some(job) = jobs::under_key(&self.stores.pool, coupon, key).await? else {
            return Ok(Asked::NoCoupon);
        };
        let job = self.get(job).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(if job.reason == reason { Asked::Job(job) } else { Asked::KeyReused })
    }

    /// One job, with its progress.
    pub async fn get(&self, job: JobId) -> sqlx::Result<Option<Job>> {
        jobs::find(&self.stores.pool, job).await
    }

    /// Jobs, of one coupon or of all, newest first, from before the given one on.
    pub async fn list(
        &self,
        coupon: Option<CouponId>,
        before: Option<JobId>,
        limit: u32,
    ) -> sqlx::Result<Vec<Job>> {
        jobs::list(&self.stores.pool, coupon, before, limit).await
    }

    /// Cancels orders of all jobs, for a bounded time each; then tries postponed ones again that are due, and ends jobs
    /// that have no order left. Returns the number of orders cancelled.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; batches before that are closed. What Postgres refuses of one job, or ends because it
    /// takes too long, holds up no other.
    pub async fn pass(&self) -> Result<usize, Failure> {
        let jobs = self.open().await?;
        let mut cancelled = 0;
        let mut failed = None;
        for job in &jobs {
            match self.work_on(job).await {
                Ok(orders) => cancelled += orders,
                Err(failure @ Failure::Postgres(sqlx::Error::Database(_))) => {
                    failed = Some(failure)
                }
                Err(failure) => return Err(failure),
            }
        }
        cancelled += self.try_again().await?;
        for job in &jobs {
            match self.end(job).await {
                Err(failure @ Failure::Postgres(sqlx::Error::Database(_))) => {
                    failed = Some(failure)
                }
                ended => ended?,
            }
        }
        failed.map_or(Ok(cancelled), Err)
    }

    async fn open(&self) -> sqlx::Result<Vec<OpenJob>> {
        let mut open = Vec::new();
        loop {
            let after = open.last().map(|job: &OpenJob| job.id);
            let page = jobs::open_page(&self.stores.pool, after, limits::PASS_JOBS_MAX).await?;
            if page.is_empty() {
                return Ok(open);
            }
            open.extend(page);
        }
    }

    async fn work_on(&self, job: &OpenJob) -> Result<usize, Failure> {
        let mut cancelled = 0;
        for _ in 0..limits::PASS_BATCHES_MAX {
            let orders =
                jobs::orders_of(&self.stores.pool, job, limits::CANCELLATIONS_BATCH).await?;
            if orders.is_empty() {
                break;
            }
            let (closing, postponed) = (Closing::Job(job.id), &self.postponed);
            cancelled +=
                self.moves.close_what_can_be(closing, postponed, job.coupon, &orders).await?;
        }
        Ok(cancelled)
    }

    async fn try_again(&self) -> Result<usize, Failure> {
        let mut cancelled = 0;
        let mut tries = self.postponed.begin(Pass::Cancellations).await?;
        for item in tries.due() {
            let tried = self.try_one(item).await.map_err(Failure::from);
            cancelled += tries.settle(item, tried).await?.unwrap_or(0);
        }
        Ok(cancelled)
    }

    async fn try_one(&self, item: i64) -> sqlx::Result<usize> {
        let job = jobs::of_order(&self.stores.pool, item).await?;
        match (job, OrderId::new(item)) {
            (Some(job), Ok(order)) => self.moves.close_these(Closing::Job(job), &[order]).await,
            // It was paid, or closed otherwise.
            _ => Ok(0),
        }
    }

    /// Ends a job for which no order waits, and none can come.
    async fn end(&self, job: &OpenJob) -> Result<(), Failure> {
        if !self.log_has_older_claims(job).await? {
            jobs::finish(&self.stores.pool, job.id).await?;
        }
        Ok(())
    }

    /// Whether claims of before the job may wait in the log of its lane.
    async fn log_has_older_claims(&self, job: &OpenJob) -> Result<bool, Failure> {
        let Stores { redis, keys, .. } = &self.stores;
        let logs: Vec<LogId> = LogId::of_lanes(iter::once(job.coupon.lane())).collect();
        let states = LogState::of_all(redis, keys, &logs).await?;
        for (log, state) in logs.into_iter().zip(states) {
            let numbers = LogNumbers::look(redis, keys, log, &state, &self.oldest).await?;
            if i64::try_from(numbers.oldest_entry_ms).unwrap_or(i64::MAX) >= job.age_ms {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
