//! Takes unwritten claims from the memory of a process to Postgres, and drops those that are committed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use redis::RedisResult;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::book::{UnwrittenBook, UnwrittenClaim};
use super::table;
use crate::base::limits;
use crate::fence::LaneStates;
use crate::fence::in_redis::read_lane;
use crate::log::{EntryId, Progress, progress};
use crate::store::ids::Lane;
use crate::store::{Failure, Stores};

/// Time of a check of a lane's log, and the last entry in it.
type Check = (Instant, EntryId);
/// The epoch of a lane, and the checks in it whose entries aren't all acknowledged yet.
type Checks = (Option<i64>, VecDeque<Check>);

pub struct HandIn {
    stores: Stores,
    lanes: Arc<LaneStates>,
    book: Arc<UnwrittenBook>,
    process: String,
    state: Mutex<State>,
    checks: Mutex<BTreeMap<Lane, Checks>>,
}

#[derive(Default)]
struct State {
    /// For each lane, the epoch for which all unwritten claims have been handed in.
    epochs: BTreeMap<Lane, i64>,
    /// Time of the last heartbeat.
    alive_at: Option<Instant>,
}

impl HandIn {
    pub fn new(
        stores: &Stores,
        lanes: Arc<LaneStates>,
        book: Arc<UnwrittenBook>,
        process: String,
    ) -> Self {
        let (state, checks) = Default::default();
        Self { stores: stores.clone(), lanes, book, process, state, checks }
    }

    /// Writes this process's heartbeat when it is due, and hands in for lanes with a new epoch. Doesn't wait for Redis.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or refuses an unwritten claim; the next call goes on.
    pub async fn tick(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        if state.alive_at.is_none_or(|at| at.elapsed() >= limits::LANE_CHECK_PERIOD) {
            table::live(&self.stores.pool, &self.process).await?;
            state.alive_at = Some(Instant::now());
        }
        self.hand_in(&mut state).await
    }

    /// Hands in for lanes that have another epoch than at the last call. If Postgres refuses an unwritten claim, the
    /// others are handed in all the same, and the next call tries the lane again.
    async fn hand_in(&self, state: &mut State) -> Result<(), Failure> {
        let mut refused = None;
        for (lane, known) in self.lanes.all() {
            let before = *state.epochs.entry(lane).or_insert(0);
            if before == known.epoch {
                continue;
            }
            match self.hand_in_for(lane, known.epoch).await {
                // Postgres has another epoch: the states are read anew in a moment.
                Ok(false) => {}
                Ok(true) => drop(state.epochs.insert(lane, known.epoch)),
                Err(failure) if failure.is_of_item() => refused = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Halves a part that Postgres refuses, until only the refused unwritten claims are left out. False if Postgres has
    /// another epoch: the lane isn't noted as handed in then.
    async fn hand_in_for(&self, lane: Lane, epoch: i64) -> Result<bool, Failure> {
        let pool = &self.stores.pool;
        let unwritten = self.book.of(lane);
        let mut parts: Vec<&[UnwrittenClaim]> =
            unwritten.chunks(limits::UNWRITTEN_AT_A_TIME).collect();
        let mut refused = None;
        while let Some(part) = parts.pop() {
            match table::add(pool, part).await.map_err(Failure::from) {
                Err(failure) if failure.is_of_item() => {
                    refused = Some(failure);
                    if part.len() > 1 {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                }
                added => added?,
            }
        }
        match refused {
            None => Ok(table::complete(pool, &self.process, lane, epoch).await?),
            Some(failure) => Err(failure),
        }
    }

    /// Checks how far the logs of lanes with unwritten claims have been written, and drops those that are committed.
    ///
    /// # Errors
    ///
    /// When a Redis doesn't answer; the logs on other servers are checked all the same.
    pub async fn check(&self) -> RedisResult<()> {
        let mut checks = self.checks.lock().await;
        let mut checked = Ok(());
        for lane in self.book.lanes() {
            let epoch = self.state.lock().await.epochs.get(&lane).copied();
            let of_lane = checks.entry(lane).or_default();
            if of_lane.0 != epoch {
                *of_lane = (epoch, VecDeque::new());
            }
            checked = self.check_log(&mut of_lane.1, (lane, epoch)).await.and(checked);
        }
        checked
    }

    async fn check_log(
        &self,
        checks: &mut VecDeque<Check>,
        (lane, epoch): (Lane, Option<i64>),
    ) -> RedisResult<()> {
        let checked_at = Instant::now();
        let log = progress(self.stores.redis(lane), &self.stores.keys.log(lane)).await?;
        let before = checks.back().map(|(_, last)| *last);
        // A log that was lost, and perhaps begun anew, doesn't tell what was in it. The earlier checks are kept: they
        // show the loss until the lane has been recovered.
        let Some(Progress { last, acknowledged }) =
            log.filter(|log| before.is_none_or(|before| before <= log.last))
        else {
            return Ok(());
        };
        if !self.is_as_approved(lane, epoch).await? {
            checks.clear();
            return Ok(());
        }
        let mut committed = None;
        while let Some((at, last)) = checks.front()
            && *last <= acknowledged
        {
            committed = Some(*at);
            checks.pop_front();
        }
        checks.push_back((checked_at, last));
        if let Some(checked_at) = committed {
            self.book.committed(lane, checked_at);
        }
        Ok(())
    }

    /// Whether the lane is open under this epoch, in the approved Redis. Asked after the log was read, because a log
    /// that is gone says nothing about commits. Redis has to be asked, because no lane can be closed while Postgres is
    /// away.
    async fn is_as_approved(&self, lane: Lane, epoch: Option<i64>) -> RedisResult<bool> {
        let seen = read_lane(&self.stores, lane).await?;
        let known = self.lanes.of(lane).filter(|known| Some(known.epoch) == epoch);
        Ok(known.is_some_and(|known| known.is_open && seen.is_open(known.epoch)))
    }

    /// Says that this process ends. Where a Redis doesn't answer, its claims may exist nowhere else: their unwritten
    /// claims are left in Postgres.
    pub async fn leave(&self) {
        for lane in self.book.lanes() {
            if self.stores.redis(lane).check().await.is_ok() {
                continue;
            }
            for part in self.book.of(lane).chunks(limits::UNWRITTEN_AT_A_TIME) {
                if let Err(error) = table::add(&self.stores.pool, part).await {
                    tracing::warn!(%lane, %error, "unwritten claims can't be handed in, and end with the process");
                }
            }
        }
        if let Err(error) = table::leave(&self.stores.pool, &self.process).await {
            tracing::debug!(%error, "the process can't be taken off the list of those that live");
        }
    }
}
