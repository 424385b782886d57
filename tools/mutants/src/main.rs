//! Mutation testing of flash-sale: `make mutants`.
//!
//! # Model
//!
//! A mutant is the program with one small change of the kind that a reasonable person makes by mistake. A test suite
//! that notices none of it has a gap there. A build and a run of the suite for each of thousands would take weeks, so:
//!
//! 1. A copy of the tree gets all mutants in Rust at once, each behind a switch that a process reads from its
//!    environment ([`rust`]). Mutants in Lua and SQL are texts that take the place of others while the process runs.
//! 2. Each test runs once, alone, and the places that it reaches are recorded ([`recording`]).
//! 3. For a mutant, only tests that reach it run, until one fails ([`hunt`]).
//! 4. The verdicts are committed, so that another machine goes on where this one ends ([`kept`]).
//!
//! # What is not promised
//!
//! A test that reaches a place only now and then may have missed it in the recording. A mutant that makes a test slow, and
//! not wrong, is caught by hang. A survivor of the budget may be caught by a test that had no room in it. A
//! verdict "caught" outlives the test that it is due to: taking a test away is not noticed. Migrations, settings and other folders are not mutated.

mod arguments;
mod campaign;
mod changed;
mod compile;
mod equal;
mod hunt;
mod kept;
mod lua;
mod mutant;
mod promise;
mod recording;
mod results;
mod rust;
mod servers;
mod source;
mod sql;
mod state;
mod test;
mod token;
mod world;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match campaign::run(&arguments::Arguments::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}
