//! The timed passes: taking over the entries of dead workers, and tidying up.
//!
//! Redis gives the entries of a dead worker to no other consumer. After `--take-over-idle-ms` this worker claims
//! them, and the next write pass finds them among the own pending entries. A worker that was only paused loses its
//! entries too; after the pause it writes them again, which changes nothing.
//!
//! Redis's clock counts idle times. If that clock is set back, idle times stand still until it has caught up. So the
//! pass also remembers, by its own clock, since when each of the other consumers has held the same entries.
//!
//! A dead worker's locks outlive it by up to a lease. So lease + idle time + period bounds the time to recover, and
//! `Config::validate` keeps the sum below [`limits::RECOVERY_MAX`].
//!
//! [`limits::RECOVERY_MAX`]: crate::base::limits::RECOVERY_MAX

use tokio::time::Instant;

use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::sale::log::{Entry, EntryId, TakeOver};
use crate::sale::order::dead_letter;

impl LaneWorker {
    /// Takes over entries whose worker has stopped moving, and own ones that have grown old. Returns their number.
    pub async fn recover_pass(&mut self) -> Result<usize, PassError> {
        self.require_postgres().await?;
        self.put_aside_lost().await?;
        if self.open.has_contended() {
            // Delivers the oldest entry once more: others take a worker for dead that holds the same entries for long.
            self.log.read_pending(1, EntryId::default()).await?;
        }
        let idle = self.settings.take_over_idle;
        let count = self.settings.batch_orders_max;
        let (mut taken, mut new) = (0, 0);
        let mut from = Some("0-0".to_owned());
        while let Some(start) = from {
            let step = self.log.take_over(idle, count, &start).await?;
            taken += step.entries.len();
            new += self.open.unknown_among(&step.entries);
            from = step.next.clone();
            self.alarm_lost(step).await?;
        }
        for consumer in self.standing_still().await? {
            let step = self.log.take_over_from(&consumer, count).await?;
            taken += step.entries.len();
            new += self.open.unknown_among(&step.entries);
            self.alarm_lost(step).await?;
        }
        // A worker is handed its own entries, too, once they have grown old. Those that it knows stay as they are, and until
        // it has read all of them, none counts.
        if new > 0 && self.pending_from.is_none() {
            self.app.metrics.taken_over.increment(new as u64);
            tracing::info!(lane = %self.log.lane(), entries = new, "took over entries that another worker had left");
        }
        if new > 0 {
            self.read_pending_again();
        }
        Ok(taken)
    }

    /// The other consumers that have held the same entries for the take-over idle time, by this process's clock.
    /// Redis's idle times don't show them when its clock has been set back.
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

    /// Logs entries that the log has lost. Redis has taken them off the pending list and names them only this once,
    /// so they are logged before any other step can fail.
    async fn alarm_lost(&mut self, step: TakeOver) -> Result<(), PassError> {
        let lane = self.log.lane();
        for entry in &step.lost {
            tracing::error!(%lane, %entry, "ALARM: an entry was deleted from the order log before it was written; run `flash-sale reconcile`");
        }
        self.app.metrics.data_lost.increment(step.lost.len() as u64);
        self.lost.extend(step.lost);
        self.put_aside_lost().await
    }

    /// Turns lost entries into dead letters, which lead an operator to the buyers without an order. An entry that
    /// can't be put aside now is remembered until it can.
    async fn put_aside_lost(&mut self) -> Result<(), PassError> {
        while let Some(entry) = self.lost.last() {
            let letter = self.letter_of(&Entry::lost(*entry)).await?;
            let new = dead_letter::insert(&self.app.stores.pool, &letter).await?;
            self.app.metrics.dead_letters.increment(u64::from(new));
            self.lost.pop();
        }
        Ok(())
    }

    /// Trims the log behind the entries that every group has finished with, and removes consumers that are long gone.
    /// Returns the number of entries trimmed.
    pub async fn tidy_up_pass(&mut self) -> Result<u64, PassError> {
        let mut trimmed = 0;
        // A call removes some 10,000 entries at most; more may be written between two passes.
        loop {
            let tidied_up = self.log.trim().await?;
            self.alarm_unaccounted(tidied_up.unaccounted);
            match tidied_up.trimmed {
                0 => break,
                entries => trimmed += entries,
            }
        }
        self.log.remove_idle_consumers(limits::CONSUMER_KEPT).await?;
        Ok(trimmed)
    }

    /// Raises the alarm about orders that the lane has promised, and that neither are written nor stand in the log. A
    /// negative number is no loss: entries were delivered anew, by hand.
    fn alarm_unaccounted(&self, orders: i64) {
        let Ok(orders @ 1..) = u64::try_from(orders) else { return };
        let lane = self.log.lane();
        self.app.metrics.data_lost.increment(orders);
        tracing::error!(%lane, orders, "ALARM: no entry is left in the order log, but not all orders that the lane has promised were written; run `flash-sale reconcile`");
    }
}
