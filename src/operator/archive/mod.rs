//! Archiving: a sale that is over leaves Redis, and Postgres answers for it from then on.
//!
//! # Model
//!
//! 1. A sale whose window has been closed for `--archive-after-ms` is ended, by a change like any other. From then on
//!    no claim can be accepted, because an end is final and Redis takes no older revision.
//! 2. A sale that has been ended for that long, and that Redis has as ended, is compared: total = stock + buyers, its
//!    buyers are its live orders one by one, and nothing of it is in flight.
//! 3. Postgres notes `archived_at`, if by then no order of it is unpaid, no unit is on its way back, and no dead letter
//!    is open.
//! 4. The keys are removed from Redis, a thousand at a time, and Postgres notes `removed_at`.
//!
//! # Why nothing is lost
//!
//! Each accepted claim is a buyer until its unit comes back, and a unit comes back only after its order is a row. So
//! when the buyers of an ended sale are its live orders, every claim that was ever accepted is a row. An entry that the
//! log delivers again afterwards finds that row, and needs no key of the sale.
//!
//! # What each failure does
//!
//! * A process dies between the steps: each step begins with what Postgres has noted, and does nothing if it has been
//!   done before.
//! * A claim arrives, or a unit comes back, between the steps 3 and 4: Redis still has the sale, and answers as before.
//!   After step 4, a process that misses the sale in Redis asks Postgres, which has noted the archiving.
//! * A unit of an archived sale comes back later: `sold` goes down in Postgres, and Redis isn't told.
//! * The sale can't be read, or is missing in Redis before step 3, which is a loss of data: it isn't archived but
//!   postponed (`store/postponed.rs`), and the others are archived.
//!
//! # What is not promised
//!
//! When a sale leaves Redis. One that fails the comparison stays until it passes, or until an operator archives it
//! ([`Archive::ask`], `asked.rs`).

// Archiving that an operator asks for.
mod asked;

// Answers to an operator.
mod answer;

use std::sync::Arc;
use std::time::Duration;

use crate::base::shutdown::Shutdown;
use crate::coupon::buyers;
use crate::coupon::buyers::shards::Shards;
use crate::coupon::changes::CouponChanges;
use crate::coupon::rules::Change;
use crate::coupon::stock;
use crate::recovery::reconcile;
use crate::recovery::reconcile::Disagreement;
use crate::store::ids::CouponId;
use crate::store::job::Job;
use crate::store::postgres;
use crate::store::postponed::Postponed;
use crate::store::{Failure, Stores};

pub use answer::{ArchiveOutcome, ArchiveRefusal, Archived};

/// Removes sales that are over from Redis. Clones share the connections.
#[derive(Clone)]
pub struct Archive {
    stores: Stores,
    changes: Arc<CouponChanges>,
    postponed: Postponed,
    /// Time between the end of a sale and its archiving.
    after: Duration,
    /// Owns work that a request must not break off half-way.
    shutdown: Shutdown,
}

impl Archive {
    pub fn new(
        stores: &Stores,
        changes: Arc<CouponChanges>,
        postponed: Postponed,
        after: Duration,
        shutdown: Shutdown,
    ) -> Self {
        Self { stores: stores.clone(), changes, postponed, after, shutdown }
    }

    /// Does all due steps. Returns the number of sales archived. A sale that can't be compared, or that Redis has
    /// lost, is postponed.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; the next run goes on.
    pub async fn run_once(&self) -> Result<usize, Failure> {
        let pool = &self.stores.pool;
        let mut tries = self.postponed.begin(Job::Archive).await?;
        for (coupon, closes_at) in stock::closed(pool, self.after).await? {
            // Nothing changes if the sale has got another window meanwhile. The job `changes` tells Redis.
            let tried = self.changes.decide(coupon, Change::EndClosed(closes_at), None).await;
            let _ = tries.settle(coupon.get(), tried).await?;
        }
        let mut archived = 0;
        for coupon in stock::ended(pool, self.after).await? {
            let tried = self.archive_settled(coupon).await;
            archived += usize::from(tries.settle(coupon.get(), tried).await? == Some(true));
        }
        for (coupon, total) in stock::archived(pool).await? {
            let tried = self.remove(coupon, total).await;
            tries.settle(coupon.get(), tried).await?;
        }
        tries.end().await?;
        Ok(archived)
    }

    /// False if the sale has to stay for a while.
    async fn archive_settled(&self, coupon: CouponId) -> Result<bool, Failure> {
        let pool = &self.stores.pool;
        let standing = reconcile::standing(&self.stores, coupon).await?;
        if standing.is_settled() {
            let mut tx = postgres::begin_planning(pool).await?;
            let is_archived = stock::archive(&mut *tx, coupon).await?;
            tx.commit().await?;
            return Ok(is_archived);
        }
        if standing.disagreements.iter().any(Disagreement::is_loss) {
            return Err(Failure::DataLost(coupon));
        }
        Ok(false)
    }

    /// Removes the keys of an archived sale. The coupon's hash goes before the shards of the load, so that no claim
    /// finds a sale without its buyers. If the process dies in between, Redis can't tell the number of these shards any
    /// more. It is at most that of a sale of this total, because a total only grows.
    async fn remove(&self, coupon: CouponId, total: i64) -> Result<(), Failure> {
        let Stores { keys, .. } = &self.stores;
        let redis = self.stores.redis(coupon.lane());
        let built = buyers::shards(redis, keys, coupon).await?.filter(|one| one.version() > 0);
        // Shards that a recovery has built go before the hash, which alone names them. The sale has ended, so no claim
        // misses them.
        for shards in built.into_iter().chain([Shards::for_units(total)]) {
            if shards.version() == 0 {
                redis.query::<()>(redis::cmd("UNLINK").arg(keys.coupon(coupon))).await?;
            }
            buyers::unlink(redis, keys, coupon, shards).await?;
        }
        Ok(stock::note_removed(&self.stores.pool, coupon).await?)
    }
}
