//! The business: all SQL, all scripts of the sale, and every word of the glossary in ARCHITECTURE.md.
//!
//! Refusals ("sold out") are values; a [`Failure`] means that something is broken and the outcome is
//! unknown.

pub mod claim;
pub mod claim_status;
pub mod coupon;
pub mod dead_letter;
pub mod failure;
pub mod ids;
pub mod keys;
pub mod order;
pub mod order_log;
pub mod readiness;
pub mod reconcile;
pub mod regular;
pub mod schema;
pub mod settings;
pub mod stock;
pub mod warm_up;

pub use failure::Failure;
