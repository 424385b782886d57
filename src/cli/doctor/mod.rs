//! `flash-sale doctor`: the configuration, the servers, and their risks. Reads only.
//!
//! # Levels
//!
//! * `FAIL`: `serve` would refuse to start; or no claim can be accepted or written; or an everyday event loses
//!   confirmed sales without a trace. In Redis this event is a restart or a kill of the server alone: without an
//!   append-only file, the claims of minutes are gone, or all of them. In Postgres it is any loss at all, because an
//!   acknowledged entry of the order log exists nowhere else. Giving away the coupons on sale is a failure, too.
//! * `warn`: a power cut, or a kill at the wrong moment, loses the last confirmed claims; or a setting will cause
//!   trouble some day; or the check was not possible; or no order can be paid, or no refund is requested.
//! * `ok`: in order, or a choice without a price.
//!
//! # Not checked
//!
//! * Redis's `timeout` and `maxclients`: a connection that was closed or refused is opened again, and a client can
//!   repeat each request. `aof-load-truncated`: with `appendfsync always`, the part that it cuts off was never
//!   confirmed.
//! * Whether the addresses to listen on are free: a running service holds them.
//! * The servers' disks and the machine's memory.

mod postgres;
mod redis;

use std::path::Path;

use chrono::TimeDelta;
use clap::Args;
use private_servers::{PrivateServers, Sight};
use secrecy::ExposeSecret;
use sqlx::PgPool;

use super::Unwell;
use super::finding::{self, Finding};
use super::stores::{NO_TOKEN_SECRET, WAYS_OUT, connect, urls};
use crate::base::clock::{Clock, apart};
use crate::base::config::{Config, Role, StoreConfig};
use crate::base::durability::Level;
use crate::base::limits;
use crate::cli::terminal::say;
use crate::demo::board::presence::{self, Word};
use crate::kit::jwt::public_keys::{self, Pace, PublicKeys};
use crate::payment::gateway::Checkout;
use crate::recovery::apart::{self, Standing};
use crate::store::fleet::Fleet;
use crate::store::keys::Keys;
use crate::store::{self, Failure, Stores, installation};

#[derive(Args)]
pub struct DoctorArguments {
    #[command(flatten)]
    pub config: Config,

    /// Replicas that Redis must have
    #[arg(long, value_name = "N", default_value_t = 0)]
    redis_replicas_min: u32,

    /// Count warnings as failures
    #[arg(long)]
    strict: bool,
}

#[derive(Default)]
struct Report {
    warnings: usize,
    failures: usize,
}

/// Prints a line for each check; fails if a finding must be put right.
pub async fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let config = &arguments.config;
    config.validate()?;
    let mut report = Report::default();
    report.print(configured(config));
    report.print(public_keys(config).await);
    let mut running = None;
    let found = match urls(&config.stores)? {
        Some((redis, database)) => {
            Some((redis.expose_secret().to_owned(), database.expose_secret().to_owned()))
        }
        None => private_servers(&config.stores.data_dir, &mut report).await,
    };
    if let Some((redis_url, database_url)) = found {
        let (fleet, pool) = connect(&redis_url, &database_url, &config.stores)?;
        let keys = Keys::new(&config.stores.key_prefix);
        let fleet = spread(fleet, &pool, &keys).await;
        let words = presence::words(fleet.first(), &keys).await.unwrap_or_default();
        let words: Vec<Word> = words.into_iter().filter_map(|(.., word)| word).collect();
        running = Some(words).filter(|words| !words.is_empty());
        let level = level(config, running.as_deref());
        let replicas = arguments.redis_replicas_min;
        for redis in fleet.each() {
            report.print(redis::examine(redis, &keys, replicas, level).await);
        }
        report.print(postgres::examine(&pool, &config.stores).await);
        // A Postgres that is away is one finding, and waited for once more.
        let postgres = store::postgres::time(&pool).await.is_ok().then_some(&pool);
        if let Some(pool) = postgres {
            report.print(together(&fleet, pool, &config.stores).await.into_iter().collect());
        }
        report.print(clocks(&fleet, postgres).await);
        store::postgres::close(&pool).await;
    }
    report.print(processes(config, running.as_deref()));
    report.end(arguments.strict)
}

impl Report {
    fn print(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            say!("{finding}");
            self.warnings += usize::from(matches!(finding, Finding::Warning(_)));
            self.failures += usize::from(matches!(finding, Finding::Failure(_)));
        }
    }

    fn end(self, strict: bool) -> anyhow::Result<()> {
        let Self { warnings, failures } = self;
        say!("{}, {}", counted(warnings, "warning"), counted(failures, "failure"));
        match failures + if strict { warnings } else { 0 } {
            0 => Ok(()),
            count => Err(Unwell(count).into()),
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn configured(config: &Config) -> Vec<Finding> {
    let roles: Vec<_> = config.roles.iter().map(|role| format!("{role:?}")).collect();
    let settings = Finding::Good(format!(
        "Configuration: roles {}; the API on {}; operations on {}; keys begin with {}; at most {} connections to Postgres",
        roles.join(" and "),
        config.listen,
        config.admin_listen.unwrap_or(config.listen),
        config.stores.key_prefix,
        config.stores.database_connections,
    ));
    vec![settings, token_secret(config)]
}

/// What only running processes know of their settings. If none runs, this command's own settings are judged instead.
fn processes(config: &Config, running: Option<&[Word]>) -> Vec<Finding> {
    let Some(running) = running else {
        return vec![match config.has_role(Role::Api) {
            true => finding::payments(Checkout::of(config)),
            false => Finding::Good("Payments: taken by none without the role api".into()),
        }];
    };
    let names: Vec<_> =
        running.iter().map(|word| format!("{} ({})", word.name, word.roles.join(", "))).collect();
    let mut found = vec![Finding::Good(format!("Running: {}", names.join(", ")))];
    for (role, cost) in [
        ("api", "claims are answered by none"),
        ("worker", "accepted claims wait in Redis, and become no orders"),
    ] {
        if !running.iter().any(|word| word.roles.iter().any(|has| has == role)) {
            found.push(Finding::Warning(format!(
                "Running: no process has the role {role}: {cost}; start one with --roles {role}"
            )));
        }
    }
    let checkouts: Vec<_> = running.iter().filter_map(|word| word.checkout).collect();
    let different =
        checkouts.iter().enumerate().filter(|(at, one)| !checkouts[..*at].contains(one));
    found.extend(different.map(|(_, checkout)| finding::payments(*checkout)));
    found
}

/// The level that needs the most replicas, among the running processes; without any, the level of this command.
fn level(config: &Config, running: Option<&[Word]>) -> Option<Level> {
    let Some(running) = running else { return config.durability };
    let levels = running.iter().filter_map(|word| word.durability.as_ref()?.parse().ok());
    levels.max_by_key(|level: &Level| level.replicas())
}

/// Whether `serve` would have a secret. The secret itself is not looked at, and none is made.
fn token_secret(config: &Config) -> Finding {
    let stores = &config.stores;
    if stores.token_secret.is_some() {
        return Finding::Good("Token secret: given, and long enough".into());
    }
    if !config.has_role(Role::Api) {
        return Finding::Good("Token secret: none, and without the role api none is needed".into());
    }
    match stores.private_servers() {
        Ok(true) => Finding::Good(format!(
            "Token secret: the one kept in {}, made when it is first needed",
            stores.data_dir.display()
        )),
        _ => Finding::Failure(format!("Token secret: {NO_TOKEN_SECRET}")),
    }
}

/// Public keys of tokens, in a file and under a URL.
async fn public_keys(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if !config.has_role(Role::Api) {
        return found;
    }
    if let Some(file) = &config.token_keys {
        let keys = PublicKeys::in_file(file.clone());
        found.push(match (keys.refresh().await, keys.keys()) {
            (Ok(()), Some(keys)) => {
                Finding::Good(format!("Token keys in {}: {keys}", file.display()))
            }
            (checked, _) => Finding::Failure(format!(
                "Token keys: --token-keys: {}",
                checked.err().unwrap_or_default()
            )),
        });
    }
    if let Some(url) = &config.token_jwks_url {
        let keys = PublicKeys::under(url.clone(), Pace::default(), limits::KEY_SET_TIMEOUT);
        let checked = keys.refresh().await;
        found.push(match (checked, keys.keys()) {
            (Ok(()), Some(keys)) => Finding::Good(format!("Token keys under {url}: {keys}")),
            (checked, _) => Finding::Failure(format!(
                "Token keys under {url}: {}; tokens of their issuer would be answered 503",
                checked.err().unwrap_or_default(),
            )),
        });
        if public_keys::is_unprotected(url) {
            found.push(Finding::Warning(format!(
                "Token keys under {url}: {}",
                public_keys::UNPROTECTED
            )));
        }
    }
    found
}

/// URLs of the private servers of a running service. Without a running service, reports what `serve` would start.
async fn private_servers(dir: &Path, report: &mut Report) -> Option<(String, String)> {
    let about = |text: String| format!("Private servers in {}: {text}", dir.display());
    let found = match PrivateServers::sight(dir).await {
        Ok(Sight::Running { redis_url, database_url }) => {
            report.print(vec![Finding::Good(about("in use by a live process".into()))]);
            return Some((redis_url, database_url));
        }
        Ok(Sight::Starting) => Finding::Warning(about(
            "just being started, so they can't be looked at yet. Call again".into(),
        )),
        Ok(Sight::Stopped { redis, postgres }) => Finding::Good(about(format!(
            "no service runs, so there are none to look at; `flash-sale serve` would start them ({redis} and {postgres} are installed)"
        ))),
        Err(error) => Finding::Failure(about(format!("{error}. {WAYS_OUT}"))),
    };
    report.print(vec![found]);
    None
}

/// The fleet with the master of each lane, if Redis is a cluster and Postgres answers; otherwise the same fleet.
async fn spread(fleet: Fleet, pool: &PgPool, keys: &Keys) -> Fleet {
    let stores = Stores { pool: pool.clone(), fleet: fleet.clone(), keys: keys.clone() };
    installation::spread(stores).await.map_or(fleet, |stores| stores.fleet)
}

/// Whether the stores belong together; `None` if a store doesn't answer, which is a finding of its own.
async fn together(fleet: &Fleet, pool: &PgPool, config: &StoreConfig) -> Option<Finding> {
    let keys = Keys::new(&config.key_prefix);
    let stores = Stores { pool: pool.clone(), fleet: fleet.clone(), keys };
    if let Some(why) = installation::apart(pool).await.ok()? {
        return Some(Finding::Failure(format!("Stores: {}", Failure::Apart(why))));
    }
    Some(match apart::check(&stores).await.ok()? {
        Standing::Together => Finding::Good("Stores: Redis and Postgres belong together".into()),
        Standing::OtherLife(lane) => Finding::Warning(format!(
            "Stores: Postgres has another run than the one that lane {lane} was opened for: it was restored, or has failed over. A running service closes the lanes for a moment and compares them; start one"
        )),
        Standing::OtherInstallation(lane) => {
            Finding::Failure(format!("Stores: {}", Failure::OtherInstallation(lane)))
        }
        Standing::Behind(why) => Finding::Failure(format!("Stores: {}", Failure::Apart(why))),
    })
}

/// Compares the servers' clocks with this machine's; a server that doesn't answer is left out.
async fn clocks(fleet: &Fleet, postgres: Option<&PgPool>) -> Vec<Finding> {
    let clock = Clock::System;
    let mut found = Vec::new();
    for (server, redis) in fleet.each().enumerate() {
        let before = clock.now();
        if let Ok(time) = redis.time().await {
            let apart = apart(before, time, clock.now());
            found.push(clock_of(&fleet.named(server, "Redis"), apart));
        }
    }
    let before = clock.now();
    if let Some(pool) = postgres
        && let Ok(time) = store::postgres::time(pool).await
    {
        found.push(clock_of("Postgres", apart(before, time, clock.now())));
    }
    found
}

fn clock_of(server: &str, apart: TimeDelta) -> Finding {
    let apart_ms = apart.num_milliseconds();
    if apart.abs().to_std().is_ok_and(|apart| apart <= limits::CLOCKS_APART_MAX) {
        return Finding::Good(format!("Clock of {server}: agrees with this machine's"));
    }
    let (ahead, apart_ms) =
        (if apart_ms > 0 { "ahead of" } else { "behind" }, apart_ms.unsigned_abs());
    Finding::Warning(format!(
        "Clock of {server}: {apart_ms} ms {ahead} this machine's. Sales open and close by Redis's clock, tokens and order ids go by this machine's, rows by that of Postgres: people see sales open early or late, and times that don't fit. Let all of them follow NTP"
    ))
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn a_slow_answer_is_no_difference_between_clocks() {
        assert_eq!(apart(at(10), at(15), at(20)), TimeDelta::zero());
        assert_eq!(apart(at(10), at(23), at(20)), TimeDelta::seconds(3));
        assert_eq!(apart(at(10), at(4), at(20)), TimeDelta::seconds(-6));
    }

    #[test]
    fn clocks_that_are_apart_are_named() {
        let of = |seconds| clock_of("Redis", TimeDelta::seconds(seconds));
        assert!(matches!(of(2), Finding::Good(_)));
        assert!(matches!(of(3), Finding::Warning(text) if text.contains("3000 ms ahead of")));
        assert!(matches!(of(-3), Finding::Warning(text) if text.contains("3000 ms behind")));
    }
}
