//! Rung 13: a script decides and publishes; a subscriber writes.

use std::sync::Arc;

use futures_util::StreamExt;
use redis::Script;
use redis::aio::PubSub;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LOOK, Progress, consume};
use crate::design::Design;
use crate::scene::Scene;

pub struct Publish {
    scene: Arc<Scene>,
    script: Script,
    progress: Progress,
    _tasks: JoinSet<()>,
}

impl Design for Publish {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress = Progress::default();
        let mut listener = scene.listener().await?;
        listener.subscribe("log").await?;
        let mut tasks = JoinSet::new();
        consume(&mut tasks, write(scene.clone(), listener, progress.clone()));
        let script = Script::new(include_str!("../../../../lua/publish.lua"));
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

async fn write(scene: Arc<Scene>, listener: PubSub, progress: Progress) -> anyhow::Result<()> {
    let mut messages = listener.into_on_message();
    loop {
        let Ok(Some(message)) = timeout(LOOK, messages.next()).await else {
            progress.found_nothing();
            continue;
        };
        progress.took();
        scene.write_order(message.get_payload()?).await?;
    }
}
