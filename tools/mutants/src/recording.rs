//! The places that each test reaches, and its time alone.
//!
//! Each test runs once in a process of its own, with nothing mutated, and all of its processes note what they reach. A
//! test that fails is of no use to judge mutants and is left out. The recording belongs to one text of the copy.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// Hash of the copy that was recorded.
    pub world: u64,
    /// The tests, those that failed included.
    pub tests: Vec<Recorded>,
}

/// Folders of a run, and its jobs.
pub struct Place<'a> {
    /// The copy.
    pub tree: &'a Path,
    /// Folder for files of this run.
    pub folder: &'a Path,
    /// Processes at a time.
    pub jobs: usize,
}

impl Recording {
    /// The recording of this copy, from its file or made now.
    ///
    /// # Errors
    ///
    /// When tests can't be run.
    pub fn of(world: u64, programs: &Programs, place: &Place<'_>) -> Result<Self> {
        let file = place.folder.join("recording.json");
        let stored = fs::read_to_string(&file).ok();
        let stored: Option<Self> = stored.and_then(|text| serde_json::from_str(&text).ok());
        if let Some(stored) = stored.filter(|stored| stored.world == world) {
            return Ok(stored);
        }
        let tests = record(programs, place)?;
        let recording = Self { world, tests };
        fs::write(&file, serde_json::to_string(&recording)?)?;
        Ok(recording)
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

fn record(programs: &Programs, place: &Place<'_>) -> Result<Vec<Recorded>> {
    let runner = |job: usize| Runner {
        binaries: &programs.tests,
        tree: place.tree,
        log: place.folder.join(format!("logs/{job}.log")),
    };
    let names = runner(0).all()?;
    eprintln!("mutants: recording what each of {} tests reaches ...", names.len());
    let next = AtomicUsize::new(0);
    let recorded = Mutex::new(Vec::new());
    let work = |job: usize| -> Result<()> {
        let servers = Servers::start(&programs.service)?;
        let runner = runner(job);
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let one =
                record_one(&runner, name, &servers, &place.folder.join(format!("reached-{job}")))?;
            if !one.passed {
                eprintln!("mutants: {name} fails although nothing is mutated; it judges no mutant");
            }
            recorded.lock().expect("nothing panics with it").push(one);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..place.jobs).map(|job| scope.spawn(move || work(job))).collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("a job doesn't panic"))
    })?;
    let mut recorded = recorded.into_inner().expect("nothing panics with it");
    recorded.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(recorded)
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
