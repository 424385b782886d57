//! Time from a 202 to the row in Postgres, of sampled claims.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use sqlx::PgPool;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::load::sending::Promise;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// Claims that are looked for at one time, at most; the others are let go.
const WANTED_MAX: usize = 1_000;
/// A row that hasn't come by then is counted as missing.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_US: u64 = 60_000_000;
/// Samples a second that are worth their cost.
pub const SAMPLES_PER_SECOND: f64 = 200.0;

/// Time from the answer until the row could be read.
#[derive(Clone, Debug, Serialize)]
pub struct Durable {
    pub samples: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Average time between two looks: no figure is more exact.
    pub resolution_ms: f64,
    /// Samples whose row never came.
    pub missing: u64,
}

/// Looks for the rows until no more promises come and all rows have been seen.
pub async fn watch(pool: PgPool, mut promises: UnboundedReceiver<Promise>) -> Option<Durable> {
    let mut wanted: HashMap<i64, Instant> = HashMap::new();
    let mut latency = Histogram::<u64>::new_with_bounds(1, PATIENCE_US, 3).ok()?;
    let mut looks = 0_u64;
    let began = Instant::now();
    let mut is_over = false;
    while !is_over || !wanted.is_empty() {
        loop {
            match promises.try_recv() {
                Ok(promise) if wanted.len() < WANTED_MAX => {
                    wanted.insert(promise.order, promise.answered);
                }
                Ok(_) => {}
                Err(error) => {
                    is_over |= error == tokio::sync::mpsc::error::TryRecvError::Disconnected;
                    break;
                }
            }
        }
        let orders: Vec<i64> = wanted.keys().copied().collect();
        if !orders.is_empty() {
            // Planned anew each time: a plan from when the table was small reads all of it.
            let found: Vec<i64> = sqlx::query_scalar("SELECT id FROM orders WHERE id = ANY($1)")
                .persistent(false)
                .bind(&orders)
                .fetch_all(&pool)
                .await
                .ok()?;
            for order in found {
                if let Some(answered) = wanted.remove(&order) {
                    let took = answered.elapsed().as_micros();
                    latency.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
                }
            }
        }
        looks += 1;
        if wanted.values().any(|answered| answered.elapsed() > PATIENCE) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let ms = |us: u64| us as f64 / 1_000.0;
    (!latency.is_empty() || !wanted.is_empty()).then(|| Durable {
        samples: latency.len(),
        p50_ms: ms(latency.value_at_quantile(0.5)),
        p99_ms: ms(latency.value_at_quantile(0.99)),
        max_ms: ms(latency.max()),
        resolution_ms: began.elapsed().as_secs_f64() * 1_000.0 / looks as f64,
        missing: wanted.len() as u64,
    })
}
