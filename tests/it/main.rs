//! The integration tests: real servers, real HTTP, real processes.
//!
//! Every test has a database and a key prefix of its own on one private Redis and one private Postgres, and
//! at its end the law of conservation is checked (`support::TestApp`). No test sleeps to let something
//! happen: passes are called directly, and what a process does is waited for with a bound.

mod api;
mod archive;
mod archive_asked;
mod backlog;
mod bad_input;
#[cfg(feature = "bench")]
mod bench;
mod checkout;
mod claim_model;
mod claims;
mod clocks;
mod command_line;
mod connections;
mod coupon_changes;
mod coupons;
mod crowd;
mod dead_letters;
mod demo;
mod doctor;
mod entry_ids;
mod expiry;
mod failover;
mod faults;
mod hoarding;
mod ids;
mod kills;
mod lanes;
mod lifecycle_model;
mod locks;
mod numbers;
mod order_log;
mod order_waiters;
mod orders;
mod orders_model;
mod outage;
mod overlap;
mod overload;
mod passes_table;
mod payments;
mod permissions;
mod plans;
mod postponed;
mod private_servers;
mod processes;
mod properties;
mod reconcile;
mod reconcile_runs;
mod regular;
mod repair;
mod repairs_table;
mod restart;
mod returns;
mod roll_back;
mod shards;
mod shared_calls;
mod side_costs;
mod slow_clients;
mod sold_out;
mod sqlstates;
mod statuses;
mod stock_returns;
mod support;
mod tokens;
mod unpaid_lists;
mod warm_up;
mod withdrawals;
mod worker;
mod worker_failures;
mod write_flood;
