//! The order of tests: which of them will probably notice a mutant, and soonest.
//!
//! A test is promising that has caught other mutants of the same function or file, reaches places of them that few others
//! reach, or has words in its name that few others have: words of the file, the function, or the changed code (for a
//! script, of the file that includes it, too). The rest is decided by the time that it takes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::mutant::Key;
use crate::recording::Recorded;
use crate::results::Results;
use crate::world::World;

/// Factor for a test that has caught many mutants of the same function.
const CAUGHT_IN_FUNCTION: f64 = 20.0;
/// Factor for a test that has caught many mutants of the same file.
const CAUGHT_IN_FILE: f64 = 3.0;
/// Kinship of a test that has a word in common which no other test has.
const COMMON_WORD: f64 = 10.0;
/// Kinship of a test that reaches no more than all tests reach.
const KINSHIP_MIN: f64 = 0.05;
/// Time that a test process takes beside its test.
const OVERHEAD: Duration = Duration::from_millis(50);

/// A file and a function; no function stands for the whole file.
type Part = (String, String);

/// The function of a mutant, and its file.
fn parts(key: &Key) -> [Part; 2] {
    [(key.file.clone(), key.function.clone()), (key.file.clone(), String::new())]
}

/// Catches of each test.
#[derive(Default)]
pub struct Catches {
    caught: HashMap<(Part, usize), Caught>,
    /// Tests that fail without a mutant, too.
    pub unreliable: HashSet<usize>,
}

/// Catches of one test in one part.
#[derive(Clone, Copy, Default)]
struct Caught {
    mutants: f64,
    /// Time until the test failed each time: one that fails at once is better than one that waits for a deadline.
    seconds: f64,
}

impl Catches {
    /// Catches of earlier runs.
    pub fn of(results: &Results, tests: &[Recorded]) -> Self {
        let index = tests.iter().enumerate().map(|(index, test)| (test.name.to_string(), index));
        let index: HashMap<String, usize> = index.collect();
        let mut catches = Self::default();
        for line in results.lines() {
            if let Some(test) = line.by.as_ref().and_then(|by| index.get(by)) {
                let took_ms = line.took_ms / u64::try_from(line.tests.max(1)).unwrap_or(u64::MAX);
                catches.add(&line.key, *test, Duration::from_millis(took_ms));
            }
        }
        catches
    }

    /// Adds a catch, and the time until the test failed.
    pub fn add(&mut self, key: &Key, test: usize, took: Duration) {
        for part in parts(key) {
            let caught = self.caught.entry((part, test)).or_default();
            caught.mutants += 1.0;
            caught.seconds += took.as_secs_f64();
        }
    }

    /// Whether a test has caught a mutant of the same function.
    pub fn has_caught_here(&self, key: &Key, test: usize) -> bool {
        let [function, _] = parts(key);
        self.caught.contains_key(&(function, test))
    }

    /// Time of a test, shortened by what it has caught.
    pub fn seconds(&self, key: &Key, test: usize, alone: Duration) -> f64 {
        let of = |part| self.caught.get(&(part, test)).copied().unwrap_or_default();
        let [function, file] = parts(key).map(of);
        // From 0 (nothing) to 1 (very many).
        let trust = |caught: Caught| caught.mutants / (caught.mutants + 1.0);
        let fails = file.seconds / file.mutants.max(1.0);
        let takes = OVERHEAD.as_secs_f64() + alone.as_secs_f64().max(fails);
        takes / (1.0 + CAUGHT_IN_FUNCTION * trust(function) + CAUGHT_IN_FILE * trust(file))
    }
}

/// Kinship of each test with each function and file.
pub struct Kin {
    by_places: HashMap<(Part, usize), f64>,
    /// The file that includes each script.
    owners: HashMap<String, String>,
    /// Words in the name of each test.
    words: Vec<HashSet<String>>,
    /// Number of tests that have a word.
    frequency: HashMap<String, usize>,
}

impl Kin {
    /// Of these tests with all mutants; `by_place` has the tests that reach each place.
    pub fn of(world: &World, by_place: &HashMap<u32, Vec<usize>>, tests: &[Recorded]) -> Self {
        let mut by_places: HashMap<(Part, usize), f64> = HashMap::new();
        let mut seen = HashSet::new();
        for mutant in world.mutants.iter().filter(|mutant| seen.insert(mutant.number)) {
            let tests = by_place.get(&mutant.number).map_or(&[][..], Vec::as_slice);
            for part in parts(&mutant.key) {
                for &test in tests {
                    *by_places.entry((part.clone(), test)).or_default() +=
                        1.0 / number(tests.len());
                }
            }
        }
        let names = tests.iter().map(|test| test.name.test.as_str());
        Self { by_places, owners: world.owners.clone(), ..Self::by_words(names) }
    }

    fn by_words<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let words: Vec<HashSet<String>> = names.map(words).collect();
        let mut frequency = HashMap::new();
        for word in words.iter().flatten() {
            *frequency.entry(word.clone()).or_default() += 1;
        }
        Self { by_places: HashMap::new(), owners: HashMap::new(), words, frequency }
    }

    /// Words of a mutant's file, function and code.
    pub fn words(&self, key: &Key) -> [HashSet<String>; 3] {
        let mut of_file = words(&key.file);
        of_file.extend(self.owners.get(&key.file).map(|owner| words(owner)).unwrap_or_default());
        [of_file, words(&key.function), words(&key.original)]
    }

    /// Kinship of a test with a mutant that has these words.
    pub fn of_test(&self, key: &Key, of: &[HashSet<String>; 3], test: usize) -> f64 {
        let places = parts(key).map(|part| self.by_places.get(&(part, test)).copied());
        let places: f64 = places.into_iter().flatten().sum();
        let common: f64 = of.iter().map(|words| self.common(words, test)).sum();
        KINSHIP_MIN + places + COMMON_WORD * common
    }

    /// The rarest of these words that a test has, from 0 (all tests have it) to 1.
    fn common(&self, of: &HashSet<String>, test: usize) -> f64 {
        let all = number(self.words.len());
        let rarity = |word: &String| 1.0 - number(self.frequency[word]).ln() / all.ln();
        of.intersection(&self.words[test]).map(rarity).fold(0.0, f64::max)
    }
}

/// `id` and `generator` of `IdGenerator::ids`.
fn words(name: &str) -> HashSet<String> {
    let mut spaced = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && was_lower {
            spaced.push(' ');
        }
        was_lower = c.is_lowercase();
        spaced.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    }
    let words = spaced.split(' ').map(|word| word.strip_suffix('s').unwrap_or(word));
    words.filter(|word| word.len() > 1).map(str::to_owned).collect()
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_words_in_common_make_kin() {
        let names = ["ids::of_a_day", "claims::of_a_day", "claims::of_ids", "orders::of_nothing"];
        let kin = Kin::by_words(names.into_iter());
        let common = |name: &str, test| kin.common(&words(name), test);
        assert_eq!(common("src/kit/id.rs", 0), 0.5);
        assert_eq!([common("src/kit/id.rs", 1), common("IdGenerator::of", 1)], [0.0, 0.0]);
        assert_eq!([common("ORDERS_MAX::all", 3), common("Day::new", 3)], [1.0, 0.0]);
    }

    #[test]
    fn tests_that_have_caught_something_seem_shorter_unless_they_fail_slowly() {
        let key = Key {
            file: "src/a.rs".into(),
            function: "f".into(),
            operator: "number".into(),
            original: "1".into(),
            mutation: "2".into(),
            occurrence: 0,
        };
        let other = Key { function: "g".into(), ..key.clone() };
        let mut catches = Catches::default();
        catches.add(&key, 1, Duration::from_secs(1));
        catches.add(&key, 2, Duration::from_secs(100));
        let seconds = |key: &Key, test| catches.seconds(key, test, Duration::from_secs(1));
        assert!(seconds(&key, 1) < seconds(&other, 1) && seconds(&other, 1) < seconds(&key, 0));
        assert!(seconds(&key, 2) > seconds(&key, 0));
        assert!(catches.has_caught_here(&key, 2) && !catches.has_caught_here(&other, 2));
    }
}
