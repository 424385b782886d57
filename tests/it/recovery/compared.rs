//! A comparison that finds other buyers in Redis than in Postgres closes the lane, whose recovery builds the sale. So a
//! memory that went back with its replication ID, as that of a machine that is set back to a snapshot, is healed.

use std::time::Duration;

use serde_json::Value;

use super::rolled_back::{keep_memory, put_memory_back};
use crate::faults::recovery::{code, command, keep, sell, start};
use crate::support::{Bounded, TestApp, eventually};

const CLOSED: &str = "SELECT count(*) FROM lanes WHERE state = 'recovering'";

/// The codes of the findings of a comparison.
async fn compare(app: &TestApp) -> Vec<String> {
    let compared = app.compare().await;
    assert_eq!(compared.status, 200, "{compared:?}");
    let findings = compared.body["findings"].as_array().expect("a list").iter();
    findings.filter_map(|one: &Value| Some(one["code"].as_str()?.to_owned())).collect()
}

#[tokio::test]
async fn a_memory_that_went_back_is_healed_by_the_next_comparison() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let cancelled = app.order(1, coupon).await;
    sell(&app, coupon, 2..=3).await;
    app.write_orders().await;
    keep(&app).await;
    keep_memory(&app).await;
    sell(&app, coupon, 4..=6).await;
    app.write_orders().await;
    assert_eq!(app.cancel(1, cancelled).await.status, 200);
    app.release().await;
    put_memory_back(&app).await;
    keep(&app).await;
    assert_eq!(app.number(CLOSED).await, 0, "nothing tells");
    let mut found = compare(&app).await;
    found.sort();
    assert_eq!(found, ["buyer_missing", "buyer_missing", "buyer_missing", "not_released"]);
    assert_eq!(app.number(CLOSED).await, 1);
    app.recover().await;
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!(compare(&app).await, [""; 0]);
    sell(&app, coupon, 7..=11).await;
    assert_eq!(code(&app, 12, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
}

/// The log has the entry again that has been written long ago: by that the user is no buyer.
#[tokio::test]
async fn a_recovery_frees_the_unit_of_a_closed_order_whose_entry_has_come_back_too() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(3).await;
    sell(&app, coupon, 1..=3).await;
    keep_memory(&app).await;
    app.write_orders().await;
    let cancelled = app.number("SELECT id FROM orders WHERE user_id = 1").await;
    assert_eq!(app.cancel(1, cancelled).await.status, 200);
    app.release().await;
    put_memory_back(&app).await;
    command(&app, &["recover", "--lane", "0"]).await;
    app.recover().await;
    app.write_orders().await;
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), [2, 3]);
    sell(&app, coupon, 1..=1).await;
}

#[tokio::test]
async fn a_comparison_by_the_clock_closes_a_lane_as_well_and_no_other() {
    let app = TestApp::with_lanes(2).await;
    let (good, bad) = (app.create_flash(5).await, app.create_flash(5).await);
    assert_ne!(good.lane(), bad.lane());
    for coupon in [good, bad] {
        app.order(1, coupon).await;
    }
    keep(&app).await;
    app.forget_buyer(bad, 1).await;
    eventually("it was the turn of this one", async || {
        let passed = app.app.reconciler.run_once(Duration::from_secs(60)).bounded().await;
        passed.is_ok() && app.number(CLOSED).await == 1
    })
    .await;
    let closed = "SELECT concat_ws(' ', lane, reason) FROM lanes WHERE state = 'recovering'";
    let reason = "a comparison found that Redis has other buyers than Postgres";
    assert_eq!(app.texts(closed).await, [format!("{} {reason}", bad.lane())]);
    app.recover().await;
    assert_eq!((app.stock(bad).await, app.buyers_count(bad).await), (4, 1));
}
