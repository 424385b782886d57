//! Rung 3: a lock for each user, taken inside the transaction and released before the commit.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::design::Design;
use crate::scene::Scene;

pub struct ReleasedTooEarly {
    scene: Arc<Scene>,
    locks: Mutex<HashMap<i64, Arc<Mutex<()>>>>,
}

impl Design for ReleasedTooEarly {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self { scene, locks: Mutex::default() })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let mut transaction = self.scene.pool.begin().await?;
        let lock = self.locks.lock().await.entry(user).or_default().clone();
        let inside = lock.lock().await;
        let has = "SELECT count(*) FROM ladder.orders WHERE user_id = $1";
        let has: i64 = sqlx::query_scalar(has).bind(user).fetch_one(&mut *transaction).await?;
        let insert = "INSERT INTO ladder.orders (user_id) SELECT $1 WHERE $2 = 0";
        let insert = sqlx::query(insert).bind(user).bind(has);
        let inserted = insert.execute(&mut *transaction).await?.rows_affected();
        drop(inside);
        self.scene.together().await;
        let take = "UPDATE ladder.stock SET units = units - 1 WHERE units > 0";
        let taken = sqlx::query(take).execute(&mut *transaction).await?.rows_affected();
        if inserted + taken < 2 {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }
}
