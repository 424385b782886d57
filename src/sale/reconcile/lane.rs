//! The order log of one lane: each acknowledged entry is a row or a dead letter, and no pending entry has been
//! deleted.
//!
//! Redis keeps no count of acknowledged entries: they are all entries ever appended without the pending and the
//! unread ones. The log is read first: an entry that counts as acknowledged there is in Postgres by the time that is
//! read.

use super::{Check, Disagreement, Report, rows};
use crate::kit::redis::is_data_error;
use crate::sale::Failure;
use crate::sale::ids::Lane;
use crate::sale::log::{GROUP, LogState, LoggedClaim, ReadBatch, is_missing_group};
use crate::sale::order::dead_letter;

/// Entries read at a time; more would hold up all other clients.
const PAGE: usize = 1_000;

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

/// Id and fields.
type Entry = (String, Vec<Vec<u8>>);

impl Check<'_> {
    /// States of the logs; `None` for one that can't be read.
    pub(super) async fn states(&self, lanes: &[Lane]) -> Result<Vec<Option<LogState>>, Failure> {
        let keys: Vec<String> = lanes.iter().map(|lane| self.keys.log(*lane)).collect();
        match LogState::of_all(self.redis, &keys).await {
            Err(error) if is_data_error(&error) => {}
            states => return Ok(states?.into_iter().map(Some).collect()),
        }
        let mut states = Vec::with_capacity(lanes.len());
        for key in keys {
            states.push(match LogState::of(self.redis, &key).await {
                Err(error) if is_data_error(&error) => None,
                state => Some(state?),
            });
        }
        Ok(states)
    }

    /// Compares each log with its rows and dead letters. Returns the states of the logs.
    pub(super) async fn lanes(
        &self,
        lanes: &[Lane],
        report: &mut Report,
    ) -> Result<Vec<Option<LogState>>, Failure> {
        let logs = self.states(lanes).await?;
        let all = rows::count_all(self.pool).await?;
        for (&lane, log) in lanes.iter().zip(&logs) {
            let rows = all.of_lane.get(&lane.get()).copied().unwrap_or(0);
            let found = &mut report.disagreements;
            let compared = match log {
                Some(log) => self.lane(lane, log, rows, found).await,
                // Asked once more, for the error.
                None => LogState::of(self.redis, &self.keys.log(lane))
                    .await
                    .map(drop)
                    .map_err(Failure::from),
            };
            match compared {
                Err(failure) if failure.is_of_item() => {
                    found.push(Disagreement::LogUnreadable { lane, error: failure.to_string() });
                }
                compared => compared?,
            }
        }
        report.orders = all.of_status;
        Ok(logs)
    }

    async fn lane(
        &self,
        lane: Lane,
        log: &LogState,
        rows: i64,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let letters = dead_letter::count_of_lane(self.pool, lane).await?;
        let accounted = u64::try_from(rows + letters).unwrap_or(0);
        let acknowledged = log.appended.saturating_sub(log.unwritten());
        if acknowledged > accounted {
            found.push(Disagreement::AcknowledgedUnwritten { lane, acknowledged, accounted });
        }
        match log.pending {
            0 => Ok(()),
            _ => self.pending_deleted(lane, found).await,
        }
    }

    async fn pending_deleted(
        &self,
        lane: Lane,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let mut from = "-".to_owned();
        loop {
            let page = self.pending(lane, &from, "+", PAGE).await?;
            let Some((last, ..)) = page.last() else {
                return Ok(());
            };
            from = format!("({last}");
            for (entry_id, ..) in page {
                // Asked once more: entries that were acknowledged since may have been trimmed since.
                if self.range(lane, &entry_id, &entry_id, 1).await?.is_empty()
                    && !self.pending(lane, &entry_id, &entry_id, 1).await?.is_empty()
                {
                    found.push(Disagreement::PendingDeleted { lane, entry_id });
                }
            }
        }
    }

    /// Tells `each` about the claims whose entries aren't acknowledged: from the oldest pending entry (or after the
    /// last delivered one) to the end of the log. Acknowledged ones in between do no harm.
    pub(super) async fn each_in_flight(
        &self,
        lane: Lane,
        mut each: impl FnMut(LoggedClaim),
    ) -> Result<(), Failure> {
        let mut from = self.oldest_unacknowledged(lane).await?.unwrap_or_else(|| "-".to_owned());
        loop {
            let page = self.range(lane, &from, "+", PAGE).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            from = format!("({last}");
            let batch: ReadBatch =
                page.into_iter().map(|(id, fields)| (id, Some(fields))).collect();
            batch.claims.into_iter().map(|entry| entry.claim).for_each(&mut each);
        }
    }

    /// Asked in this order, an entry that is delivered in between is pending or after the answer.
    async fn oldest_unacknowledged(&self, lane: Lane) -> Result<Option<String>, Failure> {
        let delivered = LogState::of(self.redis, &self.keys.log(lane)).await?.delivered;
        let pending = self.pending(lane, "-", "+", 1).await?.into_iter().next();
        let oldest = pending.map(|(entry_id, ..)| entry_id);
        Ok(oldest.or(delivered.map(|id| format!("({id}"))))
    }

    async fn pending(
        &self,
        lane: Lane,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Pending>, Failure> {
        let mut command = redis::cmd("XPENDING");
        command.arg(self.keys.log(lane)).arg(GROUP).arg(from).arg(to).arg(count);
        match self.redis.query(&command).await {
            Err(error) if is_missing_group(&error) => Ok(Vec::new()),
            reply => Ok(reply?),
        }
    }

    async fn range(
        &self,
        lane: Lane,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Entry>, Failure> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.log(lane)).arg(from).arg(to).arg("COUNT").arg(count);
        Ok(self.redis.query(&command).await?)
    }
}
