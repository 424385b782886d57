//! Rung 18: several consumers at the same time, each with a name that the next process has, too.

use std::sync::Arc;

use super::stream::Consumer;
use super::{Progress, Queue};
use crate::scene::Scene;

pub struct ConcurrentConsumers;

impl Queue for ConcurrentConsumers {
    const SCRIPT: &str = include_str!("../../../../lua/append.lua");
    const CONSUMERS: usize = 8;

    async fn write(scene: Arc<Scene>, number: usize, progress: Progress) -> anyhow::Result<()> {
        let mut consumer = Consumer::open(&scene, &format!("c{number}")).await?;
        loop {
            let Some((id, user)) = consumer.read_pending_first().await? else {
                progress.found_nothing();
                continue;
            };
            progress.took();
            // An entry that is pending and was deleted has no content any more.
            if let Some(user) = user {
                scene.write_order(user).await?;
            }
            consumer.acknowledge(&id).await?;
        }
    }
}
