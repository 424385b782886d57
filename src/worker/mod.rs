//! The door for the order log: accepted claims leave Redis and become orders in Postgres.
//!
//! A lane is a partition: one process at a time owns it ([owner](crate::worker::owner)). Its task reads entries, writes
//! them, and tidies up ([lane](crate::worker::lane)).
//!
//! Passes over the whole installation have a task each ([passes](crate::worker::passes)):
//!
//! | pass | when | what |
//! |---|---|---|
//! | [load](crate::coupon::load) | every 10 s | loads sales that open soon |
//! | [archive](crate::operator::archive) | once a minute | relieves Redis of sales that are over |
//! | [changes](crate::coupon::changes) | once a second | applies changes of coupons that have not reached Redis |
//! | [numbers](crate::recovery::reconcile::gauges) | every 5 s | looks up the metrics of both stores |
//! | [reconcile](crate::recovery::reconcile::pass) | every `--reconcile-period-ms`, all processes together | compares Redis with Postgres |
//! | [stock returns](crate::order::give_back) | twice a second | returns units of closed orders to stock |
//! | [expiry](crate::order::expiry) | once a second | closes orders that have not been paid in time |
//! | [retention](crate::operator::retention) | once a minute | deletes orders older than `--orders-days`, and records older than `--records-days` |
//! | [refunds](crate::payment) | once a second | asks gateways to refund payments |
//!
//! **An entry is acknowledged only once it is in Postgres, as a row or as a dead letter.** A failed pass has
//! acknowledged nothing that it didn't write; the worker logs it once, waits, and begins again with the pending
//! entries. So an outage of Postgres costs time and never an order.

// Passes over the whole installation.
pub mod passes;

// Which lanes this process owns.
pub mod owner;

// The task of a lane.
pub mod lane;

// The write pass: entries become rows.
pub mod write;

// Notes of the worker of a lane, which its batches share.
mod state;

// Entries that have been read and not finished, claim by claim.
mod open_entries;

// Reasons why a pass breaks off.
mod failure;

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::app::App;
use crate::base::config::Config;
pub use failure::PassError;
pub use lane::LaneWorker;
use owner::Owner;

/// Starts an owner of lanes for each server, and the passes beside them, as tasks of the service. Whoever aborts these leaves
/// the work as a killed process would: whatever was under way is neither finished nor acknowledged.
pub fn start(app: &Arc<App>, config: &Config) -> Vec<JoinHandle<()>> {
    let mut tasks = passes::start(app, config);
    let batch_orders_max = usize::try_from(config.batch_orders_max).unwrap_or(usize::MAX);
    for server in 0..app.stores.fleet.each().len() {
        let owner = Owner::new(app.clone(), server, batch_orders_max);
        tasks.push(app.shutdown.spawn(owner.run()));
    }
    tasks
}
