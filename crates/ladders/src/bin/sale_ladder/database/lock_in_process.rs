//! Rung 2: a lock in the memory of the process around rung 1.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::design::Design;
use crate::scene::Scene;

pub struct LockInProcess {
    scene: Arc<Scene>,
    lock: Mutex<()>,
}

impl Design for LockInProcess {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self { scene, lock: Mutex::new(()) })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let _inside = self.lock.lock().await;
        let left = self.scene.units().await?;
        self.scene.meet_the_other_process().await?;
        if left < 1 {
            return Ok(false);
        }
        let take = "UPDATE ladder.stock SET units = units - 1";
        sqlx::query(take).execute(&self.scene.pool).await?;
        let written = self.scene.write_order(user).await?;
        self.scene.meet_the_other_process().await?;
        Ok(written)
    }
}
