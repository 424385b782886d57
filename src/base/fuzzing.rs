//! Fuzzing on stable Rust: seeds, changed at random, for as long as a run may take.
//!
//! A target has seeds of its own, and those kept in `tests/fuzz/<target>/`: inputs that once broke it. Each seed is checked
//! as it is first. An input that breaks the target is made small, by fewer and smaller changes, and kept there.
//!
//! With each run of the tests the same inputs are tried, as many of them as there is time for, so a test fails for a change
//! of the code and not by chance. `make fuzz`, by FUZZ_ANEW, tries other ones each time.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use uuid::Uuid;

/// Time for each target when nothing else is said: some seconds for all of them, with each run of the tests.
const SECONDS: u64 = 2;
/// Inputs between two looks at the clock.
const CASES: u32 = 500;

/// A target, with texts that its inputs are made of.
pub struct Fuzz {
    /// Name of the target, and of its folder.
    pub target: &'static str,
    /// Inputs to begin with.
    pub seeds: Vec<Vec<u8>>,
    /// Texts that are put into inputs.
    pub words: &'static [&'static str],
}

impl Fuzz {
    /// Runs `check` on all seeds, and then on changed ones until the time is over.
    ///
    /// # Panics
    ///
    /// When `check` does, with a small input for which it does.
    pub fn run(mut self, check: impl Fn(&[u8])) {
        self.seeds.extend(self.kept());
        let deadline = Instant::now() + Duration::from_secs(seconds());
        for seed in &self.seeds {
            check(seed);
        }
        let inputs = (any::<Index>(), prop::collection::vec(change(), 0..8));
        let mut tried = 0_u64;
        let mut round = first_round();
        while Instant::now() < deadline {
            let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
            round += 1;
            let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &round.to_le_bytes().repeat(2));
            let outcome =
                TestRunner::new_with_rng(config, chance).run(&inputs, |(seed, changes)| {
                    let input = self.input(seed, &changes);
                    catch_unwind(AssertUnwindSafe(|| check(&input)))
                        .map_err(|_| TestCaseError::fail("it panicked"))
                });
            if let Err(TestError::Fail(_, (seed, changes))) = outcome {
                let input = self.input(seed, &changes);
                let place = self.keep(&input);
                panic!("{:?}, kept as {}", String::from_utf8_lossy(&input), place.display());
            }
            tried += u64::from(CASES);
        }
        println!("{}: {tried} inputs from {} seeds", self.target, self.seeds.len());
    }

    fn input(&self, seed: Index, changes: &[Change]) -> Vec<u8> {
        let mut input = seed.get(&self.seeds).clone();
        for change in changes {
            self.apply(change, &mut input);
        }
        input
    }

    fn apply(&self, change: &Change, input: &mut Vec<u8>) {
        let place = |at: &Index, input: &Vec<u8>| at.index(input.len() + 1);
        match change {
            Change::Byte(at, byte) => {
                let at = place(at, input);
                input.splice(at..input.len().min(at + 1), [*byte]);
            }
            Change::Word(at, word) => {
                let at = place(at, input);
                input.splice(at..at, word.get(self.words).bytes());
            }
            Change::Cut(at, bytes) => {
                let at = place(at, input);
                input.drain(at..input.len().min(at + bytes));
            }
            Change::Copy(from, bytes, to) => {
                let from = place(from, input);
                let part = input[from..input.len().min(from + bytes)].to_vec();
                let to = place(to, input);
                input.splice(to..to, part);
            }
            Change::Splice(at, other, from) => {
                let other = other.get(&self.seeds);
                input.truncate(place(at, input));
                input.extend_from_slice(&other[from.index(other.len() + 1)..]);
            }
        }
    }

    fn folder(&self) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "tests", "fuzz", self.target].iter().collect()
    }

    fn kept(&self) -> Vec<Vec<u8>> {
        let files = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        files.map(|file| fs::read(file.path()).expect("a kept input can be read")).collect()
    }

    fn keep(&self, input: &[u8]) -> PathBuf {
        let digest = digest::digest(&digest::SHA256, input);
        let name: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let place = self.folder().join(name);
        fs::create_dir_all(self.folder()).expect("the folder can be made");
        fs::write(&place, input).expect("the input can be kept");
        place
    }
}

/// A change of an input.
#[derive(Clone, Debug)]
enum Change {
    /// Another byte.
    Byte(Index, u8),
    /// A text of the target.
    Word(Index, Index),
    /// Fewer bytes.
    Cut(Index, usize),
    /// A part of it once more.
    Copy(Index, usize, Index),
    /// The end of another seed in place of its own.
    Splice(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (at(), at()).prop_map(|(at, word)| Change::Word(at, word)),
        (at(), 1..32_usize).prop_map(|(at, bytes)| Change::Cut(at, bytes)),
        (at(), 1..32_usize, at()).prop_map(|(from, bytes, to)| Change::Copy(from, bytes, to)),
        (at(), at(), at()).prop_map(|(at, other, from)| Change::Splice(at, other, from)),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a setting of the tests, not of the service")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn seconds() -> u64 {
    let parsed = |text: String| text.parse().expect("FUZZ_SECONDS is a number of seconds");
    setting("FUZZ_SECONDS").map_or(SECONDS, parsed)
}

/// Each round has inputs of its own.
fn first_round() -> u128 {
    if setting("FUZZ_ANEW").is_some() { Uuid::new_v4().as_u128() >> 1 } else { 0 }
}

#[test]
fn a_fault_is_found_and_made_small() {
    let fuzz = Fuzz { target: "fuzzing", seeds: vec![b"abc".to_vec()], words: &["needle", "hay"] };
    let folder = fuzz.folder();
    let found = catch_unwind(|| fuzz.run(|input| assert!(!input.ends_with(b"needle"), "found")));
    let message = found.expect_err("it is found");
    let message = message.downcast_ref::<String>().expect("a text");
    assert!(message.contains("needle\", kept as "), "{message}");
    let kept = fs::read_dir(&folder).expect("it is kept").flatten().next().expect("it is kept");
    let kept = fs::read(kept.path()).expect("it can be read");
    assert!(kept.ends_with(b"needle") && kept.len() <= b"abcneedle".len(), "{kept:?}");
    fs::remove_dir_all(folder).expect("it was made here");
}
