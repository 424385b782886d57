//! All that waits for an operator, and statistics.

// The list, over HTTP and by the command line.
mod list;

// Statistics of a day.
mod statistics;

// The lists and sales of the board, as both stores have them.
mod board;

// Counts of a day: kept, whole, and given time.
mod counted;
