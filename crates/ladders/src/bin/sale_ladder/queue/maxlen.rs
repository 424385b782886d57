//! Rung 16: a stream that is cut to a length when it is appended to.

use std::sync::Arc;

use redis::Script;
use tokio::task::JoinSet;

use super::stream::Consumer;
use super::{Progress, consume};
use crate::design::Design;
use crate::scene::Scene;

pub struct Maxlen {
    scene: Arc<Scene>,
    script: Script,
    progress: Progress,
    _tasks: JoinSet<()>,
}

impl Design for Maxlen {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress = Progress::default();
        let mut tasks = JoinSet::new();
        consume(&mut tasks, write(scene.clone(), progress.clone()));
        let script = Script::new(include_str!("../../../../lua/append_maxlen.lua"));
        Ok(Self { scene, script, progress, _tasks: tasks })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let won = self.scene.decide(&self.script, user).await?;
        // In step, the consumer has the first order before so many are appended that it is cut away.
        if won && self.scene.task.in_step {
            self.progress.in_hand().await;
        }
        Ok(won)
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
