//! The lanes of a server that this process owns: one owner at a time writes a lane, and others stand by for it.
//!
//! # Model
//!
//! A worker has one session of Postgres of its own for each server of Redis. The session holds an advisory lock for each
//! lane that the worker owns, and one shared lock by which the workers of the server are counted. Twice a second the worker
//! looks at all of these locks. If it owns more lanes than its part (lanes / workers, rounded up), it lets go of the surplus,
//! each lane between two batches; if fewer, it takes lanes that are free.
//!
//! # Authority
//!
//! Postgres grants the locks, and frees them with their session: at once when the process dies; after
//! [`limits::OWNER_SESSION_IDLE_MAX`] without a query when its machine is gone, or the process is paused. No clock of
//! Redis, and no idle time of an entry, has a say.
//!
//! # What each failure does
//!
//! * Process killed: another worker takes its lanes within a look, and reads their pending entries from the start.
//! * Session lost, while the process lives: the process gives up all lanes, and begins anew with another session. Until
//!   it notices, a lane may have two owners. They do some work twice and harm nothing: the constraints of Postgres
//!   decide about rows, and an acknowledgement counts once.
//! * Redis doesn't answer this process for [`limits::OWNER_REDIS_SILENCE_MAX`]: the process ends its session, and isn't
//!   counted as a worker until Redis answers again. Another worker may reach Redis.
//! * Postgres away: nobody owns a lane, and the entries wait in the log.
//!
//! # What is not promised
//!
//! An even share: of 4 lanes and 3 workers, one worker may stand by for the others.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::failure::PassError;
use super::lane::LaneWorker;
use crate::app::App;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::store::Stores;
use crate::store::ids::Lane;
use crate::store::postgres::session_lock::LockSession;

/// First key of the advisory locks: "lane" in ASCII. The second one is the number of the lane.
const LOCKS: i32 = 0x6c61_6e65;
/// Second key of the lock that all workers of a server share, beside the number of the server.
const WORKERS: i32 = 1 << limits::LANE_BITS;

/// Owns lanes, and runs their tasks.
pub(super) struct Owner {
    app: Arc<App>,
    /// Number of the server.
    server: usize,
    batch_orders_max: usize,
    owned: BTreeMap<Lane, Owned>,
    /// Notified when the task of a lane has ended.
    ended: Arc<Notify>,
    /// Time of the last answer of Redis.
    answered_at: Instant,
}

/// A lane that this process owns.
struct Owned {
    /// Cancelled when the lane is no longer ours, or won't be: its task ends after the batch.
    let_go: CancellationToken,
    /// Cancelled once the task has ended.
    ended: CancellationToken,
    /// An owner that is aborted takes it along.
    _task: AbortOnDropHandle<()>,
}

/// All locks, at one moment.
struct Look {
    /// Lanes of the server.
    lanes: Vec<Lane>,
    workers: i64,
    /// Lanes that have an owner.
    owned: Vec<i64>,
}

impl Owner {
    pub(super) fn new(app: Arc<App>, server: usize, batch_orders_max: usize) -> Self {
        let (owned, ended) = (BTreeMap::new(), Arc::default());
        Self { app, server, batch_orders_max, owned, ended, answered_at: Instant::now() }
    }

    /// Owns lanes until the service stops and their tasks have written what is in their logs.
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

    /// Owns lanes by one session, until that is lost, Redis is silent, or the service has stopped.
    async fn own(&mut self) -> Result<(), PassError> {
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

    /// Fails once Redis has been silent for too long. Waits for an answer no longer than the session may be idle.
    async fn hear_redis(&mut self) -> Result<(), PassError> {
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

    /// Frees lanes that have been let go, lets go of a surplus, and takes free lanes.
    async fn share(&mut self, session: &mut LockSession) -> sqlx::Result<()> {
        for (lane, _) in self.owned.extract_if(.., |_, owned| owned.ended.is_cancelled()) {
            session.unlock((LOCKS, lane.get())).await?;
        }
        let mut look = look(session, self.workers()).await?;
        look.lanes.retain(|lane| self.app.stores.fleet.number(*lane) == self.server);
        let part = look.part();
        for owned in self.owned.values().skip(part) {
            owned.let_go.cancel();
        }
        if self.app.shutdown.stop_token().is_cancelled() {
            return Ok(());
        }
        for lane in look.free() {
            if self.owned.len() < part && session.try_lock((LOCKS, lane.get())).await? {
                self.start(lane);
            }
        }
        Ok(())
    }

    /// Second key of the lock that the workers of the server share.
    fn workers(&self) -> i32 {
        WORKERS + i32::try_from(self.server).unwrap_or_default()
    }

    /// Starts the task of a lane.
    fn start(&mut self, lane: Lane) {
        let let_go = self.app.shutdown.stop_token().child_token();
        let ended = CancellationToken::new();
        let worker = LaneWorker::new(self.app.clone(), lane, self.batch_orders_max);
        let (told, at_end, notify) = (let_go.clone(), ended.clone(), self.ended.clone());
        let task = self.app.shutdown.spawn(async move {
            // Also if the task panics.
            let _at_end = at_end.drop_guard();
            worker.run(&told).await;
            notify.notify_one();
        });
        self.owned.insert(lane, Owned { let_go, ended, _task: AbortOnDropHandle::new(task) });
    }

    /// Lets go of all lanes, whose locks are gone, and waits for the end of their tasks.
    async fn give_up(&mut self) {
        self.owned.values().for_each(|owned| owned.let_go.cancel());
        while let Some((_, owned)) = self.owned.pop_first() {
            owned.ended.cancelled().await;
        }
    }
}

/// Takes the lock that all workers share.
async fn be_counted(session: &mut LockSession, workers: i32) -> sqlx::Result<()> {
    let lock = sqlx::query!("SELECT pg_advisory_lock_shared($1, $2)", LOCKS, workers);
    session.ask(async |connection| lock.fetch_one(connection).await.map(drop)).await
}

async fn look(session: &mut LockSession, workers: i32) -> sqlx::Result<Look> {
    let look = sqlx::query!(
        r#"SELECT (SELECT lanes FROM settings) AS "lanes!",
                  count(*) FILTER (WHERE objid::bigint = $2) AS "workers!",
                  coalesce(array_agg(objid::bigint) FILTER (WHERE objid::bigint <> $2), '{}') AS "owned!"
           FROM pg_locks
           WHERE locktype = 'advisory' AND classid::bigint = $1 AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"#,
        i64::from(LOCKS),
        i64::from(workers),
    );
    let look = session.ask(async |connection| look.fetch_one(connection).await).await?;
    let lanes = Lane::all(look.lanes).collect();
    Ok(Look { lanes, workers: look.workers, owned: look.owned })
}

impl Look {
    /// Lanes that each worker may own.
    fn part(&self) -> usize {
        let workers = usize::try_from(self.workers.max(1)).unwrap_or_default();
        self.lanes.len().div_ceil(workers)
    }

    fn free(&self) -> impl Iterator<Item = Lane> {
        self.lanes.iter().copied().filter(|lane| !self.owned.contains(&lane.get().into()))
    }
}
