//! `keeper`: lanes are looked at, closed and recovered.

// The look at the lanes.
mod looks;

// Looks of which Postgres refuses a write.
mod refused;

// The look at many sales that can't be built.
mod stuck;

// Ticks, and their failures.
mod ticks;

// Recoveries that take long, and many of them.
mod meanwhile;
