//! Mutants that do the same as the original, each with the reason: `tests/mutants/equal.toml`.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::mutant::{Mutant, snippet};

/// The list of equal mutants.
pub const FILE: &str = "tests/mutants/equal.toml";

/// The list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EqualMutants {
    #[serde(default)]
    equal: Vec<Equal>,
}

/// One entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Equal {
    file: String,
    function: String,
    original: String,
    mutation: String,
    #[serde(default)]
    occurrence: usize,
    reason: String,
}

impl EqualMutants {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// When it can't be read or understood.
    pub fn read(root: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(root.join(FILE)).with_context(|| format!("reading {FILE}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).with_context(|| format!("understanding {FILE}"))
    }

    /// Whether a mutant is listed.
    pub fn has(&self, mutant: &Mutant) -> bool {
        self.equal.iter().any(|entry| entry.names(mutant))
    }

    /// Mistakes in the list: entries that name no mutant (any more), and entries without a reason.
    pub fn complaints(&self, mutants: &[Mutant]) -> Vec<String> {
        let mut complaints = Vec::new();
        for entry in &self.equal {
            let Equal { file, function, original, mutation, occurrence, reason } = entry;
            if reason.trim().is_empty() {
                complaints.push(format!(
                    "{FILE}: say why `{original}` in {file} may become `{mutation}`"
                ));
            }
            if !mutants.iter().any(|mutant| entry.names(mutant)) {
                complaints.push(format!(
                    "{FILE}: no mutant changes `{original}` ({occurrence}) in {function}, {file}, into `{mutation}`: \
                     put the entry right, or take it out; --list shows what there is"
                ));
            }
        }
        complaints
    }
}

impl Equal {
    fn names(&self, mutant: &Mutant) -> bool {
        let key = &mutant.key;
        self.file == key.file
            && self.function == key.function
            && snippet(&self.original) == key.original
            && snippet(&self.mutation) == key.mutation
            && self.occurrence == key.occurrence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn entries_name_mutants_that_are_there() {
        let source = Source { path: "lua/a.lua".into(), text: "local x = 1\n".into() };
        let mutants = crate::lua::mutants(&source, 1);
        let entry = |original: &str, reason: &str| {
            format!(
                "[[equal]]\nfile = 'lua/a.lua'\nfunction = ''\noriginal = '{original}'\n\
                 mutation = 'local x = 2'\nreason = '{reason}'\n"
            )
        };
        let list = EqualMutants::parse(&entry("local x  =  1", "nothing reads it")).expect("valid");
        assert!(list.has(&mutants[0]) && list.complaints(&mutants).is_empty());
        let list = EqualMutants::parse(&entry("local y = 1", " ")).expect("valid");
        assert!(!list.has(&mutants[0]));
        assert_eq!(list.complaints(&mutants).len(), 2);
        assert!(EqualMutants::parse("[[equal]]\nfile = 'a'\nline = 7\n").is_err());
    }
}
