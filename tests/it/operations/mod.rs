//! All that waits for an operator, and statistics.

// The list, over HTTP and by the command line.
mod list;

// Statistics of a day.
mod statistics;
