//! The places that each test reaches, and its time alone.
//!
//! Each test runs once in a process of its own, with nothing mutated, and all of its processes note what they reach. A
//! test that fails is of no use to judge mutants and is left out. The recording belongs to one text of the copy. Each
//! test is written down when it has run, so a recording that is broken off goes on from there.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::compile::Programs;
use crate::servers::Servers;
use crate::test::{Mode, Name, Outcome, Runner};

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
    /// Numbers of the places that it reached.
    pub reached: Vec<u32>,
}

/// All tests.
#[derive(Debug, Default)]
pub struct Recording {
    /// The tests, those that failed included.
    pub tests: Vec<Recorded>,
}

/// The file of a recording: the hash of the copy, and then a line for each test.
struct RecordingFile {
    path: PathBuf,
    file: File,
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
    /// The recording of this copy, from its file or made now. `None` if the time is over before the last test has run.
    ///
    /// # Errors
    ///
    /// When tests can't be run.
    pub fn of(world: u64, programs: &Programs, place: &Place<'_>) -> Result<Option<Self>> {
        let (mut file, mut tests) =
            RecordingFile::open(place.folder.join("recording.jsonl"), world)?;
        let runner = runner(programs, place, 0);
        let is_known = |name: &Name| tests.iter().any(|test| test.name == *name);
        let names: Vec<Name> = runner.all()?.into_iter().filter(|name| !is_known(name)).collect();
        if !names.is_empty() {
            tests.extend(record(&names, programs, place, &mut file)?);
        }
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        let is_whole = names.iter().all(|name| tests.iter().any(|test| test.name == *name));
        Ok(is_whole.then_some(Self { tests }))
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
    /// The file and the tests in it. Those of another copy are forgotten.
    fn open(path: PathBuf, world: u64) -> Result<(Self, Vec<Recorded>)> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text.lines();
        let is_of_world = lines.next().is_some_and(|line| line == world.to_string());
        let lines = lines.take_while(|_| is_of_world);
        // The last line may have been cut off.
        let tests: Vec<Recorded> =
            lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut whole = format!("{world}\n");
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
        let (outcome, took) = runner.run(name, Mode::Record(file), &servers.line, PATIENCE)?;
        let bytes = fs::read(file).unwrap_or_default();
        let reached = (0_u32..).zip(&bytes).filter(|(_, byte)| **byte == 1).map(|(at, _)| at);
        let passed = outcome == Outcome::Passed;
        let took_ms = u64::try_from(took.as_millis()).context("no test takes so long")?;
        last = Some(Recorded { name: name.clone(), took_ms, passed, reached: reached.collect() });
        if passed {
            break;
        }
    }
    last.context("it has run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_was_broken_off_goes_on_and_one_of_another_copy_begins_anew() {
        let path = std::env::temp_dir().join(format!("mutants-recording-{}", std::process::id()));
        let names = |tests: &[Recorded]| -> Vec<String> {
            tests.iter().map(|test| test.name.test.clone()).collect()
        };
        let test = |test: &str| Recorded {
            name: Name { binary: "it".into(), test: test.into() },
            took_ms: 1,
            passed: true,
            reached: vec![2, 3],
        };
        let (mut file, tests) = RecordingFile::open(path.clone(), 7).expect("a file can be made");
        assert!(tests.is_empty());
        file.add(&test("a")).expect("it can be written");
        let whole = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, format!("{whole}{{\"name\":")).expect("it can be written");
        let (mut file, tests) = RecordingFile::open(path.clone(), 7).expect("it is there");
        assert_eq!(names(&tests), ["a"]);
        file.add(&test("b")).expect("it can be written");
        let (_, tests) = RecordingFile::open(path.clone(), 7).expect("it is there");
        assert_eq!(names(&tests), ["a", "b"]);
        let (_, tests) = RecordingFile::open(path.clone(), 8).expect("it is there");
        assert!(tests.is_empty());
        fs::remove_file(path).expect("it is there");
    }
}
