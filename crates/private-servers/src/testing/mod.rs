//! Servers for tests that break them, a proxy in front of Redis, child processes, log lines, and waits with a bound.
//!
//! ```no_run
//! use private_servers::testing::{RedisProxy, RedisServer, eventually};
//!
//! # async fn test() {
//! let server = RedisServer::start(&["--appendonly", "yes"]);
//! let proxy = RedisProxy::before(&server.url(), "EVALSHA").await;
//! proxy.hold();
//! // ... start what connects to proxy.url() ...
//! eventually("its script is held back", async || proxy.held() > 0).await;
//! # }
//! ```
//!
//! # Model
//!
//! Every server is a real process behind a shell that ends with its standard input. The kernel closes that input however
//! the test ends, so nothing is left behind, not even by SIGKILL.
//!
//! # Panics
//!
//! These are tools of tests: they panic where a program returns an error, with a text that names what is missing.

mod redis_server;

mod data_folder;

mod process;

mod proxy;

mod patience;

mod listening;

pub use data_folder::DataFolder;
pub use listening::{LogLines, ask_each_time};
pub use patience::{
    Bounded, PATIENCE, bound_this_test, bounded, bounded_by, eventually, patience, patience_of,
    tries,
};
pub use process::{Finished, Process, run, run_within};
pub use proxy::{RedisProxy, Switch};
pub use redis_server::RedisServer;
