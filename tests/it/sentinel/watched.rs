//! A master, two replicas, and three sentinels on free ports of 127.0.0.1.

use std::collections::HashMap;
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::base::host_port::HostPort;
use flash_sale::store::redis::Redis;
use private_servers::testing::RedisServer;
use redis::FromRedisValue;

use crate::faults::failover::make_replica;
use crate::support::servers::Addresses;
use crate::support::{TestApp, eventually, shared};

/// Name of the master, with each kind of character that a name may have.
pub const MASTER: &str = "My-master_1.a";

/// Time in which a server of these tests has to answer a connection of the service.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A master may write as long as one replica has told within three seconds what it has.
const SETTINGS: [&str; 6] = [
    "--min-replicas-to-write",
    "1",
    "--min-replicas-max-lag",
    "3",
    "--repl-diskless-sync-delay",
    "0",
];

/// Servers with their ports.
pub struct Watched {
    /// The first one is the master at the beginning.
    pub servers: Vec<(RedisServer, u16)>,
    pub sentinels: Vec<(RedisServer, u16)>,
}

impl Watched {
    /// Starts all of them, and waits until the sentinels know the replicas and each other.
    pub async fn start() -> Self {
        let servers: Vec<_> = (0..3).map(|_| RedisServer::on_tcp(&SETTINGS)).collect();
        let master = servers[0].1;
        for (replica, _) in &servers[1..] {
            make_replica(replica, master).await;
        }
        eventually("both replicas follow", async || {
            info(&servers[0].0).await.contains("min_slaves_good_slaves:2")
        })
        .await;
        let sentinels = (0..3).map(|_| sentinel(master, 2, &[])).collect();
        let this = Self { servers, sentinels };
        eventually("the sentinels know all", async || this.all_is_known().await).await;
        this
    }

    async fn all_is_known(&self) -> bool {
        for (sentinel, _) in &self.sentinels {
            let known: Option<HashMap<String, String>> =
                told(sentinel, &["SENTINEL", "MASTER", MASTER]).await;
            let known = known.unwrap_or_default();
            let counts = ["num-other-sentinels", "num-slaves"].map(|name| known.get(name));
            if counts != [Some(&"2".to_owned()); 2] {
                return false;
            }
        }
        true
    }

    /// Lets the sentinels take a master for lost after half a second.
    pub async fn be_quick(&self) {
        for (sentinel, _) in &self.sentinels {
            let set = ["SENTINEL", "SET", MASTER, "down-after-milliseconds", "500"];
            eventually("the sentinel does that", async || {
                told::<String>(sentinel, &set).await.is_some()
            })
            .await;
        }
    }

    /// The URL of the master, whose place the sentinels name.
    pub fn url() -> String {
        format!("redis://{MASTER}/0")
    }

    /// The places of the sentinels.
    pub fn places(&self) -> Vec<HostPort> {
        let place = |(_, port): &(_, u16)| HostPort { host: "127.0.0.1".to_owned(), port: *port };
        self.sentinels.iter().map(place).collect()
    }

    /// The arguments of a process.
    pub fn arguments(&self) -> Vec<String> {
        let places: Vec<_> = self.places().iter().map(ToString::to_string).collect();
        vec!["--redis-sentinels".to_owned(), places.join(",")]
    }

    /// A service on this Redis.
    pub async fn app(&self) -> TestApp {
        let at = Addresses { redis_url: Self::url(), ..shared().clone() };
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        TestApp::on(&at, &arguments, Clock::System).await
    }

    /// The connection of a process.
    pub fn redis(&self) -> Redis {
        Redis::behind_sentinels(&Self::url(), &self.places(), TIMEOUT).expect("a valid URL")
    }

    /// Index of the server that a connection leads to.
    pub async fn led_to(&self, redis: &Redis) -> Option<usize> {
        let link = redis.link().await.ok()?;
        let run_id = link.server().as_str();
        for (at, (server, _)) in self.servers.iter().enumerate() {
            let info = told::<String>(server, &["INFO", "server"]).await;
            if info.is_some_and(|info| info.contains(run_id)) {
                return Some(at);
            }
        }
        None
    }
}

/// A sentinel of the master at this port. It takes a master for lost after a minute: a slow machine is no fault.
pub fn sentinel(master: u16, quorum: u32, more: &[&str]) -> (RedisServer, u16) {
    let monitor = format!("sentinel monitor {MASTER} 127.0.0.1 {master} {quorum}");
    let down_after = format!("sentinel down-after-milliseconds {MASTER} 60000");
    let fail_over = format!("sentinel failover-timeout {MASTER} 5000");
    let syncs = format!("sentinel parallel-syncs {MASTER} 2");
    RedisServer::sentinel(&[&[&*monitor, &*down_after, &*fail_over, &*syncs], more].concat())
}

/// INFO replication of a server; empty if it doesn't answer.
pub async fn info(server: &RedisServer) -> String {
    told(server, &["INFO", "replication"]).await.unwrap_or_default()
}

/// The answer of the server itself; none within half a second is `None`, as is a refusal.
pub async fn told<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> Option<T> {
    let client = redis::Client::open(server.url()).expect("a valid URL");
    let mut connection = client.get_multiplexed_async_connection().await.ok()?;
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.ok()
}
