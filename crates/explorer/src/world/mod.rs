//! The installation under test: two processes that answer requests and two workers, a Redis with a replica, a Postgres, and
//! a proxy on each way between them.
//!
//! Each server and each process is the child of a shell that ends with its standard input. The kernel closes that input
//! however the explorer ends, so nothing is left behind.

// The installation, put together.
mod installation;

// A process of the service: started, killed, replaced, kept running.
mod service;

// Redis and its replica.
mod redis_pair;

// One Redis server.
mod redis_node;

// Postgres, with a database for each run.
mod postgres;

// Ways between processes and stores, which can be disturbed.
mod proxy;

// Children that never outlive the explorer.
mod keep;

// Permissions of this machine.
mod machine;

// The time of a run.
mod time;

pub use installation::{Installation, PREFIX, Signer};
pub use keep::command_of;
pub use machine::Machine;
pub use postgres::Postgres;
pub use proxy::{Mood, Proxy};
pub use redis_node::{RedisNode, answered};
pub use redis_pair::RedisPair;
pub use service::Service;
pub use time::Stopwatch;
