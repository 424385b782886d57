//! The order log of one lane: no pending entry has been deleted, and the numbers of the promised orders have neither gap
//! nor overlap.

use super::disagreement::Numbering;
use super::{Check, Disagreement};
use crate::kit::redis::is_data_error;
use crate::sale::Failure;
use crate::sale::ids::Lane;
use crate::sale::log::{Entries, Entry, EntryId, GROUP, LogState, LoggedClaim, is_missing_group};

/// Entries read at a time; more would hold up all other clients. An entry may have some hundred claims.
const PAGE: usize = 100;

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

impl Check<'_> {
    /// States of the logs; `None` for one that can't be read.
    pub(super) async fn states(&self, lanes: &[Lane]) -> Result<Vec<Option<LogState>>, Failure> {
        match LogState::of_all(self.redis, self.keys, lanes).await {
            Err(error) if is_data_error(&error) => {}
            states => return Ok(states?.into_iter().map(Some).collect()),
        }
        let mut states = Vec::with_capacity(lanes.len());
        for lane in lanes {
            states.push(match LogState::of(self.redis, self.keys, *lane).await {
                Err(error) if is_data_error(&error) => None,
                state => Some(state?),
            });
        }
        Ok(states)
    }

    /// Compares the logs of each lane. Returns their states.
    pub(super) async fn lanes(
        &self,
        lanes: &[Lane],
        found: &mut Vec<Disagreement>,
    ) -> Result<Vec<Option<LogState>>, Failure> {
        let states = self.states(lanes).await?;
        for (lane, state) in lanes.iter().copied().zip(&states) {
            match self.unacknowledged(lane, *state, found).await {
                Err(failure) if failure.is_of_item() => {
                    found.push(Disagreement::LogUnreadable { lane, error: failure.to_string() });
                }
                compared => compared?,
            }
        }
        Ok(states)
    }

    /// Notes the faults of the entries of a log that aren't acknowledged.
    async fn unacknowledged(
        &self,
        lane: Lane,
        state: Option<LogState>,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let state = match state {
            Some(state) => state,
            // Asked once more, for the error.
            None => LogState::of(self.redis, self.keys, lane).await?,
        };
        if state.is_settled() {
            return Ok(());
        }
        if state.pending > 0 {
            self.pending_deleted(lane, found).await?;
        }
        self.numbers(lane, found).await
    }

    /// Looks for gaps and overlaps in the numbers of the orders in flight.
    async fn numbers(&self, lane: Lane, found: &mut Vec<Disagreement>) -> Result<(), Failure> {
        let mut next: Option<u64> = None;
        self.each_entry_in_flight(lane, |entry| {
            let Some(first) = entry.first else { return };
            match next {
                Some(next) if next < first => {
                    let fault = Numbering::Missing { lane, from: next, to: first - 1 };
                    found.push(Disagreement::Numbering(fault));
                }
                Some(next) if next > first => {
                    let fault = Numbering::Repeated { lane, from: first, to: next - 1 };
                    found.push(Disagreement::Numbering(fault));
                }
                _ => {}
            }
            next = Some(first + entry.counted());
        })
        .await
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

    /// Tells `each` about the claims whose entries aren't acknowledged. Acknowledged ones in between do no harm.
    pub(super) async fn each_in_flight(
        &self,
        lane: Lane,
        mut each: impl FnMut(LoggedClaim),
    ) -> Result<(), Failure> {
        self.each_entry_in_flight(lane, |entry| entry.claims.iter().copied().for_each(&mut each))
            .await
    }

    /// Tells `each` about the entries from the oldest pending one (or after the last delivered one) to the end of the
    /// log.
    async fn each_entry_in_flight(
        &self,
        lane: Lane,
        mut each: impl FnMut(&Entry),
    ) -> Result<(), Failure> {
        let mut from = self.oldest_unacknowledged(lane).await?.unwrap_or_else(|| "-".to_owned());
        loop {
            let page = self.range(lane, &from, "+", PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            from = format!("({}", last.id);
            page.iter().for_each(&mut each);
        }
    }

    /// Asked in this order, an entry that is delivered in between is pending or after the answer.
    async fn oldest_unacknowledged(&self, lane: Lane) -> Result<Option<String>, Failure> {
        let delivered = LogState::of(self.redis, self.keys, lane).await?.delivered;
        let pending = self.pending(lane, "-", "+", 1).await?.into_iter().next();
        let oldest = pending.map(|(entry_id, ..)| entry_id);
        Ok(oldest.or(delivered.map(|id: EntryId| format!("({id}"))))
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
        let entries: Entries = self.redis.query(&command).await?;
        Ok(entries.0)
    }
}
