//! Running the tests that reach a mutant until one notices it.
//!
//! The most promising tests come first ([`crate::promise`]). Most mutants that survive a while survive everything, so a mutant
//! gets a budget of test time, and the tests that are left run only when they are asked for. A failure counts only if the test passes without the mutant and fails with it once more; that is tried
//! once for each function and test. So neither a flaky test nor servers that a mutant has damaged catch anything.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::compile::Programs;
use crate::mutant::{Language, Mutant};
use crate::promise::{Catches, Kin};
use crate::recording::{Place, Recorded, Recording};
use crate::results::{ResultLine, Results, Verdict};
use crate::servers::Servers;
use crate::test::{Bounds, Mode, Outcome, Runner};
use crate::world::World;

/// Mutants that one pair of servers serves: tests that fail leave their databases behind.
const MUTANTS_PER_PAIR: usize = 25;

/// Everything that the jobs share.
pub struct Hunt<'a> {
    programs: &'a Programs,
    place: &'a Place<'a>,
    world: u64,
    recording: &'a Recording,
    by_place: HashMap<u32, Vec<usize>>,
    kin: Kin,
    budget: Option<Duration>,
    results: Mutex<&'a mut Results>,
    catches: Mutex<Catches>,
    next: AtomicUsize,
    count: usize,
}

/// One job: its runner and its servers.
struct Job<'h, 'a> {
    hunt: &'h Hunt<'a>,
    runner: Runner<'h>,
    text: PathBuf,
    servers: Option<Servers>,
    served: usize,
}

/// Result of one mutant.
struct Found {
    verdict: Verdict,
    by: Option<String>,
    tests: usize,
    left: usize,
}

impl<'a> Hunt<'a> {
    /// A hunt by tests that have been recorded. `budget`: test time, as recorded, for each mutant.
    pub fn new(
        programs: &'a Programs,
        place: &'a Place<'a>,
        world: &World,
        recording: &'a Recording,
        results: &'a mut Results,
        budget: Option<Duration>,
    ) -> Self {
        let by_place = recording.by_place();
        Self {
            programs,
            place,
            world: world.hash,
            recording,
            kin: Kin::of(world, &by_place, &recording.tests),
            by_place,
            budget,
            catches: Mutex::new(Catches::of(results, &recording.tests)),
            results: Mutex::new(results),
            next: AtomicUsize::new(0),
            count: 0,
        }
    }

    /// Judges these mutants, several at a time, and notes each result at once. Returns how many there was time for.
    ///
    /// # Errors
    ///
    /// When servers or tests can't be started, or results can't be written.
    pub fn run(mut self, mutants: &[&Mutant]) -> Result<usize> {
        self.count = mutants.len();
        let hunt = &self;
        std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..hunt.place.jobs)
                .map(|job| scope.spawn(move || hunt.job(job, mutants)))
                .collect();
            jobs.into_iter().map(|job| job.join().expect("a job doesn't panic")).sum()
        })
    }

    fn job(&self, number: usize, mutants: &[&Mutant]) -> Result<usize> {
        let folder = self.place.folder;
        let mut job = Job {
            hunt: self,
            runner: Runner {
                binaries: &self.programs.tests,
                tree: self.place.tree,
                log: folder.join(format!("logs/{number}.log")),
            },
            text: folder.join(format!("text-{number}")),
            servers: None,
            served: 0,
        };
        let mut judged = 0;
        while !self.place.is_over() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = mutants.get(index) else {
                break;
            };
            let began = Instant::now();
            let found = job.judge(mutant)?;
            self.note(index, mutant, &found, began.elapsed())?;
            judged += 1;
        }
        Ok(judged)
    }

    fn note(&self, index: usize, mutant: &Mutant, found: &Found, took: Duration) -> Result<()> {
        let Found { verdict, by, tests, left } = found;
        let (place, change) = (mutant.place(), mutant.change());
        let seconds = took.as_secs_f64();
        let word = match verdict {
            Verdict::DoesNotCompile => "no build",
            Verdict::Caught => "caught",
            Verdict::CaughtByHang => "by hang",
            Verdict::Survived => "SURVIVED",
            Verdict::Unreached => "UNREACHED",
        };
        let by_name = by.as_ref().map_or(String::new(), |by| format!("  ({by})"));
        let number = index + 1;
        eprintln!(
            "[{number}/{}] {word:<9} {seconds:>6.1} s  {place}  {change}{by_name}",
            self.count
        );
        if verdict.is_survival() && !self.recording.is_whole {
            // A test that isn't recorded yet may notice it.
            return Ok(());
        }
        let line = ResultLine {
            key: mutant.key.clone(),
            line: *mutant.lines.start(),
            context: mutant.context,
            world: self.world,
            verdict: *verdict,
            by: by.clone(),
            tests: *tests,
            left: *left,
            took_ms: u64::try_from(took.as_millis())?,
        };
        self.results.lock().expect("nothing panics with it").add(line)
    }

    /// The tests that reach a mutant, the most promising first.
    fn order(&self, mutant: &Mutant) -> Vec<usize> {
        let catches = self.catches.lock().expect("nothing panics with it");
        let mut tests = self.by_place.get(&mutant.number).cloned().unwrap_or_default();
        tests.retain(|test| !catches.unreliable.contains(test));
        let took = |test: usize| self.recording.tests[test].took();
        let words = self.kin.words(&mutant.key);
        tests.sort_by_cached_key(|&test| {
            let seconds = catches.seconds(&mutant.key, test, took(test));
            // In nanoseconds, because floats have no order.
            Duration::from_secs_f64(seconds / self.kin.of_test(&mutant.key, &words, test))
        });
        tests
    }

    /// Number of these tests that the budget has room for.
    fn affordable(&self, order: &[usize]) -> usize {
        let mut spent = Duration::ZERO;
        let fits = order.iter().take_while(|test| {
            let has_room = self.budget.is_none_or(|budget| spent < budget);
            spent += self.recording.tests[**test].took();
            has_room
        });
        fits.count()
    }
}

impl Job<'_, '_> {
    fn judge(&mut self, mutant: &Mutant) -> Result<Found> {
        if let Some(text) = &mutant.text {
            fs::write(&self.text, format!("{}\n{text}", mutant.number))?;
        }
        self.served += 1;
        if self.served > MUTANTS_PER_PAIR {
            self.servers = None;
        }
        let order = self.hunt.order(mutant);
        if order.is_empty() {
            return Ok(Found { verdict: Verdict::Unreached, by: None, tests: 0, left: 0 });
        }
        let affordable = self.hunt.affordable(&order);
        for (index, &test) in order.iter().take(affordable).enumerate() {
            let (outcome, took) = self.run(test, Some(mutant))?;
            if outcome != Outcome::Passed && self.is_sure(test, mutant, outcome)? {
                self.hunt.catches.lock().expect("nothing panics with it").add(
                    &mutant.key,
                    test,
                    took,
                );
                let verdict = match outcome {
                    Outcome::Hung => Verdict::CaughtByHang,
                    _ => Verdict::Caught,
                };
                let by = Some(self.test(test).name.to_string());
                return Ok(Found { verdict, by, tests: index + 1, left: 0 });
            }
        }
        let left = order.len() - affordable;
        Ok(Found { verdict: Verdict::Survived, by: None, tests: affordable, left })
    }

    fn test(&self, test: usize) -> &Recorded {
        &self.hunt.recording.tests[test]
    }

    fn run(&mut self, test: usize, mutant: Option<&Mutant>) -> Result<(Outcome, Duration)> {
        if self.servers.is_none() {
            self.servers = Some(Servers::start(&self.hunt.programs.service)?);
            self.served = 1;
        }
        let servers = self.servers.as_ref().context("they have just been started")?;
        let mode = match mutant {
            None => Mode::Plain,
            Some(mutant) if mutant.language == Language::Rust => Mode::On(mutant.number),
            Some(_) => Mode::Text(&self.text),
        };
        let recorded = self.test(test);
        self.runner.run(&recorded.name, mode, &servers.line, Bounds::of(recorded.took()))
    }

    /// Whether it is the mutant that a test has noticed.
    fn is_sure(&mut self, test: usize, mutant: &Mutant, outcome: Outcome) -> Result<bool> {
        let catches = self.hunt.catches.lock().expect("nothing panics with it");
        let is_known = catches.has_caught_here(&mutant.key, test);
        drop(catches);
        if is_known {
            return Ok(true);
        }
        if self.run(test, None)?.0 != Outcome::Passed {
            // The mutant may have damaged the servers.
            self.servers = None;
            if self.run(test, None)?.0 != Outcome::Passed {
                let name = &self.test(test).name;
                eprintln!("mutants: {name} fails without a mutant, too; it judges no more");
                let mut catches = self.hunt.catches.lock().expect("nothing panics with it");
                catches.unreliable.insert(test);
                return Ok(false);
            }
        }
        if outcome == Outcome::Hung {
            return Ok(true);
        }
        let is_repeated = self.run(test, Some(mutant))?.0 != Outcome::Passed;
        if !is_repeated {
            let name = &self.test(test).name;
            eprintln!("mutants: {name} failed once with {} and passed then", mutant.place());
        }
        Ok(is_repeated)
    }
}
