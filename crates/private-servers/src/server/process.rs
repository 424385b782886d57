//! One running server: proof that a process is it, the signal to stop, and the proof that it is gone.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::plan::{Kind, Plan};
use crate::environment;
use crate::error::{PrivateServersError, io_error};

/// Time for a server to stop before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Time for the kernel to end a killed server and all its children.
const KILL_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// A server that answered for its folder, or is about to. Dropping it tells it to stop and does not wait.
#[derive(Debug)]
pub(crate) struct Running {
    plan: Plan,
    pid: u32,
    /// Present if this process started the server, which is then its child and must be reaped.
    child: Option<Child>,
    is_stopped: bool,
}

impl Running {
    /// A server that this process has just started.
    pub(crate) fn started(plan: Plan, pid: u32, child: Child) -> Self {
        Self { plan, pid, child: Some(child), is_stopped: false }
    }

    /// A server of a former run, proven by [`proven_pid`].
    pub(crate) fn left_over(plan: Plan, pid: u32) -> Self {
        Self { plan, pid, child: None, is_stopped: false }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn url(&self) -> &str {
        &self.plan.url
    }

    /// The end of the server, in words; `None` while it runs. The end of a child of this process counts at once, although
    /// its own children may still live. A leftover has ended with the last process that held the lock.
    pub(crate) fn has_ended(&mut self) -> Result<Option<String>, PrivateServersError> {
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
    pub(crate) async fn stop(mut self) -> Result<(), PrivateServersError> {
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

    /// Tells the server to stop. It acts on the signal only after a moment, in which it still answers. Without its
    /// socket, a `start` that follows at once cannot take it for a server that stays, and waits for its end.
    fn tell_to_stop(&self) {
        // Missing already, or owned by another user: then the server removes it when it ends.
        let _ = fs::remove_file(&self.plan.socket);
        self.signal(self.plan.kind.stop_signal());
    }

    /// Sends a signal. A child of this process that is not reaped keeps its pid; any other pid is proven anew.
    fn signal(&self, signal: Signal) {
        let is_ours = match &self.child {
            Some(child) => child.id().is_some(),
            None => is_server(self.pid, &self.plan),
        };
        if is_ours
            && let Ok(pid) = i32::try_from(self.pid)
            // ESRCH: the server has just ended by itself, as wanted.
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

/// Takes the lock that a server holds while it lives. `None`: the server lives. The file is never removed or replaced,
/// since the lock belongs to the file and not to its name.
pub(crate) fn try_alive_lock(alive: &Path) -> Result<Option<File>, PrivateServersError> {
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

/// The process id in the server's pid file, if that process is the plan's program on the plan's data.
pub(crate) fn proven_pid(plan: &Plan) -> Option<u32> {
    let text = fs::read_to_string(&plan.pid_file).ok()?;
    // Postgres' file has more lines; the first is the id.
    let pid = text.lines().next()?.trim().parse().ok()?;
    is_server(pid, plan).then_some(pid)
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
        .envs(environment::inherited(&[]))
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).replace('\n', " "))
}

/// True for a command line `<program> <flag> <data folder> …`, the form that `bring_up` writes.
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
    fn the_command_line_of_this_process_can_be_read() {
        assert!(command_line(std::process::id()).is_some_and(|line| !line.is_empty()));
    }
}
