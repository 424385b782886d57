//! Postgres's part of a row: ways to write it, shapes of its table, moves of its status, and a large table.
//!
//! Each shape of the table has a database of its own on the same Postgres. Its migrations are those of the service; some
//! statements then change the table. A slice begins with a checkpoint. The CPU time is that of all processes of
//! Postgres, the checkpoints and the log writer included; the client's has no part in it, so a debug build will do.

pub mod large;

pub mod moves;

pub mod table;

pub mod shapes;

pub mod ways;

pub mod claims;
