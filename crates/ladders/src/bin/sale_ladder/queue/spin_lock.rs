//! Rung 17: one consumer, which takes the user's lock by trying again after a sleep.

use std::sync::Arc;
use std::time::Duration;

use redis::Script;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::stream::Consumer;
use super::{Progress, consume};
use crate::counters::lock::{Held, try_lock};
use crate::design::Design;
use crate::scene::Scene;

/// Time until the consumer tries a busy lock again.
const PAUSE: Duration = Duration::from_millis(50);

/// Time that the next process waits for the lock of a dead one.
const LEASE: Duration = Duration::from_secs(1);

pub struct SpinLock {
    scene: Arc<Scene>,
    script: Script,
    progress: Progress,
    _tasks: JoinSet<()>,
}

impl Design for SpinLock {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress = Progress::default();
        let mut tasks = JoinSet::new();
        consume(&mut tasks, write(scene.clone(), progress.clone()));
        let script = Script::new(include_str!("../../../../lua/append.lua"));
        Ok(Self { scene, script, progress, _tasks: tasks })
    }

    /// The door keeps the double click of a user out with the same lock.
    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let Some(lock) = try_lock(&self.scene, format!("lock:order:{user}"), LEASE).await? else {
            return Ok(false);
        };
        let won = self.scene.decide(&self.script, user).await?;
        lock.release(&self.scene).await?;
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
        let Some((id, Some(user))) = consumer.read_pending_first().await? else {
            progress.found_nothing();
            continue;
        };
        progress.took();
        let lock = spin(&scene, user).await?;
        scene.write_order(user).await?;
        consumer.acknowledge(&id).await?;
        lock.release(&scene).await?;
    }
}

async fn spin(scene: &Scene, user: i64) -> anyhow::Result<Held> {
    loop {
        if let Some(lock) = try_lock(scene, format!("lock:order:{user}"), LEASE).await? {
            return Ok(lock);
        }
        sleep(PAUSE).await;
    }
}
