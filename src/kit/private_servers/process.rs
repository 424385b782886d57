//! One running server: proving that a process is it, telling it to stop, seeing that it is gone.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::bring_up::{Kind, Plan};
use super::environment;
use super::error::{PrivateServersError, io_error};

/// How long a server may take to stop before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How long the kernel may take to end a killed server and all its children.
const KILL_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// How much of a log is shown in an error.
const LOG_TAIL_BYTES: u64 = 4096;
const LOG_TAIL_LINES: usize = 8;

/// A server that answered for its folder, or is about to. Dropping it tells it to stop and does not wait.
#[derive(Debug)]
pub(super) struct Running {
    plan: Plan,
    pid: u32,
    /// Present if this process started the server; it is then our child and must be reaped.
    child: Option<Child>,
    is_stopped: bool,
}

impl Running {
    /// A server that this process has just started.
    pub(super) fn started(plan: Plan, pid: u32, child: Child) -> Self {
        Self { plan, pid, child: Some(child), is_stopped: false }
    }

    /// A server of a former run, proven by [`proven_pid`].
    pub(super) fn left_over(plan: Plan, pid: u32) -> Self {
        Self { plan, pid, child: None, is_stopped: false }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn url(&self) -> &str {
        &self.plan.url
    }

    /// Whether the server has ended. For our own child that is its own end, so that a server that fails at once is
    /// noticed before its children are gone; for a leftover it is the end of the last process that held the lock.
    pub(super) fn has_ended(&mut self) -> Result<Option<String>, PrivateServersError> {
        match &mut self.child {
            Some(child) => {
                let status = child.try_wait().map_err(io_error("wait for", &self.plan.program))?;
                Ok(status.map(|status| status.to_string()))
            }
            None => {
                Ok(try_alive_lock(&self.plan.alive)?
                    .map(|_| "a leftover of a former run".to_owned()))
            }
        }
    }

    /// Tells the server to stop and waits until it and all its children are gone; kills it if it takes too long.
    pub(super) async fn stop(mut self) -> Result<(), PrivateServersError> {
        self.tell_to_stop();
        let stopped = self.is_gone_within(STOP_WITHIN).await?;
        if !stopped {
            self.signal(Signal::SIGKILL);
        }
        let gone = stopped || self.is_gone_within(KILL_WITHIN).await?;
        self.is_stopped = true;
        if gone && let Some(sockets) = self.plan.socket.parent() {
            // Succeeds only for an empty folder: the short one in /tmp, when the last socket has gone from it.
            let _ = fs::remove_dir(sockets);
        }
        let server = self.plan.kind.name();
        match (stopped, gone) {
            (true, _) => Ok(()),
            (false, true) => Err(PrivateServersError::Killed {
                server,
                seconds: STOP_WITHIN.as_secs(),
                log: self.plan.log.clone(),
            }),
            (false, false) => Err(PrivateServersError::StillRunning {
                server,
                pid: self.pid,
                alive: self.plan.alive.clone(),
            }),
        }
    }

    async fn is_gone_within(&mut self, limit: Duration) -> Result<bool, PrivateServersError> {
        let deadline = Instant::now() + limit;
        loop {
            let is_reaped = self.child.is_none() || self.has_ended()?.is_some();
            if is_reaped && try_alive_lock(&self.plan.alive)?.is_some() {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            sleep(POLL).await;
        }
    }

    /// A server acts on its signal only after a moment, in which it still answers. Without its socket nobody new can
    /// take it for one that stays: a `start` that follows at once waits for its end instead.
    fn tell_to_stop(&self) {
        // Missing already, or not ours to remove: then the server does it itself when it ends.
        let _ = fs::remove_file(&self.plan.socket);
        self.signal(self.plan.kind.stop_signal());
    }

    /// A child of ours that is not reaped keeps its pid; any other pid is proven anew.
    fn signal(&self, signal: Signal) {
        let is_ours = match &self.child {
            Some(child) => child.id().is_some(),
            None => is_server(self.pid, &self.plan),
        };
        if is_ours
            && let Ok(pid) = i32::try_from(self.pid)
            // Failing means that it has just ended by itself, which is what we want.
            && let Err(errno) = kill(Pid::from_raw(pid), signal)
            && errno != Errno::ESRCH
        {
            tracing::warn!(pid, %signal, %errno, "a private server could not be sent a signal");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.tell_to_stop();
        }
    }
}

/// Takes the lock that a server holds while it lives (see the module's header). `None`: it lives. The file is never
/// removed or replaced, since the lock belongs to the file and not to its name.
pub(super) fn try_alive_lock(alive: &Path) -> Result<Option<File>, PrivateServersError> {
    let file = File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(alive)
        .map_err(io_error("open", alive))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(io_error("lock", alive)(error)),
    }
}

/// The process id in the server's pid file, if that process is our program on our data.
pub(super) fn proven_pid(plan: &Plan) -> Option<u32> {
    let text = fs::read_to_string(&plan.pid_file).ok()?;
    // Postgres' file has more lines; the first is the id.
    let pid = text.lines().next()?.trim().parse().ok()?;
    is_server(pid, plan).then_some(pid)
}

/// Whether a process of this id exists (or existed a moment ago: an unreaped one counts).
pub(super) fn exists(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else {
        return false;
    };
    // EPERM: there is one, of another user.
    pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

/// The last lines of a log, for an error message.
pub(super) fn log_tail(log: &Path) -> String {
    let read = || {
        let mut file = File::open(log)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok::<_, std::io::Error>(tail)
    };
    let tail =
        read().unwrap_or_else(|error| format!("(the log cannot be read: {error})").into_bytes());
    let tail = String::from_utf8_lossy(&tail);
    let lines: Vec<_> = tail.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// A new log file for this run; the former run's is kept once.
pub(super) fn new_log(log: &Path) -> Result<File, PrivateServersError> {
    let mut former = log.as_os_str().to_owned();
    former.push(".old");
    match fs::rename(log, PathBuf::from(former)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("rename", log)(error));
        }
        _ => {}
    }
    File::options().create(true).append(true).mode(0o600).open(log).map_err(io_error("create", log))
}

fn is_server(pid: u32, plan: &Plan) -> bool {
    command_line(pid).is_some_and(|line| names_server(&line, plan.kind, &plan.data))
}

/// The arguments of a process, joined by blanks: from /proc where there is one (readable for everyone), else from ps.
fn command_line(pid: u32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        return Some(String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let output = Command::new("ps")
        .args(["-ww", "-o", "command=", "-p", &pid.to_string()])
        .env_clear()
        .envs(environment::inherited())
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).replace('\n', " "))
}

/// Whether a command line is `<our program> <flag> <our data folder> …`, as `bring_up` writes it.
fn names_server(line: &str, kind: Kind, data: &Path) -> bool {
    let argument = format!(" {} {} ", kind.data_flag(), data.display());
    line.split_once(&argument)
        .is_some_and(|(program, _)| kind.programs().iter().any(|name| program.ends_with(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_program_on_our_data_is_proven() {
        let data = Path::new("/srv/a b/postgres/data");
        let is_ours = |line: &str| names_server(line, Kind::Postgres, data);
        assert!(is_ours(
            "/usr/lib/postgresql/15/bin/postgres -D /srv/a b/postgres/data -c port=5432 "
        ));
        assert!(!is_ours(
            "/usr/lib/postgresql/15/bin/postgres -D /srv/a b/postgres/data2 -c port=5432 "
        ));
        assert!(!is_ours("/usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main "));
        assert!(!is_ours("tail -D /srv/a b/postgres/data "));
        assert!(!is_ours("postgres: checkpointer "));
        assert!(names_server(
            "/bin/valkey-server --dir /d --port 0 ",
            Kind::Redis,
            Path::new("/d")
        ));
        assert!(!names_server("/bin/redis-server *:6379 ", Kind::Redis, Path::new("/d")));
    }

    #[test]
    fn this_process_exists_and_is_no_server() {
        assert!(exists(std::process::id()));
        assert!(!exists(0) && !exists(u32::MAX));
        assert!(command_line(std::process::id()).is_some_and(|line| !line.is_empty()));
    }
}
