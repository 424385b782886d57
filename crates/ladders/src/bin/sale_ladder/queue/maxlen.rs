//! Rung 16: a stream that is cut to a length when it is appended to.

use std::sync::Arc;

use redis::Script;

use super::stream::Consumer;
use super::{Progress, Queue};
use crate::scene::Scene;

pub struct Maxlen;

impl Queue for Maxlen {
    const SCRIPT: &str = include_str!("../../../../lua/append_maxlen.lua");

    async fn buy(
        scene: &Scene,
        script: &Script,
        user: i64,
        progress: &Progress,
    ) -> anyhow::Result<bool> {
        let won = scene.decide(script, user).await?;
        // In step, the consumer has the first order before so many are appended that it is cut away.
        if won && scene.task.in_step {
            progress.in_hand().await;
        }
        Ok(won)
    }

    async fn write(scene: Arc<Scene>, _: usize, progress: Progress) -> anyhow::Result<()> {
        let mut consumer = Consumer::open(&scene, "c1").await?;
        loop {
            let Some((id, user)) = consumer.read_pending_first().await? else {
                progress.found_nothing();
                continue;
            };
            progress.took();
            // An entry that was cut away while it was pending has no content any more.
            if let Some(user) = user {
                scene.write_order(user).await?;
            }
            consumer.acknowledge(&id).await?;
        }
    }
}
