//! One test in a process of its own.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Factor on a test's own time after which the test hangs.
const HANG_FACTOR: u32 = 5;
/// Time that a test may take beside that: other processes have the machine.
const HANG_MARGIN: Duration = Duration::from_secs(30);
/// The same for one event that a test waits for. Many tests that notice a mutant wait in vain, for 50 s without this.
const EVENT_MARGIN: Duration = Duration::from_secs(5);

/// Name of the environment variable with the seconds that a test waits for one event (private-servers, `testing`).
const EVENT_SECONDS_MAX: &str = "TEST_EVENT_SECONDS_MAX";

/// A test: name of the binary, and its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    /// `lib` or `it`.
    pub binary: String,
    /// As `--list` names it.
    pub test: String,
}

/// Result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The test passed.
    Passed,
    /// The test failed.
    Failed,
    /// The test took far longer than alone.
    Hung,
}

/// Order to a test process.
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// No mutant is on.
    Plain,
    /// A mutant in Rust is on.
    On(u32),
    /// A script or query has another text: the file that holds it.
    Text(&'a Path),
    /// Places that are reached are written to this file.
    Record(&'a Path),
}

/// Bounds of one run.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time after which the test hangs.
    pub whole: Duration,
    /// Time that it waits for one event; none is the tests' own.
    pub event: Option<Duration>,
}

/// Runs tests one after the other.
pub struct Runner<'a> {
    /// Test binaries: name and path.
    pub binaries: &'a [(String, PathBuf)],
    /// The copy that they were built from.
    pub tree: &'a Path,
    /// File for the output of the last run.
    pub log: PathBuf,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.binary.as_str() {
            "it" => write!(f, "{}", self.test),
            binary => write!(f, "{binary} {}", self.test),
        }
    }
}

impl Bounds {
    /// Those of a test that takes `alone` otherwise.
    pub fn of(alone: Duration) -> Self {
        let many = HANG_FACTOR * alone;
        Self { whole: many + HANG_MARGIN, event: Some(many + EVENT_MARGIN) }
    }
}

impl Runner<'_> {
    /// All tests that aren't ignored.
    ///
    /// # Errors
    ///
    /// When a binary can't list them.
    pub fn all(&self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for (binary, path) in self.binaries {
            let list = |more: &[&str]| -> Result<Vec<String>> {
                let mut command = Command::new(path);
                command.current_dir(self.tree).args(["--list", "--format", "terse"]).args(more);
                let output = command.output().with_context(|| path.display().to_string())?;
                let lines = String::from_utf8(output.stdout)?;
                let tests = lines.lines().filter_map(|line| line.strip_suffix(": test"));
                Ok(tests.map(str::to_owned).collect())
            };
            let ignored = list(&["--ignored"])?;
            let tests = list(&[])?.into_iter().filter(|test| !ignored.contains(test));
            names.extend(tests.map(|test| Name { binary: binary.clone(), test }));
        }
        Ok(names)
    }

    /// Runs one test against the servers that `servers` tells of. Returns how long it took, too.
    ///
    /// # Errors
    ///
    /// When it can't be run.
    pub fn run(
        &self,
        name: &Name,
        mode: Mode<'_>,
        servers: &str,
        bounds: Bounds,
    ) -> Result<(Outcome, Duration)> {
        let binary = self.binaries.iter().find(|(binary, _)| *binary == name.binary);
        let (_, path) =
            binary.with_context(|| format!("there is no test binary {}", name.binary))?;
        let log = File::create(&self.log)?;
        // `timeout` kills the whole group, also when this process has ended.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", &format!("{:.3}", bounds.whole.as_secs_f64())]).arg(path);
        command.args(["--exact", &name.test, "--test-threads", "1"]);
        command.current_dir(self.tree).env("CARGO_MANIFEST_DIR", self.tree);
        // An input that fails while a mutant is on must not be tried first the next time.
        command.env("PROPTEST_FAILURE_PERSISTENCE", "off").env("TEST_SERVERS", servers);
        // Naming the functions of a stack takes longer than most tests.
        command.env("RUST_BACKTRACE", "0");
        for name in ["MUTANT_ON", "MUTANT_TEXT", "MUTANT_RECORD", "DATABASE_URL", EVENT_SECONDS_MAX]
        {
            command.env_remove(name);
        }
        if let Some(event) = bounds.event {
            command.env(EVENT_SECONDS_MAX, event.as_secs().to_string());
        }
        match mode {
            Mode::Plain => {}
            Mode::On(number) => drop(command.env("MUTANT_ON", number.to_string())),
            Mode::Text(file) => drop(command.env("MUTANT_TEXT", file)),
            Mode::Record(file) => drop(command.env("MUTANT_RECORD", file)),
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let began = Instant::now();
        let status = command.status().context("running timeout")?;
        let took = began.elapsed();
        let killed = status.signal().is_some() || status.code() == Some(137);
        let outcome = match status.success() {
            true => Outcome::Passed,
            false if killed && took >= bounds.whole => Outcome::Hung,
            false => Outcome::Failed,
        };
        Ok((outcome, took))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn runner(binaries: &[(String, PathBuf)]) -> Runner<'_> {
        let log = std::env::temp_dir().join(format!("mutants-test-{}.log", std::process::id()));
        Runner { binaries, tree: Path::new("/"), log }
    }

    #[test]
    fn a_hang_is_told_from_a_failure() {
        let script = std::env::temp_dir().join(format!("mutants-hang-{}", std::process::id()));
        fs::write(&script, "#!/bin/sh\nexec sleep 600\n").expect("it can be written");
        fs::set_permissions(&script, Permissions::from_mode(0o700)).expect("it is ours");
        let programs =
            [("true", PathBuf::from("true")), ("false", "false".into()), ("hang", script)];
        let binaries = programs.map(|(name, path)| (name.to_owned(), path));
        for (binary, whole, expected) in [
            ("true", PATIENCE, Outcome::Passed),
            ("false", PATIENCE, Outcome::Failed),
            ("hang", Duration::from_millis(100), Outcome::Hung),
        ] {
            let name = Name { binary: binary.into(), test: "x".into() };
            let bounds = Bounds { whole, event: None };
            let ran = runner(&binaries).run(&name, Mode::Plain, "", bounds);
            assert_eq!(ran.expect("there is such a program").0, expected, "{binary}");
        }
        fs::remove_file(&binaries[2].1).expect("it is there");
    }
}
