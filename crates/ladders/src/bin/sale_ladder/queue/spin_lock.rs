//! Rung 17: one consumer, which takes the user's lock by trying again after a sleep.

use std::sync::Arc;
use std::time::Duration;

use redis::Script;
use tokio::time::sleep;

use super::stream::Consumer;
use super::{Progress, Queue};
use crate::counters::lock::{Held, try_lock};
use crate::scene::Scene;

/// Time until the consumer tries a busy lock again.
const PAUSE: Duration = Duration::from_millis(50);

/// Time that the next process waits for the lock of a dead one.
const LEASE: Duration = Duration::from_secs(1);

pub struct SpinLock;

impl Queue for SpinLock {
    const SCRIPT: &str = include_str!("../../../../lua/append.lua");

    /// The door keeps the double click of a user out with the same lock.
    async fn buy(scene: &Scene, script: &Script, user: i64, _: &Progress) -> anyhow::Result<bool> {
        let Some(lock) = try_lock(scene, format!("lock:order:{user}"), LEASE).await? else {
            return Ok(false);
        };
        let won = scene.decide(script, user).await?;
        lock.release(scene).await?;
        Ok(won)
    }

    async fn write(scene: Arc<Scene>, _: usize, progress: Progress) -> anyhow::Result<()> {
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
}

async fn spin(scene: &Scene, user: i64) -> anyhow::Result<Held> {
    loop {
        if let Some(lock) = try_lock(scene, format!("lock:order:{user}"), LEASE).await? {
            return Ok(lock);
        }
        sleep(PAUSE).await;
    }
}
