//! The parts of a comparison, file by file: each fault of a log, of a sale, and each repair, beside what is no fault.

// The logs of lanes.
mod lane;

// Buyers and orders of a sale.
mod one_sale;

// Repairs.
mod repair;

// Log lines about comparisons.
mod pass;

// The numbers of one sale.
mod gauges;

// The turn.
mod turn;

// Orders that move while they are compared.
mod meanwhile;

// Comparisons that are due.
mod due;

// Sales that have changed.
mod changed;

// Comparisons on request.
mod asked;

// A sale that changes while it is read.
mod read_sale;
