//! Looks at sales while the run goes on: stock and buyers add up at each moment.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use super::collect::redis_sale;
use crate::check::conserved;
use crate::clients::Created;
use crate::world::{Installation, RedisNode};

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
        // Not during an exchange of servers or files.
        let Ok(redis) = installation.redis.try_lock() else { continue };
        for sale in sales {
            look(installation, redis.master(), sale.coupon, found).await;
        }
    }
}

async fn look(
    installation: &Installation,
    master: &RedisNode,
    coupon: i64,
    found: &Mutex<Vec<String>>,
) {
    let Ok(Some(sale)) = redis_sale(master, coupon).await else { return };
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
