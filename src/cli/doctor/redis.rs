//! Findings about Redis.

use super::Finding::{self, Failure, Good, Warning};
use crate::base::durability::Level;
use crate::base::limits;
use crate::cli::persistence::{KEEPS_ACCEPTING, Persistence, without_spare};
use crate::cli::remedies::with_remedy;
use crate::kit::redis::Redis;
use crate::kit::redis_facts::{ServerFacts, ServerSettings};
use crate::sale::keys::Keys;
use crate::sale::rights;

/// Asks the server about itself and judges the answers.
pub async fn examine(
    redis: &Redis,
    keys: &Keys,
    replicas_min: u32,
    level: Option<Level>,
) -> Vec<Finding> {
    let place = redis.address();
    match redis.facts().await {
        Ok(facts) => {
            let mut found = vec![Good(format!("Redis at {place}: {}", facts.program))];
            found.extend(judge(&facts, replicas_min));
            let spare = without_spare(level, &facts);
            found.extend(spare.map(|words| Warning(format!("Redis replicas: {words}"))));
            found.extend(redis.has_sentinels().then(|| when_replaced(&facts)));
            found.extend(rights(redis, keys).await);
            found
        }
        Err(error) => vec![Failure(format!(
            "Redis at {place} can't be used ({}): no claim can be taken. Start it, or correct {}",
            with_remedy(&error.to_string()),
            if redis.has_sentinels() {
                "--redis-sentinels and --redis-master"
            } else {
                "--redis-url"
            }
        ))],
    }
}

/// Whether the user has the rights that the service needs.
async fn rights(redis: &Redis, keys: &Keys) -> Vec<Finding> {
    match rights::missing(redis, keys).await {
        Ok(missing) if missing.is_empty() => {
            vec![Good("Redis rights: each command, kind of key and channel is allowed".into())]
        }
        Ok(missing) => missing
            .into_iter()
            .map(|what| {
                Failure(format!(
                    "Redis rights: {what}. `serve` refuses to start; docs/durability.md has the rights that are needed"
                ))
            })
            .collect(),
        Err(error) => vec![Warning(format!("Redis rights can't be tried ({error})"))],
    }
}

fn judge(facts: &ServerFacts, replicas_min: u32) -> Vec<Finding> {
    let persistence = Persistence::of(facts);
    let mut found = fitness(facts);
    found.push(memory(facts, persistence));
    found.push(match persistence {
        _ if persistence.survives_a_kill() => Good(format!("Redis persistence: {persistence}")),
        _ if persistence.is_hopeless() => Failure(format!("Redis persistence: {persistence}")),
        _ => Warning(format!("Redis persistence: {persistence}")),
    });
    found.extend(facts.failed_writes.iter().map(|field| failed_write(field)));
    if facts.is_full {
        found.push(Failure(
            "Redis is full: no claim can be taken, and /readyz says no. Raise maxmemory; the worker still empties the order log".into(),
        ));
    }
    found.extend(replicas(facts, replicas_min));
    match &facts.settings {
        Some(settings) => found.extend(questionable(settings, facts)),
        None => found.push(Warning(
            "Redis CONFIG is forbidden: appendfsync, no-appendfsync-on-rewrite and min-replicas-to-write are unknown. Ask its operator".into(),
        )),
    }
    found
}

/// Whether the service can work with this server.
fn fitness(facts: &ServerFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let (major, minor) = limits::REDIS_VERSION_MIN;
    if facts.version < limits::REDIS_VERSION_MIN {
        found.push(Failure(format!(
            "Redis version: {} is too old, and `serve` refuses it: the scripts need {major}.{minor} or newer. Install a newer one, or Valkey",
            facts.program
        )));
    }
    if facts.is_replica {
        found.push(Failure(
            "Redis is a replica: it takes no writes, so no claim can be taken. Let --redis-url name its primary".into(),
        ));
    }
    if facts.is_cluster {
        found.push(Failure(
            "Redis is a node of a cluster: the service speaks to one server, and claims fail for every coupon whose slot another node has. Use a Redis that stands alone".into(),
        ));
    }
    found
}

fn memory(facts: &ServerFacts, persistence: Persistence) -> Finding {
    let policy = &facts.maxmemory_policy;
    if policy != "noeviction" {
        return Failure(format!(
            "Redis maxmemory-policy is {policy}, and `serve` refuses it: it would drop sales and orders when memory gets short. Set it to noeviction"
        ));
    }
    if facts.maxmemory_bytes > 0 {
        return Good(format!(
            "Redis memory: at most {} MiB, noeviction; when it is full, claims get 503, and the worker still empties the order log",
            facts.maxmemory_bytes >> 20
        ));
    }
    let unbounded = "Redis memory: no bound (maxmemory 0); should the machine's memory run out, the kernel kills a process, perhaps Redis";
    if persistence.survives_a_kill() {
        return Good(format!("{unbounded}; nothing that was confirmed is lost by that"));
    }
    Warning(format!(
        "{unbounded}, and confirmed claims that aren't on disk by then can be lost. Set maxmemory below the machine's memory: a full Redis answers 503 to claims, loses none, and the worker still empties the order log"
    ))
}

fn failed_write(field: &str) -> Finding {
    let cost = match field {
        "aof_last_write_status" => {
            "the append-only file can't be written, and Redis refuses claims until it can"
        }
        "aof_last_bgrewrite_status" => {
            "the append-only file can't be rewritten, and grows until the disk is full; then no claim can be taken"
        }
        _ => {
            "the last snapshot failed; as long as Redis is told to take snapshots, it refuses claims until one succeeds"
        }
    };
    Failure(format!(
        "Redis {field} is err: {cost}. Redis's log says why: make room on its disk, or let it write there"
    ))
}

fn replicas(facts: &ServerFacts, replicas_min: u32) -> Option<Finding> {
    let connected = facts.replicas;
    if connected < replicas_min {
        return Some(Failure(format!(
            "Redis replicas: {connected} connected, --redis-replicas-min asks for {replicas_min}: when this machine is lost, so is every claim that isn't in Postgres. Start the missing ones, or see why they don't follow"
        )));
    }
    (connected > 0).then(|| {
        Good(format!(
            "Redis replicas: {connected} connected; a fail-over to one loses what it hadn't got yet, because no claim waits for them"
        ))
    })
}

/// End of a master that sentinels replace.
fn when_replaced(facts: &ServerFacts) -> Finding {
    if facts.needs_replicas() {
        return Good(
            "Redis min-replicas-to-write is set: a master that the sentinels replace while it is paused or cut off soon accepts nothing more".into(),
        );
    }
    Failure(format!("Redis {KEEPS_ACCEPTING}; `serve` refuses this master"))
}

/// Settings that break the promise of other settings.
fn questionable(settings: &ServerSettings, facts: &ServerFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.appendonly && settings.no_appendfsync_on_rewrite && settings.appendfsync != "no" {
        found.push(Warning(format!(
            "Redis no-appendfsync-on-rewrite is yes: whenever Redis rewrites its append-only file or takes a snapshot, appendfsync {} is as good as no, and a power cut then can lose confirmed claims. Set it to no",
            settings.appendfsync
        )));
    }
    let good = facts.good_replicas;
    let needed = settings.min_replicas_to_write;
    if let Some(good) = good.filter(|good| *good < needed) {
        found.push(Failure(format!(
            "Redis min-replicas-to-write is {needed}, and {good} are near enough: Redis refuses every claim (NOREPLICAS). Bring replicas back, or lower it"
        )));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::not_good;
    use super::*;
    use crate::kit::redis_facts::Replay;

    fn facts() -> ServerFacts {
        ServerFacts {
            program: "Redis 7.0.15".into(),
            version: (7, 0),
            is_replica: false,
            is_cluster: false,
            replicas: 1,
            good_replicas: None,
            maxmemory_bytes: 1 << 30,
            maxmemory_policy: "noeviction".into(),
            appendonly: true,
            is_rewriting: false,
            aof_bytes: 0,
            is_full: false,
            time: None,
            failed_writes: Vec::new(),
            replay: Replay::Whole,
            settings: Some(ServerSettings {
                appendfsync: "always".into(),
                save: String::new(),
                no_appendfsync_on_rewrite: false,
                min_replicas_to_write: 0,
                stop_writes_on_bgsave_error: true,
            }),
        }
    }

    fn bad(facts: &ServerFacts) -> Option<Finding> {
        not_good(judge(facts, 1))
    }

    #[test]
    fn what_no_test_server_can_show_is_judged() {
        assert_eq!(bad(&facts()), None);
        for (facts, names) in [
            (ServerFacts { version: (6, 2), ..facts() }, "Redis version"),
            (ServerFacts { is_cluster: true, ..facts() }, "cluster"),
            (
                ServerFacts { failed_writes: vec!["aof_last_write_status"], ..facts() },
                "append-only file can't be written",
            ),
            (
                ServerFacts { failed_writes: vec!["aof_last_bgrewrite_status"], ..facts() },
                "can't be rewritten",
            ),
            (
                ServerFacts { failed_writes: vec!["rdb_last_bgsave_status"], ..facts() },
                "snapshot failed",
            ),
        ] {
            let found = bad(&facts);
            assert!(matches!(&found, Some(Failure(text)) if text.contains(names)), "{found:?}");
        }
    }
}
