//! A Redis Cluster of three masters with replicas, on free ports of 127.0.0.1.

use std::net::TcpListener;
use std::time::Duration;

use private_servers::testing::RedisServer;
use redis::{FromRedisValue, RedisResult};
use tokio::time::{sleep, timeout};

use crate::support::eventually;

/// Slots of a cluster.
const SLOTS: u16 = 16_384;
/// Masters at the beginning.
const MASTERS: usize = 3;

/// A node that hasn't answered by then is paused.
const HANGS_AFTER: Duration = Duration::from_millis(100);

/// The nodes, and which of them were killed.
pub struct Nodes(pub Vec<Node>);

pub struct Node {
    pub server: RedisServer,
    pub port: u16,
    pub id: String,
    bus: u16,
}

impl Nodes {
    /// Starts them, and waits until all know each other and each master has its replicas.
    pub async fn start(replicas_each: usize, settings: &[&str]) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..MASTERS * (1 + replicas_each) {
            nodes.push(Node::start(settings).await);
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
        this.all_say(&format!("cluster_known_nodes:{}", this.0.len())).await;
        for (master, replica) in this.0[..MASTERS].iter().cycle().zip(&this.0[MASTERS..]) {
            eventually("a replica follows", async || {
                replica.told::<String>(&["CLUSTER", "REPLICATE", &master.id]).await.is_some()
            })
            .await;
        }
        this.are_well().await;
        this
    }

    /// Waits until each node knows the whole cluster, and each replica is in sync.
    pub async fn are_well(&self) {
        for node in &self.0 {
            eventually("it is a master or in sync", async || {
                let info = node.told::<String>(&["INFO", "replication"]).await.unwrap_or_default();
                info.contains("role:master") || info.contains("master_link_status:up")
            })
            .await;
        }
        self.all_say("cluster_state:ok").await;
    }

    /// The master of the slot of this key, by the word of the nodes; none while there is none.
    pub async fn master_of(&self, key: &str) -> Option<&Node> {
        for node in &self.0 {
            // All others answer MOVED. One that hangs says nothing, in time.
            let told = timeout(HANGS_AFTER, node.told::<i64>(&["EXISTS", key])).await;
            if let Ok(Some(_)) = told {
                return Some(node);
            }
        }
        None
    }

    /// A replica of this master.
    pub async fn replica_of(&self, master: &Node) -> &Node {
        let follows = format!("master_port:{}\r", master.port);
        for node in &self.0 {
            let info = node.told::<String>(&["INFO", "replication"]).await.unwrap_or_default();
            if info.contains(&follows) {
                return node;
            }
        }
        panic!("{} has no replica", master.port);
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
        let last = self.0.last().expect("there are some").port;
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{last}", self.0[0].port)
    }

    /// The node at this place.
    pub fn at(&mut self, port: u16) -> &mut Node {
        self.0.iter_mut().find(|node| node.port == port).expect("one of these nodes")
    }

    /// Moves a slot with all its keys from one master to another.
    pub async fn move_slot(&self, slot: &str, from: u16, to: u16) {
        let (from, to) = self.open_slot(slot, from, to).await;
        while from.hands_keys(slot, to).await {}
        for node in [to, from] {
            node.does(&["CLUSTER", "SETSLOT", slot, "NODE", &to.id]).await;
        }
    }

    /// Moves some keys of a slot to another master, and leaves it at that: so these keys are lost, and stay where they
    /// don't belong.
    pub async fn abandon_slot(&self, slot: &str, from: u16, to: u16) {
        let (from, to) = self.open_slot(slot, from, to).await;
        from.hands_keys(slot, to).await;
        sleep(Duration::from_millis(500)).await;
        for node in [to, from] {
            node.does(&["CLUSTER", "SETSLOT", slot, "STABLE"]).await;
        }
    }

    async fn open_slot(&self, slot: &str, from: u16, to: u16) -> (&Node, &Node) {
        let of = |port| self.0.iter().find(|node| node.port == port).expect("one of these nodes");
        let (from, to) = (of(from), of(to));
        to.does(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &from.id]).await;
        from.does(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &to.id]).await;
        (from, to)
    }
}

impl Node {
    async fn start(more: &[&str]) -> Self {
        // A port beside the other one, as is usual, needn't be free.
        let bus = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let bus = bus.expect("a free port").port();
        let text = bus.to_string();
        let settings = [
            &["--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", &text][..],
            &["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"],
            &["--repl-diskless-sync-delay", "0"],
            more,
        ];
        let (server, port) = RedisServer::on_tcp(&settings.concat());
        let mut node = Self { server, port, id: String::new(), bus };
        node.id = node.told(&["CLUSTER", "MYID"]).await.expect("it answers");
        node
    }

    /// Hands some keys of a slot to another node. False if there are none left.
    async fn hands_keys(&self, slot: &str, to: &Self) -> bool {
        let keys = self.told::<Vec<String>>(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]).await;
        let (keys, port) = (keys.expect("it answers"), to.port.to_string());
        if keys.is_empty() {
            return false;
        }
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        self.does(&command).await;
        true
    }

    /// The answer to a command; none if there is an error.
    pub async fn told<T: FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        self.answers(words).await.ok()
    }

    async fn answers<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(self.server.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
    }

    /// Runs a command that has to succeed.
    pub async fn does(&self, words: &[&str]) {
        let told = self.answers::<String>(words).await;
        assert!(told.is_ok(), "{:?}: {told:?}", &words[..words.len().min(5)]);
    }
}
