//! Rung 22: a script decides and appends to a stream, and a relay sends what stands there to the engine.

use std::sync::Arc;

use redis::Script;
use tokio::task::JoinSet;

use super::Producer;
use super::orders::Orders;
use crate::queue::stream::Consumer;
use crate::queue::{Progress, consume};
use crate::scene::Scene;

pub struct Relay {
    scene: Arc<Scene>,
    script: Script,
    relayed: Progress,
}

impl Producer for Relay {
    async fn open(
        scene: Arc<Scene>,
        orders: Orders,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let relayed = Progress::default();
        consume(tasks, relay(scene.clone(), orders, relayed.clone()));
        let script = Script::new(include_str!("../../../../lua/append.lua"));
        Ok(Self { scene, script, relayed })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        self.scene.decide(&self.script, user).await
    }

    async fn rest(&self) {
        self.relayed.rest().await;
    }
}

async fn relay(scene: Arc<Scene>, orders: Orders, relayed: Progress) -> anyhow::Result<()> {
    let mut log = Consumer::open(&scene, "relay").await?;
    loop {
        let Some((id, user)) = log.read_pending_first().await? else {
            relayed.found_nothing();
            continue;
        };
        // An entry that is pending and was deleted has no content any more.
        if let Some(user) = user {
            orders.send(user).await?;
        }
        log.acknowledge(&id).await?;
    }
}
