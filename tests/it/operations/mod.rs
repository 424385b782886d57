//! All that waits for an operator.

// The list, over HTTP and by the command line.
mod list;
