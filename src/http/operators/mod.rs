//! For the staff: everything that waits for a person, dead letters, payments that wait, postponed items, recoveries,
//! comparisons of the stores, endpoints of events, and the audit log.

// Everything that waits for an operator, in one list.
pub mod waiting;

// The board, as a stream of events.
pub mod board;

// Dead letters: discard and retry.
pub mod dead_letters;

// Payments that no order has, or that are being refunded.
pub mod payments;

// Items that jobs could not deal with.
pub mod postponed;

// Recoveries of lanes.
pub mod recoveries;

// Comparisons of the stores, and their records.
pub mod reconcile;

// Endpoints that events are sent to.
pub mod webhooks;

// The audit log.
pub mod audit;
