//! Rung 5: a version that has to be the one that was read.

use std::sync::Arc;

use crate::design::Design;
use crate::scene::Scene;

pub struct CompareAndSwap(Arc<Scene>);

impl Design for CompareAndSwap {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let look = "SELECT units, version FROM ladder.stock";
        let (left, version): (i32, i32) = sqlx::query_as(look).fetch_one(&self.0.pool).await?;
        self.0.together().await;
        if left < 1 {
            return Ok(false);
        }
        let take = "WITH taken AS (UPDATE ladder.stock SET units = units - 1, version = version + 1
             WHERE version = $2 RETURNING 1)
             INSERT INTO ladder.orders (user_id) SELECT $1 FROM taken";
        let taken = sqlx::query(take).bind(user).bind(version).execute(&self.0.pool).await?;
        Ok(taken.rows_affected() == 1)
    }
}
