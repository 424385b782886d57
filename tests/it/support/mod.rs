//! What the tests stand on: servers, and an app that speaks the words of the business.

use flash_sale::sale::ids::Lane;

mod buyers;
mod changes;
mod client;
pub mod data_folder;
mod lifecycle;
pub mod load;
mod patience;
mod postponed;
pub mod process;
pub mod proxy;
pub mod redis_server;
pub mod servers;
mod tables;
mod test_app;

pub use client::{Reply, references};
pub use lifecycle::moved;
pub use patience::{PATIENCE, bounded, eventually, patient_redis};
pub use servers::{OwnServers, shared};
pub use test_app::{IMPATIENT, SECRET, TestApp, now, token, user, write_all};

/// The only lane of an app with one.
pub fn lane() -> Lane {
    Lane::all(1).next().expect("there is one")
}

/// How often any script has been called by its hash since CONFIG RESETSTAT.
pub async fn script_calls(app: &TestApp) -> i64 {
    command_calls(app, "evalsha").await
}

/// How often this command, in lower case, has been called since CONFIG RESETSTAT.
pub async fn command_calls(app: &TestApp, command: &str) -> i64 {
    let stats: String = app.redis(&["INFO", "commandstats"]).await;
    let begin = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}
