//! Failures of private servers. Every message names the remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Why the private servers of a folder could not be started, joined or stopped.
#[derive(Debug, thiserror::Error)]
pub enum PrivateServersError {
    /// Another live process holds the folder's lock.
    #[error(
        "the folder {} is in use by {}: stop that one, or choose another folder",
        dir.display(), process(*pid)
    )]
    InUse {
        /// The folder, in its canonical form.
        dir: PathBuf,
        /// The process that holds it, if its id is known.
        pid: Option<u32>,
    },

    /// Programs are not installed. Nothing was started.
    #[error("{program} cannot be found on this machine: {install}")]
    MissingProgram {
        /// All missing programs, as the subject of a sentence.
        program: String,
        /// The remedy, such as "run `sudo apt-get install -y redis-server postgresql`".
        install: String,
    },

    /// The installed Redis is older than the floor. Nothing was started.
    #[error(
        "{} is version {found}, and {floor} is the oldest that will do: install a newer one (package valkey has \
         one, too)",
        program.display()
    )]
    TooOld {
        /// The program that was found.
        program: PathBuf,
        /// Its version, or its words in place of one.
        found: String,
        /// The oldest version that is accepted.
        floor: &'static str,
    },

    /// The folder's Postgres data needs another major version than any that is installed.
    #[error(
        "the data in {} was written by PostgreSQL {version}, which is not installed here: install that version \
         (Debian: package postgresql-{version}), or start with an empty folder",
        data.display()
    )]
    ClusterVersion {
        /// The folder of the cluster.
        data: PathBuf,
        /// Its major version.
        version: String,
    },

    /// A name of the settings that cannot be used. Nothing was started.
    #[error(
        "{name:?} cannot be the name of private servers: choose 1 to 31 lower-case letters, digits and underscores, \
         the first one a letter"
    )]
    Name {
        /// The name.
        name: String,
    },

    /// A folder that must not be used as it is.
    #[error("{} cannot be used: {why}", path.display())]
    Refused {
        /// The folder.
        path: PathBuf,
        /// The reason, and the way out.
        why: String,
    },

    /// A program ended instead of doing its work.
    #[error(
        "the private {server} ended at its start ({status}); its log {} ends with:\n{last_lines}\n\
         Correct what it complains about and start again",
        log.display()
    )]
    Exited {
        /// Name of the program.
        server: &'static str,
        /// Its exit status.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        last_lines: String,
    },

    /// A server runs, but did not answer in time or not as it should. It has been stopped.
    #[error(
        "the private {server} did not get ready ({reason}); look into its log {} and start again{last_lines}",
        log.display()
    )]
    NotReady {
        /// Name of the server.
        server: &'static str,
        /// Its last answer, or why there is none.
        reason: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log, with their introduction; may be empty.
        last_lines: String,
    },

    /// A process of a former run is still alive and cannot be identified.
    #[error(
        "a {server} process of a former run still holds {} and cannot be identified: find it with \
         `fuser {}`, end it, and start again",
        alive.display(), alive.display()
    )]
    Unidentified {
        /// Name of the server.
        server: &'static str,
        /// The file that the process holds open and locked.
        alive: PathBuf,
    },

    /// A server did not stop in time and was killed. It is gone.
    #[error(
        "the private {server} did not stop within {seconds} s and was killed; it recovers at its next start, \
         its log {} may say why it hung",
        log.display()
    )]
    Killed {
        /// Name of the server.
        server: &'static str,
        /// Seconds that it had to stop.
        seconds: u64,
        /// Its log file.
        log: PathBuf,
    },

    /// A server outlived even SIGKILL, or a process of it did.
    #[error("the private {server} (process {pid}) cannot be stopped: end what `fuser {}` shows", alive.display())]
    StillRunning {
        /// Name of the server.
        server: &'static str,
        /// Its main process.
        pid: u32,
        /// The file that is still held.
        alive: PathBuf,
    },

    /// The database could not be created.
    #[error("the private Postgres runs, but its database could not be created: {source}; its log is {}", log.display())]
    Database {
        /// Postgres' answer.
        source: Box<sqlx::Error>,
        /// The server's log file.
        log: PathBuf,
    },

    /// The file system refused an action.
    #[error("cannot {action} {}: {source}; check that this user may do so and that the disk has room", path.display())]
    Io {
        /// The action: "create", "lock", …
        action: &'static str,
        /// Its file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// For `map_err`: an [`io::Error`] together with the action and its file.
pub(crate) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> PrivateServersError {
    let path = path.to_owned();
    move |source| PrivateServersError::Io { action, path, source }
}
