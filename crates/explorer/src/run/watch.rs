//! Looks at sales while the run goes on: stock and buyers add up at each moment.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use super::collect::redis_sale;
use crate::check::conserved;
use crate::clients::Created;
use crate::world::Installation;

/// Period of the looks.
const PERIOD: Duration = Duration::from_millis(150);
/// Findings that are kept; one is enough to fail a run.
const FOUND_MAX: usize = 5;

/// Looks until it is dropped. A Redis that does not answer, or has lost a sale, is looked at again later: the end of the
/// run tells what became of it.
pub async fn watch(
    installation: &Installation,
    sales: &[Created],
    found: &Mutex<Vec<String>>,
) -> Infallible {
    loop {
        sleep(PERIOD).await;
        // The lock is not held while Redis is asked: a fault that ends may wait for the lock.
        let socket = installation.redis.lock().await.socket();
        for sale in sales {
            look(installation, &socket, sale.coupon, found).await;
        }
    }
}

async fn look(installation: &Installation, socket: &Path, coupon: i64, found: &Mutex<Vec<String>>) {
    let Ok(Some(sale)) = redis_sale(socket, coupon).await else { return };
    if sale.shards_missing > 0 {
        return;
    }
    let at = installation.time.now();
    let mut found = found.lock().expect("no holder of this lock panics");
    for broken in conserved(coupon, &sale) {
        if found.len() < FOUND_MAX {
            found.push(format!("at {at} ms: {}", broken.detail));
        }
    }
}
