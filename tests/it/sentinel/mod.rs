//! A Redis that three sentinels watch: a master and two replicas, all of them real.

// Fail-overs under the whole service.
mod fail_over;

// Connections: which server they lead to, and when they end.
mod connections;

// The start of a process: settings, and what is refused.
mod start;

// The servers of these tests.
mod watched;
