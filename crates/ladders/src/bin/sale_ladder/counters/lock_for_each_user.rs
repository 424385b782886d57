//! Rung 8: a lock in Redis for each user, around a count and rung 6.

use std::sync::Arc;
use std::time::Duration;

use super::lock::try_lock;
use crate::design::Design;
use crate::scene::Scene;

/// Longer than a transaction takes.
const LEASE: Duration = Duration::from_secs(10);

pub struct LockForEachUser(Arc<Scene>);

impl Design for LockForEachUser {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let name = format!("lock:order:{user}");
        let Some(lock) = try_lock(&self.0, name, LEASE).await? else {
            return Ok(false);
        };
        let won = self.0.orders_of(user).await? == 0 && self.0.take_and_write(user).await?;
        lock.release(&self.0).await?;
        Ok(won)
    }
}
