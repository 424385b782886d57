//! Runs the programs of a server, and keeps their logs.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::plan::Plan;
use crate::environment;
use crate::error::{PrivateServersError, io_error};

/// Bytes and lines at the end of a log that an error shows.
const LOG_TAIL_BYTES: u64 = 4096;
const LOG_TAIL_LINES: usize = 8;

/// A program of a server, ready to be run: in a process group of its own, with a new log as its output and the lock as
/// its (empty) input.
pub(crate) fn command(
    plan: &Plan,
    program: &Path,
    log: &Path,
    lock: File,
) -> Result<Command, PrivateServersError> {
    let log_out = new_log(log)?;
    let log_err = log_out.try_clone().map_err(io_error("open", log))?;
    let mut command = Command::new(program);
    command
        // The folder of this process may be out of the server user's reach.
        .current_dir("/")
        .env_clear()
        .envs(environment::inherited(&plan.inherited))
        .env("LC_ALL", "C")
        .stdin(Stdio::from(lock))
        .stdout(log_out)
        .stderr(log_err)
        .process_group(0);
    if let Some(user) = plan.user {
        command.uid(user.uid).gid(user.gid);
    }
    Ok(command)
}

/// The error of a program that ended instead of doing its work.
pub(crate) fn exited(server: &'static str, status: String, log: &Path) -> PrivateServersError {
    PrivateServersError::Exited { server, status, log: log.to_owned(), last_lines: log_tail(log) }
}

/// The last lines of a log, for an error message.
pub(crate) fn log_tail(log: &Path) -> String {
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
pub(crate) fn new_log(log: &Path) -> Result<File, PrivateServersError> {
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
