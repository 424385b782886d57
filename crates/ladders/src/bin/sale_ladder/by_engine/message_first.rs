//! Rung 20: the order is sent to the engine, then a script decides.

use std::sync::Arc;

use redis::Script;
use tokio::task::JoinSet;

use super::Producer;
use super::orders::Orders;
use crate::scene::Scene;

pub struct MessageFirst {
    scene: Arc<Scene>,
    orders: Orders,
    script: Script,
}

impl Producer for MessageFirst {
    async fn open(scene: Arc<Scene>, orders: Orders, _: &mut JoinSet<()>) -> anyhow::Result<Self> {
        let script = Script::new(include_str!("../../../../lua/decide.lua"));
        Ok(Self { scene, orders, script })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        self.orders.send(user).await?;
        self.scene.decide(&self.script, user).await
    }
}
