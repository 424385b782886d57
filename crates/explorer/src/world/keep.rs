//! Children that never outlive the explorer.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::time::timeout;

/// Time for a process to end after SIGKILL.
const KILL_WITHIN: Duration = Duration::from_secs(20);

/// Script of the shell: prints the program's process id, and kills the program when the shell's input ends.
const KEEP: &str = r#"exec 3<&0
"$0" "$@" </dev/null 3<&- &
child=$!
echo "$child"
(cat <&3 >/dev/null; kill -9 "$child") 2>/dev/null >&2 &
watcher=$!
wait "$child"
code=$?
kill "$watcher" 2>/dev/null
exit "$code""#;

/// A command of the service's binary, with none of the settings in our own environment.
pub fn command_of(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        // By this one `.ci/run` finds processes that a run leaves behind.
        if name.to_string_lossy().starts_with("FLASH_SALE_") && name != "FLASH_SALE_CI_RUN" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// A program and the shell that keeps it.
#[derive(Debug)]
pub struct Kept {
    shell: Child,
    /// Closed by a drop: then the shell kills the program.
    _input: Option<ChildStdin>,
    pid: Pid,
    stderr: Option<ChildStderr>,
}

impl Kept {
    /// Starts a program with these arguments and no environment but `variables`, PATH and HOME.
    pub async fn start(
        program: &Path,
        arguments: &[String],
        variables: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(KEEP).arg(program).args(arguments);
        command.env_clear();
        // By the last one `.ci/run` finds processes that a run leaves behind.
        for name in ["PATH", "HOME", "TMPDIR", "FLASH_SALE_CI_RUN"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut shell = command.spawn().context("there is no shell")?;
        let input = shell.stdin.take();
        let stdout = shell.stdout.take().context("it is piped")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let pid = line.and_then(|line| line.trim().parse().ok()).context("no process id")?;
        let stderr = shell.stderr.take();
        Ok(Self { shell, _input: input, pid: Pid::from_raw(pid), stderr })
    }

    /// The program's standard error; `None` the second time.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.stderr.take()
    }

    /// The program's process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends a signal. A program that has ended takes none, and that is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }

    /// The exit status, if the program has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.shell.try_wait()
    }

    /// Waits for the end, so long at most. `None`: it runs still.
    pub async fn ends_within(&mut self, time: Duration) -> io::Result<Option<ExitStatus>> {
        timeout(time, self.shell.wait()).await.ok().transpose()
    }

    /// SIGKILL. The program is gone when this returns.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL);
        self.ends_within(KILL_WITHIN).await?.context("it outlived SIGKILL")?;
        Ok(())
    }
}
