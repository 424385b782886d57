//! What a demo shows: the board, and storms with a verdict.

// The board: everything that an operator watches, for all processes.
pub mod board;

// Storms: a crowd of shoppers, and a verdict on what it was told.
pub mod storm;
