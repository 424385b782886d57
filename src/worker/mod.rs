//! The door for the order log: accepted claims leave Redis and become orders in Postgres.
//!
//! A process has a writer and its reliefs for each lane ([lane](crate::worker::lane)). The writer runs passes, one at
//! a time. A pass is a function that reads, decides, writes and reports; a timer, the tests and the drain call the
//! same function. The reliefs run write passes while the writer can't keep up: one consumer reads and locks while
//! another waits for Postgres. A lane without entries rests with the others in one [watch](crate::worker::watch).
//!
//! | pass | when | what |
//! |---|---|---|
//! | [write](crate::worker::write) | when there are entries | entries -> buyers' locks -> rows -> acknowledged |
//! | [recover](crate::worker::recover) | at start, then every `--recover-period-ms` while entries are pending | takes over what dead workers left |
//! | [tidy up](crate::worker::recover) | once a second while entries are written | trims the log, removes consumers that are long gone |
//!
//! Passes over the whole installation have a task each ([passes](crate::worker::passes)):
//!
//! | pass | when | what |
//! |---|---|---|
//! | [load](crate::sale::coupon::load) | every 10 s | loads sales that open soon |
//! | [archive](crate::sale::archive) | once a minute | relieves Redis of sales that are over |
//! | [changes](crate::sale::coupon::changes) | once a second | applies changes of coupons that have not reached Redis |
//! | [revisions](crate::sale::coupon::changes) | in a new life of Redis, and every 10 s | applies the newest revision where Redis has an older one |
//! | [numbers](crate::sale::reconcile::gauges) | every 5 s | looks up the metrics of both stores |
//! | [reconcile](crate::sale::reconcile::pass) | every `--reconcile-period-ms`, all processes together | compares Redis with Postgres; repairs nothing |
//! | [stock returns](crate::sale::order::give_back) | twice a second | returns units of closed orders to stock |
//! | [expiry](crate::sale::order::expiry) | once a second | closes orders that have not been paid in time |
//! | [retention](crate::sale::retention) | once a minute | deletes orders older than `--orders-days`, and records older than `--records-days` |
//! | [refunds](crate::sale::payment) | once a second | asks gateways to refund payments |
//!
//! **An entry is acknowledged only once it is in Postgres, as a row or as a dead letter.** A failed pass has
//! acknowledged nothing that it didn't write; the worker logs it once, waits, and begins again with its own pending
//! entries. So an outage of Postgres costs time and never an order.

// Passes over the whole installation.
pub mod passes;

// The writer and the reliefs of a lane.
pub mod lane;

// The write pass: entries become rows.
pub mod write;

// The timed passes of a lane: taking over, and tidying up.
pub mod recover;

// Entries that a consumer holds, claim by claim.
mod open_entries;

// Lanes at rest, looked at together.
pub mod watch;

// Settings of the passes.
mod settings;

// Reasons why a pass breaks off.
mod failure;

use std::collections::HashSet;
use std::sync::Arc;

use crate::app::App;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::sale::ids::Lane;
use crate::sale::installation;
pub use failure::PassError;
use lane::Lanes;
pub use lane::{LaneWorker, consumer_name};
pub use settings::WorkerSettings;

/// Starts the workers of all lanes, and the passes beside them, as tasks of the service. A lane that another process
/// adds is noticed within a second.
pub fn start(app: &Arc<App>, config: &Config) {
    passes::start(app, config);
    let lanes = Arc::new(Lanes::new(app.clone(), WorkerSettings::from(config)));
    let shutdown = app.shutdown.clone();
    let watching = lanes.clone();
    shutdown.spawn(async move { watching.watch().await });
    shutdown.clone().spawn(async move {
        let mut started = HashSet::new();
        let mut throttle = LogThrottle::default();
        while !shutdown.stop_token().is_cancelled() {
            match installation::read(&lanes.app.stores.pool).await {
                Ok(stored) => Lane::all(stored.lanes)
                    .filter(|lane| started.insert(*lane))
                    .for_each(|lane| lanes.start(lane)),
                Err(error) if throttle.allows() => {
                    tracing::warn!(%error, "the number of lanes can't be read; trying again");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = shutdown.stop_token().cancelled() => {}
                () = tokio::time::sleep(limits::LANES_PERIOD) => {}
            }
        }
    });
}
