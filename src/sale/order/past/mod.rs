//! Orders that are over: a user's rows, the rows without their user, and rows that have served their time.

// All rows of a user.
pub mod export;

// Orders stay for the books, without their user.
pub mod erase;

// Records that are not needed any more.
pub mod forget;
