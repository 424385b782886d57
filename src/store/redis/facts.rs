//! Facts about a Redis server: from INFO, and from CONFIG where that is allowed.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use redis::{ErrorKind, FromRedisValue, InfoDict, Pipeline, RedisResult, Value, from_redis_value};

use super::{Link, Redis};
use crate::base::limits;

#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// `Redis` or `Valkey`, with its own version.
    pub program: String,
    /// Major and minor version of Redis, or of the Redis that the server is compatible with.
    pub version: (u32, u32),
    /// Whether the server is a replica, and so takes no writes.
    pub is_replica: bool,
    /// Whether the server is a node of a Redis Cluster although none is configured.
    pub is_cluster: bool,
    /// Connected replicas that have finished loading; they may lag behind.
    pub replicas: u32,
    /// Replicas that count for `min-replicas-to-write`; `None` if that isn't set.
    pub good_replicas: Option<u32>,
    /// `maxmemory`; 0 for no bound.
    pub maxmemory_bytes: u64,
    pub maxmemory_policy: String,
    pub appendonly: bool,
    /// Whether the append-only file is being rewritten. While it is written for the first time, it has no data yet.
    pub is_rewriting: bool,
    /// Size of the append-only file.
    pub aof_bytes: u64,
    /// Whether `maxmemory` is exceeded, so that Redis refuses every command that may need memory.
    pub is_full: bool,
    /// The server's clock.
    pub time: Option<DateTime<Utc>>,
    /// Fields of INFO that report a failed write to disk.
    pub failed_writes: Vec<&'static str>,
    /// Settings that INFO lacks; `None` if CONFIG is forbidden.
    pub settings: Option<ServerSettings>,
    /// How much of the append-only file the server would replay at its next start.
    pub replay: Replay,
}

/// How much of its append-only file a server replays. The writes of a script stand there between MULTI and EXEC. Redis
/// 7.0 runs EXEC with the rights of the user `default`, and silently drops what that user may not do
/// (<https://github.com/redis/redis/issues/14541>). Whether that user is `on` doesn't matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    Whole,
    /// The user `default` lacks rights, so writes of scripts are dropped.
    WithoutScripts,
    /// ACL GETUSER is forbidden.
    Unknown,
}

/// Settings from CONFIG GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    pub appendfsync: String,
    /// `save`: when snapshots are made; empty for never.
    pub save: String,
    pub no_appendfsync_on_rewrite: bool,
    /// `min-replicas-to-write`; 0 for none.
    pub min_replicas_to_write: u32,
    pub stop_writes_on_bgsave_error: bool,
    /// `cluster-require-full-coverage`.
    pub needs_full_coverage: bool,
}

/// Fields of INFO that say whether the last write of their kind failed.
const WRITES: [&str; 3] =
    ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"];

impl Redis {
    /// Facts about the server.
    ///
    /// # Errors
    ///
    /// When Redis can't be reached or doesn't answer INFO.
    pub async fn facts(&self) -> RedisResult<ServerFacts> {
        let mut connection = self.connection_to_any().await?;
        let mut questions = questions();
        let facts = understood(questions.ignore_errors().query_async(&mut connection).await?)?;
        Ok(facts.expected(self.is_in_cluster()))
    }

    /// The server's clock.
    ///
    /// # Errors
    ///
    /// When Redis can't be reached.
    pub async fn time(&self) -> RedisResult<DateTime<Utc>> {
        let mut connection = self.connection_to_any().await?;
        let (seconds, microseconds): (i64, i64) =
            redis::cmd("TIME").query_async(&mut connection).await?;
        Ok(DateTime::UNIX_EPOCH
            + TimeDelta::seconds(seconds)
            + TimeDelta::microseconds(microseconds))
    }
}

impl Link {
    /// Facts about the server. Ends the connection if the server has become a replica: a replica would go on answering
    /// these queries, while the master may be elsewhere.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`].
    pub async fn facts(&self) -> RedisResult<ServerFacts> {
        let facts = understood(self.query_each(&questions()).await?)?;
        if facts.is_replica {
            self.line.end();
        }
        Ok(facts.expected(self.is_in_cluster))
    }
}

/// The queries whose replies [`understood`] reads, in one round trip.
fn questions() -> Pipeline {
    let names = [
        "appendfsync",
        "save",
        "no-appendfsync-on-rewrite",
        "min-replicas-to-write",
        "stop-writes-on-bgsave-error",
        "cluster-require-full-coverage",
    ];
    let mut questions = redis::pipe();
    questions.cmd("INFO");
    questions.cmd("CONFIG").arg("GET").arg(&names);
    questions.cmd("ACL").arg("GETUSER").arg("default");
    questions
}

fn understood(answers: Vec<RedisResult<Value>>) -> RedisResult<ServerFacts> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let info: InfoDict = from_redis_value(next()?)?;
    let settings = allowed::<HashMap<String, String>>(next())?;
    let settings = settings.as_ref().and_then(ServerSettings::read);
    let default_user = allowed::<HashMap<String, Value>>(next())?;
    Ok(ServerFacts::read(&info, settings, Replay::of(default_user)))
}

/// `None` if the server denies the command, as managed ones do.
fn allowed<T: FromRedisValue>(answer: RedisResult<Value>) -> RedisResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(from_redis_value(answer).ok()),
        Err(error) if matches!(error.kind(), ErrorKind::Server(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Replay {
    /// Judges by the reply to ACL GETUSER default.
    fn of(default_user: Option<HashMap<String, Value>>) -> Self {
        let Some(mut user) = default_user else {
            return Self::Unknown;
        };
        let mut of = |name| user.remove(name).and_then(|text| from_redis_value(text).ok());
        match (of("commands"), of("keys")) {
            (Some(commands), Some(keys)) => Self::with_rights(commands, keys),
            _ => Self::Unknown,
        }
    }

    /// The commands with which our scripts write are in none of the categories that are usually denied.
    fn with_rights(commands: String, keys: String) -> Self {
        let takes_writes = |right: &str| {
            right.starts_with('-') && !["-@dangerous", "-@admin", "-@scripting"].contains(&right)
        };
        let mut commands = commands.split(' ');
        let has_commands = commands.next() == Some("+@all") && !commands.any(takes_writes);
        match has_commands && keys.split(' ').any(|pattern| pattern == "~*") {
            true => Self::Whole,
            false => Self::WithoutScripts,
        }
    }
}

impl ServerFacts {
    /// If a cluster is configured, being one of its nodes is no fault.
    fn expected(self, in_cluster: bool) -> Self {
        Self { is_cluster: self.is_cluster && !in_cluster, ..self }
    }

    /// Whether `min-replicas-to-write` is in force. Known even without CONFIG.
    pub fn needs_replicas(&self) -> bool {
        self.good_replicas.is_some()
    }

    /// Why the service can't use this server, with the remedy; `None` if it can.
    pub fn unfit(&self) -> Option<&'static str> {
        if self.version < limits::REDIS_VERSION_MIN {
            return Some("Redis is too old; the scripts need 7.0 or newer");
        }
        if self.is_replica {
            return Some("Redis is a replica, which takes no writes; name its primary");
        }
        if self.is_cluster {
            return Some(
                "Redis is a node of a cluster; name its nodes as redis+cluster://host:port,host:port, or a Redis that stands alone",
            );
        }
        (self.maxmemory_policy != "noeviction").then_some(
            "Redis has another maxmemory-policy than noeviction: it would drop data when memory gets short; set it to noeviction",
        )
    }

    /// Why the server refuses every write now, with the remedy; `None` if it doesn't.
    pub fn refuses_writes(&self) -> Option<&'static str> {
        let failed = |field| self.failed_writes.contains(&field);
        let settings = self.settings.as_ref();
        let takes_snapshots = settings.is_some_and(|settings| {
            !settings.save.is_empty() && settings.stop_writes_on_bgsave_error
        });
        let lacks_replicas = |settings: &ServerSettings| {
            self.good_replicas.is_some_and(|good| good < settings.min_replicas_to_write)
        };
        if self.is_full {
            return Some("Redis is full (maxmemory): raise it");
        }
        if failed("aof_last_write_status") {
            return Some(
                "Redis can't write its append-only file: make room on its disk, or let it write there",
            );
        }
        if takes_snapshots && failed("rdb_last_bgsave_status") {
            return Some(
                "Redis can't write its snapshot: make room on its disk, or let it write there",
            );
        }
        settings
            .is_some_and(lacks_replicas)
            .then_some("Redis has fewer replicas than min-replicas-to-write: bring them back")
    }

    fn read(info: &InfoDict, settings: Option<ServerSettings>, replay: Replay) -> Self {
        let text = |name: &str| info.get::<String>(name).unwrap_or_default();
        let redis_version = text("redis_version");
        let program = match info.get::<String>("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {redis_version}"),
        };
        let listed = 0..info.get::<u32>("connected_slaves").unwrap_or(0);
        let bytes = |name: &str| info.get::<u64>(name).unwrap_or(0);
        let maxmemory_bytes = bytes("maxmemory");
        let used_bytes = bytes("used_memory").saturating_sub(bytes("mem_not_counted_for_evict"));
        let online = listed.filter(|n| text(&format!("slave{n}")).contains("state=online"));
        Self {
            program,
            version: version(&redis_version),
            is_replica: text("role") == "slave",
            is_cluster: text("cluster_enabled") == "1",
            replicas: u32::try_from(online.count()).unwrap_or(u32::MAX),
            good_replicas: info.get("min_slaves_good_slaves"),
            maxmemory_bytes,
            maxmemory_policy: text("maxmemory_policy"),
            appendonly: text("aof_enabled") == "1",
            is_rewriting: text("aof_rewrite_in_progress") == "1"
                || text("aof_rewrite_scheduled") == "1",
            aof_bytes: bytes("aof_current_size"),
            is_full: maxmemory_bytes > 0 && used_bytes > maxmemory_bytes,
            time: info.get("server_time_usec").and_then(DateTime::from_timestamp_micros),
            failed_writes: WRITES.into_iter().filter(|name| text(name) == "err").collect(),
            settings,
            replay,
        }
    }
}

impl ServerSettings {
    /// `None` if a setting is missing.
    fn read(settings: &HashMap<String, String>) -> Option<Self> {
        let text = |name: &str| settings.get(name).cloned();
        Some(Self {
            appendfsync: text("appendfsync")?,
            save: text("save")?,
            no_appendfsync_on_rewrite: text("no-appendfsync-on-rewrite")? == "yes",
            min_replicas_to_write: text("min-replicas-to-write")?.parse().ok()?,
            stop_writes_on_bgsave_error: text("stop-writes-on-bgsave-error")? == "yes",
            needs_full_coverage: text("cluster-require-full-coverage")? == "yes",
        })
    }
}

/// `7.0.15` -> (7, 0). What can't be parsed counts as 0, and so is below any minimum.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INFO of a Valkey 8 with three replicas, shortened.
    const INFO: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n\
        # Memory\r\nmaxmemory:1073741824\r\nmaxmemory_policy:noeviction\r\n\
        # Persistence\r\nrdb_last_bgsave_status:ok\r\naof_enabled:1\r\naof_last_bgrewrite_status:ok\r\n\
        aof_last_write_status:err\r\n\
        # Replication\r\nrole:master\r\nconnected_slaves:3\r\nmin_slaves_good_slaves:1\r\n\
        slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0\r\n\
        slave1:ip=10.0.0.3,port=6379,state=send_bulk,offset=0,lag=0\r\n\
        slave2:ip=10.0.0.4,port=6379,state=online,offset=14,lag=1\r\n\
        # Cluster\r\ncluster_enabled:0\r\n";

    #[test]
    fn what_info_says_is_read() {
        let facts = read(INFO);
        assert_eq!((facts.program.as_str(), facts.version), ("Valkey 8.0.1", (7, 2)));
        assert!(facts.appendonly && !facts.is_replica && !facts.is_cluster);
        assert_eq!((facts.replicas, facts.good_replicas), (2, Some(1)));
        assert_eq!(facts.maxmemory_bytes, 1 << 30);
        assert_eq!(facts.failed_writes, ["aof_last_write_status"]);
    }

    #[test]
    fn nothing_counts_as_too_old() {
        let facts = read("");
        assert_eq!((facts.version, facts.appendonly), ((0, 0), false));
    }

    fn read(info: &str) -> ServerFacts {
        ServerFacts::read(&InfoDict::new(info), None, Replay::Whole)
    }

    fn facts(line: &str) -> ServerFacts {
        read(&format!("{line}\r\n"))
    }

    #[test]
    fn a_file_is_replayed_with_the_rights_of_the_default_user() {
        use Replay::{Whole, WithoutScripts};
        for (commands, keys, replay) in [
            ("+@all", "~*", Whole),
            ("+@all -@dangerous -@admin", "~fs:* ~*", Whole),
            ("-@all", "~*", WithoutScripts),
            ("+@all -hset", "~*", WithoutScripts),
            ("+@all", "", WithoutScripts),
            ("+@all", "%R~*", WithoutScripts),
            ("-@all", "", WithoutScripts),
        ] {
            let found = Replay::with_rights(commands.to_owned(), keys.to_owned());
            assert_eq!(found, replay, "{commands} {keys}");
        }
        assert_eq!(Replay::of(None), Replay::Unknown);
    }

    #[test]
    fn a_server_that_is_full_or_cannot_write_refuses_writes() {
        let memory = "maxmemory:100\r\nused_memory:130\r\nmem_not_counted_for_evict:";
        for (info, refuses) in [
            (format!("{memory}29"), true),
            (format!("{memory}30"), false),
            ("maxmemory:0\r\nused_memory:130".to_owned(), false),
            ("aof_last_write_status:err".to_owned(), true),
            ("rdb_last_bgsave_status:err".to_owned(), false),
        ] {
            assert_eq!(facts(&info).refuses_writes().is_some(), refuses, "{info}");
        }
        let mut snapshots = facts("rdb_last_bgsave_status:err\r\nmin_slaves_good_slaves:1");
        let settings = ServerSettings {
            appendfsync: "always".to_owned(),
            save: "60 1".to_owned(),
            no_appendfsync_on_rewrite: false,
            min_replicas_to_write: 1,
            stop_writes_on_bgsave_error: true,
            needs_full_coverage: false,
        };
        for (settings, refuses) in [
            (settings.clone(), true),
            (ServerSettings { save: String::new(), ..settings.clone() }, false),
            (ServerSettings { stop_writes_on_bgsave_error: false, ..settings.clone() }, false),
            (ServerSettings { save: String::new(), min_replicas_to_write: 2, ..settings }, true),
        ] {
            snapshots.settings = Some(settings);
            assert_eq!(snapshots.refuses_writes().is_some(), refuses, "{snapshots:?}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_first_two_numbers() {
        for (text, numbers) in [("7.0.15", (7, 0)), ("8.2", (8, 2)), ("9", (9, 0)), ("x.y", (0, 0))]
        {
            assert_eq!(version(text), numbers);
        }
    }
}
