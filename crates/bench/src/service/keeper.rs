//! Keeps a measured service: the process between the bench and the service, which ends the service and removes its folder
//! when its input ends.
//!
//! The kernel closes a pipe however the process at its other end dies, SIGKILL included. So nothing is left behind as long as
//! the keeper itself lives; and where the service could not stop its private servers, the keeper does.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::{PrivateServers, Sync};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::time::timeout;

use crate::arguments::KeepArguments;
use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::kit::private_servers::settings;

/// Time for a service to start: a new Postgres cluster on a busy machine takes a while.
const START_WITHIN: Duration = Duration::from_secs(120);
/// Time for a service to stop, private servers included.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Last lines of the service's log that are kept.
const LOG_LINES_KEPT: usize = 12;
/// Log lines of a service that is up; without the role `api` only the second one comes.
const LISTENS: [&str; 2] = ["the API listens on ", "/readyz listen on "];

/// The keeper's side: runs the command until it ends, the input ends or a signal comes; then clears up.
pub async fn keep(arguments: KeepArguments) -> anyhow::Result<()> {
    let mut stop_requests = StopRequests::listen()?;
    let (program, arguments_of_service) =
        arguments.command.split_first().context("there is no command to run")?;
    let mut service = Command::new(program)
        .args(arguments_of_service)
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("{} can't be run", program.display()))?;
    println!("{}", service.id().unwrap_or_default());
    let ended = tokio::select! {
        status = service.wait() => Some(status?),
        () = end_of_input() => None,
        _ = stop_requests.next() => None,
    };
    let was_stopped = ended.is_none();
    let status = match ended {
        Some(status) => status,
        None => stop(&mut service).await?,
    };
    let swept = stop_servers(&arguments.folder).await;
    std::fs::remove_dir_all(&arguments.folder)?;
    swept?;
    if was_stopped { Ok(()) } else { bail!("the service under test ended by itself: {status}") }
}

/// Stops servers that are left over: of a service that was killed, or stopped while it was starting.
async fn stop_servers(folder: &Path) -> anyhow::Result<()> {
    if PrivateServers::any_alive(folder)? {
        PrivateServers::start(folder, &settings(Sync::Durable)).await?.stop().await?;
    }
    Ok(())
}

async fn end_of_input() {
    let mut input = tokio::io::stdin();
    while matches!(input.read(&mut [0; 64]).await, Ok(1..)) {}
}

async fn stop(service: &mut Child) -> std::io::Result<ExitStatus> {
    // A child that is not waited for keeps its id.
    if let Some(pid) = service.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if let Ok(status) = timeout(STOP_WITHIN, service.wait()).await {
        return status;
    }
    service.kill().await?;
    service.wait().await
}

/// The bench's side: a service that runs under a keeper.
pub struct Kept {
    keeper: Child,
    /// The keeper's input; closing it ends everything.
    input: Option<ChildStdin>,
    /// The service's own process.
    pub pid: u32,
    /// The address of its API.
    pub url: String,
    pub folder: PathBuf,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Kept {
    /// Starts `binary serve` with a temporary folder for its data, and waits until it listens.
    pub async fn start(
        binary: &Path,
        service_arguments: &[String],
        secret: &SecretString,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let folder = temporary_folder()?;
        let mut command = keeper_of(&folder, binary)?;
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        // The bounds on one client do their work, and let the few users of the bench through.
        command.args(["--user-claims-per-second", "1000000", "--data-dir"]).arg(&folder);
        command.args(service_arguments);
        for name in settings_of_ours() {
            command.env_remove(name);
        }
        // By the environment, because an older binary that is compared knows no such flag.
        command.env("FLASH_SALE_NO_OP_ROUTE", "true");
        // A comparison reads all sold units, once a minute, in the middle of some slice. The verdict compares once.
        command.env("FLASH_SALE_RECONCILE_PERIOD_MS", "0");
        command.env("FLASH_SALE_TOKEN_SECRET", secret.expose_secret());
        Self::spawn(command, folder, shutdown).await
    }

    /// Starts the bench's own bare route.
    pub async fn start_bare_route(shutdown: &Shutdown) -> anyhow::Result<Self> {
        let folder = temporary_folder()?;
        let mut command = keeper_of(&folder, &std::env::current_exe()?)?;
        command.arg("bare-route");
        Self::spawn(command, folder, shutdown).await
    }

    /// Starts a keeper, and waits until the kept process listens.
    async fn spawn(
        mut command: Command,
        folder: PathBuf,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        // Ctrl-C is for the bench, which ends the others in the right order.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut keeper = command.spawn().context("the keeper of the service can't be started")?;
        let input = keeper.stdin.take();
        let mut out = lines(keeper.stdout.take().context("it is piped")?);
        let mut log_lines = lines(keeper.stderr.take().context("it is piped")?);
        let log = Arc::default();
        let listens = timeout(START_WITHIN, until_it_listens(&mut log_lines, &log)).await;
        let Some(url) = listens.context("the service under test did not start in time")?? else {
            bail!("the service under test did not start; it said:\n{}", said(&log));
        };
        let pid = out.next_line().await?.and_then(|line| line.parse().ok());
        let pid = pid.context("the keeper did not say which process the service is")?;
        // A demo goes on printing, and a pipe that is not read would end it.
        shutdown.spawn(async move { while let Ok(Some(_)) = out.next_line().await {} });
        let kept = log.clone();
        shutdown.spawn(async move {
            while let Ok(Some(line)) = log_lines.next_line().await {
                remember(&kept, line);
            }
        });
        Ok(Self { keeper, input, pid, url, folder, log })
    }

    /// The last lines of the service's log.
    pub fn said(&self) -> String {
        said(&self.log)
    }

    /// Ends the service and its servers, and waits until all is gone.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input.take());
        let ended = timeout(2 * STOP_WITHIN, self.keeper.wait()).await;
        let status = ended.context("the service under test did not stop in time")??;
        if !status.success() {
            bail!("the service under test did not end well; it said:\n{}", self.said());
        }
        Ok(())
    }
}

/// The command that keeps this program; the program's arguments follow.
fn keeper_of(folder: &Path, program: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["keep", "--folder"]).arg(folder).arg("--").arg(program);
    Ok(command)
}

fn lines<R: AsyncRead + Unpin>(pipe: R) -> Lines<BufReader<R>> {
    BufReader::new(pipe).lines()
}

async fn until_it_listens(
    lines: &mut Lines<BufReader<ChildStderr>>,
    log: &Mutex<VecDeque<String>>,
) -> anyhow::Result<Option<String>> {
    while let Some(line) = lines.next_line().await? {
        let said = LISTENS.iter().find_map(|listens| line.split_once(listens));
        let url = said.map(|(_, url)| url.trim().to_owned());
        remember(log, line);
        if url.is_some() {
            return Ok(url);
        }
    }
    Ok(None)
}

fn remember(log: &Mutex<VecDeque<String>>, line: String) {
    if let Ok(mut log) = log.lock() {
        if log.len() == LOG_LINES_KEPT {
            log.pop_front();
        }
        log.push_back(line);
    }
}

fn said(log: &Mutex<VecDeque<String>>) -> String {
    log.lock().map_or_else(|_| String::new(), |log| Vec::from(log.clone()).join("\n"))
}

/// A new folder with a random name, so that only data of the bench is deleted at the end.
fn temporary_folder() -> std::io::Result<PathBuf> {
    let name = format!("flash-sale-bench-{}", uuid::Uuid::new_v4().simple());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

/// Settings of the bench, which are not meant for the service under test.
fn settings_of_ours() -> impl Iterator<Item = OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| {
        let name = name.to_string_lossy();
        // By this variable `.ci/run` finds processes that a run leaves behind.
        name.starts_with("FLASH_SALE_") && name != "FLASH_SALE_CI_RUN"
    })
}
