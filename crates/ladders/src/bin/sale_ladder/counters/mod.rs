//! Designs with a lock or a counter in Redis; the order is written before the answer.

pub mod decrement_then_check;
pub mod lock_for_all;
pub mod lock_for_each_user;

// After the designs that take it.
pub mod lock;
