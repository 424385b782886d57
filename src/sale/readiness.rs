//! Whether this process should be sent claims.

use std::sync::atomic::{AtomicI32, Ordering};

use redis::RedisResult;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::ids::Lane;
use super::keys::Keys;
use super::order_log::OrderLog;
use super::{Stores, settings};
use crate::base::shutdown::Shutdown;
use crate::kit::postgres;
use crate::kit::redis::Redis;

/// Asks the stores.
pub struct Readiness {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    /// Entries that may wait to be written.
    backlog_max: u64,
    /// Lanes to ask about while Postgres can't tell.
    lanes: AtomicI32,
    shutdown: Shutdown,
}

/// Whether claims can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadyStatus {
    /// Everything is there.
    Ready,
    /// Claims are taken; something else isn't there.
    Degraded,
    /// No claims, please.
    Unavailable,
}

/// The answer, check by check: `ok`, or what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReadyReport {
    /// All checks together.
    pub status: ReadyStatus,
    /// Redis takes the claims, so there are none without it.
    pub redis: String,
    /// Postgres keeps the orders; claims go on without it for a while.
    pub postgres: String,
    /// Entries that wait to be written, over all lanes; too many, and no more claims are wanted.
    pub backlog: String,
}

impl Readiness {
    /// Puts the parts together.
    pub fn new(stores: &Stores, lanes: i32, backlog_max: u64, shutdown: Shutdown) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        Self { pool, redis, keys, backlog_max, lanes: lanes.into(), shutdown }
    }

    /// Asks now.
    pub async fn check(&self) -> ReadyReport {
        let (postgres, backlog) = tokio::join!(self.learn_lanes(), self.backlog());
        let ok = || "ok".to_owned();
        let (redis, backlog, claims_taken) = match backlog {
            Err(_) => ("can't be reached".into(), "unknown".into(), false),
            Ok(entries) if entries > self.backlog_max => {
                (ok(), format!("{entries} entries, more than {}", self.backlog_max), false)
            }
            Ok(_) => (ok(), ok(), true),
        };
        let stopping = self.shutdown.stop_token().is_cancelled();
        let status = match (claims_taken && !stopping, postgres) {
            (false, _) => ReadyStatus::Unavailable,
            (true, false) => ReadyStatus::Degraded,
            (true, true) => ReadyStatus::Ready,
        };
        let postgres = if postgres { ok() } else { "can't be reached".into() };
        ReadyReport { status, redis, postgres, backlog }
    }

    /// Learns the number of lanes, which may have grown. False when Postgres doesn't answer.
    pub async fn learn_lanes(&self) -> bool {
        if !postgres::answers(&self.pool).await {
            return false;
        }
        let settings = settings::read(&self.pool).await;
        if let Ok(settings) = &settings {
            self.lanes.store(settings.lanes, Ordering::Relaxed);
        }
        settings.is_ok()
    }

    /// Entries that wait to be written, over all lanes.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn backlog(&self) -> RedisResult<u64> {
        let mut entries = 0;
        for lane in Lane::all(self.lanes.load(Ordering::Relaxed)) {
            let backlog = OrderLog::backlog(&self.redis, &self.keys.log(lane)).await?;
            entries += backlog.pending + backlog.unread;
        }
        Ok(entries)
    }
}
