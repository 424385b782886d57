//! Memory of Redis for orders that were promised and wait to be written, and for the buyers of a sale: this service.

use sqlx::Connection;

use crate::actor::Actor;
use crate::rung::Rung;
use crate::stage::{Crowd, Stage};

/// The log of promised orders.
const LOG: &str = "fs:*:calls";
/// The shards of buyers.
const BUYERS: &str = "fs:*:buyers:*";

/// Bytes of Redis.
pub struct Bytes {
    /// Orders that waited when these were counted.
    pub orders: i64,
    /// For an order that waits in the log.
    pub of_waiting: f64,
    /// For a buyer, as long as the sale is there.
    pub of_buyer: f64,
}

/// Sells all units while no order can be written.
pub async fn bytes(stage: &Stage, rung: &Rung, crowd: Crowd) -> anyhow::Result<Bytes> {
    stage.make_ready(rung, crowd.units, 0).await?;
    let [log, buyers] = memory(stage).await?;
    let mut actor = Actor::start(&stage.task(rung, crowd)).await?;
    let held = stage.hold_orders(rung).await?;
    actor.begin().await?;
    let orders = actor.answers().await?.won;
    let [log_after, buyers_after] = memory(stage).await?;
    held.close().await?;
    actor.rests().await?;
    actor.end().await?;
    let of_each = |bytes: i64| bytes as f64 / orders.max(1) as f64;
    let of_waiting = of_each(log_after - log);
    Ok(Bytes { orders, of_waiting, of_buyer: of_each(buyers_after - buyers) })
}

/// Bytes of all logs, and of all shards.
async fn memory(stage: &Stage) -> anyhow::Result<[i64; 2]> {
    let mut sums = [0; 2];
    for (sum, pattern) in sums.iter_mut().zip([LOG, BUYERS]) {
        let keys: Vec<String> = stage.ask(&["KEYS", pattern]).await?;
        for key in keys {
            *sum += stage.ask::<i64>(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).await?;
        }
    }
    Ok(sums)
}
