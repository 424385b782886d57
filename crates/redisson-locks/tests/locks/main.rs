//! The integration tests: real servers, real processes, and Java's Redisson where Java is installed.
//!
//! No test sleeps to let an event happen: events are waited for with a bound. Tests that break a server have their own.

mod batches;
mod conformance;
mod paused;
mod redisson;
mod redlock;
mod reentrant;
mod stopping;
mod support;
mod volatile;
