//! Rung 9: one lock in Redis for all users, around rung 1.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::lock::try_lock;
use crate::design::Design;
use crate::scene::Scene;

/// Time until a request that found the lock busy looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// Longer than a transaction takes.
const LEASE: Duration = Duration::from_secs(10);

pub struct LockForAll(Arc<Scene>);

impl Design for LockForAll {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        // Spares the users who come too late the lock.
        if self.0.units().await? < 1 {
            return Ok(false);
        }
        let lock = loop {
            match try_lock(&self.0, "lock:sale".to_owned(), LEASE).await? {
                Some(lock) => break lock,
                None => sleep(PAUSE).await,
            }
        };
        let won = self.0.orders_of(user).await? == 0
            && self.0.units().await? > 0
            && self.0.take_and_write(user).await?;
        lock.release(&self.0).await?;
        Ok(won)
    }
}
