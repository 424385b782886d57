//! Verdicts that outlive this machine: `tests/mutants/verdicts.txt`, which is committed.
//!
//! A line for each function, script or query that has verdicts:
//!
//! ```text
//! lua/renew.lua 3f2a9c1d07be cccsc-n lua renew
//! ```
//!
//! These are the file, the fingerprint, a letter for each mutant in the order of the file, the language and the name
//! of the function (none at the top of a script). The fingerprint is a hash of the text and of what its mutants change. So
//! the letters hold until the function, script or query changes, and whatever else does; a line that nothing has the
//! fingerprint of any more is left out when the file is next written.
//!
//! Git keeps the lines of both sides when it merges (`.gitattributes`). Of two lines about the same function each mutant
//! gets the better verdict.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::mutant::{Key, Mutant, hash};
use crate::results::{ResultLine, Results, Verdict};

/// The file.
pub const FILE: &str = "tests/mutants/verdicts.txt";
/// Hexadecimal digits of a fingerprint.
const FINGERPRINT_DIGITS: usize = 12;

const HEAD: &str = "\
# Verdicts on mutants, written by `make mutants` and not by hand (CONTRIBUTING.md, \"Mutants\"). A letter for each mutant of
# a function, script or query, in the order of the file: c caught, h caught by a hang, n refused by the compiler, Redis or
# Postgres, s survived, u reached by no test, - not run.
";

/// A function, script or query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    file: String,
    language: &'static str,
    function: String,
    fingerprint: String,
}

/// All mutants of each function, script and query.
struct Groups<'a>(BTreeMap<Group, Vec<&'a Mutant>>);

/// The letters of the file by the paths of sources and by fingerprints.
#[derive(Debug, Default)]
pub struct Kept(HashMap<(String, String), String>);

impl<'a> Groups<'a> {
    fn of(mutants: &'a [Mutant]) -> Self {
        let mut parts: BTreeMap<(&str, &'static str, &str, u64), Vec<&Mutant>> = BTreeMap::new();
        for mutant in mutants {
            let Key { file, function, .. } = &mutant.key;
            let part = (file.as_str(), mutant.language.name(), function.as_str(), mutant.context);
            parts.entry(part).or_default().push(mutant);
        }
        let groups = parts.into_iter().map(|((file, language, function, context), mutants)| {
            let fingerprint = fingerprint(context, &mutants);
            let (file, function) = (file.to_owned(), function.to_owned());
            (Group { file, language, function, fingerprint }, mutants)
        });
        Self(groups.collect())
    }
}

fn fingerprint(context: u64, mutants: &[&Mutant]) -> String {
    let mut text = context.to_string();
    for Key { operator, original, mutation, .. } in mutants.iter().map(|mutant| &mutant.key) {
        for part in [operator, original, mutation] {
            text.push('\0');
            text.push_str(part);
        }
    }
    format!("{:016x}", hash(&text))[..FINGERPRINT_DIGITS].to_owned()
}

impl Verdict {
    fn letter(self) -> char {
        match self {
            Self::Caught => 'c',
            Self::CaughtByHang => 'h',
            Self::DoesNotCompile => 'n',
            Self::Survived => 's',
            Self::Unreached => 'u',
        }
    }

    fn of_letter(letter: char) -> Option<Self> {
        const ALL: [Verdict; 5] = [
            Verdict::Caught,
            Verdict::CaughtByHang,
            Verdict::DoesNotCompile,
            Verdict::Survived,
            Verdict::Unreached,
        ];
        ALL.into_iter().find(|verdict| verdict.letter() == letter)
    }
}

impl Kept {
    /// Reads the file, if it is there.
    ///
    /// # Errors
    ///
    /// When it can't be understood.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let text = if path.exists() {
            fs::read_to_string(&path).with_context(|| format!("reading {FILE}"))?
        } else {
            String::new()
        };
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut kept = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let mut word = || words.next().map(str::to_owned);
            let (file, fingerprint, letters) = (word(), word(), word());
            let (Some(file), Some(fingerprint), Some(letters)) = (file, fingerprint, letters)
            else {
                anyhow::bail!("{FILE}: {line:?} has too few words");
            };
            let is_known = |letter: char| letter == '-' || Verdict::of_letter(letter).is_some();
            ensure!(letters.chars().all(is_known), "{FILE}: {line:?} has an unknown letter");
            let known = kept.0.entry((file, fingerprint)).or_default();
            *known = better(known, &letters);
        }
        Ok(kept)
    }

    /// Tells these verdicts to `results`, for mutants of which it knows nothing better.
    pub fn tell(&self, mutants: &[Mutant], results: &mut Results) {
        for (group, mutants) in Groups::of(mutants).0 {
            let letters = self.0.get(&(group.file, group.fingerprint));
            let letters = letters.map_or("", String::as_str).chars().map(Verdict::of_letter);
            for (mutant, verdict) in mutants.iter().zip(letters) {
                if let Some(verdict) = verdict {
                    results.learn(ResultLine::without_details(mutant, 0, verdict));
                }
            }
        }
    }
}

/// Of two verdicts on each mutant the better one.
fn better(some: &str, others: &str) -> String {
    let rank = |letter: char| "-uschn".find(letter).unwrap_or_default();
    let length = some.len().max(others.len());
    let letters = |text: &str| text.chars().chain(std::iter::repeat('-')).take(length).collect();
    let (some, others): (Vec<char>, Vec<char>) = (letters(some), letters(others));
    let pairs = some.into_iter().zip(others);
    pairs.map(|(one, other)| if rank(other) > rank(one) { other } else { one }).collect()
}

/// Writes all that is known of these mutants into the file.
///
/// # Errors
///
/// When it can't be written.
pub fn write(root: &Path, mutants: &[Mutant], results: &Results) -> Result<()> {
    let path = root.join(FILE);
    let text = text(mutants, results);
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    // A process that is ended between these two steps leaves the file as it was.
    let new = path.with_extension("new");
    fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
    fs::rename(&new, &path).with_context(|| format!("writing {FILE}"))
}

fn text(mutants: &[Mutant], results: &Results) -> String {
    let mut text = HEAD.to_owned();
    for (group, mutants) in Groups::of(mutants).0 {
        let letter = |mutant: &&Mutant| results.last(mutant).map_or('-', Verdict::letter);
        let letters: String = mutants.iter().map(letter).collect();
        if letters.chars().any(|letter| letter != '-') {
            let Group { file, language, function, fingerprint } = group;
            let line = format!("{file} {fingerprint} {letters} {language} {function}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn mutants(text: &str) -> Vec<Mutant> {
        crate::lua::mutants(&Source { path: "lua/a.lua".into(), text: text.into() }, 1)
    }

    fn results(name: &str) -> Results {
        let name = format!("mutants-kept-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let results = Results::open(path.clone()).expect("a file can be made");
        fs::remove_file(path).expect("it is there");
        results
    }

    /// Verdicts that the file tells a machine without results of its own.
    fn told(file: &str, mutants: &[Mutant], name: &str) -> Vec<Option<Verdict>> {
        let mut results = results(name);
        Kept::parse(file).expect("it is understood").tell(mutants, &mut results);
        mutants.iter().map(|mutant| results.last(mutant)).collect()
    }

    #[test]
    fn verdicts_reach_another_machine_until_the_code_changes() {
        let before = mutants("local a = 1\nif a < 2 then return 3 end");
        let mut known = results("before");
        let verdicts = [Verdict::Caught, Verdict::Survived, Verdict::DoesNotCompile];
        for (mutant, verdict) in before.iter().zip(verdicts) {
            known.learn(ResultLine::without_details(mutant, 1, verdict));
        }
        let file = text(&before, &known);
        assert_eq!(file.lines().filter(|line| !line.starts_with('#')).count(), 1);
        let expected: Vec<_> = verdicts.into_iter().map(Some).collect();
        assert_eq!(told(&file, &before, "same")[..3], expected);
        assert!(told(&file, &before, "rest")[3..].iter().all(Option::is_none));
        let after = mutants("local a = 1\nif a < 2 then return 4 end");
        assert!(told(&file, &after, "after").iter().all(Option::is_none));
        assert_eq!(text(&after, &known), HEAD);
    }

    #[test]
    fn a_survivor_of_another_machine_is_tried_again() {
        let mutants = mutants("local a = 1");
        let mut known = results("survivor");
        let fingerprint = fingerprint(mutants[0].context, &mutants.iter().collect::<Vec<_>>());
        let kept = Kept::parse(&format!("lua/a.lua {fingerprint} s lua")).expect("understood");
        kept.tell(&mutants, &mut known);
        assert_eq!(known.last(&mutants[0]), Some(Verdict::Survived));
        assert!(known.of(&mutants[0], 5).is_none());
    }

    #[test]
    fn a_merge_keeps_the_better_verdict_of_two() {
        for (some, others, expected) in
            [("cs-n", "scu-", "ccun"), ("", "cs", "cs"), ("h-", "sc", "hc"), ("hu", "cs", "hs")]
        {
            assert_eq!(better(some, others), expected, "{some} {others}");
        }
        let kept = Kept::parse("# x\na.rs 1f cs- rust f\na.rs 1f s-u rust f\n").expect("valid");
        assert_eq!(kept.0[&("a.rs".into(), "1f".into())], "csu");
        assert!(Kept::parse("a.rs 1f x rust f").is_err() && Kept::parse("a.rs 1f").is_err());
    }
}
