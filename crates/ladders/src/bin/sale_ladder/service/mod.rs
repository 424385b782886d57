//! This service, unchanged.

pub mod http;
pub mod library;

use flash_sale::store::ids::CouponId;
use ladders::service;

use crate::scene::Scene;

/// Part of a rung's key before its level of durability.
const LEVEL: &str = "level-";

/// The service in this process, and its coupon on sale.
pub struct Service {
    pub running: service::Service,
    pub coupon: CouponId,
}

impl Service {
    /// Starts doors and worker. A process that was started again goes on with the coupon of the one before.
    pub async fn start(scene: &Scene) -> anyhow::Result<Self> {
        let task = &scene.task;
        let level = task.rung.strip_prefix(LEVEL).map(|level| ["--durability", level]);
        let settings: Vec<&str> = level.into_iter().flatten().collect();
        let running =
            service::Service::start(&task.redis_url, &task.database_url, &settings).await?;
        let coupon = match task.again {
            true => running.last_coupon().await?,
            false => running.create_coupon(task.units).await?,
        };
        Ok(Self { running, coupon })
    }
}
