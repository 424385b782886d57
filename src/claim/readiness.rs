//! Readiness of this process for claims.

use std::sync::Arc;

use chrono::TimeDelta;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::fence::LaneStates;
use crate::log::backlog::Backlog;
use crate::store::Stores;
use crate::store::durability::Durability;
use crate::store::installation;
use crate::store::postgres;
use crate::store::redis::{self, Redis};

/// Asks the stores.
pub struct Readiness {
    pool: PgPool,
    redis: Redis,
    backlog: Arc<Backlog>,
    lanes: Arc<LaneStates>,
    durability: Arc<Durability>,
    shutdown: Shutdown,
}

/// Whether claims can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadyStatus {
    /// All checks are good.
    Ready,
    /// Claims are taken; another check fails.
    Degraded,
    /// No claim can be taken.
    Unavailable,
}

/// The answer, check by check: `ok`, or the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReadyReport {
    /// All checks together.
    pub status: ReadyStatus,
    /// Redis takes the claims, so there are none without it.
    pub redis: String,
    /// Postgres keeps the orders; claims go on without it for a while.
    pub postgres: String,
    /// Accepted claims that wait to be written, over all lanes; too many, and no more are accepted.
    pub backlog: String,
    /// Whether all lanes are open; a lane that is recovering takes no claims, and the others go on.
    pub lanes: String,
    /// Whether claims are confirmed at the level of `--durability`; while they can't be, none is.
    pub durability: String,
    /// Whether Redis's clock, which opens and closes sales, agrees with this process's, which judges tokens.
    pub clock: String,
    /// Whether the process goes on; a stopping one finishes its requests and takes no new ones.
    pub process: String,
}

impl Readiness {
    /// Checks of these stores.
    pub fn new(
        stores: &Stores,
        backlog: &Arc<Backlog>,
        (lanes, durability): (&Arc<LaneStates>, &Arc<Durability>),
        shutdown: &Shutdown,
    ) -> Self {
        let Stores { pool, redis, .. } = stores.clone();
        Self {
            pool,
            redis,
            backlog: backlog.clone(),
            lanes: lanes.clone(),
            durability: durability.clone(),
            shutdown: shutdown.clone(),
        }
    }

    /// Asks the stores now.
    pub async fn check(&self) -> ReadyReport {
        // A replica can be read, too, but takes no claims.
        let look = async {
            self.redis.check().await?;
            self.backlog.look().await
        };
        let (postgres, backlog) = tokio::join!(self.learn_lanes(), look);
        let ok = || "ok".to_owned();
        let server_fault = self.durability.server_fault();
        let (redis, backlog, claims_taken) = match backlog {
            Err(error) => (redis::trouble(&error).to_owned(), "unknown".into(), false),
            Ok(_) if server_fault.is_some() => {
                (server_fault.unwrap_or_default().to_owned(), ok(), false)
            }
            Ok(_) if self.backlog.has_room() => (ok(), ok(), true),
            Ok(orders) => {
                let max = self.backlog.orders_max();
                let full =
                    format!("overloaded: {orders} orders wait to be written, at most {max} may");
                (ok(), full, false)
            }
        };
        let stopping = self.shutdown.is_announced();
        let recovering = self.lanes.recovering();
        let apart = match postgres {
            true => installation::apart(&self.pool).await.ok().flatten(),
            false => None,
        };
        let (level, not_kept) = self.durability.report();
        let (clock, clock_fits) = clock(self.durability.clock_ahead());
        let has_open_lane = self.lanes.all().len() > recovering.len();
        let takes_claims = claims_taken
            && !stopping
            && apart.is_none()
            && has_open_lane
            && not_kept.is_none()
            && clock_fits;
        let whole = postgres && recovering.is_empty() && clock == "ok";
        let status = match (takes_claims, whole) {
            (false, _) => ReadyStatus::Unavailable,
            (true, false) => ReadyStatus::Degraded,
            (true, true) => ReadyStatus::Ready,
        };
        let postgres = if postgres { ok() } else { postgres::trouble(&self.pool).await };
        let process = if stopping { "stopping".into() } else { ok() };
        let lanes = match (apart, &recovering[..]) {
            (Some(why), _) => {
                format!(
                    "closed, since Postgres is behind Redis ({why}): `flash-sale recover --trust` decides"
                )
            }
            (None, []) => ok(),
            (None, closed) => {
                let closed: Vec<String> = closed.iter().map(ToString::to_string).collect();
                format!("recovering: {}", closed.join(", "))
            }
        };
        let durability = not_kept.map_or_else(ok, |why| format!("{level} isn't kept: {why}"));
        ReadyReport { status, redis, postgres, backlog, lanes, durability, clock, process }
    }

    /// Learns the number of lanes, which may have grown. False when Postgres doesn't answer.
    pub async fn learn_lanes(&self) -> bool {
        if !postgres::answers(&self.pool).await {
            return false;
        }
        let settings = installation::read(&self.pool).await;
        if let Ok(settings) = &settings {
            self.backlog.learn_lanes(settings.lanes);
        }
        settings.is_ok()
    }
}

/// Words about a clock that is so far ahead, and whether claims can be taken by it.
fn clock(ahead: TimeDelta) -> (String, bool) {
    let apart = ahead.abs().to_std().unwrap_or_default();
    if apart <= limits::CLOCKS_APART_MAX {
        return ("ok".to_owned(), true);
    }
    let word = if ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
    let words = format!("Redis's clock is {} s {word} this process's", apart.as_secs());
    (words, apart <= limits::CLOCKS_APART_USABLE)
}
