//! Building the copy, and finding out which mutants don't compile.
//!
//! The compiler says where it has something against the text. A mutant whose own code that is, is dropped; where it is
//! code that several share, or what stands inside of it, all of the innermost place are. Where it misses something, as a
//! `drop` before the next borrow, the statements between the places that it names are. What was dropped only for its place
//! is tried again once. The build is repeated until the compiler is content.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::mutant::Mutant;
use crate::rust::splice::Spliced;
use crate::world::{LIBRARIES, World};

/// Targets of integration tests, of the service and of the libraries.
const TESTS: &[&str] = &["it", "locks"];
/// Features without which code of the service is not compiled, so that no test reaches its mutants.
const FEATURES: &str = "flash-sale/otlp";
/// Variables that would decide what is built.
const FOREIGN: &[&str] = &["CARGO_TARGET_DIR", "DATABASE_URL", "RUSTFLAGS"];

/// Result of one attempt to build.
pub enum Attempt {
    /// The compiler is content.
    Built,
    /// Numbers of mutants that it has something against.
    Refused {
        /// Mutants whose own code is refused.
        own: HashSet<u32>,
        /// Mutants around the refused code.
        around: HashSet<u32>,
    },
}

/// Programs that have been built.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Test binaries: name of the target and path.
    pub tests: Vec<(String, PathBuf)>,
    /// The service.
    pub service: PathBuf,
}

/// Tries to build the library in `tree`, which has these mutants.
///
/// # Errors
///
/// When cargo can't be run, or refuses code that belongs to no mutant.
pub fn library(tree: &Path, builds: &Path, world: &World) -> Result<Attempt> {
    let output = cargo(
        tree,
        builds,
        &[&["build", "--lib", "--message-format=json"][..], &packages()].concat(),
    )?;
    if output.is_success {
        return Ok(Attempt::Built);
    }
    let (mut own, mut around) = (HashSet::new(), HashSet::new());
    let mut unexplained = Vec::new();
    for message in output.messages.iter().filter_map(error) {
        if !blame(message, world, &mut own, &mut around) {
            unexplained.push(message["rendered"].as_str().unwrap_or_default().to_owned());
        }
    }
    if own.is_empty() && around.is_empty() {
        bail!("the copy doesn't compile, and no mutant is to blame:\n{}", unexplained.join("\n"));
    }
    Ok(Attempt::Refused { own, around })
}

/// Builds the tests.
///
/// # Errors
///
/// When they can't be built.
pub fn tests(tree: &Path, builds: &Path) -> Result<Programs> {
    let mut arguments = vec!["test", "--no-run", "--lib", "--message-format=json"];
    arguments.extend(TESTS.iter().flat_map(|target| ["--test", *target]));
    let output = cargo(tree, builds, &[&arguments[..], &packages()].concat())?;
    if !output.is_success {
        let errors = output.messages.iter().filter_map(error);
        let texts: Vec<&str> = errors.filter_map(|error| error["rendered"].as_str()).collect();
        bail!("the copy's tests don't compile:\n{}", texts.join("\n"));
    }
    let mut programs = Vec::new();
    let mut service = None;
    for message in &output.messages {
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else {
            continue;
        };
        let name = message["target"]["name"].as_str().unwrap_or_default();
        if message["profile"]["test"] == true {
            let is_library = message["target"]["kind"][0] == "lib";
            let name = if is_library { "lib" } else { name };
            let package = message["package_id"].as_str().unwrap_or_default();
            let library =
                LIBRARIES.iter().find(|library| package.contains(&format!("/crates/{library}#")));
            let name = library.map_or(name.to_owned(), |library| format!("{library} {name}"));
            programs.push((name, path));
        } else if name == "flash-sale" {
            service = Some(path);
        }
    }
    programs.sort();
    Ok(Programs { tests: programs, service: service.context("cargo names the service")? })
}

/// The service with all its features, and the libraries, for cargo.
fn packages() -> Vec<&'static str> {
    let packages = ["flash-sale"].iter().chain(LIBRARIES);
    let packages = packages.flat_map(|package| ["--package", *package]);
    packages.chain(["--features", FEATURES]).collect()
}

struct Output {
    is_success: bool,
    messages: Vec<Value>,
}

fn cargo(tree: &Path, builds: &Path, arguments: &[&str]) -> Result<Output> {
    let mut cargo = Command::new("cargo");
    for name in FOREIGN {
        cargo.env_remove(name);
    }
    let output = cargo
        .current_dir(tree)
        .args(arguments)
        .args(["--locked", "--quiet"])
        .env("CARGO_TARGET_DIR", builds)
        .env("SQLX_OFFLINE", "true")
        // Stacks are not looked at.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("running cargo")?;
    let text = String::from_utf8(output.stdout)?;
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let is_success = output.status.success();
    if !is_success && !messages.iter().any(|message| error(message).is_some()) {
        bail!("cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Output { is_success, messages })
}

/// The compiler's message, if it is an error.
fn error(message: &Value) -> Option<&Value> {
    let message = &message["message"];
    (message["level"] == "error").then_some(message)
}

/// Finds the mutants that an error is about. False if there are none.
fn blame(
    message: &Value,
    world: &World,
    own: &mut HashSet<u32>,
    around: &mut HashSet<u32>,
) -> bool {
    let mut spans: Vec<&Value> = message["spans"].as_array().into_iter().flatten().collect();
    if spans.is_empty() {
        // "aborting due to 3 previous errors"
        return true;
    }
    spans.sort_by_key(|span| span["is_primary"] != true);
    let places = spans.iter().filter_map(|span| place(span, &world.files));
    let places: Vec<(&Spliced, Range<usize>)> = places.collect();
    if let Some(owner) = places.iter().find_map(|(file, span)| file.owner(span)) {
        own.insert(owner);
        return true;
    }
    let mut sites = places.iter().map(|(file, span)| file.around(span));
    if let Some(numbers) = sites.find(|numbers| !numbers.is_empty()) {
        around.extend(numbers);
        return true;
    }
    let between = statements_between(&places, &world.mutants);
    own.extend(&between);
    !between.is_empty()
}

/// Statements that can be left out between the first of these places and the last.
fn statements_between(places: &[(&Spliced, Range<usize>)], mutants: &[Mutant]) -> Vec<u32> {
    let Some((file, first)) = places.first() else {
        return Vec::new();
    };
    let spans =
        places.iter().filter(|(other, _)| std::ptr::eq(*other, *file)).map(|(_, span)| span);
    let hull =
        spans.fold(first.clone(), |hull, span| hull.start.min(span.start)..hull.end.max(span.end));
    let within: HashSet<u32> = file.within(&hull).collect();
    let statements = mutants.iter().filter(|mutant| {
        mutant.key.operator == "statement"
            && mutant.text.is_none()
            && within.contains(&mutant.number)
    });
    statements.map(|mutant| mutant.number).collect()
}

/// Place of a span in a changed file; of a macro's expansion, the place of the call.
fn place<'a>(
    span: &Value,
    files: &'a BTreeMap<String, Spliced>,
) -> Option<(&'a Spliced, Range<usize>)> {
    let offset = |name: &str| span[name].as_u64().and_then(|at| usize::try_from(at).ok());
    match files.get(span["file_name"].as_str().unwrap_or_default()) {
        Some(file) => Some((file, offset("byte_start")?..offset("byte_end")?)),
        None => {
            let expansion = &span["expansion"];
            (!expansion.is_null()).then(|| place(&expansion["span"], files)).flatten()
        }
    }
}
