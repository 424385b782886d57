//! Costs, counted in rows, calls and seconds.

// Plans of the queries on 300,000 rows.
mod plans;

// Savings and cost of the buyers' locks, measured by hand.
mod locks;

// Costs that are measured by hand.
mod by_hand;

// Reads of a hot coupon, measured by hand.
mod reads;
