//! Running the tests that reach a mutant until one notices it.
//!
//! The cheapest way to an answer comes first: tests that have caught other mutants of the same function or file, then
//! fast ones. A failure counts only if the test passes without the mutant and fails with it once more; that is tried
//! once for each function and test. So neither a flaky test nor servers that a mutant has damaged catch anything.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::compile::Programs;
use crate::mutant::{Language, Mutant};
use crate::recording::{Place, Recorded, Recording};
use crate::results::{ResultLine, Results, Verdict};
use crate::servers::Servers;
use crate::test::{Mode, Outcome, Runner, bound};

/// Mutants that one pair of servers serves: tests that fail leave their databases behind.
const MUTANTS_PER_PAIR: usize = 25;

/// How much sooner a test comes for each mutant of the same function that it has caught.
const CAUGHT_IN_FUNCTION: u64 = 20;
/// The same for mutants of the same file.
const CAUGHT_IN_FILE: u64 = 3;

/// Everything that the jobs share.
pub struct Hunt<'a> {
    programs: &'a Programs,
    place: &'a Place<'a>,
    world: u64,
    recording: &'a Recording,
    by_place: HashMap<u32, Vec<usize>>,
    results: Mutex<&'a mut Results>,
    catches: Mutex<Catches>,
    next: AtomicUsize,
    count: usize,
}

/// Which tests have caught what.
#[derive(Default)]
struct Catches {
    by_function: HashMap<(String, String, usize), u64>,
    by_file: HashMap<(String, usize), u64>,
    /// Tests that fail without a mutant, too.
    unreliable: HashSet<usize>,
}

/// One job: its runner and its servers.
struct Job<'h, 'a> {
    hunt: &'h Hunt<'a>,
    runner: Runner<'h>,
    text: PathBuf,
    servers: Option<Servers>,
    served: usize,
}

/// What became of one mutant.
struct Found {
    verdict: Verdict,
    by: Option<String>,
    tests: usize,
}

impl<'a> Hunt<'a> {
    /// A hunt by tests that have been recorded.
    pub fn new(
        programs: &'a Programs,
        place: &'a Place<'a>,
        world: u64,
        recording: &'a Recording,
        results: &'a mut Results,
    ) -> Self {
        Self {
            programs,
            place,
            world,
            recording,
            by_place: recording.by_place(),
            results: Mutex::new(results),
            catches: Mutex::default(),
            next: AtomicUsize::new(0),
            count: 0,
        }
    }

    /// Judges these mutants, several at a time, and notes each result at once.
    ///
    /// # Errors
    ///
    /// When servers or tests can't be started, or results can't be written.
    pub fn run(mut self, mutants: &[&Mutant]) -> Result<()> {
        self.count = mutants.len();
        let hunt = &self;
        std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..hunt.place.jobs)
                .map(|job| scope.spawn(move || hunt.job(job, mutants)))
                .collect();
            jobs.into_iter().try_for_each(|job| job.join().expect("a job doesn't panic"))
        })
    }

    fn job(&self, number: usize, mutants: &[&Mutant]) -> Result<()> {
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
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = mutants.get(index) else {
                return Ok(());
            };
            let began = Instant::now();
            let found = job.judge(mutant)?;
            self.note(index, mutant, &found, began.elapsed())?;
        }
    }

    fn note(&self, index: usize, mutant: &Mutant, found: &Found, took: Duration) -> Result<()> {
        let Found { verdict, by, tests } = found;
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
        let line = ResultLine {
            key: mutant.key.clone(),
            line: *mutant.lines.start(),
            context: mutant.context,
            world: self.world,
            verdict: *verdict,
            by: by.clone(),
            tests: *tests,
            took_ms: u64::try_from(took.as_millis())?,
        };
        self.results.lock().expect("nothing panics with it").add(line)
    }

    /// The tests that reach a mutant, the most promising first.
    fn order(&self, mutant: &Mutant) -> Vec<usize> {
        let catches = self.catches.lock().expect("nothing panics with it");
        let mut tests = self.by_place.get(&mutant.number).cloned().unwrap_or_default();
        tests.retain(|test| !catches.unreliable.contains(test));
        let (file, function) = (&mutant.key.file, &mutant.key.function);
        let cost = |test: &usize| {
            let in_function = catches.by_function.get(&(file.clone(), function.clone(), *test));
            let in_file = catches.by_file.get(&(file.clone(), *test));
            let weight = CAUGHT_IN_FUNCTION * in_function.unwrap_or(&0)
                + CAUGHT_IN_FILE * in_file.unwrap_or(&0);
            // In microseconds, so that fast tests differ, too.
            1_000 * (1 + self.recording.tests[*test].took_ms) / (1 + weight)
        };
        tests.sort_by_cached_key(cost);
        tests
    }

    fn has_caught_here(&self, mutant: &Mutant, test: usize) -> bool {
        let key = (mutant.key.file.clone(), mutant.key.function.clone(), test);
        self.catches.lock().expect("nothing panics with it").by_function.contains_key(&key)
    }

    fn caught(&self, mutant: &Mutant, test: usize) {
        let mut catches = self.catches.lock().expect("nothing panics with it");
        let (file, function) = (mutant.key.file.clone(), mutant.key.function.clone());
        *catches.by_function.entry((file.clone(), function, test)).or_default() += 1;
        *catches.by_file.entry((file, test)).or_default() += 1;
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
            return Ok(Found { verdict: Verdict::Unreached, by: None, tests: 0 });
        }
        for (index, &test) in order.iter().enumerate() {
            let outcome = self.run(test, Some(mutant))?;
            if outcome != Outcome::Passed && self.is_sure(test, mutant, outcome)? {
                self.hunt.caught(mutant, test);
                let verdict = match outcome {
                    Outcome::Hung => Verdict::CaughtByHang,
                    _ => Verdict::Caught,
                };
                let by = Some(self.test(test).name.to_string());
                return Ok(Found { verdict, by, tests: index + 1 });
            }
        }
        Ok(Found { verdict: Verdict::Survived, by: None, tests: order.len() })
    }

    fn test(&self, test: usize) -> &Recorded {
        &self.hunt.recording.tests[test]
    }

    fn run(&mut self, test: usize, mutant: Option<&Mutant>) -> Result<Outcome> {
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
        Ok(self.runner.run(&recorded.name, mode, &servers.line, bound(recorded.took()))?.0)
    }

    /// Whether it is the mutant that a test has noticed.
    fn is_sure(&mut self, test: usize, mutant: &Mutant, outcome: Outcome) -> Result<bool> {
        if self.hunt.has_caught_here(mutant, test) {
            return Ok(true);
        }
        if self.run(test, None)? != Outcome::Passed {
            // The mutant may have damaged the servers.
            self.servers = None;
            if self.run(test, None)? != Outcome::Passed {
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
        let is_repeated = self.run(test, Some(mutant))? != Outcome::Passed;
        if !is_repeated {
            let name = &self.test(test).name;
            eprintln!("mutants: {name} failed once with {} and passed then", mutant.place());
        }
        Ok(is_repeated)
    }
}
