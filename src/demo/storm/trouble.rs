//! Trouble during a storm, made by its watchers. A demo breaks only what it has started itself: its own worker, and a
//! private Redis.
//!
//! # What each trouble does
//!
//! * The worker is killed: its tasks are dropped wherever they are, even in the middle of a transaction, and nothing is
//!   acknowledged. New tasks start [`limits::STORM_WORKER_AWAY`] later. The process itself goes on, because it is also
//!   the API.
//! * Redis is frozen: SIGSTOP, and after [`limits::STORM_FROZEN`] SIGCONT.
//! * Redis is emptied: FLUSHALL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Context, ensure};
use redis::cmd;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::sleep;
use utoipa::ToSchema;

use crate::base::limits;
use crate::store::redis::Redis;

/// Trouble that can be made.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The worker is killed, and started again.
    KillWorker,
    /// Redis is frozen for a moment.
    FreezeRedis,
    /// Redis loses all its data.
    EmptyRedis,
}

/// Trouble that was made in a storm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Met {
    pub trouble: Trouble,
    /// Time since the first shopper's arrival.
    pub at_ms: u64,
}

/// Trouble that can be made here, and trouble that was made.
#[derive(Default)]
pub struct Troubles {
    /// Kills the worker; unset if the servers aren't this process's own.
    own: OnceLock<Arc<Notify>>,
    is_on: AtomicBool,
    met: Mutex<Vec<Met>>,
}

impl Troubles {
    /// Allows trouble, because the servers are this process's own. The returned `Notify` says when the worker has to
    /// die.
    pub fn allow(&self) -> Arc<Notify> {
        self.own.get_or_init(Arc::default).clone()
    }

    /// Trouble that can be made now.
    pub fn offered(&self) -> Vec<Trouble> {
        if self.own.get().is_none() || self.is_on.load(Ordering::Relaxed) {
            return Vec::new();
        }
        vec![Trouble::KillWorker, Trouble::FreezeRedis, Trouble::EmptyRedis]
    }

    /// Trouble that was made in the current storm.
    pub fn met(&self) -> Vec<Met> {
        self.met.lock().expect("no holder of this lock panics").clone()
    }

    /// Clears the list for a new storm.
    pub fn forget(&self) {
        self.met.lock().expect("no holder of this lock panics").clear();
    }

    /// Claims the right to make trouble, which only one may have at a time. False if other trouble lasts.
    pub fn begin(&self, met: Met) -> bool {
        let is_first = !self.is_on.swap(true, Ordering::Relaxed);
        if is_first {
            self.met.lock().expect("no holder of this lock panics").push(met);
        }
        is_first
    }

    /// Makes the trouble that [`begin`](Self::begin) has recorded, and waits until it is over.
    pub async fn make(&self, trouble: Trouble, redis: &Redis) {
        let made = match trouble {
            Trouble::KillWorker => self.kill_worker().await,
            Trouble::FreezeRedis => freeze(redis).await,
            Trouble::EmptyRedis => redis.query(&cmd("FLUSHALL")).await.map_err(Into::into),
        };
        self.is_on.store(false, Ordering::Relaxed);
        if let Err(error) = made {
            tracing::warn!(%error, ?trouble, "the trouble of a storm could not be made");
        }
    }

    async fn kill_worker(&self) -> anyhow::Result<()> {
        self.own.get().context("it was allowed")?.notify_one();
        sleep(limits::STORM_WORKER_AWAY).await;
        Ok(())
    }
}

/// Stops and continues the Redis that answers. A separate process outside the terminal's group does both, so Redis goes
/// on even if this process dies meanwhile.
async fn freeze(redis: &Redis) -> anyhow::Result<()> {
    let about: String = redis.query(cmd("INFO").arg("server")).await?;
    let pid = about.lines().find_map(|line| line.strip_prefix("process_id:"));
    let pid = pid.context("Redis doesn't tell its process")?.trim();
    let script =
        format!("kill -STOP {pid} && sleep {} ; kill -CONT {pid}", limits::STORM_FROZEN.as_secs());
    let done = Command::new("sh").args(["-c", &script]).process_group(0).status().await?;
    ensure!(done.success(), "{done}");
    Ok(())
}
