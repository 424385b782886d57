//! All that waits for an operator.

// The list, over HTTP and by the command line.
mod list;

// The lists and sales of the board, as both stores have them.
mod board;
