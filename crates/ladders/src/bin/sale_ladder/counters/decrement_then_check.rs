//! Rung 10: DECR, and a look at its result afterwards.

use std::sync::Arc;

use crate::design::Design;
use crate::scene::Scene;

pub struct DecrementThenCheck(Arc<Scene>);

impl Design for DecrementThenCheck {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(scene))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let left: i64 = self.0.ask(&["DECR", "stock"]).await?;
        if left < 0 {
            return Ok(false);
        }
        self.0.write_order(user).await
    }
}
