//! `flash-sale-explorer`: breaks a running service in ways that a seed decides, and proves from what its clients were told
//! and from both stores that nothing was lost.
//!
//! One run is one seed. The seed gives a plan ([`plan`]): sales, clients, deeds of an operator, and a schedule of faults.
//! An installation of real processes and servers is started ([`world`]), used ([`clients`]), broken and healed ([`run`]).
//! Its facts ([`facts`]) go to a checker ([`check`]), which is a pure function and has tests of its own.

#![warn(clippy::unwrap_used)]

// The command line: seeds, table, shrinking.
pub mod commands;

// One run.
pub mod run;

// Users and an operator.
pub mod clients;

// Servers, processes and the ways between them.
pub mod world;

// The proof of the invariants.
pub mod check;

// Facts of a run.
pub mod facts;

// Plans from seeds.
pub mod plan;
