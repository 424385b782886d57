//! The business: all SQL, all scripts of the sale, and every word of the glossary in ARCHITECTURE.md.
//!
//! Refusals ("sold out") are values; a [`Failure`](crate::sale::Failure) means that something is broken and the outcome is
//! unknown.

pub mod archive;
pub mod backlog;
pub mod buyers;
pub mod claim;
pub mod claim_queue;
pub mod claim_script;
pub mod claim_status;
pub mod coupon;
pub mod coupon_changes;
pub mod coupon_input;
pub mod coupon_rules;
pub mod dead_letter;
pub mod expiry;
pub mod failure;
pub mod gateway;
pub mod ids;
pub mod keys;
pub mod log_numbers;
pub mod notice;
pub mod numbers;
pub mod order;
pub mod order_ids;
pub mod order_log;
pub mod order_moves;
pub mod order_waiters;
pub mod pass;
pub mod payment;
pub mod postponed;
pub mod readiness;
pub mod reconcile;
pub mod reconcile_pass;
pub mod reconcile_runs;
pub mod regular;
pub mod repair;
pub mod returns;
pub mod schema;
pub mod settings;
pub mod shards;
pub mod sold_out;
pub mod stock;
pub mod stock_return;
pub mod warm_up;
mod withdrawal;

pub use failure::Failure;

use sqlx::PgPool;

use crate::kit::redis::Redis;

/// Where the data is. Who must not see Postgres isn't given this.
#[derive(Clone)]
pub struct Stores {
    /// Postgres.
    pub pool: PgPool,
    /// Redis.
    pub redis: Redis,
    /// Names of what is in Redis.
    pub keys: keys::Keys,
}
