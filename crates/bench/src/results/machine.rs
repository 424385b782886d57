//! The machine and the stores of a measurement, without which no figure can be repeated.

use std::fs;
use std::process::Command;

use flash_sale::base::clock::Clock;
use serde::Serialize;

use crate::service::target::Target;

/// Facts for the head of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub measured_at: String,
    /// Commit of the working copy in the current folder, if it is one; `-dirty` when it has been changed.
    pub commit: Option<String>,
    pub processor: String,
    pub cores: usize,
    /// Processes that wanted a core in the minute before the run, on average: other work.
    pub load_before: Option<f64>,
    pub redis_version: String,
    pub postgres_version: String,
}

impl Machine {
    /// Asks the system, git, and the stores of the target.
    pub async fn look(target: &Target) -> anyhow::Result<Self> {
        let judge = target.judge()?;
        let (major, minor) = judge.redis.facts().await?.version;
        Ok(Self {
            measured_at: Clock::System.now().format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            commit: commit(),
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            load_before: load(),
            redis_version: format!("{major}.{minor}"),
            postgres_version: sqlx::query_scalar("SHOW server_version")
                .fetch_one(&judge.pool)
                .await?,
        })
    }

    /// Name and value, as they are printed.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("measured at", self.measured_at.clone()),
            ("commit", self.commit.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("processor", format!("{}, {} cores", self.processor, self.cores)),
        ];
        facts.extend(self.load_before.map(|load| ("load before", format!("{load:.1}"))));
        facts.push(("Redis", format!("{}, appendfsync always", self.redis_version)));
        facts.push(("Postgres", format!("{}, fsync on", self.postgres_version)));
        facts
    }
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_dirty = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if is_dirty.is_empty() { commit } else { format!("{commit}-dirty") })
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let named = line.and_then(|line| line.split_once(':'));
    named.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
