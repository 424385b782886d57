//! Properties of ids: random plans of instances, clocks, restarts and days, on the real Redis.
//!
//! The cases are the same in every run (the seed is fixed); a failing plan is shrunk and printed.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use flash_sale::base::clock::Clock;
use flash_sale::kit::id::IdGenerator;
use flash_sale::kit::redis::Link;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner};

use super::ids::generator;
use crate::support::TestApp;

const CASES: u32 = 64;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

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

/// Some instances of the service, and the steps of a run.
#[derive(Clone, Debug)]
struct Plan {
    instances: Vec<Start>,
    steps: Vec<Step>,
}

/// Start of an instance.
#[derive(Clone, Debug)]
struct Start {
    /// Time of its clock, from noon of some day.
    clock_off_ms: i64,
    block_size: u32,
}

/// A step; instances are counted from 0, and around.
#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    /// All instances take this many at the same time.
    TakeTogether(usize),
    Move(usize, Jump),
    /// The instance is started anew, with this size of its blocks.
    Restart(usize, u32),
}

/// A move of a clock.
#[derive(Clone, Debug)]
enum Jump {
    ByMs(i64),
    /// To the midnight this many days after the last one, or a millisecond beside it.
    ToMidnight {
        days: i64,
        off_ms: i64,
    },
    /// To the time that another instance's clock shows.
    ToClockOf(usize),
}

struct Instance {
    clock: Clock,
    ids: IdGenerator,
}

/// The ids that were handed out.
#[derive(Default)]
struct Seen {
    ids: HashSet<i64>,
    /// Highest number of each day.
    highest: BTreeMap<NaiveDate, i64>,
    /// Last number of each instance in each day.
    last: BTreeMap<(usize, NaiveDate), i64>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let start = (-2 * DAY_MS..=2 * DAY_MS, 1..=50_u32)
        .prop_map(|(clock_off_ms, block_size)| Start { clock_off_ms, block_size });
    let instances = prop::collection::vec(start, 1..=4);
    (instances, prop::collection::vec(steps(), 1..=150))
        .prop_map(|(instances, steps)| Plan { instances, steps })
}

fn steps() -> impl Strategy<Value = Step> {
    let jump = prop_oneof![
        2 => (-3_000..=3_000_i64).prop_map(Jump::ByMs),
        1 => (-2 * DAY_MS..=2 * DAY_MS).prop_map(Jump::ByMs),
        2 => (-1..=2_i64, -1..=1_i64).prop_map(|(days, off_ms)| Jump::ToMidnight { days, off_ms }),
        2 => (0..4_usize).prop_map(Jump::ToClockOf),
    ];
    prop_oneof![
        6 => (0..4_usize).prop_map(Step::Take),
        1 => (1..=20_usize).prop_map(Step::TakeTogether),
        3 => (0..4_usize, jump).prop_map(|(instance, jump)| Step::Move(instance, jump)),
        1 => (0..4_usize, 1..=50_u32).prop_map(|(instance, block)| Step::Restart(instance, block)),
    ]
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a valid time")
}

impl Jump {
    fn from(&self, now: DateTime<Utc>, clock_of: impl Fn(usize) -> DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::ByMs(ms) => now + TimeDelta::milliseconds(*ms),
            Self::ToMidnight { days, off_ms } => {
                let midnight = now.date_naive().and_time(NaiveTime::MIN).and_utc();
                midnight + TimeDelta::days(*days) + TimeDelta::milliseconds(*off_ms)
            }
            Self::ToClockOf(other) => clock_of(*other),
        }
    }
}

impl Seen {
    /// One more id, which `instance` handed out while its clock showed `now`.
    fn add(&mut self, instance: usize, now: DateTime<Utc>, id: i64) -> TestCaseResult {
        prop_assert!(self.ids.insert(id), "{id} came twice");
        prop_assert!(id > 0, "{id} isn't positive");
        let seconds = id >> 32;
        let number = id & 0xffff_ffff;
        prop_assert_eq!(seconds, (now - at("2022-01-01T00:00:00Z")).num_seconds(), "at {}", now);
        let day = now.date_naive();
        let last = self.last.insert((instance, day), number).unwrap_or(0);
        prop_assert!(number > last, "{day}: {number} of instance {instance} comes after {last}");
        let highest = self.highest.entry(day).or_default();
        *highest = number.max(*highest);
        Ok(())
    }
}

async fn follow(
    app: &TestApp,
    plan: Plan,
    prefix: &str,
    link: &Link,
) -> Result<Seen, TestCaseError> {
    let generator = |block, clock: &Clock| generator(app, prefix, block, clock);
    let mut instances = Vec::new();
    for Start { clock_off_ms, block_size } in plan.instances {
        let start = at("2026-12-31T12:00:00Z") + TimeDelta::milliseconds(clock_off_ms);
        let clock = Clock::manual(start);
        instances.push(Instance { ids: generator(block_size, &clock), clock });
    }
    let count = instances.len();
    let mut seen = Seen::default();
    for step in plan.steps {
        match step {
            Step::Take(n) => {
                let Instance { clock, ids } = &instances[n % count];
                let id = ids.next(link).await.expect("an ordinary day");
                seen.add(n % count, clock.now(), id)?;
            }
            Step::TakeTogether(each) => {
                let next = instances.iter().flat_map(|one| (0..each).map(|_| one.ids.next(link)));
                let ids = futures_util::future::join_all(next).await;
                let mut ids: Vec<i64> = ids.into_iter().map(Result::unwrap).collect();
                for (n, ids) in ids.chunks_mut(each).enumerate() {
                    // Callers at the same time may be answered in any order.
                    ids.sort_unstable();
                    for id in ids {
                        seen.add(n, instances[n].clock.now(), *id)?;
                    }
                }
            }
            Step::Move(n, jump) => {
                let clock_of = |other: usize| instances[other % count].clock.now();
                instances[n % count].clock.set(jump.from(clock_of(n), clock_of));
            }
            Step::Restart(n, block_size) => {
                let instance = &mut instances[n % count];
                instance.ids = generator(block_size, &instance.clock);
            }
        }
    }
    Ok(seen)
}

#[test]
fn ids_are_unique_and_from_the_sequence_of_their_day() {
    for_all(TestApp::start(), &plans(), async |app, case, plan| {
        let link = app.app.stores.redis.link().await.expect("Redis answers");
        let prefix = format!("{}:{case}", app.keys().order_sequence());
        let seen = follow(app, plan, &prefix, &link).await?;
        for (day, highest) in seen.highest {
            let key = format!("{prefix}:{}", day.format("%Y:%m:%d"));
            let sequence: Option<i64> = app.redis(&["GET", &key]).await;
            prop_assert!(Some(highest) <= sequence, "{day}: {highest} isn't from {sequence:?}");
        }
        Ok(())
    });
}
