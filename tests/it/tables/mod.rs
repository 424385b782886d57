//! Tables: each of many similar places, with its expected result.

// Operations by role, and actions by state.
mod permissions;

// Statuses of an order by query.
mod statuses;

// Classes of SQLSTATE by path that writes.
pub mod sqlstates;

// Passes by number of items.
pub mod passes;

// Findings by repair.
mod repairs;

// Scripts by state of their lane.
mod fence;

// Statements about a lane's rows by state.
mod lane_rows;

// The triggers that watch `updated_at`.
mod updated_at;

// Comparisons of entries of one millisecond.
mod entry_ids;

// Scripts and memories of lanes by state.
mod lanes;

// Queries by the rows that they tell apart.
mod queries;
