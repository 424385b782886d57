//! Rung 18: several consumers at the same time, each with a name that the next process has, too.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::Script;
use tokio::task::JoinSet;

use super::stream::Consumer;
use super::{Progress, consume};
use crate::design::Design;
use crate::scene::Scene;

const CONSUMERS: usize = 8;

pub struct ConcurrentConsumers {
    scene: Arc<Scene>,
    script: Script,
    progress: Vec<Progress>,
    _tasks: JoinSet<()>,
}

impl Design for ConcurrentConsumers {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress: Vec<Progress> = (0..CONSUMERS).map(|_| Progress::default()).collect();
        let mut tasks = JoinSet::new();
        for (number, progress) in progress.iter().enumerate() {
            let name = format!("c{number}");
            consume(&mut tasks, write(scene.clone(), name, progress.clone()));
        }
        let script = Script::new(include_str!("../../../../lua/append.lua"));
        Ok(Self { scene, script, progress, _tasks: tasks })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        self.scene.decide(&self.script, user).await
    }

    async fn in_hand(&self) {
        for progress in &self.progress {
            progress.in_hand().await;
        }
    }

    async fn rest(&self) -> anyhow::Result<()> {
        join_all(self.progress.iter().map(Progress::rest)).await;
        Ok(())
    }
}

async fn write(scene: Arc<Scene>, name: String, progress: Progress) -> anyhow::Result<()> {
    let mut consumer = Consumer::open(&scene, &name).await?;
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
