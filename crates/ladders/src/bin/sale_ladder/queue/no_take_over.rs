//! Rung 15: a stream whose consumers have a new name in each process, and read new entries only.

use std::sync::Arc;

use redis::Script;
use tokio::task::JoinSet;

use super::stream::{Consumer, NEW};
use super::{Progress, consume};
use crate::design::Design;
use crate::scene::Scene;

pub struct NoTakeOver {
    scene: Arc<Scene>,
    script: Script,
    progress: Progress,
    _tasks: JoinSet<()>,
}

impl Design for NoTakeOver {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress = Progress::default();
        let mut tasks = JoinSet::new();
        consume(&mut tasks, write(scene.clone(), progress.clone()));
        let script = Script::new(include_str!("../../../../lua/append.lua"));
        Ok(Self { scene, script, progress, _tasks: tasks })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        self.scene.decide(&self.script, user).await
    }

    async fn in_hand(&self) {
        self.progress.in_hand().await;
    }

    async fn rest(&self) -> anyhow::Result<()> {
        self.progress.rest().await;
        Ok(())
    }
}

async fn write(scene: Arc<Scene>, progress: Progress) -> anyhow::Result<()> {
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
