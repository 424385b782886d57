//! Chromium without a window, for tests that look at the pages of flash-sale as a person does.
//!
//! The browser has a profile of its own for each session, opens no connection but those of the page, and goes with the
//! driver that started it. The tests are in `tests/it`.

#![warn(clippy::unwrap_used)]

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use private_servers::testing::{DataFolder, Process, eventually};

/// Names of the browser on different systems; `scripts/load-browser` looks for the same ones.
const BROWSERS: [&str; 3] = ["chromium", "google-chrome", "chromium-browser"];

/// Arguments of the browser. It runs without its sandbox, because the pages are our own and tests may run as root.
pub const ARGUMENTS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    // The browser ends when the other end of the pipe is gone, however the driver ends.
    "--remote-debugging-pipe",
];

/// Path of the browser.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn browser() -> PathBuf {
    let found = BROWSERS.iter().find_map(|name| in_path(name));
    found.expect("Chromium is installed: run scripts/load-browser")
}

/// A chromedriver, which starts browsers. All of them end with it.
#[derive(Debug)]
pub struct Driver {
    _process: Process,
    /// Profiles of the browsers; removed after the driver has ended.
    _profiles: DataFolder,
    url: String,
}

impl Driver {
    /// Starts one on a port that is free.
    ///
    /// # Panics
    ///
    /// If there is none, or it doesn't start.
    pub async fn start() -> Self {
        let program = in_path("chromedriver");
        let program = program.expect("chromedriver is installed: run scripts/load-browser");
        loop {
            let mut command = Command::new(&program);
            let profiles = DataFolder::made(0o700);
            command.arg("--port=0").env("TMPDIR", profiles.path()).stdin(Stdio::null());
            let process = Process::spawn(command);
            if let Some(port) = port_of(&process).await {
                let url = format!("http://127.0.0.1:{port}");
                return Self { _process: process, _profiles: profiles, url };
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The port on which the driver listens; `None` if it has ended. The driver takes a port that is free for IPv6, and ends
/// if another process has the same one for IPv4.
async fn port_of(driver: &Process) -> Option<String> {
    let line = |text: &str| driver.printed_so_far().into_iter().find(|line| line.contains(text));
    let port = || line("started successfully on port");
    let has_ended = || line("IPv4 port not available").is_some();
    eventually("the driver listens, or ends", async || port().is_some() || has_ended()).await;
    Some(port()?.chars().filter(char::is_ascii_digit).collect())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
