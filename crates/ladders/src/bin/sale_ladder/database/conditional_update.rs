//! Rung 6: the condition stands in the UPDATE.

use std::sync::Arc;

use crate::design::Design;
use crate::scene::Scene;

pub struct ConditionalUpdate(Arc<Scene>);

impl Design for ConditionalUpdate {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let mut transaction = self.0.pool.begin().await?;
        let take = "UPDATE ladder.stock SET units = units - 1 WHERE units > 0";
        let taken = sqlx::query(take).execute(&mut *transaction).await?.rows_affected();
        if taken == 0 {
            return Ok(false);
        }
        let insert = "INSERT INTO ladder.orders (user_id) VALUES ($1)";
        sqlx::query(insert).bind(user).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }
}
