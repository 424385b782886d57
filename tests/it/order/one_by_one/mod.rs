//! Functions about orders, one by one: tables of states, input and results.

// Batches of claims become rows.
mod writing;

// Live orders whose users are no buyers in Redis.
mod live;

// Old records are deleted page by page.
mod forgetting;

// The bound on closed orders.
mod closed;

// Batches that are written while other processes write.
mod meanwhile;

// Letters that are put aside and discarded.
mod letters;

// The settings under which statements run.
mod settings;

// Lists over many months, and redemption codes in them.
mod pages;
