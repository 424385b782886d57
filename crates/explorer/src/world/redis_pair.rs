//! Redis and its replica.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use super::machine::Machine;
use super::redis_node::RedisNode;
use crate::plan::Sync;

/// Time for a replica to follow.
const FOLLOW_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Two servers: one that the service uses, one that follows it.
#[derive(Debug)]
pub struct RedisPair {
    nodes: [RedisNode; 2],
    /// Index of the one that the service uses.
    master: usize,
}

impl RedisPair {
    /// Starts both.
    pub async fn start(folder: &Path, sync: Sync, machine: &Machine) -> anyhow::Result<Self> {
        let start = async |name: &str| {
            RedisNode::start(folder.join(name), sync, machine.clock.clone(), machine.mounts).await
        };
        let mut pair =
            Self { nodes: [start("redis-a").await?, start("redis-b").await?], master: 0 };
        pair.replicate().await?;
        Ok(pair)
    }

    /// The server that the service uses.
    pub fn master(&self) -> &RedisNode {
        &self.nodes[self.master]
    }

    /// The same, to be changed.
    pub fn master_mut(&mut self) -> &mut RedisNode {
        &mut self.nodes[self.master]
    }

    /// The server that follows.
    pub fn replica(&self) -> &RedisNode {
        &self.nodes[1 - self.master]
    }

    /// The same, to be changed.
    pub fn replica_mut(&mut self) -> &mut RedisNode {
        &mut self.nodes[1 - self.master]
    }

    /// The socket that the service has to use.
    pub fn socket(&self) -> PathBuf {
        self.master().socket()
    }

    /// The replica becomes the server that the service uses, and the other one its replica-to-be.
    pub fn swap(&mut self) {
        self.master = 1 - self.master;
    }

    /// The replica follows no more, and keeps what it has. It takes no writes.
    pub async fn detach(&self) -> anyhow::Result<()> {
        // No server listens at this port.
        let _: String = self.replica().ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
        Ok(())
    }

    /// The replica follows the master, and has all that it has.
    pub async fn replicate(&mut self) -> anyhow::Result<()> {
        let port = self.master().port().to_string();
        let _: String = self.replica().ask(&["REPLICAOF", "127.0.0.1", &port]).await?;
        let deadline = Instant::now() + FOLLOW_WITHIN;
        while !follows(self.replica()).await {
            if Instant::now() > deadline {
                bail!("the replica of Redis does not follow");
            }
            sleep(POLL).await;
        }
        Ok(())
    }
}

/// True for a replica that has its master's data.
pub async fn follows(node: &RedisNode) -> bool {
    let info: Result<String, _> = node.ask(&["INFO", "replication"]).await;
    info.is_ok_and(|info| info.contains("master_link_status:up"))
}
