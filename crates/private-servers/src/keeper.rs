//! A keeper: a process that has servers for as long as its standard input is open.
//!
//! The kernel closes a pipe whatever way the process at its other end dies. So servers behind a keeper end with the
//! process that wanted them, and a test run that is killed leaves nothing behind.

use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;
use uuid::Uuid;

use crate::error::{PrivateServersError, io_error};
use crate::pair::PrivateServers;
use crate::settings::Settings;

/// The folder of servers that a keeper has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This folder, which stays.
    Folder(PathBuf),
    /// A new folder in the system's folder for temporary files, removed at the end.
    ThrowAway,
}

/// Keeps servers for another process: starts them, prints one line about them on standard output, and stops them when
/// standard input ends or `told_to_stop` completes.
///
/// The line is a JSON object with the strings `redis_url` and `database_url` and the numbers `redis_pid` and
/// `postgres_pid`. This function is the command `private-servers`; a program of your own with such a sub-command needs
/// no further one.
///
/// # Errors
///
/// As [`PrivateServers::start`] and [`PrivateServers::stop`]; also if the temporary folder cannot be made or removed.
pub async fn keep(
    place: &Place,
    settings: &Settings,
    told_to_stop: impl Future<Output = ()>,
) -> Result<(), PrivateServersError> {
    match place {
        Place::Folder(dir) => keep_in(dir, settings, told_to_stop).await,
        Place::ThrowAway => {
            let dir = temporary_folder(settings)?;
            let kept = keep_in(&dir, settings, told_to_stop).await;
            std::fs::remove_dir_all(&dir).map_err(io_error("remove", &dir))?;
            kept
        }
    }
}

async fn keep_in(
    dir: &Path,
    settings: &Settings,
    told_to_stop: impl Future<Output = ()>,
) -> Result<(), PrivateServersError> {
    let servers = PrivateServers::start(dir, settings).await?;
    println!("{}", line_about(&servers));
    tokio::select! {
        () = end_of_input() => {}
        () = told_to_stop => {}
    }
    servers.stop().await
}

/// Nothing in it needs escaping: paths of sockets are plain.
fn line_about(servers: &PrivateServers) -> String {
    let redis_url = servers.redis_url();
    let database_url = servers.database_url();
    let ids = servers.process_ids();
    format!(
        r#"{{"redis_url":"{redis_url}","database_url":"{database_url}","redis_pid":{},"postgres_pid":{}}}"#,
        ids.redis, ids.postgres
    )
}

/// A new folder with a random name, so that only data of this process is removed at the end.
fn temporary_folder(settings: &Settings) -> Result<PathBuf, PrivateServersError> {
    settings.check_name()?;
    let name = format!("{}-{}", settings.prefix(), Uuid::new_v4().simple());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).map_err(io_error("create", &folder))?;
    Ok(folder)
}

async fn end_of_input() {
    let mut input = tokio::io::stdin();
    while matches!(input.read(&mut [0; 64]).await, Ok(1..)) {}
}
