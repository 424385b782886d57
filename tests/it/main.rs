//! The integration tests: real servers, real HTTP, real processes.
//!
//! Each test has a database and a key prefix of its own on one private Redis and one private Postgres. At its end
//! the law of conservation is checked (`support::TestApp`). No test sleeps to let something happen: a test calls jobs
//! directly, and waits with a bound for what a process does.
//!
//! The modules follow those of `src`, in the order in which they are best read.

// Claims over HTTP and by the script.
mod claim;

// The worker: entries become rows, jobs do the rest.
mod worker;

// Orders, from the row to the end of their life.
mod order;

// Payments and gateways.
mod payment;

// Coupons and their sales.
mod coupon;

// Data that goes: a user's, and old records.
mod retention;

// Settled sales leave Redis.
mod archive;

// Comparison of the two stores.
mod reconcile;

// All that waits for an operator.
mod operations;

// Events and exports, for other systems.
mod events;

// The order log.
mod log;

// The HTTP door.
mod http;

// The command line.
mod cli;

// The kit: parts that know nothing of sales.
mod kit;

// Several servers of Redis that share the lanes.
mod fleet;

// Faults of the whole service.
mod faults;

// Recoveries of lanes: answers meanwhile, and what follows.
mod recovery;

// A master that sentinels replace.
mod sentinel;

// Tables: each of many similar places, with its expected result.
mod tables;

// The scripts one by one.
mod scripts;

// Costs, counted in rows, calls and seconds.
mod costs;

// Servers, clients and checks that the tests share.
mod support;
