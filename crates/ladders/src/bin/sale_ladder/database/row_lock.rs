//! Rung 4: the row of the stock is locked from the look at it to the commit.

use std::sync::Arc;

use crate::design::Design;
use crate::scene::Scene;

pub struct RowLock(Arc<Scene>);

impl Design for RowLock {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let mut transaction = self.0.pool.begin().await?;
        let look = "SELECT units FROM ladder.stock FOR UPDATE";
        let left: i32 = sqlx::query_scalar(look).fetch_one(&mut *transaction).await?;
        if left < 1 {
            return Ok(false);
        }
        let take = "UPDATE ladder.stock SET units = units - 1";
        sqlx::query(take).execute(&mut *transaction).await?;
        let insert = "INSERT INTO ladder.orders (user_id) VALUES ($1)";
        sqlx::query(insert).bind(user).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }
}
