//! The parts of a comparison, file by file: each fault of a log, of a sale, and each repair, beside what is no fault.

use std::sync::LazyLock;

use flash_sale::sale::Stores;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile::{self, Report};
use tokio::task::JoinSet;

use crate::support::played::hash;
use crate::support::{Bounded, TestApp, bounded, eventually, proxy_before};

// The logs of lanes.
mod lane;

// Buyers and orders of a sale.
mod one_sale;

// Repairs.
mod repair;

// Log lines about comparisons.
mod pass;

// The numbers of one sale.
mod gauges;

// The turn.
mod turn;

// Orders that move while they are compared.
mod meanwhile;

// Comparisons that are due.
mod due;

// Sales that have changed.
mod changed;

// Comparisons on request.
mod asked;

// A sale that changes while it is read.
mod read_sale;

/// Sessions that hold the turn.
const HOLDERS: &str = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND granted AND datname = current_database()";

/// The script that counts a sale.
static CENSUS: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../lua/census.lua")));

/// The comparison of a sale, during which this happens after Postgres has been asked for its terms and before Redis counts.
async fn checked_while(
    app: &TestApp,
    coupon: CouponId,
    happens: impl AsyncFnOnce(),
) -> Option<Report> {
    let proxy = proxy_before(app, &CENSUS).await;
    let other = app.another_instance_behind(&proxy).await;
    proxy.hold();
    let mut checking = JoinSet::new();
    checking.spawn(async move {
        let Stores { pool, redis, keys } = &other.stores;
        reconcile::check_sale(pool, redis, keys, coupon).bounded().await
    });
    eventually("the sale is about to be counted", async || proxy.held() == 1).await;
    happens().await;
    proxy.release();
    let checked = bounded("the end of the comparison", checking.join_next()).await;
    checked.expect("it was begun").expect("it ends").expect("both stores answer")
}
