//! flash-sale sells a limited number of coupons to a crowd that arrives all at once: never one too
//! many, never twice to one person, and never forgetting a sale that it confirmed.
//!
//! The modules stand in reading order, and the order is the law: each uses only those below it
//! (`tests/tidy.rs` checks that). ARCHITECTURE.md follows one claim through the files.

#![warn(clippy::unwrap_used)]

/// The command line: the only place where things are put together.
pub mod cli;

/// HTTP: a handler takes a request, makes one call, and replies.
pub mod http;

/// The worker: accepted claims leave the log in Redis and become orders in Postgres.
pub mod worker;

/// The assembled service: one field for each capability.
pub mod app;

/// The board of an operator, and storms of a demo.
pub mod demo;

/// Upkeep of an installation: archive, retention, and everything that waits for a person.
pub mod operator;

/// A closed lane is compared with Postgres, built anew where it differs, and opened.
pub mod recovery;

/// Payments, refunds and the gateway.
pub mod payment;

/// Claims: from a request to the script's decision. A claim on a loaded sale touches no Postgres.
pub mod claim;

/// Orders: from an entry of the log to the end of their life.
pub mod order;

/// Coupons and their sales: creation, changes, the load into Redis, and the buyers there.
pub mod coupon;

/// Epochs of the lanes, which are open or recovering, and unwritten claims of accepted claims.
pub mod fence;

/// The order log: accepted claims on their way to Postgres.
pub mod log;

/// Events: what happened, in order, for other systems.
pub mod events;

/// The two stores: connections, scripts, keys, ids.
pub mod store;

/// Mechanisms that have never heard of a coupon: tokens, signatures, bounds, requests to other servers.
pub mod kit;

/// The base of all other modules: settings, limits, the clock, telemetry and shutdown.
pub mod base;
