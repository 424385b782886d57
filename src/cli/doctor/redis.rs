//! Findings about Redis.

use crate::base::durability::Level;
use crate::cli::finding::Finding::{self, Failure, Good, Warning};
use crate::cli::finding::{KEEPS_ACCEPTING, persistence, without_spare};
use crate::cli::remedies::with_remedy;
use crate::store::keys::Keys;
use crate::store::redis::Redis;
use crate::store::redis::facts::ServerFacts;
use crate::store::rights;

/// Asks the server about itself and judges the answers.
pub async fn examine(
    redis: &Redis,
    keys: &Keys,
    replicas_min: u32,
    level: Option<Level>,
) -> Vec<Finding> {
    let place = redis.address();
    let facts = match redis.facts().await {
        Ok(facts) => facts,
        Err(error) => {
            let setting = if redis.has_sentinels() { "--redis-sentinels" } else { "--redis-url" };
            return vec![Failure(format!(
                "Redis at {place} can't be used ({}): no claim can be taken. Start it, or correct {setting}",
                with_remedy(&error.to_string()),
            ))];
        }
    };
    let mut found = vec![Good(format!("Redis at {place}: {}", facts.program))];
    found.extend(judge(&facts, replicas_min, level));
    found.extend(without_spare(level, &facts));
    found.extend(redis.has_sentinels().then(|| match facts.needs_replicas() {
        true => Good(
            "Redis min-replicas-to-write is set: a master that the sentinels replace while it is paused or cut off soon accepts nothing more".into(),
        ),
        false => Failure(format!("{KEEPS_ACCEPTING}; `serve` refuses this master")),
    }));
    if redis.is_in_cluster() {
        found.extend(of_cluster(&facts));
    }
    match rights::missing(redis, keys).await {
        Ok(missing) if missing.is_empty() => found.push(Good(
            "Redis rights: each command, kind of key and channel is allowed".into(),
        )),
        Ok(missing) => found.extend(missing.into_iter().map(|what| {
            Failure(format!(
                "Redis rights: {what}. `serve` refuses to start; docs/guarantees.md has the rights that are needed"
            ))
        })),
        Err(error) => found.push(Warning(format!("Redis rights can't be tried ({error})"))),
    }
    found
}

/// Settings by which one master that is lost stops more than its own lanes.
fn of_cluster(facts: &ServerFacts) -> Vec<Finding> {
    let Some(settings) = &facts.settings else { return Vec::new() };
    let mut found = Vec::new();
    if settings.needs_full_coverage {
        found.push(Failure(
            "Redis cluster-require-full-coverage is yes: while one master is away, all others refuse claims as well. Set it to no, on each node".into(),
        ));
    }
    let least = settings.min_replicas_to_write;
    if least > 0 && facts.replicas <= least {
        found.push(Warning(format!(
            "Redis min-replicas-to-write is {least}, and {} replicas are connected: after a fail-over the new master has too few, and refuses claims until another one follows it. Give each master one replica more",
            facts.replicas
        )));
    }
    found
}

fn judge(facts: &ServerFacts, replicas_min: u32, level: Option<Level>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(facts.unfit().map(|why| Failure(format!("{why}. `serve` refuses it"))));
    found
        .extend(facts.refuses_writes().map(|why| Failure(format!("{why}. No claim can be taken"))));
    let persistence = persistence(facts, level);
    let is_durable = matches!(persistence, Good(_));
    found.push(memory(facts, is_durable));
    found.push(persistence);
    if facts.failed_writes.contains(&"aof_last_bgrewrite_status") {
        found.push(Failure(
            "Redis can't rewrite its append-only file, which grows until the disk is full; then no claim can be taken. Redis's log says why".into(),
        ));
    }
    if facts.replicas < replicas_min {
        found.push(Failure(format!(
            "Redis replicas: {} connected, --redis-replicas-min asks for {replicas_min}: when this machine is lost, so is every claim that isn't in Postgres. Start the missing ones, or see why they don't follow",
            facts.replicas
        )));
    }
    match &facts.settings {
        Some(settings) if facts.appendonly && settings.no_appendfsync_on_rewrite => {
            found.push(Warning(format!(
                "Redis no-appendfsync-on-rewrite is yes: whenever Redis rewrites its append-only file or takes a snapshot, appendfsync {} is as good as no, and a power cut then can lose confirmed claims. Set it to no",
                settings.appendfsync
            )));
        }
        Some(_) => {}
        None => found.push(Warning(
            "Redis CONFIG is forbidden: appendfsync, no-appendfsync-on-rewrite and min-replicas-to-write are unknown. Ask its operator".into(),
        )),
    }
    found
}

fn memory(facts: &ServerFacts, is_durable: bool) -> Finding {
    if facts.maxmemory_bytes > 0 {
        return Good(format!(
            "Redis memory: at most {} MiB; when it is full, claims get 503, and the worker still empties the order log",
            facts.maxmemory_bytes >> 20
        ));
    }
    let unbounded = "Redis memory: no bound (maxmemory 0); should the machine's memory run out, the kernel kills a process, perhaps Redis";
    match is_durable {
        true => Good(format!("{unbounded}; nothing that was confirmed is lost by that")),
        false => Warning(format!(
            "{unbounded}, and confirmed claims that aren't on disk by then can be lost. Set maxmemory below the machine's memory"
        )),
    }
}
