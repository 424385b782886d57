//! The order logs of one lane: each order of an acknowledged entry is a row or a dead letter, no pending entry has been
//! deleted, and the numbers of the promised orders have neither gap nor overlap.
//!
//! The log is read first: an order that counts as written there is in Postgres by the time that is read.

use std::collections::BTreeMap;

use super::disagreement::Numbering;
use super::{Check, Disagreement, Report};
use crate::kit::redis::is_data_error;
use crate::sale::Failure;
use crate::sale::fence::table::unwritten_accepted;
use crate::sale::ids::Lane;
use crate::sale::keys::{LogId, LogLayout};
use crate::sale::log::{Entries, Entry, EntryId, GROUP, LogState, LoggedClaim, is_missing_group};
use crate::sale::order::{counts, dead_letter};

/// Entries read at a time; more would hold up all other clients. An entry may have some hundred claims.
const PAGE: usize = 100;

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

impl Check<'_> {
    /// States of the logs; `None` for one that can't be read.
    pub(super) async fn states(&self, lanes: &[Lane]) -> Result<Vec<Option<LogState>>, Failure> {
        let logs: Vec<LogId> = LogId::of_lanes(lanes.iter().copied()).collect();
        match LogState::of_all(self.redis, self.keys, &logs).await {
            Err(error) if is_data_error(&error) => {}
            states => return Ok(states?.into_iter().map(Some).collect()),
        }
        let mut states = Vec::with_capacity(logs.len());
        for log in logs {
            states.push(match LogState::of(self.redis, self.keys, log).await {
                Err(error) if is_data_error(&error) => None,
                state => Some(state?),
            });
        }
        Ok(states)
    }

    /// Compares the logs of each lane with its rows and dead letters. Returns the states of the logs.
    pub(super) async fn lanes(
        &self,
        lanes: &[Lane],
        report: &mut Report,
    ) -> Result<Vec<Option<LogState>>, Failure> {
        let states = self.states(lanes).await?;
        let found = &mut report.disagreements;
        let mut acknowledged: BTreeMap<Lane, u64> = BTreeMap::new();
        for (log, state) in LogId::of_lanes(lanes.iter().copied()).zip(&states) {
            let lane = log.lane;
            match self.acknowledged(log, *state, found).await {
                Err(failure) if failure.is_of_item() => {
                    found.push(Disagreement::LogUnreadable { lane, error: failure.to_string() });
                }
                orders => *acknowledged.entry(lane).or_default() += orders?,
            }
        }
        // Read last: an order that was acknowledged by now is there.
        let all = counts::all(self.pool).await?;
        let accepted = unwritten_accepted(self.pool).await?;
        for (lane, acknowledged) in acknowledged {
            let rows = all.of_lane.get(&lane.get()).copied().unwrap_or(0);
            let accepted = accepted.get(&lane.get()).copied().unwrap_or(0);
            let mut accounted = u64::try_from(rows + accepted).unwrap_or(0);
            if acknowledged > accounted {
                let letters = dead_letter::count_of_lane(self.pool, lane).await?;
                accounted += u64::try_from(letters).unwrap_or(0);
            }
            if acknowledged > accounted {
                found.push(Disagreement::AcknowledgedUnwritten { lane, acknowledged, accounted });
            }
        }
        report.orders = all.of_status;
        Ok(states)
    }

    /// Number of orders in acknowledged entries of a log; those between unacknowledged entries are left out. Notes the
    /// faults of the other entries.
    async fn acknowledged(
        &self,
        log: LogId,
        state: Option<LogState>,
        found: &mut Vec<Disagreement>,
    ) -> Result<u64, Failure> {
        let state = match state {
            Some(state) => state,
            // Asked once more, for the error.
            None => LogState::of(self.redis, self.keys, log).await?,
        };
        if state.is_settled() {
            return Ok(state.written);
        }
        if state.pending > 0 {
            self.pending_deleted(log, found).await?;
        }
        let in_flight = self.numbers(log, found).await?;
        Ok(match log.layout {
            LogLayout::Claims => state.written,
            // Entries that were delivered anew have been counted twice, and deleted ones aren't seen in flight.
            LogLayout::Calls => {
                let promised = state.written + state.unwritten;
                state.written.min(promised.saturating_sub(in_flight))
            }
        })
    }

    /// Looks for gaps and overlaps in the numbers of the orders in flight. Returns how many these orders are.
    async fn numbers(&self, log: LogId, found: &mut Vec<Disagreement>) -> Result<u64, Failure> {
        let lane = log.lane;
        let mut next: Option<u64> = None;
        let mut in_flight = 0;
        self.each_entry_in_flight(log, |entry| {
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
            in_flight += entry.counted();
        })
        .await?;
        Ok(in_flight)
    }

    async fn pending_deleted(
        &self,
        log: LogId,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let lane = log.lane;
        let mut from = "-".to_owned();
        loop {
            let page = self.pending(log, &from, "+", PAGE).await?;
            let Some((last, ..)) = page.last() else {
                return Ok(());
            };
            from = format!("({last}");
            for (entry_id, ..) in page {
                // Asked once more: entries that were acknowledged since may have been trimmed since.
                if self.range(log, &entry_id, &entry_id, 1).await?.is_empty()
                    && !self.pending(log, &entry_id, &entry_id, 1).await?.is_empty()
                {
                    found.push(Disagreement::PendingDeleted { lane, entry_id });
                }
            }
        }
    }

    /// Tells `each` about the claims whose entries aren't acknowledged, in all logs of the lane. Acknowledged ones in
    /// between do no harm.
    pub(super) async fn each_in_flight(
        &self,
        lane: Lane,
        mut each: impl FnMut(LoggedClaim),
    ) -> Result<(), Failure> {
        for log in LogId::of_lanes([lane].into_iter()) {
            self.each_entry_in_flight(log, |entry| {
                entry.claims.iter().copied().for_each(&mut each)
            })
            .await?;
        }
        Ok(())
    }

    /// Tells `each` about the entries from the oldest pending one (or after the last delivered one) to the end of the
    /// log.
    async fn each_entry_in_flight(
        &self,
        log: LogId,
        mut each: impl FnMut(&Entry),
    ) -> Result<(), Failure> {
        let mut from = self.oldest_unacknowledged(log).await?.unwrap_or_else(|| "-".to_owned());
        loop {
            let page = self.range(log, &from, "+", PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            from = format!("({}", last.id);
            page.iter().for_each(&mut each);
        }
    }

    /// Asked in this order, an entry that is delivered in between is pending or after the answer.
    async fn oldest_unacknowledged(&self, log: LogId) -> Result<Option<String>, Failure> {
        let delivered = LogState::of(self.redis, self.keys, log).await?.delivered;
        let pending = self.pending(log, "-", "+", 1).await?.into_iter().next();
        let oldest = pending.map(|(entry_id, ..)| entry_id);
        Ok(oldest.or(delivered.map(|id: EntryId| format!("({id}"))))
    }

    async fn pending(
        &self,
        log: LogId,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Pending>, Failure> {
        let mut command = redis::cmd("XPENDING");
        command.arg(self.keys.log(log)).arg(GROUP).arg(from).arg(to).arg(count);
        match self.redis.query(&command).await {
            Err(error) if is_missing_group(&error) => Ok(Vec::new()),
            reply => Ok(reply?),
        }
    }

    async fn range(
        &self,
        log: LogId,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Entry>, Failure> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.log(log)).arg(from).arg(to).arg("COUNT").arg(count);
        let entries: Entries = self.redis.query(&command).await?;
        Ok(entries.0)
    }
}
