//! The command line.

use std::time::Duration;

use clap::Parser;

/// Changes the code in one small way at a time, and finds out which changes no test notices
#[derive(Debug, Parser)]
#[command(name = "mutants", after_help = EXIT_CODES)]
pub struct Arguments {
    /// Files and folders to be mutated; all of src/sale, src/worker, src/http, src/kit, lua and crates/redisson-locks
    /// without any
    pub paths: Vec<String>,
    /// Only mutants on lines that have changed since this commit, in files that git knows
    #[arg(long, value_name = "COMMIT")]
    pub changed: Option<String>,
    /// Only mutants in this language; can be repeated
    #[arg(long, value_name = "LANGUAGE", value_parser = ["rust", "lua", "sql"])]
    pub only: Vec<String>,
    /// Only every N-th mutant
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,
    /// Mutants at a time [default: two for each core, because tests wait more than they work]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: Option<u16>,
    /// Begin nothing new after this time
    #[arg(long, value_name = "N")]
    pub minutes: Option<u32>,
    /// Only mutants that no test noticed the last time
    #[arg(long)]
    pub survivors: bool,
    /// Record all tests anew, and not only those whose files have changed
    #[arg(long)]
    pub record: bool,
    /// Record no test, and judge by those that are recorded so far: a mutant that these don't notice gets no verdict
    #[arg(long, conflicts_with = "record")]
    pub partial: bool,
    /// Put the table of what is known into CONTRIBUTING.md, and run nothing
    #[arg(long)]
    pub state: bool,
    /// Name the mutants, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Only look whether tests/mutants/equal.toml still names mutants that are there
    #[arg(long)]
    pub check: bool,
    /// Test time, as recorded, for each mutant; with more than 20 s, also for those that have survived 20 s
    #[arg(long, value_name = "SECONDS", default_value_t = BUDGET_SECONDS)]
    pub budget: u32,
    /// No budget: all tests that reach a mutant, also for those that have survived the most promising
    #[arg(long)]
    pub thorough: bool,
}

/// Test time that a mutant gets unless another one is asked for, in seconds.
const BUDGET_SECONDS: u32 = 20;

impl Arguments {
    /// Test time for each mutant; `None` without a bound.
    pub fn budget(&self) -> Option<Duration> {
        (!self.thorough).then(|| Duration::from_secs(self.budget.into()))
    }

    /// True if mutants that have survived some tests are to see others, too.
    pub fn goes_on(&self) -> bool {
        self.thorough || self.budget > BUDGET_SECONDS
    }
}

const EXIT_CODES: &str = "\
Verdicts are kept in tests/mutants/verdicts.txt, which is committed, and details of this machine's in \
target/mutants/results.jsonl: what has been broken off goes on from there. --list says what is known.

Exit codes: 0 at least 95 % of those that have run were caught; 1 failed; 2 the command line or \
tests/mutants/equal.toml is wrong; 4 fewer were caught.";
