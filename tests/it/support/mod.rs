//! What the tests stand on: servers, and an app that speaks the words of the business.

use std::time::Duration;

use flash_sale::store::ids::Lane;
use private_servers::testing::RedisProxy;

pub mod buyers;
mod changes;
mod client;
mod lifecycle;
pub mod lines;
pub mod load;
pub mod plans;
mod postponed;
pub mod process;
pub mod servers;
mod tables;
mod test_app;

pub use client::{Events, Reply, codes, references, resolved};
pub use lifecycle::moved;
pub use private_servers::testing::{
    Bounded, bounded, bounded_by, eventually, patience, patience_of, tries,
};
pub use servers::{Addresses, OwnServers, shared};
pub use test_app::{
    CODE, IMPATIENT_WITH_POSTGRES, IMPATIENT_WITH_REDIS, SECRET, TestApp, admin_token_of,
    claims_in, client, done, http_state, now, scoped_token, token, user, worker_of, write_all,
};

/// A proxy in front of the app's Redis that can interfere with `command`.
pub async fn proxy_before(app: &TestApp, command: &'static str) -> RedisProxy {
    RedisProxy::before(app.redis_url(), command).await
}

/// Arguments that make the binary use the app's data, with Redis behind this proxy.
pub fn store_arguments_behind(app: &TestApp, proxy: &RedisProxy) -> Vec<String> {
    let mut arguments = app.store_arguments();
    for argument in arguments.iter_mut().filter(|argument| *argument == app.redis_url()) {
        proxy.url().clone_into(argument);
    }
    arguments
}

/// The only lane of an app with one.
pub fn lane() -> Lane {
    Lane::all(1).next().expect("there is one")
}

/// How often any script has been called by its hash since CONFIG RESETSTAT.
pub async fn script_calls(app: &TestApp) -> i64 {
    command_calls(app, "evalsha").await
}

/// How often this command, in lower case, has been called since CONFIG RESETSTAT: by all clients of the server.
pub async fn command_calls(app: &TestApp, command: &str) -> i64 {
    let stats: String = app.redis(&["INFO", "commandstats"]).await;
    let begin = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Moves the clock of this process on, while nothing is under way.
pub async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
