//! A Redis Cluster of three masters with a replica each, on free ports of 127.0.0.1.

use std::net::TcpListener;

use private_servers::testing::RedisServer;
use redis::FromRedisValue;

use crate::support::eventually;

/// Slots of a cluster.
const SLOTS: u16 = 16_384;
/// Masters at the beginning.
const MASTERS: usize = 3;

/// The nodes, and which of them were killed.
pub struct Nodes(pub Vec<Node>);

pub struct Node {
    pub server: RedisServer,
    pub port: u16,
    pub id: String,
    bus: u16,
}

impl Nodes {
    /// Starts them, and waits until all know each other and each master has its replica.
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..2 * MASTERS {
            nodes.push(Node::start().await);
        }
        let of_master = SLOTS / MASTERS as u16 + 1;
        for (number, node) in (0..).zip(&nodes[..MASTERS]) {
            let (first, end) = (number * of_master, ((number + 1) * of_master).min(SLOTS));
            node.does(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await;
            let slots = [first.to_string(), (end - 1).to_string()];
            node.does(&["CLUSTER", "ADDSLOTSRANGE", &slots[0], &slots[1]]).await;
        }
        for node in &nodes[1..] {
            let at = [&node.port, &node.bus].map(ToString::to_string);
            nodes[0].does(&["CLUSTER", "MEET", "127.0.0.1", &at[0], &at[1]]).await;
        }
        let this = Self(nodes);
        this.all_say("cluster_known_nodes:6").await;
        for (master, replica) in this.0[..MASTERS].iter().zip(&this.0[MASTERS..]) {
            eventually("a replica follows", async || {
                replica.told::<String>(&["CLUSTER", "REPLICATE", &master.id]).await.is_some()
            })
            .await;
            eventually("it is in sync", async || {
                let info = replica.told::<String>(&["INFO", "replication"]).await;
                info.is_some_and(|info| info.contains("master_link_status:up"))
            })
            .await;
        }
        this.all_say("cluster_state:ok").await;
        this
    }

    async fn all_say(&self, words: &str) {
        for node in &self.0 {
            eventually(words, async || {
                let info = node.told::<String>(&["CLUSTER", "INFO"]).await;
                info.is_some_and(|info| info.contains(words))
            })
            .await;
        }
    }

    /// URL of two of the nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.0[0].port, self.0[5].port)
    }

    /// The node at this place.
    pub fn at(&mut self, port: u16) -> &mut Node {
        self.0.iter_mut().find(|node| node.port == port).expect("one of these nodes")
    }

    /// Moves a slot with all its keys from one master to another.
    pub async fn move_slot(&self, slot: u16, from: u16, to: u16) {
        let of = |port| self.0.iter().find(|node| node.port == port).expect("one of these nodes");
        let (from, to, slot) = (of(from), of(to), slot.to_string());
        to.does(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from.id]).await;
        from.does(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to.id]).await;
        let port = to.port.to_string();
        loop {
            let keys = from.told::<Vec<String>>(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
            let keys = keys.expect("it answers");
            if keys.is_empty() {
                break;
            }
            let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            command.extend(keys.iter().map(String::as_str));
            from.does(&command).await;
        }
        for node in [to, from] {
            node.does(&["CLUSTER", "SETSLOT", &slot, "NODE", &to.id]).await;
        }
    }
}

impl Node {
    async fn start() -> Self {
        // A port beside the other one, as is usual, needn't be free.
        let bus = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let bus = bus.expect("a free port").port();
        let text = bus.to_string();
        let settings = [
            &["--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", &text][..],
            &["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"],
            &["--repl-diskless-sync-delay", "0"],
        ];
        let (server, port) = RedisServer::on_tcp(&settings.concat());
        let mut node = Self { server, port, id: String::new(), bus };
        node.id = node.told(&["CLUSTER", "MYID"]).await.expect("it answers");
        node
    }

    /// The answer to a command; none if there is an error.
    pub async fn told<T: FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let client = redis::Client::open(self.server.url()).expect("a valid URL");
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.ok()
    }

    /// Runs a command that has to succeed.
    pub async fn does(&self, words: &[&str]) {
        let told = self.told::<String>(words).await;
        assert!(told.is_some(), "{words:?}");
    }
}
