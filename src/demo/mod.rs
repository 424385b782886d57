//! What a demo shows: the board over all processes, and storms with a verdict.

// The board: all that an operator looks at, over all processes.
pub mod board;

// Storms of a demo: a crowd, and the verdict on what it was told.
pub mod storm;
