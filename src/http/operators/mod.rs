//! For operators: dead letters, postponed items, and comparisons of the stores.

// Open dead letters, and their discard.
pub mod dead_letters;

// Items that passes could not deal with.
pub mod postponed;

// Comparisons of the stores, and their records.
pub mod reconcile;
