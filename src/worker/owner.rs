//! The lanes of a server that this process owns. Each lane has one owner at a time; other workers stand by for it.
//!
//! # Model
//!
//! For each Redis server, a worker has a Postgres session of its own. The session holds an advisory lock for each lane
//! that the worker owns, and a shared lock by which the workers of the server are counted. Twice a second the worker
//! checks all these locks. If it owns more lanes than its share (lanes / workers, rounded up), counted over all
//! servers, it gives up the surplus, each lane between two batches. If it owns fewer, it takes free lanes.
//!
//! # Authority
//!
//! Postgres grants the locks, and frees them when their session ends: at once if the process dies, and after
//! [`limits::OWNER_SESSION_IDLE_MAX`] without a query if its machine is gone or the process is paused. Neither the
//! clock of Redis nor the idle time of an entry plays a part.
//!
//! # What each failure does
//!
//! * Process killed: at its next check another worker takes the lanes, and reads their pending entries from the start.
//! * Session lost while the process lives: the process gives up all lanes and opens another session. Until it notices,
//!   a lane may have two owners. They do some work twice and no harm: the constraints of Postgres decide about rows,
//!   and an acknowledgement counts once.
//! * Redis doesn't answer this process for [`limits::OWNER_REDIS_SILENCE_MAX`]: the process ends its session, and isn't
//!   counted as a worker until Redis answers again. Another worker may reach Redis.
//! * Postgres away: nobody owns a lane, and the entries wait in the log.
//!
//! # What is not promised
//!
//! An even share: of 4 lanes and 3 workers, one worker may own none.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::failure::JobError;
use super::lane::LaneWorker;
use crate::app::App;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::store::Stores;
use crate::store::ids::Lane;
use crate::store::postgres::session_lock::LockSession;

/// First key of the advisory locks: "lane" in ASCII. The second key is the number of the lane.
const LOCKS: i32 = 0x6c61_6e65;
/// Second key of the lock that all workers of a server share; the number of the server is added.
const WORKERS: i32 = 1 << limits::LANE_BITS;

pub(super) struct Owner {
    app: Arc<App>,
    server: usize,
    batch_orders_max: usize,
    owned: BTreeMap<Lane, Owned>,
    /// Number of lanes that the process owns on all servers, without those that it is giving up.
    kept: Arc<AtomicUsize>,
    /// Notified when the task of a lane has ended.
    ended: Arc<Notify>,
    /// Time of the last answer of Redis.
    answered_at: Instant,
}

/// A lane that this process owns.
struct Owned {
    /// Cancelled to give up the lane: its task ends after the current batch, or, if the service stops, once the log is
    /// written.
    let_go: CancellationToken,
    /// Cancelled once the task has ended.
    ended: CancellationToken,
    /// Aborts the task if the owner is aborted.
    _task: AbortOnDropHandle<()>,
}

/// All locks, at one moment.
struct Check {
    lanes: Vec<Lane>,
    /// Number of workers of the server.
    workers: i64,
    /// Lanes that have an owner.
    owned: Vec<i64>,
}

impl Owner {
    /// `kept` is shared by all owners of the process.
    pub(super) fn new(
        app: Arc<App>,
        server: usize,
        batch_orders_max: usize,
        kept: Arc<AtomicUsize>,
    ) -> Self {
        let (owned, ended) = (BTreeMap::new(), Arc::default());
        Self { app, server, batch_orders_max, owned, kept, ended, answered_at: Instant::now() }
    }

    /// Owns lanes until the service stops and the lanes' tasks have written their logs.
    pub(super) async fn run(mut self) {
        let stop = self.app.shutdown.stop_token().clone();
        let mut throttle = LogThrottle::default();
        while !stop.is_cancelled() {
            if let Err(error) = self.own().await
                && throttle.allows()
            {
                tracing::warn!(%error, lanes = self.owned.len(), "this process can own no lanes: their entries wait for another owner");
            }
            self.give_up().await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(limits::BACKOFF_MIN) => {}
            }
        }
    }

    /// Owns lanes through one session, until the session is lost, Redis is silent, or the service has stopped.
    async fn own(&mut self) -> Result<(), JobError> {
        let Stores { pool, fleet, .. } = &self.app.stores;
        fleet.at(self.server).check().await?;
        self.answered_at = Instant::now();
        let mut session = LockSession::open(pool, limits::OWNER_SESSION_IDLE_MAX).await?;
        be_counted(&mut session, self.workers()).await?;
        let stop = self.app.shutdown.stop_token().clone();
        while !(stop.is_cancelled() && self.owned.is_empty()) {
            self.share(&mut session).await?;
            self.hear_redis().await?;
            tokio::select! {
                () = stop.cancelled(), if !stop.is_cancelled() => {}
                () = self.ended.notified() => {}
                () = sleep(limits::OWNER_PERIOD) => {}
            }
        }
        Ok(session.close().await?)
    }

    /// Fails once Redis has been silent for too long. Never waits so long that the session would be idle.
    async fn hear_redis(&mut self) -> Result<(), JobError> {
        let redis = self.app.stores.fleet.at(self.server);
        let asked = timeout(limits::OWNER_PERIOD, redis.check()).await;
        match asked.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) {
            Ok(()) => self.answered_at = Instant::now(),
            Err(error) if self.answered_at.elapsed() >= limits::OWNER_REDIS_SILENCE_MAX => {
                return Err(error.into());
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Frees lanes that have been given up, gives up a surplus, and takes free lanes.
    async fn share(&mut self, session: &mut LockSession) -> sqlx::Result<()> {
        for (lane, owned) in self.owned.extract_if(.., |_, owned| owned.ended.is_cancelled()) {
            owned.let_go(&self.kept);
            session.unlock((LOCKS, lane.get())).await?;
        }
        let check = check(session, self.workers()).await?;
        let part = check.part();
        let surplus = |kept| (kept > part).then(|| kept - 1);
        for owned in self.owned.values().filter(|owned| !owned.let_go.is_cancelled()) {
            if self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, surplus).is_err() {
                break;
            }
            owned.let_go.cancel();
        }
        if self.app.shutdown.stop_token().is_cancelled() {
            return Ok(());
        }
        let fleet = &self.app.stores.fleet;
        let here: Vec<Lane> =
            check.free().filter(|lane| fleet.number(*lane) == self.server).collect();
        for lane in here {
            let place = |kept| (kept < part).then_some(kept + 1);
            if self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place).is_err() {
                break;
            }
            let locked = session.try_lock((LOCKS, lane.get())).await;
            match locked {
                Ok(true) => self.start(lane),
                _ => drop(self.kept.fetch_sub(1, Ordering::Relaxed)),
            }
            locked?;
        }
        Ok(())
    }

    /// Second key of the lock that the server's workers share.
    fn workers(&self) -> i32 {
        WORKERS + i32::try_from(self.server).unwrap_or_default()
    }

    fn start(&mut self, lane: Lane) {
        let let_go = self.app.shutdown.stop_token().child_token();
        let ended = CancellationToken::new();
        let worker = LaneWorker::new(self.app.clone(), lane, self.batch_orders_max);
        let (told, at_end, notify) = (let_go.clone(), ended.clone(), self.ended.clone());
        let task = self.app.shutdown.spawn(async move {
            // Even if the task panics.
            let _at_end = at_end.drop_guard();
            worker.run(&told).await;
            notify.notify_one();
        });
        self.owned.insert(lane, Owned { let_go, ended, _task: AbortOnDropHandle::new(task) });
    }

    /// Gives up all lanes, whose locks are gone, and waits for the end of their tasks.
    async fn give_up(&mut self) {
        self.owned.values().for_each(|owned| owned.let_go(&self.kept));
        while let Some((_, owned)) = self.owned.pop_first() {
            owned.ended.cancelled().await;
        }
    }
}

impl Owned {
    /// Gives up the lane, once.
    fn let_go(&self, kept: &AtomicUsize) {
        if !self.let_go.is_cancelled() {
            self.let_go.cancel();
            kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Takes the lock that the server's workers share.
async fn be_counted(session: &mut LockSession, workers: i32) -> sqlx::Result<()> {
    let lock = sqlx::query!("SELECT pg_advisory_lock_shared($1, $2)", LOCKS, workers);
    session.ask(async |connection| lock.fetch_one(connection).await.map(drop)).await
}

async fn check(session: &mut LockSession, workers: i32) -> sqlx::Result<Check> {
    let check = sqlx::query!(
        r#"SELECT (SELECT lanes FROM settings) AS "lanes!",
                  count(*) FILTER (WHERE objid::bigint = $2) AS "workers!",
                  coalesce(array_agg(objid::bigint) FILTER (WHERE objid::bigint <> $2), '{}') AS "owned!"
           FROM pg_locks
           WHERE locktype = 'advisory' AND classid::bigint = $1 AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"#,
        i64::from(LOCKS),
        i64::from(workers),
    );
    let check = session.ask(async |connection| check.fetch_one(connection).await).await?;
    let lanes = Lane::all(check.lanes).collect();
    Ok(Check { lanes, workers: check.workers, owned: check.owned })
}

impl Check {
    /// Number of lanes that each worker may own.
    fn part(&self) -> usize {
        let workers = usize::try_from(self.workers.max(1)).unwrap_or_default();
        self.lanes.len().div_ceil(workers)
    }

    fn free(&self) -> impl Iterator<Item = Lane> {
        self.lanes.iter().copied().filter(|lane| !self.owned.contains(&lane.get().into()))
    }
}
