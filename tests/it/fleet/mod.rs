//! Several servers of Redis that share the lanes.

// Plain servers, of which one fails, loses its data, or is new.
mod plain;

// A Redis Cluster: a dead master, a planned fail-over, a slot that moves.
mod cluster;

// A cluster that breaks again and again, and what that costs: `make cluster`.
mod storm;

// The nodes of these tests.
mod nodes;
