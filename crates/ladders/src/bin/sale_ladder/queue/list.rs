//! Rung 12: a script decides and pushes onto a list; a consumer pops and writes.

use std::sync::Arc;

use redis::Script;
use tokio::task::JoinSet;

use super::{LOOK, Progress, consume};
use crate::design::Design;
use crate::scene::Scene;

pub struct List {
    scene: Arc<Scene>,
    script: Script,
    progress: Progress,
    _tasks: JoinSet<()>,
}

impl Design for List {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress = Progress::default();
        let mut tasks = JoinSet::new();
        consume(&mut tasks, write(scene.clone(), progress.clone()));
        let script = Script::new(include_str!("../../../../lua/push.lua"));
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
    let mut list = scene.connection().await?;
    loop {
        let mut pop = redis::cmd("BRPOP");
        let pop = pop.arg("log").arg(LOOK.as_secs_f64());
        let popped: Option<(String, i64)> = pop.query_async(&mut list).await?;
        let Some((_, user)) = popped else {
            progress.found_nothing();
            continue;
        };
        progress.took();
        scene.write_order(user).await?;
    }
}
