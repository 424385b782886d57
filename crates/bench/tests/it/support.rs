//! The commands of the tests, and their figures.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use private_servers::testing::{Finished, run_within};
use serde_json::Value;
use uuid::Uuid;

/// The bench with these arguments and no settings of the environment.
pub fn bench(arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_flash-sale-bench")));
    command.args(arguments);
    command
}

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes it.
    pub fn new() -> Self {
        let name = format!("flash-sale-test-{}", Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a temporary folder can be made");
        Self(folder)
    }

    /// A path in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of all that lies in it.
    pub fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Time for a measurement: several services start and stop in it, on a machine that runs other tests.
const MEASURED_WITHIN: Duration = Duration::from_secs(240);

/// Runs a measurement to its end.
pub async fn measured(command: Command) -> Finished {
    run_within(command, MEASURED_WITHIN).await
}

/// A short run.
pub fn short(arguments: &[&str]) -> Command {
    let mut command = bench(&[]);
    command.args(["--warm-up-seconds", "0.2", "--connections", "8"]);
    if !arguments.contains(&"--seconds") {
        command.args(["--seconds", "0.6"]);
    }
    command.args(arguments);
    command
}

/// A path as text.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

pub fn read_json(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("it has been written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// A list among the figures.
pub fn array<'a>(figures: &'a Value, name: &str) -> &'a Vec<Value> {
    figures[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {figures}"))
}

/// Requests of a slice with this status.
pub fn answered(slice: &Value, status: u64) -> u64 {
    let with_status = array(slice, "endings").iter().filter(|ending| ending["status"] == status);
    with_status.map(|ending| ending["count"].as_u64().expect("a number")).sum()
}

/// Fails with all output unless the exit code is this one.
pub fn assert_exit_code(finished: &Finished, code: i32) {
    let Finished { stdout, stderr, .. } = finished;
    assert_eq!(finished.code, Some(code), "{stdout}\n{stderr}");
}

/// The service's binary, which stands beside the bench.
///
/// # Panics
///
/// If it has not been built.
pub fn service_binary() -> PathBuf {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_flash-sale-bench")).with_file_name("flash-sale");
    assert!(binary.is_file(), "{} is missing: `cargo build --bin flash-sale`", binary.display());
    binary
}

fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let is_setting = name.to_string_lossy().starts_with("FLASH_SALE_");
        // By this one `.ci/run` finds processes that a test run leaves behind.
        if is_setting && name != "FLASH_SALE_CI_RUN" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}
