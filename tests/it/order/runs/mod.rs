//! Runs of the passes about orders: results, rounds, and the traces of each.

use flash_sale::sale::ids::CouponId;

use crate::support::TestApp;

// Units and places on their way back, turn by turn.
mod give_back;

// Turns of coupons, and further rounds.
mod turns;

// Places of discarded dead letters, by the state of their sale.
mod withdrawal;

// Places of discarded dead letters, while the state of their sale changes.
mod passing_on;

// Unpaid orders whose time is over.
mod expiry;

// Jobs that cancel orders.
mod cancellations;

// What another session keeps locked.
mod locked;

// Running counts of orders.
mod counts;

/// Error of each note about a postponed item, by pass.
async fn errors(app: &TestApp) -> Vec<String> {
    app.texts("SELECT concat(pass, ': ', error) FROM postponed ORDER BY pass, item").await
}

/// Raises the epoch of the only lane, and that of these sales, in both stores; this process doesn't know it yet.
async fn raise_epoch(app: &TestApp, epoch: i64, coupons: &[CouponId]) {
    app.execute(&format!("UPDATE lanes SET epoch = {epoch}")).await;
    let sales = coupons.iter().map(|coupon| app.keys().coupon(*coupon));
    for key in sales.chain([app.keys().lane(crate::support::lane())]) {
        let _: i64 = app.redis(&["HSET", &key, "epoch", &epoch.to_string()]).await;
    }
}
