//! Rung 14: a stream whose entries are acknowledged before they are written.

use std::sync::Arc;

use super::stream::Consumer;
use super::{Progress, Queue};
use crate::scene::Scene;

pub struct AcknowledgedFirst;

impl Queue for AcknowledgedFirst {
    const SCRIPT: &str = include_str!("../../../../lua/append.lua");

    async fn write(scene: Arc<Scene>, _: usize, progress: Progress) -> anyhow::Result<()> {
        let mut consumer = Consumer::open(&scene, "c1").await?;
        loop {
            let Some((id, Some(user))) = consumer.read_pending_first().await? else {
                progress.found_nothing();
                continue;
            };
            consumer.acknowledge(&id).await?;
            progress.took();
            scene.write_order(user).await?;
        }
    }
}
