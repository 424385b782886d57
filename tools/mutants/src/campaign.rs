//! One run from the command line to the table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::changed::Changed;
use crate::compile::{self, Attempt, Programs};
use crate::equal::EqualMutants;
use crate::hunt::Hunt;
use crate::kept::{self, Kept};
use crate::mutant::{Key, Language, Mutant};
use crate::recording::{Place, Recording};
use crate::results::{Counts, ResultLine, Results, Verdict, table};
use crate::servers::Servers;
use crate::source;
use crate::state;
use crate::world::World;

/// Folder of copy, builds, recording and results.
const FOLDER: &str = "target/mutants";
/// Percentage of mutants that has to be caught.
const CAUGHT_PERCENT_MIN: f64 = 95.0;
/// Mutants at a time for each core: a test waits more than it works.
const JOBS_PER_CORE: usize = 2;
/// Builds after which something else must be wrong.
const BUILDS_MAX: usize = 40;

const MINUTE: Duration = Duration::from_secs(60);

/// Exit code: the command line or the list of equal mutants is wrong.
const WRONG: u8 = 2;
/// Exit code: too few were caught.
const TOO_FEW: u8 = 4;

/// Runs a campaign. Returns the exit code.
///
/// # Errors
///
/// When something can't be read, built or run.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let began = Instant::now();
    let root = std::env::current_dir()?;
    ensure!(
        root.join("src/lib.rs").exists(),
        "run this where Cargo.toml is, as `make mutants` does"
    );
    let folder = root.join(FOLDER);
    fs::create_dir_all(folder.join("logs"))?;
    let mut results = Results::open(folder.join("results.jsonl"))?;
    let equal = EqualMutants::read(&root)?;
    let world = World::of(&root, &HashMap::new())?;
    let complaints = equal.complaints(&world.mutants);
    if !complaints.is_empty() {
        eprintln!("{}", complaints.join("\n"));
        return Ok(WRONG);
    }
    Kept::read(&root)?.tell(&world.mutants, &mut results);
    if arguments.state {
        print!("{}", state::write(&root, &world.mutants, &results, &equal)?);
        return Ok(0);
    }
    let mut selected = select(arguments, &root, &world.mutants)?;
    if arguments.survivors {
        let survives = |mutant: &&Mutant| {
            results.last(mutant).is_some_and(Verdict::is_survival) && !equal.has(mutant)
        };
        let survivors: HashSet<&Key> =
            world.mutants.iter().filter(survives).map(|mutant| &mutant.key).collect();
        selected.retain(|key| survivors.contains(key));
    }
    if selected.is_empty() {
        eprintln!("mutants: no mutant stands in these files or on these lines");
        return Ok(if arguments.changed.is_some() { 0 } else { WRONG });
    }
    if arguments.check || arguments.list {
        if arguments.list {
            list(&world, &selected, &results, &equal);
        }
        return Ok(0);
    }
    let deadline = arguments.minutes.map(|minutes| began + minutes * MINUTE);
    let world = hunt(arguments, &root, &folder, deadline, &mut results, &selected, &equal)?;
    kept::write(&root, &world.mutants, &results)?;
    Ok(summary(&world, &selected, &results, &equal))
}

/// The mutants that are meant, by their identities: numbers change while it is found out which of them compile.
fn select(arguments: &Arguments, root: &Path, mutants: &[Mutant]) -> Result<HashSet<Key>> {
    let changed = arguments.changed.as_ref().map(|commit| Changed::since(root, commit));
    let changed = changed.transpose()?;
    let paths: Vec<&str> = arguments
        .paths
        .iter()
        .map(|path| path.trim_start_matches("./").trim_end_matches('/'))
        .collect();
    let is_in = |file: &str| {
        let below = |path: &&str| {
            file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        paths.is_empty() || paths.iter().any(below)
    };
    let meant = mutants.iter().filter(|mutant| {
        let language = mutant.language.name();
        let only = &arguments.only;
        let is_changed = |changed: &Changed| changed.touches(&mutant.key.file, &mutant.lines);
        is_in(&mutant.key.file)
            && (only.is_empty() || only.iter().any(|only| only == language))
            && changed.as_ref().is_none_or(is_changed)
    });
    let sample = usize::try_from(arguments.sample)?;
    Ok(meant.step_by(sample).map(|mutant| mutant.key.clone()).collect())
}

fn list(world: &World, selected: &HashSet<Key>, results: &Results, equal: &EqualMutants) {
    for mutant in world.mutants.iter().filter(|mutant| selected.contains(&mutant.key)) {
        let word = match results.last(mutant) {
            Some(Verdict::DoesNotCompile) => "no build",
            _ if equal.has(mutant) => "equal",
            Some(Verdict::Caught) => "caught",
            Some(Verdict::CaughtByHang) => "by hang",
            Some(Verdict::Survived) => "survived",
            Some(Verdict::Unreached) => "unreached",
            None => "",
        };
        let occurrence = match mutant.key.occurrence {
            0 => String::new(),
            number => format!(" (occurrence {number})"),
        };
        println!("{:<9} {}  {}{occurrence}", word, mutant.place(), mutant.change());
    }
}

/// Builds, records and judges what has no result yet.
fn hunt(
    arguments: &Arguments,
    root: &Path,
    folder: &Path,
    deadline: Option<Instant>,
    results: &mut Results,
    selected: &HashSet<Key>,
    equal: &EqualMutants,
) -> Result<World> {
    let (tree, builds) = (folder.join("tree"), folder.join("build"));
    let world = build(root, &tree, &builds, results)?;
    // A run that is broken off later has not built in vain.
    kept::write(root, &world.mutants, results)?;
    let programs = compile::tests(&tree, &builds)?;
    let jobs = match arguments.jobs {
        Some(jobs) => usize::from(jobs),
        None => JOBS_PER_CORE * std::thread::available_parallelism()?.get(),
    };
    if arguments.record {
        let _ = fs::remove_file(folder.join("recording.jsonl"));
    }
    let place = Place { tree: &tree, folder, jobs, deadline };
    let open = |results: &Results, mutant: &Mutant| {
        selected.contains(&mutant.key)
            && !equal.has(mutant)
            && results
                .of(mutant, world.hash)
                .is_none_or(|line| arguments.goes_on() && line.left > 0)
    };
    let texts: Vec<&Mutant> = world
        .mutants
        .iter()
        .filter(|mutant| mutant.text.is_some() && open(results, mutant))
        .collect();
    if !texts.is_empty() {
        refuse(root, &world, &texts, &Servers::start(&programs.service)?, results)?;
    }
    let mut mutants: Vec<&Mutant> =
        world.mutants.iter().filter(|mutant| open(results, mutant)).collect();
    // What has survived before probably does so again.
    mutants.sort_by_key(|mutant| results.last(mutant).is_some());
    if !mutants.is_empty() {
        judge(&mutants, &world, &programs, &place, results, arguments)?;
    }
    Ok(world)
}

/// Records the tests, and shows them these mutants, as long as there is time.
fn judge(
    mutants: &[&Mutant],
    world: &World,
    programs: &Programs,
    place: &Place<'_>,
    results: &mut Results,
    arguments: &Arguments,
) -> Result<()> {
    let began = Instant::now();
    let recording = Recording::of(world, programs, place, arguments.partial)?;
    if !recording.is_whole && !arguments.partial {
        eprintln!("mutants: the time is over before all tests are recorded; run this again");
        return Ok(());
    }
    let seconds = began.elapsed().as_secs_f64();
    eprintln!("mutants: {} tests are recorded, {seconds:.0} s", recording.tests.len());
    let began = Instant::now();
    let hunt = Hunt::new(programs, place, world, &recording, results, arguments.budget());
    let judged = hunt.run(mutants)?;
    let seconds = began.elapsed().as_secs_f64();
    let each = seconds / f64::from(u32::try_from(judged.max(1))?);
    let all = mutants.len();
    eprintln!("mutants: {judged} of {all} judged in {seconds:.0} s, {each:.1} s for each");
    Ok(())
}

/// Builds the copy, without the mutants that the compiler refuses.
fn build(root: &Path, tree: &Path, builds: &Path, results: &mut Results) -> Result<World> {
    let mut dropped = known_dropped(root, results)?;
    // Dropped for their places only; each is tried once more.
    let mut second: HashMap<Key, u64> = HashMap::new();
    let mut is_second_try = false;
    for number in 1..=BUILDS_MAX {
        let world = World::of(root, &dropped)?;
        eprintln!("mutants: building {} ({number}) ...", tree.display());
        source::copy(root, tree, &world.changed)?;
        match compile::library(tree, builds, &world)? {
            Attempt::Refused { own, around } => {
                let names = |numbers: &HashSet<u32>| -> HashMap<Key, u64> {
                    let refused = world.mutants.iter().filter(|mutant| {
                        mutant.language == Language::Rust && numbers.contains(&mutant.number)
                    });
                    refused.map(|mutant| (mutant.key.clone(), mutant.context)).collect()
                };
                eprintln!("mutants: {} don't compile", own.len() + around.len());
                if !is_second_try {
                    second.extend(names(&around));
                }
                // At once, so that a run that is broken off has not built in vain.
                note_dropped(&world, &names(&own), results)?;
                dropped.extend(names(&own));
                dropped.extend(names(&around));
            }
            Attempt::Built if !is_second_try && !second.is_empty() => {
                is_second_try = true;
                dropped.retain(|key, _| !second.contains_key(key));
            }
            Attempt::Built => {
                note_dropped(&world, &dropped, results)?;
                return Ok(world);
            }
        }
    }
    anyhow::bail!("after {BUILDS_MAX} builds the compiler still refuses the copy")
}

fn known_dropped(root: &Path, results: &Results) -> Result<HashMap<Key, u64>> {
    let world = World::of(root, &HashMap::new())?;
    let rust = world.mutants.iter().filter(|mutant| mutant.language == Language::Rust);
    let known = rust.filter(|mutant| {
        let line = results.of(mutant, world.hash);
        line.is_some_and(|line| line.verdict == Verdict::DoesNotCompile)
    });
    Ok(known.map(|mutant| (mutant.key.clone(), mutant.context)).collect())
}

fn note_dropped(world: &World, dropped: &HashMap<Key, u64>, results: &mut Results) -> Result<()> {
    for mutant in world.mutants.iter().filter(|mutant| dropped.contains_key(&mutant.key)) {
        let known = results.of(mutant, world.hash);
        if known.is_none_or(|line| line.verdict != Verdict::DoesNotCompile) {
            results.add(refused(mutant, world.hash))?;
        }
    }
    Ok(())
}

fn refused(mutant: &Mutant, world: u64) -> ResultLine {
    ResultLine::without_details(mutant, world, Verdict::DoesNotCompile)
}

/// Notes which scripts Redis refuses, and which queries Postgres does.
fn refuse(
    root: &Path,
    world: &World,
    mutants: &[&Mutant],
    servers: &Servers,
    results: &mut Results,
) -> Result<()> {
    let (mut redis, mut postgres) = (servers.redis()?, servers.postgres()?);
    let types = parameter_types(root)?;
    for mutant in mutants {
        let text = mutant.text.as_deref().context("scripts and queries are texts")?;
        let is_refused = match mutant.language {
            Language::Sql => {
                let query = &world.queries[&mutant.number];
                let types = types.get(&query.text).map_or(&[][..], Vec::as_slice);
                postgres.refusal(text, types)?.is_some()
            }
            _ => !redis.compiles(text)?,
        };
        if is_refused {
            results.add(refused(mutant, world.hash))?;
        }
    }
    Ok(())
}

/// Types of each query's parameters, as `.sqlx` has them: a parameter that a mutant doesn't use has a type, too.
fn parameter_types(root: &Path) -> Result<HashMap<String, Vec<String>>> {
    let mut types = HashMap::new();
    for entry in fs::read_dir(root.join(".sqlx"))? {
        let path: PathBuf = entry?.path();
        let query: Value = serde_json::from_str(&fs::read_to_string(&path)?)
            .with_context(|| path.display().to_string())?;
        let Some(text) = query["query"].as_str() else {
            continue;
        };
        let parameters = query["describe"]["parameters"]["Left"].as_array();
        let names: Option<Vec<String>> = parameters.into_iter().flatten().map(sql_type).collect();
        types.insert(text.to_owned(), names.unwrap_or_default());
    }
    Ok(types)
}

/// `Int8Array` is `Int8[]`.
fn sql_type(parameter: &Value) -> Option<String> {
    let name = parameter.as_str()?;
    Some(match name.strip_suffix("Array") {
        Some(element) => format!("{element}[]"),
        None => name.to_owned(),
    })
}

/// Number of tests that a survivor has seen, if others are left.
fn ran(line: Option<&ResultLine>) -> String {
    match line {
        Some(line) if line.left > 0 => {
            format!("  ({} of {} tests)", line.tests, line.tests + line.left)
        }
        _ => String::new(),
    }
}

/// Prints the survivors and the table. Returns the exit code.
fn summary(world: &World, selected: &HashSet<Key>, results: &Results, equal: &EqualMutants) -> u8 {
    let mut folders: BTreeMap<String, Counts> = BTreeMap::new();
    let (mut survivors, mut hangs) = (Vec::new(), Vec::new());
    for mutant in world.mutants.iter().filter(|mutant| selected.contains(&mutant.key)) {
        let line = results.of(mutant, world.hash);
        let verdict = line.map(|line| line.verdict);
        let is_equal = equal.has(mutant);
        let folder = mutant.key.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let language = if mutant.language == Language::Sql { " (SQL)" } else { "" };
        folders.entry(format!("{folder}{language}")).or_default().count(verdict, is_equal);
        let shown = format!("{}  {}", mutant.place(), mutant.change());
        match verdict {
            Some(Verdict::Survived) if !is_equal => {
                survivors.push(format!("survived   {shown}{}", ran(line)))
            }
            Some(Verdict::Unreached) if !is_equal => survivors.push(format!("unreached  {shown}")),
            Some(Verdict::CaughtByHang) => {
                let by = line.and_then(|line| line.by.clone()).unwrap_or_default();
                hangs.push(format!("by hang    {shown}  ({by})"));
            }
            _ => {}
        }
    }
    for line in hangs.iter().chain(&survivors) {
        println!("{line}");
    }
    let (table, sum) = table(&folders);
    println!("\n{table}");
    println!("Results: {}", results.path().display());
    if sum.caught_percent() < CAUGHT_PERCENT_MIN { TOO_FEW } else { 0 }
}
