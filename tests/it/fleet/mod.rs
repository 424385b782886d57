//! Several servers of Redis that share the lanes.

// Plain servers, of which one fails, loses its data, or is new.
mod plain;

// A Redis Cluster: a dead master, a planned fail-over, a slot that moves.
mod cluster;

// The nodes of these tests.
mod nodes;
