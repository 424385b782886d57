//! All mutants there are, and the copy that has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::mutant::{Key, Language, Mutant, Occurrences, hash};
use crate::rust::splice::Spliced;
use crate::rust::{
    Known, Query, RUNS_SCRIPTS, instrument, modules_of_tests, whole_number_constants,
};
use crate::source::{Source, listed};
use crate::{lua, sql};

/// Folders of Rust that are mutated.
const RUST: &[&str] =
    &["src/http/", "src/kit/", "src/sale/", "src/worker/", "crates/redisson-locks/src/"];
/// Folders of scripts.
const LUA: &[&str] = &["lua/", "crates/redisson-locks/lua/"];
/// Folder of tests that may run scripts themselves.
const TESTS: &str = "tests/it/";
/// Such a test has the text of its script from this.
const INCLUDES_SCRIPT: &str = "Script::new(include_str!(\"";
/// Libraries beside the service whose folders are mutated.
pub const LIBRARIES: &[&str] = &["redisson-locks"];

/// Files that decide what tests see. A result "survived" holds as long as all of them stay.
const DECISIVE: &[&str] = &[
    ".cargo/",
    ".sqlx/",
    "Cargo.",
    "build.rs",
    "crates/",
    "lua/",
    "migrations/",
    "pages/",
    "src/",
    "tests/it",
];

/// The module that each mutated crate of the copy has beside the product's.
const SWITCHES: &str = include_str!("../injected/mutants.rs");
/// The end of that module in the service, which alone has queries.
const QUERIES: &str = include_str!("../injected/sql.rs");
/// All mutants, and the changed files of the copy.
pub struct World {
    /// All mutants, by file and line; those that don't compile included.
    pub mutants: Vec<Mutant>,
    /// Queries by the number of their place.
    pub queries: HashMap<u32, Query>,
    /// The file that includes each script.
    pub owners: HashMap<String, String>,
    /// Changed files, with what was put in.
    pub files: BTreeMap<String, Spliced>,
    /// All files of the copy that differ.
    pub changed: Vec<Source>,
    /// Hash of everything that decides what tests see.
    pub hash: u64,
}

/// A place that a test can reach.
pub struct Spot {
    /// Hash of all that tells it from others, its number apart.
    pub id: u32,
    /// Path of its file.
    pub file: String,
    /// Enclosing function; empty for a script.
    pub function: String,
}

impl World {
    /// All places by their numbers; the first one is none.
    pub fn spots(&self) -> Vec<Spot> {
        let spots = self.mutants.iter().map(|mutant| {
            let Key { file, function, operator, original, mutation, occurrence } = &mutant.key;
            let (function, what) = match mutant.language {
                Language::Rust => {
                    (function.clone(), format!("{operator}\0{original}\0{mutation}\0{occurrence}"))
                }
                Language::Sql => (function.clone(), self.queries[&mutant.number].text.clone()),
                Language::Lua => (String::new(), String::new()),
            };
            // The lower half of a hash is as good as any.
            #[expect(clippy::cast_possible_truncation, reason = "see above")]
            let id = hash(&format!("{file}\0{function}\0{what}")) as u32;
            (mutant.number, Spot { id, file: file.clone(), function })
        });
        let mut spots: BTreeMap<u32, Spot> = spots.collect();
        let last = spots.keys().next_back().copied().unwrap_or_default();
        let none = || Spot { id: 0, file: String::new(), function: String::new() };
        (0..=last).map(|number| spots.remove(&number).unwrap_or_else(none)).collect()
    }

    /// Finds all mutants of the working tree, apart from those that are known not to compile.
    ///
    /// # Errors
    ///
    /// When a file can't be read or understood.
    pub fn of(root: &Path, dropped: &HashMap<Key, u64>) -> Result<Self> {
        let listed = listed(root)?;
        let sources = |is_wanted: &dyn Fn(&str) -> bool| -> Result<Vec<Source>> {
            let paths = listed.iter().filter(|path| is_wanted(path));
            paths.map(|path| Source::read(root, path)).collect()
        };
        let is_rust = |path: &str| path.ends_with(".rs");
        let mut of_tests = Vec::new();
        let of_rooms = |path: &str| RUST.iter().any(|folder| path.starts_with(folder));
        for source in sources(&|path| of_rooms(path) && is_rust(path))? {
            of_tests.extend(modules_of_tests(&source)?);
        }
        let is_of_tests = |path: &str| of_tests.iter().any(|begin| path.starts_with(begin));
        let mutated = |path: &str| of_rooms(path) && !is_of_tests(path);
        let mut constants = BTreeSet::new();
        let is_product = |path: &str| path.starts_with("src/") || of_rooms(path);
        for source in sources(&|path| is_product(path) && is_rust(path))? {
            constants.extend(whole_number_constants(&source)?);
        }
        let known = Known { constants: &constants, dropped };
        let mut world = Self {
            mutants: Vec::new(),
            queries: HashMap::new(),
            owners: HashMap::new(),
            files: BTreeMap::new(),
            changed: Vec::new(),
            hash: 0,
        };
        let mut next = 1;
        let (mut scripts, mut runs_scripts) = (HashMap::new(), 0);
        for source in sources(&|path| mutated(path) && is_rust(path))? {
            let runs = world.rust(&source, &known, &mut next, &mut scripts)?;
            runs_scripts += usize::from(runs);
        }
        ensure!(
            runs_scripts == RUNS_SCRIPTS.len(),
            "a function that runs all scripts of a crate has moved: put tools/mutants right"
        );
        let is_script = |path: &str| LUA.iter().any(|folder| path.starts_with(folder));
        for source in sources(&|path| is_script(path) && path.ends_with(".lua"))? {
            let Some(number) = scripts.get(&source.path) else {
                bail!("{}: no file under {} includes this script", source.path, RUST.join(", "));
            };
            world.mutants.extend(lua::mutants(&source, *number));
        }
        for source in sources(&|path| path.starts_with(TESTS) && is_rust(path))? {
            let text = scripts_of_tests(&source.text, &scripts);
            if text != source.text {
                world.changed.push(Source { path: source.path, text });
            }
        }
        world.mutants.sort_by_key(|mutant| (mutant.key.file.clone(), *mutant.lines.start()));
        world.scaffold(root, next)?;
        world.hash = world.hash_of(root, &listed)?;
        Ok(world)
    }

    /// Adds the mutants of a file. Returns whether it has the function that runs all scripts.
    fn rust(
        &mut self,
        source: &Source,
        known: &Known<'_>,
        next: &mut u32,
        scripts: &mut HashMap<String, u32>,
    ) -> Result<bool> {
        let found = instrument(source, known, next)?;
        let spliced = found.splices.apply(&source.text);
        let path = source.path.clone();
        self.changed.push(Source { path: path.clone(), text: spliced.text.clone() });
        self.files.insert(path, spliced);
        self.mutants.extend(found.mutants);
        let mut occurrences = Occurrences::default();
        for query in found.queries {
            self.mutants.extend(sql::mutants(&query, &mut occurrences));
            self.queries.insert(query.number, query);
        }
        for script in found.scripts {
            self.owners.insert(script.path.clone(), source.path.clone());
            if scripts.insert(script.path.clone(), script.number).is_some() {
                bail!("{}: two places include this script", script.path);
            }
        }
        Ok(found.runs_scripts)
    }

    /// The module with the switches, and its place in each library.
    fn scaffold(&mut self, root: &Path, places: u32) -> Result<()> {
        let switches = SWITCHES.replace("PLACES: usize = 0", &format!("PLACES: usize = {places}"));
        // A comment about a whole file has to come first in it.
        let queries = QUERIES.replace("//!", "//");
        self.inject(root, "src", format!("{switches}\n{queries}"))?;
        for library in LIBRARIES {
            self.inject(root, &format!("crates/{library}/src"), switches.clone())?;
        }
        Ok(())
    }

    /// Puts the module with the switches into the library in `folder`.
    fn inject(&mut self, root: &Path, folder: &str, switches: String) -> Result<()> {
        self.changed.push(Source { path: format!("{folder}/mutants.rs"), text: switches });
        let path = format!("{folder}/lib.rs");
        let changed = self.changed.iter().position(|source| source.path == path);
        let mut library = match changed {
            Some(at) => self.changed.remove(at),
            None => Source::read(root, &path)?,
        };
        let is_head =
            |line: &&str| line.is_empty() || line.starts_with("//!") || line.starts_with("#![");
        let head = library.text.lines().take_while(is_head).count();
        let lines: Vec<&str> = library.text.lines().collect();
        let (docs, rest) = lines.split_at(head);
        library.text = format!(
            "{}\n#![allow(warnings)]\npub mod mutants;\n{}\n",
            docs.join("\n"),
            rest.join("\n")
        );
        self.changed.push(library);
        Ok(())
    }

    fn hash_of(&self, root: &Path, listed: &BTreeSet<String>) -> Result<u64> {
        let mut texts = String::new();
        let decisive = |path: &&String| DECISIVE.iter().any(|start| path.starts_with(start));
        for path in listed.iter().filter(decisive) {
            texts.push_str(path);
            // Binary files are told by their names.
            texts.push_str(&std::fs::read_to_string(root.join(path)).unwrap_or_default());
        }
        for source in &self.changed {
            texts.push_str(&source.text);
        }
        Ok(hash(&texts))
    }
}

/// A test's file that has its scripts changed with those of the service.
fn scripts_of_tests(text: &str, scripts: &HashMap<String, u32>) -> String {
    let mut parts = text.split(INCLUDES_SCRIPT);
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let path = part.split('"').next().unwrap_or_default();
        match scripts.get(path.trim_start_matches("../")) {
            Some(number) => {
                let rest = part[path.len()..].trim_start_matches('"');
                changed.push_str("Script::new(flash_sale::mutants::lua(");
                changed.push_str(&format!("{number}, include_str!(\"{path}\")"));
                changed.push_str(rest);
            }
            None => {
                changed.push_str(INCLUDES_SCRIPT);
                changed.push_str(part);
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_runs_a_script_itself_has_it_changed() {
        let scripts = HashMap::from([("lua/a.lua".to_owned(), 7)]);
        let text = r#"let a = X::Script::new(include_str!("../../lua/a.lua")); let b = 1;"#;
        let changed = r#"let a = X::Script::new(flash_sale::mutants::lua(7, include_str!("../../lua/a.lua"))); let b = 1;"#;
        assert_eq!(scripts_of_tests(text, &scripts), changed);
        let other = r#"Script::new(include_str!("../b.lua"))"#;
        assert_eq!(scripts_of_tests(other, &scripts), other);
    }
}
