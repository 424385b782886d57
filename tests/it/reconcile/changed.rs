//! A comparison of what has changed: still sales are left out, each change of either side has the sale read again, and the
//! audit reads still sales, too.

use std::time::Duration;

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::counts;
use serde_json::{Value, json};

use crate::support::{Bounded, TestApp};

/// A comparison as the workers make it. Returns its record.
async fn compare_changed(app: &TestApp) -> Value {
    // The audit has a test of its own.
    app.execute(
        "UPDATE sale_reading_audit SET next_at = now() + interval '1 hour';
         UPDATE reconcile_runs SET started_at = started_at - interval '1 day', finished_at = finished_at - interval '1 day'",
    )
    .await;
    app.app.reconciler.pass(Duration::from_secs(60)).bounded().await.expect("both stores answer");
    last(app).await
}

async fn last(app: &TestApp) -> Value {
    let page = app.get("/v1/reconcile/runs?limit=1", &app.admin_token()).await;
    page.body["runs"][0].clone()
}

/// Number of sales whose orders the last comparison left out, and the codes of its findings.
async fn left_out(app: &TestApp) -> (i64, Vec<String>) {
    let run = compare_changed(app).await;
    assert_eq!(run["kind"], "changed");
    let codes = run["findings"].as_array().expect("a list").iter();
    let codes = codes.map(|finding| finding["code"].as_str().expect("a code").to_owned());
    (run["unchanged"].as_i64().expect("a number"), codes.collect())
}

/// An app with a sale of five units, two of them sold, which has been read.
async fn read_sale() -> (TestApp, CouponId, [i64; 2]) {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    assert_eq!(left_out(&app).await, (0, vec![]), "a sale that has never been read");
    assert_eq!(left_out(&app).await, (1, vec![]));
    (app, coupon, orders)
}

#[tokio::test]
async fn each_change_of_a_set_has_the_sale_read_again() {
    let (app, coupon, [first, second]) = read_sale().await;
    // A live order stays one.
    assert_eq!(app.pay(1, first).await.status, 200);
    assert_eq!(left_out(&app).await, (1, vec![]));
    // In flight; then a row, by which both sides are the same again.
    app.claim(3, coupon).await;
    assert_eq!(left_out(&app).await, (0, vec![]));
    assert_eq!(left_out(&app).await, (0, vec![]), "no reading is good while an entry is in flight");
    app.write_orders().await;
    assert_eq!(left_out(&app).await, (0, vec![]));
    assert_eq!(left_out(&app).await, (1, vec![]));
    // A unit comes back, and is sold again: the numbers are those of before.
    app.cancel(2, second).await;
    assert_eq!(left_out(&app).await, (0, vec![]));
    app.give_back().await;
    app.order(4, coupon).await;
    assert_eq!(left_out(&app).await, (0, vec![]));
    assert_eq!(left_out(&app).await, (1, vec![]));
    let run = last(&app).await;
    assert!(run["oldest_reading_at"].is_string(), "{run}");
    let full = app.compare(false).await;
    assert_eq!((&full.body["kind"], &full.body["unchanged"]), (&json!("full"), &json!(0)));
}

#[tokio::test]
async fn a_claim_that_is_lost_after_the_reading_is_found() {
    let (app, coupon, _) = read_sale().await;
    app.expect_disagreements();
    app.claim(3, coupon).await;
    assert_eq!(left_out(&app).await, (0, vec![]), "in flight");
    let log = app.keys().log(crate::support::calls(coupon.lane()));
    let _: i64 = app.redis(&["DEL", &log]).await;
    // Neither the sale in Redis nor Postgres has changed since.
    let (unchanged, codes) = left_out(&app).await;
    assert_eq!(unchanged, 0);
    assert!(codes.contains(&"order_lost".to_owned()), "{codes:?}");
}

#[tokio::test]
async fn writes_by_hand_are_changes_too() {
    for (write, code) in [
        // The number of live orders stays the same.
        ("UPDATE orders SET user_id = 7 WHERE user_id = 2", "buyer_missing"),
        ("DELETE FROM orders WHERE user_id = 2; UPDATE flash_sales SET sold = 1", "order_lost"),
        ("UPDATE flash_sales SET sold = 1", "sold_miscounted"),
    ] {
        let (app, ..) = read_sale().await;
        app.expect_disagreements();
        app.execute(write).await;
        let (unchanged, codes) = left_out(&app).await;
        assert_eq!(unchanged, 0, "{write}");
        assert!(codes.contains(&code.to_owned()), "{write}: {codes:?}");
        // A finding stays one until it is settled.
        assert!(left_out(&app).await.1.contains(&code.to_owned()), "{write}");
    }
}

#[tokio::test]
async fn the_audit_finds_what_left_no_mark() {
    let (app, coupon, _) = read_sale().await;
    app.expect_disagreements();
    let shard = app.shard_of(coupon, 2).await;
    let _: i64 = app.redis(&["HSET", &shard, "2", "77"]).await;
    assert_eq!(left_out(&app).await, (1, vec![]), "no script writes such a thing");
    app.execute("UPDATE sale_reading_audit SET next_at = now()").await;
    assert_eq!(
        app.app.reconciler.audit_next().bounded().await.unwrap(),
        None,
        "the sale was read just now"
    );
    app.execute(
        "UPDATE sale_reading_audit SET next_at = now();
         UPDATE sale_readings SET read_at = now() - interval '2 hours'",
    )
    .await;
    assert_eq!(app.app.reconciler.audit_next().bounded().await.unwrap(), Some(coupon));
    assert_eq!(app.app.reconciler.audit_next().bounded().await.unwrap(), None, "it rests");
    let (unchanged, codes) = left_out(&app).await;
    assert_eq!(unchanged, 0);
    for code in ["buyer_missing", "order_lost"] {
        assert!(codes.contains(&code.to_owned()), "{codes:?}");
    }
}

#[tokio::test]
async fn the_audit_goes_on_behind_a_sale_that_cannot_be_read() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (bad, good) = (app.create_flash(5).await, app.create_flash(5).await);
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(bad), "stock", "many"]).await;
    let mut read = Vec::new();
    for _ in 0..3 {
        app.execute("UPDATE sale_reading_audit SET next_at = now()").await;
        read.push(app.app.reconciler.audit_next().bounded().await.unwrap());
    }
    assert_eq!(read, [Some(bad), Some(good), None]);
}

#[tokio::test]
async fn a_sale_too_large_to_be_read_at_once_waits_for_the_audit() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(400_000).await;
    app.execute(&format!(
        "SET LOCAL statement_timeout = 0;
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT n, {coupon}, 'flash', n, now() FROM generate_series(1, 300001) AS n;
         UPDATE flash_sales SET sold = 300000;
         ANALYZE orders"
    ))
    .await;
    let run = compare_changed(&app).await;
    assert_eq!((&run["waiting"], &run["unchanged"]), (&json!(1), &json!(0)));
    assert!(run["oldest_reading_at"].is_null(), "{run}");
    // The counts of Postgres are compared all the same.
    assert_eq!(run["findings"][0]["code"], "sold_miscounted");
    app.execute("UPDATE sale_reading_audit SET next_at = now()").await;
    assert_eq!(app.app.reconciler.audit_next().bounded().await.unwrap(), Some(coupon));
    let run = compare_changed(&app).await;
    let codes: Vec<_> =
        run["findings"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!(codes, ["sold_miscounted", "buyer_missing", "sold_miscounted"], "{run}");
    assert_eq!(run["disagreements"], 3);
}

#[tokio::test]
async fn adding_changes_up_changes_no_digest() {
    let (app, coupon, _) = read_sale().await;
    let add_up = async || app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    add_up().await;
    assert_eq!(left_out(&app).await, (1, vec![]));
    app.order(3, coupon).await;
    add_up().await;
    assert_eq!(left_out(&app).await, (0, vec![]));
    app.order(4, coupon).await;
    assert_eq!(left_out(&app).await, (0, vec![]));
    add_up().await;
    assert_eq!(left_out(&app).await, (1, vec![]));
}

/// The digests of the rows, and those that the triggers keep.
#[tokio::test]
async fn a_wrong_digest_is_corrected() {
    let (app, coupon, _) = read_sale().await;
    let pool = &app.app.stores.pool;
    let digest = async || counts::live(pool, &[coupon]).await.unwrap()[&coupon].digest.clone();
    let right = digest().await;
    app.execute("UPDATE order_count_changes SET digest = digest + 1; UPDATE order_counts SET digest = digest + 1")
        .await;
    assert_ne!(digest().await, right);
    app.execute("UPDATE order_count_audit SET next_at = now()").await;
    assert_eq!(app.app.order_counts.audit_next().bounded().await.unwrap(), Some(coupon));
    assert_eq!(digest().await, right);
}
