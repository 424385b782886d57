//! Random plans against a real service. The cases are the same in every run (the seed is fixed); a failing plan is shrunk
//! and printed.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner};

use super::TestApp;

const CASES: u32 = 64;

/// Runs [`for_cases`] with as many cases as are quickly done.
pub fn for_all<S: Strategy>(
    app: impl Future<Output = TestApp>,
    plans: &S,
    check: impl AsyncFn(&TestApp, i64, S::Value) -> TestCaseResult,
) {
    for_cases(CASES, app, plans, check);
}

/// Runs `check` on so many random plans, each with the number of the case, until one fails; panics with the
/// smallest plan that fails.
pub fn for_cases<S: Strategy>(
    cases: u32,
    app: impl Future<Output = TestApp>,
    plans: &S,
    check: impl AsyncFn(&TestApp, i64, S::Value) -> TestCaseResult,
) {
    // One runtime for all cases: connections belong to the runtime that opened them.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let app = runtime.block_on(app);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let case = Cell::new(0);
    let outcome = TestRunner::new_with_rng(config, rng).run(plans, |plan| {
        case.set(case.get() + 1);
        runtime.block_on(check(&app, case.get(), plan))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
