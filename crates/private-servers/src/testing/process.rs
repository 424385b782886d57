//! A process of a test: started, listened to, signalled, and never left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::patience::{bound_this_test, eventually, patience_of};

/// Time for a line or an end: a start with private servers makes a Postgres cluster, on a machine that runs many tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const POLL: Duration = Duration::from_millis(5);

/// A child process. Killed when it is dropped, so a failing test leaves nothing behind.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

/// Lines that a process has written so far.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// A process that has ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; none after a signal.
    pub code: Option<i32>,
    /// All lines on standard output.
    pub stdout: String,
    /// All lines on standard error.
    pub stderr: String,
}

/// Runs a command to its end.
///
/// # Panics
///
/// If the program cannot be started, or has not ended after 60 s.
pub async fn run(command: Command) -> Finished {
    run_within(command, patience_of(PATIENCE)).await
}

/// Runs a command to its end, which may take longer than that of other commands: a measurement, for example.
///
/// # Panics
///
/// If the program cannot be started, or has not ended in time.
pub async fn run_within(command: Command, time: Duration) -> Finished {
    let mut process = Process::spawn(command);
    let status = process.ended_within(time).await;
    Finished {
        code: status.code(),
        stdout: process.stdout.to_end().await,
        stderr: process.stderr.to_end().await,
    }
}

impl Finished {
    /// The last line on standard error, which has the reason of a failure.
    #[must_use]
    pub fn last_words(&self) -> &str {
        self.stderr.lines().last().unwrap_or("")
    }
}

impl Process {
    /// Starts a command, and bounds the test ([`bound_this_test`]).
    ///
    /// # Panics
    ///
    /// If the program cannot be started.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        bound_this_test();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!("{:?} cannot be started: {error}", command.get_program())
        });
        let stdout = Lines::read(child.stdout.take().expect("piped"));
        let stderr = Lines::read(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    /// The first line on standard error that contains `text`, waited for.
    ///
    /// # Panics
    ///
    /// If there is none after 60 s; likewise in the methods below that wait.
    pub async fn logged(&self, text: &str) -> String {
        self.stderr.containing(text).await
    }

    /// The first line on standard output that contains `text`, waited for.
    pub async fn printed(&self, text: &str) -> String {
        self.stdout.containing(text).await
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All lines on standard output so far.
    #[must_use]
    pub fn printed_so_far(&self) -> Vec<String> {
        self.stdout.so_far()
    }

    /// Writes to standard input.
    ///
    /// # Panics
    ///
    /// If standard input is no pipe, or the process has ended.
    pub fn type_in(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("standard input is a pipe");
        input.write_all(text.as_bytes()).expect("the process runs");
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// If the process has been waited for.
    pub fn signal(&self, signal: Signal) {
        // A child that is not reaped keeps its id.
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("a child of this process");
    }

    /// Kills the process (SIGKILL). It is gone when this returns.
    ///
    /// # Panics
    ///
    /// If the process has been waited for.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of this process");
        self.child.wait().expect("a child of this process");
    }

    /// Waits until no process can write to the standard output any more, children included.
    pub async fn output_ended(&self) {
        self.stdout.to_end().await;
    }

    /// Waits for the end.
    ///
    /// # Panics
    ///
    /// If it has not come after 60 s.
    pub async fn ended(&mut self) -> ExitStatus {
        self.ended_within(patience_of(PATIENCE)).await
    }

    /// Waits for the end, for so long at most.
    async fn ended_within(&mut self, time: Duration) -> ExitStatus {
        let deadline = Instant::now() + time;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it never ended:\n{}",
                self.stderr.so_far().join("\n")
            );
            sleep(POLL).await;
        }
    }

    /// All text on standard error so far.
    #[must_use]
    pub fn said_so_far(&self) -> String {
        self.stderr.so_far().join("\n")
    }

    /// All text on standard error, when that has ended.
    pub async fn said(&self) -> String {
        self.stderr.to_end().await
    }

    /// True while the process runs.
    ///
    /// # Panics
    ///
    /// If the system cannot tell.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_none()
    }

    /// Closes standard input, if that is a pipe.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    /// Reads in a thread that ends with the pipe.
    fn read(pipe: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let read = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                read.0.lock().expect("no holder panics").push(line);
            }
        });
        lines
    }

    fn so_far(&self) -> Vec<String> {
        self.0.lock().expect("no holder panics").clone()
    }

    /// All text. The reading thread drops its share at the end of the pipe.
    async fn to_end(&self) -> String {
        eventually("the output ends", async || Arc::strong_count(&self.0) == 1).await;
        self.so_far().join("\n")
    }

    async fn containing(&self, text: &str) -> String {
        let deadline = Instant::now() + patience_of(PATIENCE);
        loop {
            let lines = self.so_far();
            if let Some(line) = lines.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(Instant::now() < deadline, "{text:?} never appeared in:\n{}", lines.join("\n"));
            sleep(POLL).await;
        }
    }
}
