//! Rung 11: a script decides, and a queue in the memory of the process has room for so many orders.

use std::sync::Arc;

use redis::Script;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LOOK, Progress, consume};
use crate::design::Design;
use crate::scene::Scene;

/// An order in the queue, and its place there until the order is written.
type Queued = (i64, OwnedSemaphorePermit);

pub struct InProcess<const ROOM: usize> {
    scene: Arc<Scene>,
    script: Script,
    room: Arc<Semaphore>,
    queue: UnboundedSender<Queued>,
    progress: Progress,
    _tasks: JoinSet<()>,
}

impl<const ROOM: usize> Design for InProcess<ROOM> {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let (queue, orders) = unbounded_channel();
        let progress = Progress::default();
        let mut tasks = JoinSet::new();
        consume(&mut tasks, write(scene.clone(), orders, progress.clone()));
        let script = Script::new(include_str!("../../../../lua/decide.lua"));
        let room = Arc::new(Semaphore::new(ROOM));
        Ok(Self { scene, script, room, queue, progress, _tasks: tasks })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        if !self.scene.decide(&self.script, user).await? {
            return Ok(false);
        }
        match self.room.clone().try_acquire_owned() {
            Ok(place) => Ok(self.queue.send((user, place)).is_ok()),
            Err(_full) => Ok(false),
        }
    }

    async fn in_hand(&self) {
        self.progress.in_hand().await;
    }

    async fn rest(&self) -> anyhow::Result<()> {
        self.progress.rest().await;
        Ok(())
    }
}

async fn write(
    scene: Arc<Scene>,
    mut orders: UnboundedReceiver<Queued>,
    progress: Progress,
) -> anyhow::Result<()> {
    loop {
        let Ok(Some((user, place))) = timeout(LOOK, orders.recv()).await else {
            progress.found_nothing();
            continue;
        };
        progress.took();
        scene.write_order(user).await?;
        drop(place);
    }
}
