//! Costs, counted in rows, calls and seconds.

// Plans of the queries on 300,000 rows.
mod plans;

// Costs that are measured by hand.
mod by_hand;
