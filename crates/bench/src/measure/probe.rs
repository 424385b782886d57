//! Probes of a loaded service: is it alive, is it ready, and its metrics.

use std::time::{Duration, Instant};

use hyper::{Method, Uri};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::load::connection::{Address, Connection};

/// Paths that are asked, each on a connection of its own.
pub const PATHS: [&str; 3] = ["/livez", "/readyz", "/metrics"];
const EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);

/// The answers at one path.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    pub path: &'static str,
    pub asked: u64,
    /// Anything but 200, time-outs included.
    pub failed: u64,
    pub slowest_ms: f64,
}

impl Probe {
    /// Asks until it is told to stop.
    pub async fn run(address: Address, path: &'static str, stop: CancellationToken) -> Self {
        let mut probe = Self { path, asked: 0, failed: 0, slowest_ms: 0.0 };
        let mut connection = None;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let began = Instant::now();
            let status = timeout(PATIENCE, ask(&address, path, &mut connection)).await;
            let took = began.elapsed().as_secs_f64() * 1_000.0;
            probe.asked += 1;
            probe.slowest_ms = probe.slowest_ms.max(took);
            if !matches!(status, Ok(Ok(200))) {
                probe.failed += 1;
                connection = None;
            }
        }
        probe
    }

    /// Adds what the same question was answered another time.
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.failed += other.failed;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
    }
}

async fn ask(
    address: &Address,
    path: &'static str,
    kept: &mut Option<Connection>,
) -> anyhow::Result<u16> {
    let connection = match kept {
        Some(connection) => connection,
        None => kept.insert(Connection::open(address).await?),
    };
    let request = address.request(&Method::GET, &Uri::from_static(path), None);
    Ok(connection.exchange(request, &mut Vec::new()).await?.status)
}
