//! Rung 15: a stream whose consumers have a new name in each process, and read new entries only.

use std::sync::Arc;

use super::stream::{Consumer, NEW};
use super::{Progress, Queue};
use crate::scene::Scene;

pub struct NoTakeOver;

impl Queue for NoTakeOver {
    const SCRIPT: &str = include_str!("../../../../lua/append.lua");

    async fn write(scene: Arc<Scene>, _: usize, progress: Progress) -> anyhow::Result<()> {
        let name = format!("c{}", std::process::id());
        let mut consumer = Consumer::open(&scene, &name).await?;
        loop {
            let Some((id, Some(user))) = consumer.read(NEW).await? else {
                progress.found_nothing();
                continue;
            };
            progress.took();
            scene.write_order(user).await?;
            consumer.acknowledge(&id).await?;
        }
    }
}
