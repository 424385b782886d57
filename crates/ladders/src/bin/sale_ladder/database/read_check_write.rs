//! Rung 1: read the stock, check it, write.

use std::sync::Arc;

use crate::design::Design;
use crate::scene::Scene;

pub struct ReadCheckWrite(Arc<Scene>);

impl Design for ReadCheckWrite {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let left = self.0.units().await?;
        self.0.together().await;
        if left < 1 {
            return Ok(false);
        }
        let take = "UPDATE ladder.stock SET units = units - 1";
        sqlx::query(take).execute(&self.0.pool).await?;
        self.0.write_order(user).await
    }
}
