//! The ladders: every design of the flash-sale tutorials, run, broken and measured on real servers.
//!
//! Each ladder is a program in `src/bin`, with an essay in `docs`: `sale_ladder` with `docs/ladder.md`, `id_ladder` with
//! `docs/ids.md`, `cache_ladder` with `docs/cache.md`. This library has the
//! parts that they share.

#![warn(clippy::unwrap_used)]

/// This service, in the process of a ladder.
pub mod service;

/// A Redis and a Postgres that are thrown away.
pub mod servers;

/// A message engine that is thrown away.
pub mod engine;

/// CPU time of processes.
pub mod cpu;

/// Tables, and their places in an essay.
pub mod essay;
