//! Rung 7: one unit for each user: a count before rung 6, without the unique index (7a) and with it (7b).

use std::sync::Arc;

use crate::design::Design;
use crate::scene::Scene;

pub struct OneForEachUser(Arc<Scene>);

impl Design for OneForEachUser {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let has = self.0.orders_of(user).await?;
        self.0.together().await;
        if has > 0 {
            return Ok(false);
        }
        match self.0.take_and_write(user).await {
            Err(error) if is_second_of_the_user(&error) => Ok(false),
            taken => taken,
        }
    }
}

/// The statement is undone as a whole, so the unit is there again.
fn is_second_of_the_user(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
    error.is_some_and(|error| error.constraint() == Some("one_for_each_user"))
}
