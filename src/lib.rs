//! flash-sale sells a limited number of coupons to a crowd that arrives all at once: never one too
//! many, never twice to one person, and never forgetting a sale that it confirmed.
//!
//! The modules stand in reading order, and the order is the law: each uses only those below it
//! (`tests/tidy.rs` checks that). ARCHITECTURE.md follows one claim through the files.

#![warn(clippy::unwrap_used)]

/// The command line: the only place where things are put together.
pub mod cli;

/// The door for requests: HTTP in, one call, one reply.
pub mod http;

/// The door for the order log: accepted claims leave Redis and become orders in Postgres.
pub mod worker;

/// The assembled service: one field for each capability.
pub mod app;

/// The business: coupons, claims, orders and stock; all SQL and all scripts of the sale.
pub mod sale;

/// Mechanisms that have never heard of a coupon: Redis, scripts, locks, ids, tokens, servers.
pub mod kit;

/// The base of all other modules: settings, limits, the clock, telemetry and shutdown.
pub mod base;
