//! Moves accepted claims from the order log in Redis to orders in Postgres.
//!
//! One process at a time owns a lane ([owner](crate::worker::owner)). The lane's task reads entries, writes them, and
//! trims the log ([lane](crate::worker::lane)).
//!
//! Jobs over the whole installation have a task each ([jobs](crate::worker::jobs)):
//!
//! | job | when | what |
//! |---|---|---|
//! | [load](crate::coupon::load) | every 10 s | loads sales that open soon |
//! | [archive](crate::operator::archive) | once a minute | removes sales that are over from Redis |
//! | [changes](crate::coupon::changes) | once a second | applies changes of coupons that have not reached Redis |
//! | [numbers](crate::recovery::reconcile::gauges) | every 5 s | updates the gauges about both stores |
//! | [reconcile](crate::recovery::reconcile::job) | every `--reconcile-period-ms` | compares the stores |
//! | [stock returns](crate::order::release) | twice a second | returns units of closed orders to stock |
//! | [expiry](crate::order::expiry) | once a second | closes orders that have not been paid in time |
//! | [retention](crate::operator::retention) | once a minute | deletes old orders and records |
//! | [refunds](crate::payment) | once a second | has payments refunded, and checks held and opened ones |
//!
//! **An entry is acknowledged only once it is in Postgres, as a row or as a dead letter.** A failed run has
//! acknowledged nothing that it didn't write; the worker logs the failure once, waits, and starts over with the pending
//! entries. So an outage of Postgres costs time and never an order.

// Jobs over the whole installation.
pub mod jobs;

// Which lanes this process owns.
pub mod owner;

// The task of a lane.
pub mod lane;

// The write job: entries become rows.
pub mod write;

// State of a lane's worker, shared by its batches.
mod state;

// Entries that have been read and not finished, claim by claim.
mod open_entries;

// Why a run fails.
mod failure;

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::app::App;
use crate::base::config::Config;
pub use failure::JobError;
pub use lane::LaneWorker;
use owner::Owner;

/// Starts an owner of lanes for each server, and the jobs, as tasks of the service. Aborting the tasks is like killing
/// the process: what was under way is neither finished nor acknowledged.
pub fn start(app: &Arc<App>, config: &Config) -> Vec<JoinHandle<()>> {
    let mut tasks = jobs::start(app, config);
    let batch_orders_max = usize::try_from(config.batch_orders_max).unwrap_or(usize::MAX);
    let kept = Arc::default();
    for server in 0..app.stores.fleet.each().len() {
        let owner = Owner::new(app.clone(), server, batch_orders_max, Arc::clone(&kept));
        tasks.push(app.shutdown.spawn(owner.run()));
    }
    tasks
}
