//! Readiness of this process for claims.

use std::sync::Arc;

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::fence::{LaneState, LaneStates};
use crate::log::backlog::Backlog;
use crate::store::Stores;
use crate::store::durability::Durability;
use crate::store::fleet::Fleet;
use crate::store::ids::Lane;
use crate::store::installation;
use crate::store::postgres;
use crate::store::redis;

pub struct Readiness {
    pool: PgPool,
    fleet: Fleet,
    backlog: Arc<Backlog>,
    lanes: Arc<LaneStates>,
    durability: Fleet<Arc<Durability>>,
    shutdown: Shutdown,
}

/// Findings about one server; each fault in words.
struct Server {
    /// Why it takes no claims at all.
    fault: Option<String>,
    /// Why it confirms none.
    not_kept: Option<String>,
    /// Why sales open and close at the wrong time.
    clock: Option<String>,
    takes_claims: bool,
}

/// Whether claims can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadyStatus {
    /// All checks have passed.
    Ready,
    /// Claims are taken, but another check fails.
    Degraded,
    /// No claim can be taken.
    Unavailable,
}

/// The result of each check: `ok`, or the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReadyReport {
    /// All checks together.
    pub status: ReadyStatus,
    /// Redis takes the claims: without it there are none.
    pub redis: String,
    /// Postgres keeps the orders; claims go on without it for a while.
    pub postgres: String,
    /// Accepted claims that wait to be written, over all lanes; if there are too many, no more are accepted.
    pub backlog: String,
    /// Whether all lanes are open. A lane that is recovering takes no claims; the others go on.
    pub lanes: String,
    /// Whether claims are confirmed at the level of `--durability`. While they can't be, none is.
    pub durability: String,
    /// Whether Redis's clock, which opens and closes sales, agrees with the clock of this process, which judges tokens.
    pub clock: String,
    /// Whether the process keeps running. A stopping one finishes its requests and takes no new ones.
    pub process: String,
}

impl Readiness {
    pub fn new(
        stores: &Stores,
        backlog: &Arc<Backlog>,
        (lanes, durability): (&Arc<LaneStates>, &Fleet<Arc<Durability>>),
        shutdown: &Shutdown,
    ) -> Self {
        let Stores { pool, fleet, .. } = stores.clone();
        Self {
            pool,
            fleet,
            backlog: backlog.clone(),
            lanes: lanes.clone(),
            durability: durability.clone(),
            shutdown: shutdown.clone(),
        }
    }

    pub async fn check(&self) -> ReadyReport {
        let servers = (0..self.fleet.each().len()).map(|server| self.check_server(server));
        // The servers are checked before the backlog is read: a replica can be read, but the check ends the connection
        // to it.
        let check = async { (join_all(servers).await, self.backlog.check().await) };
        let (postgres, (servers, checked)) = tokio::join!(self.learn_lanes(), check);
        let ok = || "ok".to_owned();
        let backlog = match (checked, self.backlog.orders_max()) {
            (Err(_), _) => Some("unknown".to_owned()),
            (Ok(orders), max) if orders >= max => {
                Some(format!("overloaded: {orders} orders wait to be written, at most {max} may"))
            }
            _ => None,
        };
        let stopping = self.shutdown.is_announced();
        let recovering = self.lanes.recovering();
        let apart = match postgres {
            true => installation::apart(&self.pool).await.ok().flatten(),
            false => None,
        };
        let takes_claims = servers.iter().any(|server| server.takes_claims)
            && self.backlog.has_room()
            && !stopping
            && apart.is_none();
        let all = |fault: fn(&Server) -> &Option<String>| {
            let faults = servers
                .iter()
                .enumerate()
                .filter_map(|(at, server)| Some(self.fleet.named(at, fault(server).as_deref()?)));
            let faults: Vec<String> = faults.collect();
            (!faults.is_empty()).then(|| faults.join("; "))
        };
        let (redis, clock) = (all(|server| &server.fault), all(|server| &server.clock));
        let durability = all(|server| &server.not_kept);
        let whole = postgres
            && recovering.is_empty()
            && [&redis, &clock, &durability].iter().all(|fault| fault.is_none());
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
        let [redis, backlog, durability, clock] =
            [redis, backlog, durability, clock].map(|fault| fault.unwrap_or_else(ok));
        ReadyReport { status, redis, postgres, backlog, lanes, durability, clock, process }
    }

    async fn check_server(&self, number: usize) -> Server {
        let durability = self.durability.at(number);
        let fault = match self.fleet.at(number).check().await {
            Err(error) => Some(redis::trouble(&error)),
            Ok(()) => durability.server_fault(),
        };
        let (level, not_kept) = durability.report();
        let not_kept = not_kept.map(|why| format!("{level} isn't kept: {why}"));
        let (clock, clock_fits) = clock(durability.clock_ahead());
        let is_open =
            |(lane, state): &(Lane, LaneState)| state.is_open && self.fleet.number(*lane) == number;
        let takes_claims = fault.is_none()
            && not_kept.is_none()
            && clock_fits
            && self.lanes.all().iter().any(is_open);
        Server { fault: fault.map(str::to_owned), not_kept, clock, takes_claims }
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

/// Describes a clock that is too far `ahead` or behind, and tells whether claims can be taken by it all the same.
fn clock(ahead: TimeDelta) -> (Option<String>, bool) {
    let apart = ahead.abs().to_std().unwrap_or_default();
    if apart <= limits::CLOCKS_APART_MAX {
        return (None, true);
    }
    let word = if ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
    let words = format!("Redis's clock is {} s {word} this process's", apart.as_secs());
    (Some(words), apart <= limits::CLOCKS_APART_USABLE)
}
