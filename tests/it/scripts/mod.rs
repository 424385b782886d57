//! The scripts one by one.

// Order ids of the claim script.
mod order_ids;
