//! Designs whose stock is a row of Postgres.

#![expect(
    clippy::disallowed_methods,
    reason = "these callers are not dropped while they begin a transaction"
)]

pub mod compare_and_swap;
pub mod conditional_update;
pub mod lock_in_process;
pub mod one_for_each_user;
pub mod read_check_write;
pub mod released_too_early;
pub mod row_lock;
