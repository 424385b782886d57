//! The places that each test reaches, and its time alone.
//!
//! Each test runs once in a process of its own, with nothing mutated, and all of its processes note what they reach. A
//! test that fails is of no use to judge mutants and is left out. Each test is written down when it has run, so a
//! recording that is broken off goes on from there.
//!
//! When code or tests change, a recording is brought up to date and not made again, which would take longer than most
//! changes need mutants: tests in files that have changed are recorded anew, and a place that is new is taken to be reached
//! by the tests that reach its function, or else its file. So a test that reaches a place in another way since the change
//! may be missed, or be run in vain; `--record` begins anew.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::compile::Programs;
use crate::mutant::hash;
use crate::servers::Servers;
use crate::test::{Bounds, Mode, Name, Outcome, Runner};
use crate::world::{Spot, World};

/// Time for one test alone; only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(600);

/// One test of the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Name of the test.
    pub name: Name,
    /// Time that the test took, in milliseconds.
    pub took_ms: u64,
    /// Whether it passed.
    pub passed: bool,
    /// Hash of the file that has the test.
    pub source: u64,
    /// Numbers of the places that it reached.
    pub reached: Vec<u32>,
}

/// All tests.
#[derive(Debug, Default)]
pub struct Recording {
    /// The tests, those that failed included.
    pub tests: Vec<Recorded>,
    /// False if some tests have not run yet.
    pub is_whole: bool,
}

/// The file of a recording: the copy that it is about, and then a line for each test.
struct RecordingFile {
    path: PathBuf,
    file: File,
}

/// The first line of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Hash of the copy.
    world: u64,
    /// Identity of each place, by its number; the first one is none.
    places: Vec<u32>,
}

/// Folders of a run, and its jobs.
pub struct Place<'a> {
    /// The copy.
    pub tree: &'a Path,
    /// Folder for files of this run.
    pub folder: &'a Path,
    /// Processes at a time.
    pub jobs: usize,
    /// Moment from which on nothing new is begun.
    pub deadline: Option<Instant>,
}

impl Place<'_> {
    /// True if the time of this run is over.
    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Recording {
    /// The recording of this copy, from its file, and where that lacks tests, made now as far as there is time.
    ///
    /// # Errors
    ///
    /// When tests can't be run.
    pub fn of(
        world: &World,
        programs: &Programs,
        place: &Place<'_>,
        partial: bool,
    ) -> Result<Self> {
        let sources = |name: &Name| source(place.tree, name);
        let path = place.folder.join("recording.jsonl");
        let (mut file, mut tests) = RecordingFile::open(path, world.hash, &world.spots(), sources)?;
        let all = runner(programs, place, 0).all()?;
        tests.retain(|test| all.contains(&test.name));
        let known: HashSet<&Name> = tests.iter().map(|test| &test.name).collect();
        let mut names = all.clone();
        names.retain(|name| !known.contains(name));
        if !names.is_empty() && !partial {
            tests.extend(record(&names, programs, place, &mut file)?);
        }
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        let is_whole = tests.len() == all.len();
        Ok(Self { tests, is_whole })
    }

    /// The tests that reach each place.
    pub fn by_place(&self) -> HashMap<u32, Vec<usize>> {
        let mut places: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, test) in self.tests.iter().enumerate().filter(|(_, test)| test.passed) {
            for place in &test.reached {
                places.entry(*place).or_default().push(index);
            }
        }
        places
    }
}

impl Recorded {
    /// Time that the test took.
    pub fn took(&self) -> Duration {
        Duration::from_millis(self.took_ms)
    }
}

impl RecordingFile {
    /// The file and the tests in it that still stand as they were recorded, by the hash of their source.
    fn open(
        path: PathBuf,
        world: u64,
        spots: &[Spot],
        source: impl Fn(&Name) -> u64,
    ) -> Result<(Self, Vec<Recorded>)> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text.lines();
        let old: Option<Head> = lines.next().and_then(|line| serde_json::from_str(line).ok());
        // The last line may have been cut off.
        let mut tests: Vec<Recorded> =
            lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        let places = spots.iter().map(|spot| spot.id).collect();
        let head = Head { world, places };
        match old {
            None => tests.clear(),
            Some(old) if old.world == world => {}
            Some(old) => {
                tests.retain(|test| test.source == source(&test.name));
                let moved = Moved::of(&old.places, spots);
                tests.iter_mut().for_each(|test| test.reached = moved.reached(&test.reached));
            }
        }
        let mut whole = format!("{}\n", serde_json::to_string(&head)?);
        for test in &tests {
            whole.push_str(&serde_json::to_string(test)?);
            whole.push('\n');
        }
        fs::write(&path, whole)?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        Ok((Self { path, file }, tests))
    }

    fn add(&mut self, test: &Recorded) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(test)?)
            .with_context(|| format!("writing {}", self.path.display()))
    }
}

/// Places of one copy in another one.
struct Moved {
    /// New numbers of each old place.
    numbers: HashMap<u32, Vec<u32>>,
    /// New places that the old copy has not, by a number that is reached with each of them.
    beside: HashMap<u32, Vec<u32>>,
}

impl Moved {
    fn of(old: &[u32], spots: &[Spot]) -> Self {
        let mut by_id: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, spot) in (0..).zip(spots) {
            by_id.entry(spot.id).or_default().push(number);
        }
        let numbers =
            (0..).zip(old).filter_map(|(number, id)| Some((number, by_id.get(id)?.clone())));
        let known: HashSet<u32> = old.iter().copied().collect();
        let mut by_function: HashMap<(&str, &str), Vec<u32>> = HashMap::new();
        let mut by_file: HashMap<&str, Vec<u32>> = HashMap::new();
        for (number, spot) in (0..).zip(spots).filter(|(_, spot)| known.contains(&spot.id)) {
            by_function.entry((&spot.file, &spot.function)).or_default().push(number);
            by_file.entry(&spot.file).or_default().push(number);
        }
        let mut beside: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, spot) in (0..).zip(spots).filter(|(_, spot)| !known.contains(&spot.id)) {
            let of_function = by_function.get(&(spot.file.as_str(), spot.function.as_str()));
            for near in
                of_function.or_else(|| by_file.get(spot.file.as_str())).into_iter().flatten()
            {
                beside.entry(*near).or_default().push(number);
            }
        }
        Self { numbers: numbers.collect(), beside }
    }

    fn reached(&self, old: &[u32]) -> Vec<u32> {
        let same = old.iter().filter_map(|number| self.numbers.get(number)).flatten();
        let mut reached: HashSet<u32> = same.copied().collect();
        let beside: Vec<u32> = reached
            .iter()
            .filter_map(|number| self.beside.get(number))
            .flatten()
            .copied()
            .collect();
        reached.extend(beside);
        let mut reached: Vec<u32> = reached.into_iter().collect();
        reached.sort_unstable();
        reached
    }
}

/// Hash of the file that has a test; 0 if there is none.
fn source(tree: &Path, name: &Name) -> u64 {
    let (library, binary) = name.binary.rsplit_once(' ').unwrap_or(("", &name.binary));
    let package = match library {
        "" => tree.to_owned(),
        library => tree.join("crates").join(library),
    };
    let root = match binary {
        "lib" => package.join("src"),
        binary => package.join("tests").join(binary),
    };
    let modules: Vec<&str> = name.test.split("::").collect();
    let paths = (1..modules.len()).rev().flat_map(|count| {
        let path = modules[..count].join("/");
        [root.join(format!("{path}.rs")), root.join(format!("{path}/mod.rs"))]
    });
    paths.into_iter().find_map(|path| fs::read_to_string(path).ok()).map_or(0, |text| hash(&text))
}

fn runner<'a>(programs: &'a Programs, place: &Place<'a>, job: usize) -> Runner<'a> {
    Runner {
        binaries: &programs.tests,
        tree: place.tree,
        log: place.folder.join(format!("logs/{job}.log")),
    }
}

fn record(
    names: &[Name],
    programs: &Programs,
    place: &Place<'_>,
    file: &mut RecordingFile,
) -> Result<Vec<Recorded>> {
    eprintln!("mutants: recording what each of {} tests reaches ...", names.len());
    let next = AtomicUsize::new(0);
    let recorded = Mutex::new((Vec::new(), file));
    let work = |job: usize| -> Result<()> {
        let servers = Servers::start(&programs.service)?;
        let runner = runner(programs, place, job);
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            if place.is_over() {
                break;
            }
            let one =
                record_one(&runner, name, &servers, &place.folder.join(format!("reached-{job}")))?;
            if !one.passed {
                eprintln!("mutants: {name} fails although nothing is mutated; it judges no mutant");
            }
            let mut recorded = recorded.lock().expect("nothing panics with it");
            recorded.1.add(&one)?;
            recorded.0.push(one);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..place.jobs).map(|job| scope.spawn(move || work(job))).collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("a job doesn't panic"))
    })?;
    Ok(recorded.into_inner().expect("nothing panics with it").0)
}

/// A failure is tried once more: the machine may have been busy.
fn record_one(
    runner: &Runner<'_>,
    name: &Name,
    servers: &Servers,
    file: &Path,
) -> Result<Recorded> {
    let mut last = None;
    for _ in 0..2 {
        let _ = fs::remove_file(file);
        let bounds = Bounds { whole: PATIENCE, event: None };
        let (outcome, took) = runner.run(name, Mode::Record(file), &servers.line, bounds)?;
        let bytes = fs::read(file).unwrap_or_default();
        let reached = (0_u32..).zip(&bytes).filter(|(_, byte)| **byte == 1).map(|(at, _)| at);
        let passed = outcome == Outcome::Passed;
        let took_ms = u64::try_from(took.as_millis()).context("no test takes so long")?;
        let source = source(runner.tree, name);
        let reached = reached.collect();
        last = Some(Recorded { name: name.clone(), took_ms, passed, source, reached });
        if passed {
            break;
        }
    }
    last.context("it has run")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(id: u32, file: &str, function: &str) -> Spot {
        Spot { id, file: file.into(), function: function.into() }
    }

    fn test(test: &str, reached: &[u32]) -> Recorded {
        let name = Name { binary: "it".into(), test: test.into() };
        Recorded { name, took_ms: 1, passed: true, source: 1, reached: reached.to_vec() }
    }

    #[test]
    fn a_recording_that_was_broken_off_goes_on() {
        let path = std::env::temp_dir().join(format!("mutants-recording-{}", std::process::id()));
        let open = |world, source: u64| {
            let opened = RecordingFile::open(path.clone(), world, &[], |_| source);
            let (file, tests) = opened.expect("it can be written");
            let names: Vec<String> = tests.into_iter().map(|test| test.name.test).collect();
            (file, names)
        };
        let (mut file, tests) = open(7, 1);
        assert!(tests.is_empty());
        file.add(&test("a", &[])).expect("it can be written");
        let whole = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, format!("{whole}{{\"name\":")).expect("it can be written");
        let (mut file, tests) = open(7, 1);
        assert_eq!(tests, ["a"]);
        file.add(&test("b", &[])).expect("it can be written");
        assert_eq!(open(8, 1).1, ["a", "b"]);
        assert!(open(9, 2).1.is_empty(), "the tests' files have changed");
        fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn places_are_found_again_and_new_ones_are_reached_with_their_neighbours() {
        let old = [0, 10, 20, 30];
        let new = [
            spot(0, "", ""),
            spot(20, "a.rs", "f"),
            spot(11, "a.rs", "f"),
            spot(30, "a.rs", "g"),
            spot(40, "a.rs", "h"),
            spot(50, "b.rs", "f"),
        ];
        let moved = Moved::of(&old, &new);
        // The place 11 of `f` is new, and so is the function `h`; nothing is known of b.rs.
        assert_eq!(moved.reached(&[2]), [1, 2, 4]);
        assert_eq!(moved.reached(&[3]), [3, 4]);
        assert_eq!(moved.reached(&[1]), [0; 0]);
    }

    #[test]
    fn a_test_is_looked_for_in_the_file_of_its_module() {
        let tree = std::env::temp_dir().join(format!("mutants-tree-{}", std::process::id()));
        for path in [
            "tests/it/order/moves.rs",
            "src/sale/mod.rs",
            "crates/locks/src/a/tests.rs",
            "crates/locks/tests/all/b.rs",
        ] {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
            fs::write(&path, path.file_name().expect("it has one").as_encoded_bytes())
                .expect("it can be written");
        }
        for (binary, test, expected) in [
            ("it", "order::moves::paid", hash("moves.rs")),
            ("lib", "sale::tests::sold", hash("mod.rs")),
            ("locks lib", "a::tests::held", hash("tests.rs")),
            ("locks all", "b::held", hash("b.rs")),
            ("it", "other::paid", 0),
        ] {
            let name = Name { binary: binary.into(), test: test.into() };
            assert_eq!(source(&tree, &name), expected, "{binary} {test}");
        }
        fs::remove_dir_all(tree).expect("it is there");
    }
}
