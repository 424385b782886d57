//! Facts about a Redis server: from INFO, and from CONFIG where that is allowed.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use redis::aio::ConnectionLike;
use redis::{ErrorKind, InfoDict, RedisResult};

use super::redis::{Redis, ServerId};

/// Facts about a server.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// `Redis` or `Valkey`, and its own version.
    pub program: String,
    /// Major and minor version of the Redis that the server is, or is compatible with.
    pub version: (u32, u32),
    /// Whether the server follows another one, and so takes no writes.
    pub is_replica: bool,
    /// Whether the server is a node of a Redis Cluster.
    pub is_cluster: bool,
    /// Replicas that are connected and have finished loading; they may lag behind.
    pub replicas: u32,
    /// Replicas close enough to count for `min-replicas-to-write`; `None` where that isn't set.
    pub good_replicas: Option<u32>,
    /// `maxmemory`; 0 for no bound.
    pub maxmemory_bytes: u64,
    /// `maxmemory-policy`.
    pub maxmemory_policy: String,
    /// Whether there is an append-only file.
    pub appendonly: bool,
    /// Whether that file is being rewritten. While it is rewritten for the first time, nothing is in it yet.
    pub is_rewriting: bool,
    /// Bytes of that file.
    pub aof_bytes: u64,
    /// Fields of INFO that tell of a failed write to the disk.
    pub failed_writes: Vec<&'static str>,
    /// Settings that INFO lacks; `None` where CONFIG is forbidden.
    pub settings: Option<ServerSettings>,
}

/// Settings, as CONFIG GET has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// `appendfsync`.
    pub appendfsync: String,
    /// `save`: the times of snapshots; empty for never.
    pub save: String,
    /// `no-appendfsync-on-rewrite`.
    pub no_appendfsync_on_rewrite: bool,
    /// `min-replicas-to-write`; 0 for none.
    pub min_replicas_to_write: u32,
}

/// Fields of INFO that tell whether the last write of their kind failed.
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
        Ok(read(&mut connection).await?.0)
    }

    /// Facts about the master that commands go to, and its life.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub async fn facts_in_use(&self) -> RedisResult<(ServerFacts, ServerId)> {
        read(&mut self.clone()).await
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

async fn read(connection: &mut impl ConnectionLike) -> RedisResult<(ServerFacts, ServerId)> {
    let info: InfoDict = redis::cmd("INFO").query_async(connection).await?;
    let server = ServerId::named(&info.get::<String>("run_id").unwrap_or_default());
    Ok((ServerFacts::read(&info, settings(connection).await?), server))
}

async fn settings(connection: &mut impl ConnectionLike) -> RedisResult<Option<ServerSettings>> {
    let names = ["appendfsync", "save", "no-appendfsync-on-rewrite", "min-replicas-to-write"];
    let reply = redis::cmd("CONFIG").arg("GET").arg(&names).query_async(connection).await;
    match reply {
        Ok(settings) => Ok(ServerSettings::read(&settings)),
        // The server answers, and refuses CONFIG, as managed ones do.
        Err(error) if matches!(error.kind(), ErrorKind::Server(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl ServerFacts {
    /// Whether `min-replicas-to-write` is in force; known without CONFIG, too.
    pub fn needs_replicas(&self) -> bool {
        self.good_replicas.is_some()
    }

    fn read(info: &InfoDict, settings: Option<ServerSettings>) -> Self {
        let text = |name: &str| info.get::<String>(name).unwrap_or_default();
        let redis_version = text("redis_version");
        let program = match info.get::<String>("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {redis_version}"),
        };
        let listed = 0..info.get::<u32>("connected_slaves").unwrap_or(0);
        let online = listed.filter(|n| text(&format!("slave{n}")).contains("state=online"));
        Self {
            program,
            version: version(&redis_version),
            is_replica: text("role") == "slave",
            is_cluster: text("cluster_enabled") == "1",
            replicas: u32::try_from(online.count()).unwrap_or(u32::MAX),
            good_replicas: info.get("min_slaves_good_slaves"),
            maxmemory_bytes: info.get("maxmemory").unwrap_or(0),
            maxmemory_policy: text("maxmemory_policy"),
            appendonly: text("aof_enabled") == "1",
            is_rewriting: text("aof_rewrite_in_progress") == "1"
                || text("aof_rewrite_scheduled") == "1",
            aof_bytes: info.get("aof_current_size").unwrap_or(0),
            failed_writes: WRITES.into_iter().filter(|name| text(name) == "err").collect(),
            settings,
        }
    }
}

impl ServerSettings {
    /// `None` if one is missing.
    fn read(settings: &HashMap<String, String>) -> Option<Self> {
        let text = |name: &str| settings.get(name).cloned();
        Some(Self {
            appendfsync: text("appendfsync")?,
            save: text("save")?,
            no_appendfsync_on_rewrite: text("no-appendfsync-on-rewrite")? == "yes",
            min_replicas_to_write: text("min-replicas-to-write")?.parse().ok()?,
        })
    }
}

/// `7.0.15` -> (7, 0). An unreadable version counts as 0, and so fails any minimum.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;
    use crate::kit::redis::fake::Fake;

    /// The answer of a Valkey 8 with three replicas, shortened.
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
        let facts = ServerFacts::read(&InfoDict::new(INFO), None);
        assert_eq!((facts.program.as_str(), facts.version), ("Valkey 8.0.1", (7, 2)));
        assert!(facts.appendonly && !facts.is_replica && !facts.is_cluster);
        assert_eq!((facts.replicas, facts.good_replicas), (2, Some(1)));
        assert_eq!(facts.maxmemory_bytes, 1 << 30);
        assert_eq!(facts.failed_writes, ["aof_last_write_status"]);
    }

    #[test]
    fn nothing_counts_as_too_old() {
        let facts = ServerFacts::read(&InfoDict::new(""), None);
        assert_eq!((facts.version, facts.appendonly), ((0, 0), false));
    }

    fn facts(line: &str) -> ServerFacts {
        ServerFacts::read(&InfoDict::new(&format!("{line}\r\n")), None)
    }

    #[test]
    fn each_flag_has_its_line_of_info() {
        type Flag = fn(&ServerFacts) -> bool;
        let flags: [(&str, &str, Flag); 7] = [
            ("role:slave", "role:master", |facts| facts.is_replica),
            ("cluster_enabled:1", "cluster_enabled:0", |facts| facts.is_cluster),
            ("aof_enabled:1", "aof_enabled:0", |facts| facts.appendonly),
            ("aof_rewrite_in_progress:1", "aof_rewrite_in_progress:0", |facts| facts.is_rewriting),
            ("aof_rewrite_scheduled:1", "aof_rewrite_scheduled:0", |facts| facts.is_rewriting),
            ("min_slaves_good_slaves:0", "min_slaves:0", ServerFacts::needs_replicas),
            ("rdb_last_bgsave_status:err", "rdb_last_bgsave_status:ok", |facts| {
                facts.failed_writes == ["rdb_last_bgsave_status"]
            }),
        ];
        for (yes, no, flag) in flags {
            assert_eq!([yes, no].map(|line| flag(&facts(line))), [true, false], "{yes}");
        }
        let facts = facts("redis_version:7.0.15\r\naof_current_size:4096\r\nmaxmemory_policy:x");
        assert_eq!((facts.program.as_str(), facts.version), ("Redis 7.0.15", (7, 0)));
        assert_eq!((facts.aof_bytes, facts.maxmemory_policy.as_str()), (4_096, "x"));
    }

    #[test]
    fn settings_are_read_if_all_are_there() {
        let all = [
            ("appendfsync", "always"),
            ("save", "3600 1"),
            ("no-appendfsync-on-rewrite", "yes"),
            ("min-replicas-to-write", "2"),
        ];
        let map = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let read = ServerSettings::read(&map(&all)).expect("all are there");
        assert_eq!((read.appendfsync.as_str(), read.save.as_str()), ("always", "3600 1"));
        assert_eq!((read.no_appendfsync_on_rewrite, read.min_replicas_to_write), (true, 2));
        for left_out in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(left_out);
            assert_eq!(ServerSettings::read(&map(&some)), None, "without {}", all[left_out].0);
        }
        let mut other = map(&all);
        other.insert("no-appendfsync-on-rewrite".to_owned(), "no".to_owned());
        assert!(!ServerSettings::read(&other).expect("all are there").no_appendfsync_on_rewrite);
        other.insert("min-replicas-to-write".to_owned(), "many".to_owned());
        assert_eq!(ServerSettings::read(&other), None);
    }

    #[test]
    fn versions_are_compared_by_their_first_two_numbers() {
        for (text, numbers) in [("7.0.15", (7, 0)), ("8.2", (8, 2)), ("9", (9, 0)), ("x.y", (0, 0))]
        {
            assert_eq!(version(text), numbers);
        }
    }

    #[tokio::test]
    async fn settings_are_unknown_to_a_server_that_refuses_config_and_not_to_one_that_goes_away() {
        bound_this_test();
        for (answer, is_known) in [
            (Some("*0\r\n"), Some(false)),
            (Some("-ERR unknown command\r\n"), Some(false)),
            (None, None),
        ] {
            let server = Fake::master("a", move |_| answer.map(str::to_owned)).await;
            let facts = Redis::new(&server.url()).expect("a valid URL").facts().await.ok();
            assert_eq!(facts.map(|facts| facts.settings.is_some()), is_known, "{answer:?}");
        }
    }
}
