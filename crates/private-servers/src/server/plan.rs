//! The plan of a server: all facts about it before it runs, and its possible answers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::folder::ServerUser;
use crate::settings::Sync;

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Postgres,
}

impl Kind {
    /// As sentences call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "Postgres",
        }
    }

    /// As files of the folder are called.
    pub(crate) fn short_name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// Possible names of the program.
    pub(crate) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &["redis-server", "valkey-server"],
            Self::Postgres => &["postgres"],
        }
    }

    /// The option that names the data folder: always the first one, which proves a process (see `process`).
    pub(crate) fn data_flag(self) -> &'static str {
        match self {
            Self::Redis => "--dir",
            Self::Postgres => "-D",
        }
    }

    /// Redis writes its append-only file and ends; Postgres cuts its connections, makes a checkpoint and ends.
    pub(crate) fn stop_signal(self) -> Signal {
        match self {
            Self::Redis => Signal::SIGTERM,
            Self::Postgres => Signal::SIGINT,
        }
    }
}

/// All facts about a server before it runs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) sync: Sync,
    /// Name of the role and of the database of Postgres.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// Without the data folder, which comes first.
    pub(crate) arguments: Vec<OsString>,
    /// None: the user of this process.
    pub(crate) user: Option<ServerUser>,
    /// The data folder, canonical.
    pub(crate) data: PathBuf,
    pub(crate) pid_file: PathBuf,
    pub(crate) socket: PathBuf,
    /// Files that a killed server leaves behind, and that must be gone before it starts again.
    pub(crate) stale: Vec<PathBuf>,
    /// The file whose lock lives as long as the server.
    pub(crate) alive: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) url: String,
    /// The program that makes the data before the first start. None for Redis.
    pub(crate) initdb: Option<PathBuf>,
    /// Variables that the server inherits beside the usual ones.
    pub(crate) inherited: Vec<OsString>,
}

/// The answer of a server to the question whether it is ready.
#[derive(Debug)]
pub(crate) enum Answer {
    Ready,
    /// The server loads or recovers, in its own words.
    Loading(String),
    /// No answer, or none that is understood.
    Silent(String),
    /// An answer, but not of the server that was asked for.
    Unfit(String),
}

/// True if both paths lead to one folder.
pub(crate) fn is_same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
