//! Rung 19: a script decides, then the order is sent to the engine.

use std::sync::Arc;

use redis::Script;
use tokio::task::JoinSet;

use super::Producer;
use super::orders::Orders;
use crate::scene::Scene;

pub struct MessageLast {
    scene: Arc<Scene>,
    orders: Orders,
    script: Script,
}

impl Producer for MessageLast {
    async fn open(scene: Arc<Scene>, orders: Orders, _: &mut JoinSet<()>) -> anyhow::Result<Self> {
        let script = Script::new(include_str!("../../../../lua/decide.lua"));
        Ok(Self { scene, orders, script })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        if !self.scene.decide(&self.script, user).await? {
            return Ok(false);
        }
        self.scene.gap().await;
        self.orders.send(user).await?;
        Ok(true)
    }
}
