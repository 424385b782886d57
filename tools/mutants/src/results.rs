//! The verdict on each mutant, in a file: a campaign of hours can be broken off and resumed. What others have to know of
//! it is committed ([`crate::kept`]).
//!
//! A line is added for each result, and the last one counts. That a mutant is caught, or doesn't compile, stays true as
//! long as the function, script or query around it is the same; that it survives, as long as nothing has changed: a new
//! test may catch it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::mutant::{Key, Mutant};

/// Verdict on a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The compiler, Redis or Postgres refuses it.
    DoesNotCompile,
    /// A test fails.
    Caught,
    /// A test takes far longer than alone.
    CaughtByHang,
    /// All tests that reach it pass.
    Survived,
    /// No test reaches it.
    Unreached,
}

impl Verdict {
    /// True if no test has noticed the mutant.
    pub fn is_survival(self) -> bool {
        matches!(self, Self::Survived | Self::Unreached)
    }
}

/// One line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultLine {
    /// Identity of the mutant.
    #[serde(flatten)]
    pub key: Key,
    /// Its line, for people.
    pub line: usize,
    /// Hash of what is around it.
    pub context: u64,
    /// Hash of everything.
    pub world: u64,
    /// Verdict on the mutant.
    pub verdict: Verdict,
    /// The test that caught it.
    pub by: Option<String>,
    /// Tests that ran.
    pub tests: usize,
    /// Tests that reach it and had no room in the budget.
    pub left: usize,
    /// Time that it took, in milliseconds.
    pub took_ms: u64,
}

impl ResultLine {
    /// A verdict of which no more is known.
    pub fn without_details(mutant: &Mutant, world: u64, verdict: Verdict) -> Self {
        Self {
            key: mutant.key.clone(),
            line: *mutant.lines.start(),
            context: mutant.context,
            world,
            verdict,
            by: None,
            tests: 0,
            left: 0,
            took_ms: 0,
        }
    }
}

/// All results.
pub struct Results {
    path: PathBuf,
    file: File,
    lines: HashMap<Key, ResultLine>,
}

impl Results {
    /// Reads the file, if it is there.
    ///
    /// # Errors
    ///
    /// When it can't be read or written.
    pub fn open(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The last line may have been cut off.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<ResultLine>(line).ok());
        let lines = lines.map(|line| (line.key.clone(), line)).collect();
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let mut file = file.with_context(|| format!("opening {}", path.display()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file)?;
        }
        Ok(Self { path, file, lines })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last line of each mutant.
    pub fn lines(&self) -> impl Iterator<Item = &ResultLine> {
        self.lines.values()
    }

    /// Result of a mutant that holds in this world.
    pub fn of(&self, mutant: &Mutant, world: u64) -> Option<&ResultLine> {
        self.line(mutant).filter(|line| !line.verdict.is_survival() || line.world == world)
    }

    /// Last verdict on a mutant, in any world.
    pub fn last(&self, mutant: &Mutant) -> Option<Verdict> {
        self.line(mutant).map(|line| line.verdict)
    }

    fn line(&self, mutant: &Mutant) -> Option<&ResultLine> {
        self.lines.get(&mutant.key).filter(|line| line.context == mutant.context)
    }

    /// Learns a verdict from elsewhere, unless one is known already that is as good. It isn't noted here.
    pub fn learn(&mut self, line: ResultLine) {
        let known = self.lines.get(&line.key).filter(|known| known.context == line.context);
        if known.is_none_or(|known| known.verdict.is_survival() && !line.verdict.is_survival()) {
            self.lines.insert(line.key.clone(), line);
        }
    }

    /// Notes a result.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn add(&mut self, line: ResultLine) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        self.lines.insert(line.key.clone(), line);
        Ok(())
    }
}

/// Numbers of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All mutants.
    pub total: usize,
    /// Mutants that the compiler, Redis or Postgres refuses.
    pub does_not_compile: usize,
    /// Mutants that make a test fail.
    pub caught: usize,
    /// Mutants that make a test hang.
    pub by_hang: usize,
    /// Mutants that all tests pass with.
    pub survived: usize,
    /// Mutants that no test reaches.
    pub unreached: usize,
    /// Mutants that do the same as the original.
    pub equal: usize,
    /// Mutants without a result.
    pub not_run: usize,
}

impl Counts {
    /// Counts one mutant.
    pub fn count(&mut self, verdict: Option<Verdict>, is_equal: bool) {
        self.total += 1;
        let counter = match verdict {
            Some(Verdict::DoesNotCompile) => &mut self.does_not_compile,
            _ if is_equal => &mut self.equal,
            Some(Verdict::Caught) => &mut self.caught,
            Some(Verdict::CaughtByHang) => &mut self.by_hang,
            Some(Verdict::Survived) => &mut self.survived,
            Some(Verdict::Unreached) => &mut self.unreached,
            None => &mut self.not_run,
        };
        *counter += 1;
    }

    /// Percentage of caught ones among those that have run; 100 if none have.
    pub fn caught_percent(&self) -> f64 {
        let caught = self.caught + self.by_hang;
        let all = caught + self.survived + self.unreached;
        let number = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        if all == 0 { 100.0 } else { 100.0 * number(caught) / number(all) }
    }
}

/// The table of all folders, and their sum.
pub fn table(folders: &BTreeMap<String, Counts>) -> (String, Counts) {
    use std::fmt::Write as _;
    let mut sum = Counts::default();
    let mut text = format!(
        "{:<32} {:>6} {:>8} {:>7} {:>8} {:>9} {:>10} {:>6} {:>8} {:>8}\n",
        "folder",
        "total",
        "no build",
        "caught",
        "by hang",
        "survived",
        "unreached",
        "equal",
        "not run",
        "caught %"
    );
    let mut row = |name: &str, counts: &Counts| {
        let Counts {
            total,
            does_not_compile,
            caught,
            by_hang,
            survived,
            unreached,
            equal,
            not_run,
        } = counts;
        let percent = counts.caught_percent();
        let _ = writeln!(
            text,
            "{name:<32} {total:>6} {does_not_compile:>8} {caught:>7} {by_hang:>8} {survived:>9} {unreached:>10} {equal:>6} {not_run:>8} {percent:>8.1}"
        );
    };
    for (name, counts) in folders {
        row(name, counts);
        sum.total += counts.total;
        sum.does_not_compile += counts.does_not_compile;
        sum.caught += counts.caught;
        sum.by_hang += counts.by_hang;
        sum.survived += counts.survived;
        sum.unreached += counts.unreached;
        sum.equal += counts.equal;
        sum.not_run += counts.not_run;
    }
    row("all", &sum);
    (text, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::Language;

    fn mutant() -> Mutant {
        let key = Key {
            file: "lua/a.lua".into(),
            function: String::new(),
            operator: "number".into(),
            original: "1".into(),
            mutation: "2".into(),
            occurrence: 0,
        };
        Mutant { key, language: Language::Lua, lines: 1..=1, context: 5, number: 1, text: None }
    }

    fn line(verdict: Verdict) -> ResultLine {
        let key = mutant().key;
        ResultLine {
            key,
            line: 1,
            context: 5,
            world: 6,
            verdict,
            by: None,
            tests: 0,
            left: 0,
            took_ms: 0,
        }
    }

    #[test]
    fn results_outlive_the_process_and_a_line_that_was_cut_off() {
        let path = std::env::temp_dir().join(format!("mutants-results-{}", std::process::id()));
        let mut results = Results::open(path.clone()).expect("a file can be made");
        results.add(line(Verdict::Survived)).expect("it can be written");
        results.add(line(Verdict::Caught)).expect("it can be written");
        let whole = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, format!("{whole}{{\"file\":\"lua/")).expect("it can be written");
        let mut results = Results::open(path.clone()).expect("it is there");
        let verdict = |results: &Results| results.of(&mutant(), 6).map(|line| line.verdict);
        assert_eq!(verdict(&results), Some(Verdict::Caught));
        results.add(line(Verdict::Unreached)).expect("it can be written");
        let results = Results::open(path.clone()).expect("it is there");
        assert_eq!(verdict(&results), Some(Verdict::Unreached));
        fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn a_survivor_is_tried_again_when_anything_has_changed() {
        let path = std::env::temp_dir().join(format!("mutants-world-{}", std::process::id()));
        let mut results = Results::open(path.clone()).expect("a file can be made");
        results.add(line(Verdict::Survived)).expect("it can be written");
        assert!(results.of(&mutant(), 6).is_some());
        assert!(results.of(&mutant(), 7).is_none());
        results.add(line(Verdict::Caught)).expect("it can be written");
        assert!(results.of(&mutant(), 7).is_some());
        let changed = Mutant { context: 8, ..mutant() };
        assert!(results.of(&changed, 6).is_none());
        fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn those_that_do_the_same_are_not_counted_as_missed() {
        let mut counts = Counts::default();
        for _ in 0..19 {
            counts.count(Some(Verdict::Caught), false);
        }
        counts.count(Some(Verdict::Survived), true);
        counts.count(Some(Verdict::DoesNotCompile), false);
        counts.count(Some(Verdict::Unreached), false);
        assert_eq!((counts.total, counts.equal, counts.unreached), (22, 1, 1));
        assert!((counts.caught_percent() - 95.0).abs() < 1e-9);
    }
}
