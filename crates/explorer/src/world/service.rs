//! A process of the service: started, killed, replaced, and kept running as a supervisor keeps it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStderr;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::keep::Kept;
use super::redis_node::set_clock;
use super::time::Stopwatch;
use crate::facts::{Life, Silence};
use crate::plan::process_name;

/// Period in which a process that has ended is started again.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Time for a process to end after SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Time for a process to listen after its start, while its stores answer.
const LISTEN_WITHIN: Duration = Duration::from_secs(60);
/// Part of the line that names the address.
const LISTENS: [&str; 2] = ["the API listens on ", "/readyz listen on "];

/// A process of the service at one place.
#[derive(Debug)]
pub struct Service {
    place: usize,
    binary: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    log: PathBuf,
    clock: PathBuf,
    time: Stopwatch,
    child: AsyncMutex<Slot>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Slot {
    kept: Option<Kept>,
    /// A process that has ended is started again.
    is_wanted: bool,
    /// Begin of the pause, while the process is paused.
    paused: Option<i64>,
    readers: JoinSet<()>,
}

/// Facts for clients and the checker.
#[derive(Debug, Default)]
struct Seen {
    /// Where the process listens; `None` while it does not.
    url: Option<String>,
    lives: Vec<Life>,
    silences: Vec<Silence>,
    mishaps: Vec<String>,
    alarms: usize,
}

impl Service {
    /// A process that has not been started yet.
    pub fn new(
        place: usize,
        binary: PathBuf,
        arguments: Vec<String>,
        mut variables: Vec<(String, String)>,
        folder: &std::path::Path,
        clock_library: Option<&PathBuf>,
        time: Stopwatch,
    ) -> anyhow::Result<Self> {
        let name = process_name(place);
        let (log, clock) =
            (folder.join(format!("{name}.log")), folder.join(format!("{name}.clock")));
        set_clock(&clock, 0)?;
        if let Some(library) = clock_library {
            variables.push(("LD_PRELOAD".to_owned(), library.display().to_string()));
            variables.push(("CLOCK_SHIFT".to_owned(), clock.display().to_string()));
        }
        let child = AsyncMutex::default();
        let seen = Arc::default();
        Ok(Self { place, binary, arguments, variables, log, clock, time, child, seen })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Where the process listens, and the number of its life; `None` while it does not.
    pub fn address(&self) -> Option<(String, usize)> {
        let seen = self.seen();
        Some((seen.url.clone()?, seen.lives.len().checked_sub(1)?))
    }

    /// Lives, silences, and events that must not happen.
    pub fn facts(&self) -> (Vec<Life>, Vec<Silence>, Vec<String>) {
        let seen = self.seen();
        (seen.lives.clone(), seen.silences.clone(), seen.mishaps.clone())
    }

    /// Lines of its log with an alarm.
    pub fn alarms(&self) -> usize {
        self.seen().alarms
    }

    /// Notes that the process could not hand in what it had promised in this time.
    pub fn note_silence(&self, from: i64, to: i64) {
        self.seen().silences.push(Silence { place: self.place, from, to });
    }

    /// Starts the process, and starts it again whenever it has ended, until it is killed.
    pub async fn start(&self) -> anyhow::Result<()> {
        let mut slot = self.child.lock().await;
        slot.is_wanted = true;
        if slot.kept.is_none() {
            self.spawn(&mut slot).await?;
        }
        Ok(())
    }

    async fn spawn(&self, slot: &mut Slot) -> anyhow::Result<()> {
        let mut kept = Kept::start(&self.binary, &self.arguments, &self.variables).await?;
        let stderr = kept.take_stderr().context("it is piped")?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let started = self.time.now();
        let number = {
            let mut seen = self.seen();
            let number = seen.lives.len();
            seen.lives.push(Life { place: self.place, number, started, ended: None });
            seen.url = None;
            number
        };
        slot.readers.spawn(read(stderr, log, self.seen.clone(), number));
        slot.kept = Some(kept);
        slot.paused = None;
        Ok(())
    }

    /// Waits until the process listens.
    pub async fn listens(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + LISTEN_WITHIN;
        while self.address().is_none() {
            if Instant::now() > deadline {
                anyhow::bail!(
                    "{} does not listen; see {}",
                    process_name(self.place),
                    self.log.display()
                );
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Starts the process again whenever it has ended. Never returns.
    pub async fn supervise(&self) {
        loop {
            sleep(LOOK_PERIOD).await;
            let mut slot = self.child.lock().await;
            let ended = slot.kept.as_mut().is_some_and(|kept| !matches!(kept.ended(), Ok(None)));
            if ended {
                self.has_ended(&mut slot);
            }
            if slot.is_wanted
                && slot.kept.is_none()
                && let Err(error) = self.spawn(&mut slot).await
            {
                self.seen().mishaps.push(format!("{}: {error:#}", process_name(self.place)));
            }
        }
    }

    fn has_ended(&self, slot: &mut Slot) {
        slot.kept = None;
        self.resumed(slot);
        let now = self.time.now();
        let mut seen = self.seen();
        seen.url = None;
        if let Some(life) = seen.lives.last_mut() {
            life.ended.get_or_insert(now);
        }
    }

    fn resumed(&self, slot: &mut Slot) {
        if let Some(from) = slot.paused.take() {
            self.note_silence(from, self.time.now());
        }
    }

    /// SIGKILL. The process stays down until [`start`](Self::start).
    pub async fn kill(&self) -> anyhow::Result<()> {
        let mut slot = self.child.lock().await;
        slot.is_wanted = false;
        if let Some(kept) = &mut slot.kept {
            kept.kill().await?;
            self.has_ended(&mut slot);
        }
        Ok(())
    }

    /// SIGTERM, the end, and another start.
    pub async fn replace(&self) -> anyhow::Result<()> {
        let mut slot = self.child.lock().await;
        if let Some(kept) = &mut slot.kept {
            kept.signal(Signal::SIGTERM);
            if kept.ends_within(STOP_WITHIN).await?.is_none() {
                let name = process_name(self.place);
                self.seen()
                    .mishaps
                    .push(format!("{name} did not end {STOP_WITHIN:?} after SIGTERM"));
                kept.kill().await?;
            }
            self.has_ended(&mut slot);
        }
        self.spawn(&mut slot).await
    }

    /// SIGSTOP.
    pub async fn pause(&self) {
        let mut slot = self.child.lock().await;
        if let Some(kept) = &slot.kept {
            kept.signal(Signal::SIGSTOP);
            slot.paused.get_or_insert(self.time.now());
        }
    }

    /// SIGCONT.
    pub async fn resume(&self) {
        let mut slot = self.child.lock().await;
        if let Some(kept) = &slot.kept {
            kept.signal(Signal::SIGCONT);
        }
        self.resumed(&mut slot);
    }

    /// Sets the clock of the process so many seconds off the machine's.
    pub fn set_clock(&self, seconds: i64) -> anyhow::Result<()> {
        set_clock(&self.clock, seconds)
    }

    /// The last lines of its log.
    pub fn last_lines(&self, lines: usize) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("no holder of this lock panics")
}

/// Copies the log of one life, and looks for the lines that matter.
async fn read(stderr: ChildStderr, mut log: File, seen: Arc<Mutex<Seen>>, number: usize) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A full disk below the logs is told by the run itself.
        let _ = writeln!(log, "{line}");
        let said = LISTENS.iter().find_map(|listens| line.split_once(listens));
        let mut seen = lock(&seen);
        if let Some((_, url)) = said
            && seen.lives.len() == number + 1
        {
            seen.url = Some(url.trim().to_owned());
        }
        if line.contains("panicked at") {
            seen.mishaps.push(format!("a process panicked: {line}"));
        }
        seen.alarms += usize::from(line.contains("ALARM"));
    }
}
