//! The timed passes: taking over what dead workers left, and tidying up.
//!
//! A worker that died holds entries that nobody else is given. After `--take-over-idle-ms` they become
//! ours, and the next write pass finds them among our own pending entries. A worker that was only paused
//! loses them too; when it wakes up it writes them again, which changes nothing.
//!
//! Idle times are counted by Redis's clock. Should that be set back, they stand still until it has caught up, so the pass
//! also remembers by its own clock since when each of the other consumers has held the same entries.
//!
//! The dead worker's locks outlive it by up to a lease. So lease + idle time + period bounds the time to
//! recover, and `Config::validate` keeps the sum below [`limits::RECOVERY_MAX`].
//!
//! [`limits::RECOVERY_MAX`]: crate::base::limits::RECOVERY_MAX

use tokio::time::Instant;

use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::sale::log::{TakeOver, UnreadableEntry};
use crate::sale::order::dead_letter::{self, DeadLetter};

impl LaneWorker {
    /// Takes over entries whose worker has stopped moving. Returns how many.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer.
    pub async fn recover_pass(&mut self) -> Result<usize, PassError> {
        self.require_postgres().await?;
        self.put_aside_lost().await?;
        let (idle, count) = (self.settings.take_over_idle, self.settings.batch_orders_max);
        let (mut taken, mut from) = (0, Some("0-0".to_owned()));
        while let Some(start) = from {
            let step = self.log.take_over(idle, count, &start).await?;
            taken += step.entries;
            from = step.next.clone();
            self.alarm_lost(step).await?;
        }
        for consumer in self.standing_still().await? {
            let step = self.log.take_over_from(&consumer, count).await?;
            taken += step.entries;
            self.alarm_lost(step).await?;
        }
        // While we hold entries ourselves, some of them may be our own, grown old and handed to us again.
        if taken > 0 && self.pending_from.is_none() {
            self.app.metrics.taken_over.increment(taken as u64);
            tracing::info!(lane = %self.log.lane(), entries = taken, "took over entries that another worker had left");
        }
        if taken > 0 {
            self.read_pending_again();
        }
        Ok(taken)
    }

    /// The other consumers that hold the same entries as ever, by our own clock for as long as an entry may be idle. Redis's
    /// idle times don't show them when its clock has been set back.
    async fn standing_still(&mut self) -> Result<Vec<String>, PassError> {
        let now = Instant::now();
        let before = std::mem::take(&mut self.held_by_others);
        for held in self.log.held_by_others().await? {
            let seen = before.iter().find(|(seen, _)| *seen == held);
            let since = seen.map_or(now, |(_, since)| *since);
            self.held_by_others.push((held, since));
        }
        let idle = self.settings.take_over_idle;
        let still = self.held_by_others.iter().filter(|(_, since)| now - *since >= idle);
        Ok(still.map(|(held, _)| held.consumer.clone()).collect())
    }

    /// Redis has taken these entries off the pending list, because the log doesn't have them any more, and names them this
    /// once: so the names are in the log of the service before anything else can fail.
    async fn alarm_lost(&mut self, step: TakeOver) -> Result<(), PassError> {
        let lane = self.log.lane();
        for entry in &step.lost {
            tracing::error!(%lane, entry, "ALARM: an entry was deleted from the order log before it was written; run `flash-sale reconcile`");
        }
        self.app.metrics.data_lost.increment(step.lost.len() as u64);
        self.lost.extend(step.lost);
        self.put_aside_lost().await
    }

    /// What these entries said is gone; the dead letters make an operator look for the buyers without an order. An entry that
    /// can't be put aside now is remembered until it can.
    async fn put_aside_lost(&mut self) -> Result<(), PassError> {
        let lane = self.log.lane();
        while let Some(entry_id) = self.lost.last() {
            let entry = UnreadableEntry::lost(entry_id.clone());
            let letter = DeadLetter::unreadable(lane, &entry);
            let new = dead_letter::insert(&self.app.stores.pool, &letter).await?;
            self.app.metrics.dead_letters.increment(u64::from(new));
            self.lost.pop();
        }
        Ok(())
    }

    /// Trims the log behind what every group has finished with, and removes consumers that are long
    /// gone. Returns the entries trimmed.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn tidy_up_pass(&mut self) -> Result<u64, PassError> {
        let mut trimmed = 0;
        // A call removes some 10,000 entries at most; more than that may be written between two passes.
        loop {
            match self.log.trim().await? {
                0 => break,
                entries => trimmed += entries,
            }
        }
        self.log.remove_idle_consumers(limits::CONSUMER_KEPT).await?;
        Ok(trimmed)
    }
}
