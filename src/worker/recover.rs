//! The timed passes: taking over what dead workers left, and tidying up.
//!
//! A worker that died holds entries that nobody else is given. After `--take-over-idle-ms` they become
//! ours, and the next write pass finds them among our own pending entries. A worker that was only paused
//! loses them too; when it wakes up it writes them again, which changes nothing.
//!
//! The dead worker's locks outlive it by up to a lease. So lease + idle time + period bounds the time to
//! recover, and `Config::validate` keeps the sum below [`limits::RECOVERY_MAX`].
//!
//! [`limits::RECOVERY_MAX`]: crate::base::limits::RECOVERY_MAX

use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::sale::dead_letter::{self, DeadLetter, Reason};
use crate::sale::order_log::LogEntry;

impl LaneWorker {
    /// Takes over entries whose worker has stopped moving. Returns how many.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer.
    pub async fn recover_pass(&mut self) -> Result<usize, PassError> {
        self.require_postgres().await?;
        let (idle, count) = (self.settings.take_over_idle, self.settings.batch_orders_max);
        let (mut taken, mut from) = (0, Some("0-0".to_owned()));
        while let Some(start) = from {
            let step = self.log.take_over(idle, count, &start).await?;
            // At once: nobody will name them again.
            for entry_id in step.lost {
                self.alarm_lost(entry_id).await?;
            }
            taken += step.entries;
            from = step.next;
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

    /// Redis has taken this entry off the pending list, because the log doesn't have it any more. What
    /// it said is gone; the dead letter makes an operator look for the buyer without an order.
    async fn alarm_lost(&self, entry_id: String) -> Result<(), PassError> {
        let lane = self.log.lane();
        tracing::error!(%lane, entry = entry_id, "ALARM: an entry was deleted from the order log before it was written; run `flash-sale reconcile`");
        self.app.metrics.data_lost.increment(1);
        self.app.metrics.dead_letters.increment(1);
        let entry = LogEntry::new(entry_id, None);
        let detail = "the entry was deleted from the log while another worker held it".to_owned();
        let letter = DeadLetter { lane, entry: &entry, reason: Reason::DeletedFromLog, detail };
        dead_letter::insert(&self.app.stores.pool, &letter).await?;
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
