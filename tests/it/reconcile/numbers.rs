//! The operator's numbers: metrics of both stores, and the output of `coupon show`.

use std::collections::HashMap;

use flash_sale::base::limits;
use flash_sale::recovery::reconcile::gauges::side_by_side;

use crate::support::{Bounded, TestApp, eventually};

/// Every line of the page: name with labels -> number.
async fn page(app: &TestApp) -> HashMap<String, f64> {
    let page = app.get("/metrics", "").await;
    let lines = page.body.as_str().expect("text").lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(name, number)| (name.to_owned(), number.parse().expect("a number"))).collect()
}

#[tokio::test]
async fn units_log_and_waiting_rows_are_told_as_they_change() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let units = |of: &str| format!("flash_sale_units{{coupon=\"{coupon}\",of=\"{of}\"}}");
    let conserved = format!("flash_sale_conserved{{coupon=\"{coupon}\"}}");
    for user in 1..=2 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.app.numbers.run_once().bounded().await.unwrap();
    let before = page(&app).await;
    let all = ["total", "left", "buyers", "sold"].map(|of| before[&units(of)]);
    assert_eq!((all, before[&conserved]), ([5.0, 3.0, 2.0, 0.0], 1.0));
    assert_eq!(before["flash_sale_log_unread_entries"], 2.0);
    eventually("the oldest entry grows older", async || {
        app.app.numbers.run_once().bounded().await.unwrap();
        page(&app).await["flash_sale_log_oldest_entry_seconds"] > 0.0
    })
    .await;

    let order = app.order(3, coupon).await;
    assert_eq!(app.cancel(3, order).await.status, 200);
    app.app.numbers.run_once().bounded().await.unwrap();
    let after = page(&app).await;
    let all = ["total", "left", "buyers", "sold"].map(|of| after[&units(of)]);
    assert_eq!(all, [5.0, 2.0, 3.0, 2.0], "one is on its way back");
    assert_eq!(after["flash_sale_stock_returns_open"], 1.0);
    for nothing in ["log_unread_entries", "log_pending_entries", "log_oldest_entry_seconds"] {
        assert_eq!(after[&format!("flash_sale_{nothing}")], 0.0, "{nothing}");
    }
    assert_eq!(after["flash_sale_claim_to_row_seconds_count"], 3.0);
    assert!(after["flash_sale_claim_to_row_seconds_sum"] < 60.0);

    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    app.app.numbers.run_once().bounded().await.unwrap();
    assert_eq!(page(&app).await[&conserved], 0.0);
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "-1"]).await;
}

#[tokio::test]
async fn the_buyers_of_a_large_sale_are_not_counted_every_few_seconds() {
    let app = TestApp::start().await;
    let most = i64::from(limits::METRIC_SHARDS_MAX) * limits::SHARD_BUYERS;
    for (units, told) in [(most, 5), (most + 1, 3)] {
        let coupon = app.create_flash(units).await;
        assert_eq!(app.claim(1, coupon).await.status, 202);
        app.app.numbers.run_once().bounded().await.unwrap();
        let page = page(&app).await;
        let of_coupon = |line: &&String| line.contains(&format!("coupon=\"{coupon}\""));
        assert_eq!(page.keys().filter(of_coupon).count(), told, "{page:?}");
        let left = format!("flash_sale_units{{coupon=\"{coupon}\",of=\"left\"}}");
        assert_eq!(page[&left], (units - 1) as f64);
    }
}

#[tokio::test]
async fn a_sale_that_is_gone_has_no_units_and_many_sales_are_not_all_told() {
    let app = TestApp::start().await;
    let mut coupons = Vec::new();
    for _ in 0..=limits::METRIC_COUPONS_MAX {
        coupons.push(app.create_flash(1).await);
    }
    let newest = coupons.last().expect("there are some");
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(*newest)]).await;
    app.app.numbers.run_once().bounded().await.unwrap();
    let page = page(&app).await;
    let told = page.keys().filter(|line| line.starts_with("flash_sale_conserved")).count();
    assert_eq!(told, limits::METRIC_COUPONS_MAX as usize);
    assert_eq!(page[&format!("flash_sale_conserved{{coupon=\"{newest}\"}}")], 0.0);
    let units =
        |line: &&String| line.starts_with("flash_sale_units") && line.contains(&newest.to_string());
    assert_eq!(page.keys().filter(units).count(), 0);
    app.expect_disagreements();
}

#[tokio::test]
async fn both_stores_stand_side_by_side() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.order(1, coupon).await;
    app.paid_order(2, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    assert_eq!(app.claim(3, coupon).await.status, 202);
    let shown = side_by_side(&app.app.stores, coupon).await.unwrap().expect("it has a sale");
    let redis = shown.redis.as_ref().expect("Redis has it");
    assert_eq!((redis.total, redis.left, redis.buyers, redis.conserved), (Some(5), 2, 3, true));
    let postgres = &shown.postgres;
    assert_eq!((postgres.total, postgres.sold, postgres.stock_returns_open), (5, 1, 1));
    let orders: Vec<_> = postgres.orders.iter().map(|(status, n)| (status.as_str(), *n)).collect();
    assert_eq!((postgres.claims, &orders[..]), (2, &[("cancelled", 1), ("paid", 1)][..]));
    assert_eq!((shown.log.unread, shown.disagreements.len()), (1, 0));

    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    let shown = side_by_side(&app.app.stores, coupon).await.unwrap().expect("it has a sale");
    assert!(shown.disagreements[0].contains("total 5 is not stock 3 + buyers 3"), "{shown:?}");
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "-1"]).await;
    let regular = app.create_regular().await;
    assert!(side_by_side(&app.app.stores, regular).await.unwrap().is_none());
}

#[tokio::test]
async fn the_document_tells_of_every_metric() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    app.app.numbers.run_once().bounded().await.unwrap();
    app.app.reconciler.run_once(std::time::Duration::from_secs(60)).bounded().await.unwrap();
    let document = include_str!("../../../docs/metrics.md");
    let page = app.get("/metrics", "").await;
    let names = page
        .body
        .as_str()
        .expect("text")
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned));
    let names: Vec<String> = names.collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(document.contains(&format!("| `{name}")), "docs/metrics.md says nothing of {name}");
    }
}
