//! A sale that goes on slowly: one claim a second, each of a new user, so that the watchers of the sale have something
//! to see.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::{Method, Uri};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::load::connection::Address;
use crate::load::crowd::Crowd;
use flash_sale::base::shutdown::Shutdown;

const EVERY: Duration = Duration::from_secs(1);

/// Sells until it is stopped or dropped, or has no more users.
pub struct Seller {
    selling: JoinHandle<anyhow::Result<u64>>,
    stop: DropGuard,
}

impl Seller {
    /// Starts at once.
    pub fn start(address: Address, claims: Uri, crowd: Arc<Crowd>, shutdown: &Shutdown) -> Self {
        let stop = CancellationToken::new();
        let selling = shutdown.spawn(sell(address, claims, crowd, stop.clone()));
        Self { selling, stop: stop.drop_guard() }
    }

    /// Stops, and tells the number of units sold.
    pub async fn stop(self) -> anyhow::Result<u64> {
        drop(self.stop);
        self.selling.await?
    }
}

async fn sell(
    address: Address,
    claims: Uri,
    crowd: Arc<Crowd>,
    stop: CancellationToken,
) -> anyhow::Result<u64> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sold = 0;
    for user in 0..crowd.len() {
        loop {
            if stop.run_until_cancelled(ticks.tick()).await.is_none() {
                return Ok(sold);
            }
            let token = crowd.header(user).context("there is one")?;
            match address.ask(&Method::POST, &claims, token, None).await? {
                // The second one is the answer to a repeat.
                (202 | 409, _) => break,
                // The outcome is unknown, and a repeat is safe.
                (503, _) => {}
                (status, answer) => bail!("a claim was not accepted ({status}): {answer}"),
            }
        }
        sold += 1;
    }
    Ok(sold)
}
