//! Mutants of a Rust file: all of them in one text, each switched on at run time by its number.
//!
//! # Model
//!
//! The text is never printed anew. Code is put in around ranges of it ([`splice`]), so what isn't mutated stays as it is,
//! comments and all. A condition `c` becomes `f(c, 7, 8)`, which is true while mutant 7 is on and false while 8 is; any
//! other expression `a + b` becomes `(if m(9) { a - b } else { a + b })`. The other code of a mutant is made of the file's
//! original text: only one mutant is on at a time, so none is needed inside of another, and the text grows by a constant
//! factor however deep expressions nest.
//!
//! # Which mutants
//!
//! The smallest set that makes the others superfluous. Of `a && b` these are: `a` taken for true, `b` taken for true, and
//! all of it taken for false; a test that notices the first two notices `a || b`, too. Of `a < b` as a condition: taken for
//! true, taken for false, and `a <= b`. Functions return a constant; calls, assignments and arms of a match are left out;
//! arithmetic is turned round; limits are off by one.
//!
//! # What is not mutated
//!
//! Tests, constants (their uses are), `Display` and `Debug`, the arguments of macros other than `select!`, `join!` and
//! sqlx's, and text.

mod conditions;
mod macros;
mod operators;
pub mod splice;
mod values;
mod visit;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::Visit;

use self::splice::{Piece, Splices};
use self::visit::Tail;
use crate::mutant::{Key, Language, Mutant, Occurrences, hash, snippet};
use crate::source::Source;

/// Functions that run all scripts of a crate, each with its file. They find the text of a script in `self.text`.
pub const RUNS_SCRIPTS: &[(&str, &str)] = &[
    ("src/kit/script.rs", "VariadicScript::by_hash"),
    ("crates/redisson-locks/src/script.rs", "Script::run"),
];

/// A query in a Rust file: its literal, and where it is executed.
#[derive(Clone, Debug)]
pub struct Query {
    /// Number of the place.
    pub number: u32,
    /// Path of the file.
    pub file: String,
    /// Enclosing function.
    pub function: String,
    /// Line on which its literal begins.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// A script that a Rust file includes.
#[derive(Clone, Debug)]
pub struct Script {
    /// Number of the place.
    pub number: u32,
    /// Its path from the root of the repository.
    pub path: String,
}

/// All that is known before the files are looked at.
pub struct Known<'a> {
    /// Names of constants that are whole numbers.
    pub constants: &'a BTreeSet<String>,
    /// Mutants that don't compile, each with the hash of the function in which it didn't.
    pub dropped: &'a HashMap<Key, u64>,
}

/// One file with all its mutants.
pub struct Instrumented {
    /// The inserted code.
    pub splices: Splices,
    /// Its mutants, those that don't compile included.
    pub mutants: Vec<Mutant>,
    /// Its queries.
    pub queries: Vec<Query>,
    /// The scripts that it includes.
    pub scripts: Vec<Script>,
    /// Whether it has the function that runs all scripts.
    pub runs_scripts: bool,
}

/// Walks over a file and collects.
struct Collector<'a> {
    source: &'a Source,
    known: &'a Known<'a>,
    /// The next number that is free.
    next: &'a mut u32,
    occurrences: Occurrences,
    /// Names of the enclosing types and functions.
    names: Vec<String>,
    /// Hash of the enclosing function.
    context: u64,
    /// Return value of the enclosing function.
    returns: Tail,
    found: Instrumented,
}

/// Finds the mutants of a file. `next` is the next number that is free.
///
/// # Errors
///
/// When it isn't Rust.
pub fn instrument(source: &Source, known: &Known<'_>, next: &mut u32) -> Result<Instrumented> {
    let file = syn::parse_file(&source.text).with_context(|| format!("parsing {}", source.path))?;
    let found = Instrumented {
        splices: Splices::default(),
        mutants: Vec::new(),
        queries: Vec::new(),
        scripts: Vec::new(),
        runs_scripts: false,
    };
    let mut collector = Collector {
        source,
        known,
        next,
        occurrences: Occurrences::default(),
        names: Vec::new(),
        context: 0,
        returns: Tail::Value,
        found,
    };
    collector.visit_file(&file);
    Ok(collector.found)
}

impl Collector<'_> {
    fn range(&self, node: &impl Spanned) -> Range<usize> {
        node.span().byte_range()
    }

    fn text(&self, node: &impl Spanned) -> &str {
        &self.source.text[self.range(node)]
    }

    fn number(&mut self) -> u32 {
        let number = *self.next;
        *self.next += 1;
        number
    }

    fn function(&self) -> String {
        self.names.join("::")
    }

    /// A new mutant that changes `range`, which reads `original` to people. `None` if it is known not to compile.
    fn mutant(
        &mut self,
        operator: &str,
        range: Range<usize>,
        original: &str,
        mutation: &str,
    ) -> Option<u32> {
        let key = self.occurrences.count(Key {
            file: self.source.path.clone(),
            function: self.function(),
            operator: operator.to_owned(),
            original: snippet(original),
            mutation: snippet(mutation),
            occurrence: 0,
        });
        let number = self.number();
        let compiles = self.known.dropped.get(&key) != Some(&self.context);
        self.found.mutants.push(Mutant {
            key,
            language: Language::Rust,
            lines: self.source.lines(&range),
            context: self.context,
            number,
            text: None,
        });
        compiles.then_some(number)
    }

    /// Replaces an expression by others, each one mutant.
    fn alternatives(&mut self, operator: &str, node: &impl Spanned, others: &[String]) {
        let (range, original) = (self.range(node), self.text(node).to_owned());
        let mut before = vec![Piece::shared("(")];
        let mut numbers = Vec::new();
        for other in others {
            if let Some(number) = self.mutant(operator, range.clone(), &original, other) {
                let code = format!("if crate::mutants::m({number}) {{ {other} }} else ");
                before.push(Piece::of(number, code));
                numbers.push(number);
            }
        }
        if !numbers.is_empty() {
            before.push(Piece::shared("{ "));
            self.found.splices.wrap(range, before, vec![Piece::shared(" })")], numbers);
        }
    }

    /// Takes a condition for true, and for false.
    fn force(&mut self, node: &impl Spanned, to_true: bool, to_false: bool) {
        let (range, original) = (self.range(node), self.text(node).to_owned());
        let mut forced = |value: &str, wanted: bool| {
            let number = wanted.then(|| self.mutant("condition", range.clone(), &original, value));
            number.flatten().unwrap_or(0)
        };
        let (to_true, to_false) = (forced("true", to_true), forced("false", to_false));
        let numbers: Vec<u32> = [to_true, to_false].into_iter().filter(|n| *n > 0).collect();
        if !numbers.is_empty() {
            let before = vec![Piece::shared("crate::mutants::f(")];
            let after = vec![Piece::shared(format!(", {to_true}, {to_false})"))];
            self.found.splices.wrap(range, before, after, numbers);
        }
    }

    /// Leaves a statement out.
    fn leave_out(&mut self, node: &impl Spanned) {
        let (range, original) = (self.range(node), self.text(node).to_owned());
        if let Some(number) = self.mutant("statement", range.clone(), &original, "") {
            let before = vec![Piece::shared(format!("if !crate::mutants::m({number}) {{ "))];
            self.found.splices.wrap(range, before, vec![Piece::shared(" }")], vec![number]);
        }
    }

    /// Puts code behind a range that switches something off, as in ` && !m(7)`.
    fn switch_off(&mut self, operator: &str, node: &impl Spanned, mutation: &str, joint: &str) {
        let (range, original) = (self.range(node), self.text(node).to_owned());
        if let Some(number) = self.mutant(operator, range.clone(), &original, mutation) {
            let code = format!("{joint}!crate::mutants::m({number})");
            self.found.splices.wrap(range, Vec::new(), vec![Piece::of(number, code)], vec![number]);
        }
    }
}

/// Names of all constants of a file that are whole numbers.
pub fn whole_number_constants(source: &Source) -> Result<BTreeSet<String>> {
    #[derive(Default)]
    struct Constants(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Constants {
        fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
            if operators::is_whole_number(&item.ty) {
                self.0.insert(item.ident.to_string());
            }
        }
    }
    let file = syn::parse_file(&source.text).with_context(|| format!("parsing {}", source.path))?;
    let mut constants = Constants::default();
    constants.visit_file(&file);
    Ok(constants.0)
}

/// Beginnings of the paths of modules that this file declares for tests only: `dir/name.` and `dir/name/`.
///
/// # Errors
///
/// When it isn't Rust.
pub fn modules_of_tests(source: &Source) -> Result<Vec<String>> {
    let file = syn::parse_file(&source.text).with_context(|| format!("parsing {}", source.path))?;
    let stem = source.path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let folder = if matches!(name, "lib" | "mod" | "main") { folder } else { stem };
    let is_for_tests = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.attrs.iter().any(is_for_tests) => Some(&module.ident),
        _ => None,
    });
    Ok(modules.flat_map(|name| ['.', '/'].map(|end| format!("{folder}/{name}{end}"))).collect())
}

/// Hash of a function's text.
fn hash_of(source: &Source, range: Range<usize>) -> u64 {
    hash(&source.text[range])
}

#[cfg(test)]
mod tests;
