//! Running the tests that reach a mutant until one notices it.
//!
//! The cheapest way to an answer comes first: tests that have caught other mutants of the same function or file, tests that
//! reach places of the function or file that few others reach or have words of its name in theirs, and fast ones. Most mutants that survive a while survive
//! everything, so a mutant gets a budget of test time, and what is left is run only when it is asked for. A failure counts only if the test passes without the mutant and fails with it once more; that is tried
//! once for each function and test. So neither a flaky test nor servers that a mutant has damaged catch anything.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::compile::Programs;
use crate::mutant::{Key, Language, Mutant};
use crate::recording::{Place, Recorded, Recording};
use crate::results::{ResultLine, Results, Verdict};
use crate::servers::Servers;
use crate::test::{Mode, Outcome, Runner, bound};
use crate::world::World;

/// Mutants that one pair of servers serves: tests that fail leave their databases behind.
const MUTANTS_PER_PAIR: usize = 25;

/// Test time, as recorded, that a mutant gets unless all of it is asked for.
const BUDGET: Duration = Duration::from_secs(20);

/// How much sooner a test comes that has caught many mutants of the same function.
const CAUGHT_IN_FUNCTION: f64 = 20.0;
/// The same for the same file.
const CAUGHT_IN_FILE: f64 = 3.0;
/// Kinship of a test that alone has a word of the name of a file or function.
const COMMON_WORD: f64 = 10.0;
/// Kinship of a test that reaches nothing but what all tests reach.
const KINSHIP_MIN: f64 = 0.05;
/// Time that a test process takes beside its test.
const OVERHEAD_MS: f64 = 50.0;

/// A file and a function; no function stands for the whole file.
type Part = (String, String);

/// Everything that the jobs share.
pub struct Hunt<'a> {
    programs: &'a Programs,
    place: &'a Place<'a>,
    world: u64,
    recording: &'a Recording,
    by_place: HashMap<u32, Vec<usize>>,
    kinship: HashMap<(Part, usize), f64>,
    thorough: bool,
    results: Mutex<&'a mut Results>,
    catches: Mutex<Catches>,
    next: AtomicUsize,
    count: usize,
}

/// Which tests have caught what.
#[derive(Default)]
struct Catches {
    caught: HashMap<(Part, usize), Caught>,
    /// Tests that fail without a mutant, too.
    unreliable: HashSet<usize>,
}

/// What one test has caught in one part.
#[derive(Clone, Copy, Default)]
struct Caught {
    mutants: f64,
    /// Time until it failed: a test that fails at once is better than one that waits for a deadline.
    took_ms: f64,
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
    left: usize,
}

impl<'a> Hunt<'a> {
    /// A hunt by tests that have been recorded. `thorough`: without a budget.
    pub fn new(
        programs: &'a Programs,
        place: &'a Place<'a>,
        world: &World,
        recording: &'a Recording,
        results: &'a mut Results,
        thorough: bool,
    ) -> Self {
        let by_place = recording.by_place();
        Self {
            programs,
            place,
            world: world.hash,
            recording,
            kinship: kinship(&world.mutants, &by_place, &recording.tests),
            by_place,
            thorough,
            catches: Mutex::new(Catches::of(results, &recording.tests)),
            results: Mutex::new(results),
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
        let [function, file] = parts(&mutant.key);
        let caught = |part: &Part, test: usize| {
            catches.caught.get(&(part.clone(), test)).copied().unwrap_or_default()
        };
        let near = |part: &Part, test: usize| {
            self.kinship.get(&(part.clone(), test)).copied().unwrap_or_default()
        };
        let cost = |&test: &usize| {
            let (here, nearby) = (caught(&function, test), caught(&file, test));
            let weight = CAUGHT_IN_FUNCTION * here.trust() + CAUGHT_IN_FILE * nearby.trust();
            let passes_ms = self.recording.tests[test].took().as_secs_f64() * 1_000.0;
            let fails_ms = nearby.took_ms / nearby.mutants.max(1.0);
            let kinship = KINSHIP_MIN + near(&function, test) + near(&file, test);
            (OVERHEAD_MS + passes_ms.max(fails_ms)) / (1.0 + weight) / kinship
        };
        tests.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        tests
    }

    /// How many of these tests the budget has room for.
    fn affordable(&self, order: &[usize]) -> usize {
        let mut spent = Duration::ZERO;
        let fits = order.iter().take_while(|test| {
            let has_room = self.thorough || spent < BUDGET;
            spent += self.recording.tests[**test].took();
            has_room
        });
        fits.count()
    }

    fn has_caught_here(&self, mutant: &Mutant, test: usize) -> bool {
        let [function, _] = parts(&mutant.key);
        let catches = self.catches.lock().expect("nothing panics with it");
        catches.caught.contains_key(&(function, test))
    }

    fn caught(&self, mutant: &Mutant, test: usize, took: Duration) {
        let mut catches = self.catches.lock().expect("nothing panics with it");
        catches.add(&mutant.key, test, took.as_secs_f64() * 1_000.0);
    }
}

impl Caught {
    /// From 0 (nothing) to 1 (very many).
    fn trust(self) -> f64 {
        self.mutants / (self.mutants + 1.0)
    }
}

impl Catches {
    /// What earlier runs have found out.
    fn of(results: &Results, tests: &[Recorded]) -> Self {
        let index = tests.iter().enumerate().map(|(index, test)| (test.name.to_string(), index));
        let index: HashMap<String, usize> = index.collect();
        let mut catches = Self::default();
        for line in results.lines() {
            if let Some(test) = line.by.as_ref().and_then(|by| index.get(by)) {
                let took_ms = line.took_ms / u64::try_from(line.tests.max(1)).unwrap_or(u64::MAX);
                catches.add(
                    &line.key,
                    *test,
                    Duration::from_millis(took_ms).as_secs_f64() * 1_000.0,
                );
            }
        }
        catches
    }

    fn add(&mut self, key: &Key, test: usize, took_ms: f64) {
        for part in parts(key) {
            let caught = self.caught.entry((part, test)).or_default();
            caught.mutants += 1.0;
            caught.took_ms += took_ms;
        }
    }
}

/// The function of a mutant, and its file.
fn parts(key: &Key) -> [Part; 2] {
    let Key { file, function, .. } = key;
    [(file.clone(), function.clone()), (file.clone(), String::new())]
}

/// How near each test is to each function and file: by places that few tests reach, and by words that few have.
fn kinship(
    mutants: &[Mutant],
    by_place: &HashMap<u32, Vec<usize>>,
    tests: &[Recorded],
) -> HashMap<(Part, usize), f64> {
    let vocabulary = Vocabulary::of(tests.iter().map(|test| test.name.test.as_str()));
    let mut kinship: HashMap<(Part, usize), f64> = HashMap::new();
    let (mut seen, mut named) = (HashSet::new(), HashSet::new());
    for mutant in mutants {
        let reaching = by_place.get(&mutant.number).map_or(&[][..], Vec::as_slice);
        let is_new = seen.insert(mutant.number);
        for part in parts(&mutant.key) {
            let is_unnamed = named.insert(part.clone());
            for &test in reaching {
                let share = if is_new { 1.0 / number(reaching.len()) } else { 0.0 };
                let common = if is_unnamed { vocabulary.common(&part, test) } else { 0.0 };
                *kinship.entry((part.clone(), test)).or_default() += share + COMMON_WORD * common;
            }
        }
    }
    kinship
}

/// The words in the names of tests.
struct Vocabulary {
    tests: Vec<HashSet<String>>,
    frequency: HashMap<String, usize>,
}

impl Vocabulary {
    fn of<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let tests: Vec<HashSet<String>> = names.map(words).collect();
        let mut frequency = HashMap::new();
        for word in tests.iter().flatten() {
            *frequency.entry(word.clone()).or_default() += 1;
        }
        Self { tests, frequency }
    }

    /// The rarest word that a test has in common with a function or file, from 0 (all tests have it) to 1.
    fn common(&self, part: &Part, test: usize) -> f64 {
        let all = number(self.tests.len());
        let (file, function) = part;
        let name = if function.is_empty() { file } else { function };
        let common = words(name).into_iter().filter(|word| self.tests[test].contains(word));
        let rarity = |word: String| 1.0 - number(self.frequency[&word]).ln() / all.ln();
        common.map(rarity).fold(0.0, f64::max)
    }
}

/// `id` and `generator` of `IdGenerator::ids`.
fn words(name: &str) -> HashSet<String> {
    let mut spaced = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    }
    let words = spaced.split(' ').map(|word| word.strip_suffix('s').unwrap_or(word));
    words.filter(|word| word.len() > 1).map(str::to_owned).collect()
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
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
                self.hunt.caught(mutant, test, took);
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
        self.runner.run(&recorded.name, mode, &servers.line, bound(recorded.took()))
    }

    /// Whether it is the mutant that a test has noticed.
    fn is_sure(&mut self, test: usize, mutant: &Mutant, outcome: Outcome) -> Result<bool> {
        if self.hunt.has_caught_here(mutant, test) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_words_in_common_make_kin() {
        let names = ["ids::of_a_day", "claims::of_a_day", "claims::of_ids", "orders::of_nothing"];
        let vocabulary = Vocabulary::of(names.into_iter());
        let common = |function: &str, test| {
            vocabulary.common(&("src/kit/id.rs".to_owned(), function.to_owned()), test)
        };
        assert_eq!(common("", 0), 0.5);
        assert_eq!([common("", 1), common("IdGenerator::of", 1)], [0.0, 0.0]);
        assert_eq!([common("Orders::all", 3), common("Day::new", 3)], [1.0, 0.0]);
    }
}
