//! The machine and the stores of a measurement, without which no figure can be repeated.

use std::fs;
use std::process::Command;

use serde::Serialize;

use crate::figures::Spread;
use crate::measure::slice::Slice;
use crate::service::target::Target;
use flash_sale::base::clock::Clock;

/// Facts for the head of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub measured_at: String,
    pub version: String,
    /// Commit of the working copy in the current folder, if it is one; `-dirty` when it has been changed.
    pub commit: Option<String>,
    pub system: String,
    pub processor: String,
    pub cores: usize,
    pub memory_mib: Option<u64>,
    /// Processes that wanted a core in the minute before the run, on average: other work, unless the service was
    /// just started.
    pub load_before: Option<f64>,
    /// Part of the cores' time that the hypervisor gave to other machines, slice by slice.
    pub stolen_share: Option<Spread>,
    pub stores: Option<StoreFacts>,
}

/// Versions of the stores, and their settings that keep data.
#[derive(Clone, Debug, Serialize)]
pub struct StoreFacts {
    pub redis_version: String,
    pub redis_appendfsync: String,
    pub postgres_version: String,
    pub postgres_fsync: String,
    pub postgres_synchronous_commit: String,
}

impl Machine {
    /// Asks the system, git, and the stores of the target.
    pub async fn look(target: &Target) -> anyhow::Result<Self> {
        let stores = match &target.judge {
            Some(judge) => {
                let redis = judge.redis.facts().await?;
                // `off` and `unknown` are what Redis itself would never say.
                let appendfsync = match redis.settings {
                    Some(settings) if redis.appendonly => settings.appendfsync,
                    Some(_) => "off".to_owned(),
                    None => "unknown".to_owned(),
                };
                Some(StoreFacts {
                    redis_version: format_version(redis.version),
                    redis_appendfsync: appendfsync,
                    postgres_version: show(&judge.pool, "SHOW server_version").await?,
                    postgres_fsync: show(&judge.pool, "SHOW fsync").await?,
                    postgres_synchronous_commit: show(&judge.pool, "SHOW synchronous_commit")
                        .await?,
                })
            }
            None => None,
        };
        Ok(Self {
            measured_at: Clock::System.now().format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            system: system(),
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory_mib(),
            load_before: load(),
            stolen_share: None,
            stores,
        })
    }

    /// The same machine, after these slices.
    pub fn after<'a>(self, slices: impl IntoIterator<Item = &'a Slice>) -> Self {
        let stolen = slices.into_iter().filter_map(|slice| slice.stolen_share);
        Self { stolen_share: Spread::of(stolen), ..self }
    }

    /// Name and value, as they are printed.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("measured at", self.measured_at.clone()),
            ("version", self.version.clone()),
            ("commit", self.commit.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("processor", format!("{}, {} cores", self.processor, self.cores)),
            ("system", self.system.clone()),
        ];
        facts.extend(self.memory_mib.map(|mib| ("memory", format!("{mib} MiB"))));
        facts.extend(self.load_before.map(|load| ("load before", format!("{load:.1}"))));
        facts.extend(self.stolen_share.map(|Spread { min, median, max, .. }| {
            let [min, median, max] = [min, median, max].map(|share| share * 100.0);
            let shares = format!("{median:.0} % ({min:.0} to {max:.0}) of the cores' time");
            ("stolen", format!("{shares}, by the hypervisor for other machines"))
        }));
        match &self.stores {
            Some(stores) => {
                let StoreFacts { redis_version, redis_appendfsync, .. } = stores;
                let redis = format!("{redis_version}, appendfsync {redis_appendfsync}");
                facts.push(("Redis", redis));
                let postgres = format!(
                    "{}, fsync {}, synchronous_commit {}",
                    stores.postgres_version,
                    stores.postgres_fsync,
                    stores.postgres_synchronous_commit
                );
                facts.push(("Postgres", postgres));
            }
            None => facts.push(("stores", "unknown: their URLs were not given".to_owned())),
        }
        facts
    }
}

fn format_version((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

async fn show(pool: &sqlx::PgPool, question: &'static str) -> sqlx::Result<String> {
    sqlx::query_scalar(question).fetch_one(pool).await
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

fn system() -> String {
    let Ok(name) = nix::sys::utsname::uname() else { return std::env::consts::OS.to_owned() };
    let part = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
    format!("{} {} {}", part(name.sysname()), part(name.release()), part(name.machine()))
}

fn processor() -> String {
    let named = value_in("/proc/cpuinfo", "model name");
    named.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory_mib() -> Option<u64> {
    let total = value_in("/proc/meminfo", "MemTotal")?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// `name : value`
fn value_in(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
