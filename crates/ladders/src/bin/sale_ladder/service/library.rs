//! Rungs 23a and 20: this service through its library, at its own level of durability and at each that exists.

use std::sync::Arc;

use anyhow::bail;
use flash_sale::base::durability::Level;
use flash_sale::base::limits;
use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::store::ids::UserId;
use ladders::service;

use super::Service;
use crate::design::Design;
use crate::scene::Scene;

pub struct Library(Service);

impl Design for Library {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        Ok(Self(Service::start(&scene).await?))
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let Service { running: service::Service { app, .. }, coupon } = &self.0;
        let user = UserId::new(user)?;
        match app.claims.claim(*coupon, user).await? {
            ClaimOutcome::Accepted(order) if app.durability.first().level() == Level::Postgres => {
                let row = app.order_waiters.wait(user, order, limits::ROW_WAIT_MAX).await;
                Ok(row.is_some())
            }
            ClaimOutcome::Accepted(_) => Ok(true),
            ClaimOutcome::AlreadyClaimed(_) | ClaimOutcome::SoldOut => Ok(false),
            outcome => bail!("no answer for this crowd: {outcome:?}"),
        }
    }

    async fn rest(&self) -> anyhow::Result<()> {
        self.0.running.rest().await
    }
}
