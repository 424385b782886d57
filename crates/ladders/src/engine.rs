//! A NATS server with JetStream of a ladder's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use private_servers::testing::{DataFolder, Process};

/// The server. Killed, and its data removed, when it is dropped.
pub struct Engine {
    url: String,
    _process: Process,
    _folder: DataFolder,
}

/// The program, if this machine has it: `scripts/setup nats` installs it.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps it where servers are, which is out of the PATH of users.
    let folders = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]);
    folders.map(|folder| folder.join("nats-server")).find(|program| program.is_file())
}

impl Engine {
    /// Starts one without data, on a free port of loopback.
    ///
    /// # Errors
    ///
    /// When the program is missing.
    pub async fn start() -> anyhow::Result<Self> {
        let program = program().context("nats-server is missing: run scripts/setup nats")?;
        let folder = DataFolder::made(0o700);
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]).arg(folder.path());
        command.stdin(Stdio::null());
        let process = Process::spawn(command);
        let line = process.logged("Listening for client connections on ").await;
        let (_, address) = line.rsplit_once(' ').context("the address comes last")?;
        process.logged("Server is ready").await;
        Ok(Self { url: format!("nats://{address}"), _process: process, _folder: folder })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }
}
