//! Costs, counted in rows, calls and seconds.

// Times in which the service is well again after a fault.
mod healing;

// A long outage of Postgres, and the backlog after it.
mod backlog;
