//! One small change of the code, and its identity from run to run.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Characters of a snippet that its identity keeps.
const SNIPPET_CHARS_MAX: usize = 200;

/// Identity of a mutant. Lines are no part of it, so results outlive changes elsewhere in the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Path from the root of the repository.
    pub file: String,
    /// Enclosing function, with the type that has it; empty for the top of a script.
    pub function: String,
    /// Kind of change.
    pub operator: String,
    /// Text that is changed, white space collapsed.
    pub original: String,
    /// Text that takes its place; empty where it is left out.
    pub mutation: String,
    /// Position among mutants that agree in all of the above, from 0.
    pub occurrence: usize,
}

/// Language of the changed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Switched on by its number in the one build that has all of them.
    Rust,
    /// A script's text is replaced when it is loaded.
    Lua,
    /// A query's text is replaced when it is sent.
    Sql,
}

/// One small change.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its identity.
    pub key: Key,
    /// Its language.
    pub language: Language,
    /// Lines of the file that it changes, from 1.
    pub lines: RangeInclusive<usize>,
    /// Hash of the function, script or query around it: a result holds as long as that stays.
    pub context: u64,
    /// Number of the place that a test has to reach; for Rust also the number that switches the mutant on.
    pub number: u32,
    /// Whole text of the changed script or query; `None` for Rust.
    pub text: Option<String>,
}

impl Language {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Lua => "lua",
            Self::Sql => "sql",
        }
    }
}

impl Mutant {
    /// `path:line`, for people.
    pub fn place(&self) -> String {
        format!("{}:{}", self.key.file, self.lines.start())
    }

    /// The change in one line for people.
    pub fn change(&self) -> String {
        let Key { operator, original, mutation, function, .. } = &self.key;
        let within = if function.is_empty() { String::new() } else { format!("{function}: ") };
        match mutation.as_str() {
            "" => format!("{within}{operator}: `{original}` left out"),
            _ => format!("{within}{operator}: `{original}` becomes `{mutation}`"),
        }
    }
}

/// A snippet as identities have it: white space collapsed, and not too long.
pub fn snippet(text: &str) -> String {
    let collapsed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match collapsed.char_indices().nth(SNIPPET_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &collapsed[..at]),
        None => collapsed,
    }
}

/// Counts mutants that look the same, in the order of the file.
#[derive(Default)]
pub struct Occurrences(HashMap<Key, usize>);

impl Occurrences {
    /// Gives the key its occurrence.
    pub fn count(&mut self, mut key: Key) -> Key {
        key.occurrence = 0;
        let seen = self.0.entry(key.clone()).or_default();
        key.occurrence = *seen;
        *seen += 1;
        key
    }
}

/// FNV-1a, which stays what it is from one Rust to the next.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_told_apart() {
        let key = |original: &str| Key {
            file: "src/a.rs".into(),
            function: "f".into(),
            operator: "boundary".into(),
            original: snippet(original),
            mutation: "a <= b".into(),
            occurrence: 0,
        };
        let mut seen = Occurrences::default();
        let numbers: Vec<usize> =
            ["a < b", "a  <\n b", "c < b"].map(|text| seen.count(key(text)).occurrence).into();
        assert_eq!(numbers, [0, 1, 0]);
    }

    #[test]
    fn long_snippets_are_cut_between_characters() {
        let cut = snippet(&"é ".repeat(300));
        assert_eq!(cut.chars().count(), SNIPPET_CHARS_MAX + 1);
    }
}
