//! `gauges`: the operator's numbers on the page of metrics, each with the rows that it counts.

use crate::support::{Bounded, TestApp};

/// Two open letters of three, three open returns of four, and notes of two jobs.
const ROWS: &str = "
    INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
        SELECT 0, n || '-1', '{}', 'conflict', '', 1, n, n, CASE n WHEN 3 THEN now() END FROM generate_series(1, 3) AS n;
    INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
        SELECT n, 1, 'flash', n, now(), 'cancelled', now() FROM generate_series(1, 4) AS n;
    INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
        SELECT n, 1, n, CASE n WHEN 4 THEN now() END FROM generate_series(1, 4) AS n;
    INSERT INTO postponed (job, item, error, since, next_try_at)
        SELECT CASE WHEN n < 3 THEN 'expiry' ELSE 'refunds' END, n, 'x', now() - n * interval '10 hours', 'infinity'
        FROM generate_series(1, 3) AS n";

#[tokio::test]
async fn numbers_look_at_letters_returns_and_postponed_items() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    app.execute(ROWS).await;
    app.app.numbers.run_once().bounded().await.expect("both stores answer");
    for (name, number) in [
        ("flash_sale_dead_letters_open", 2.0),
        ("flash_sale_stock_returns_open", 3.0),
        (r#"flash_sale_postponed_items{name="expiry"}"#, 2.0),
        (r#"flash_sale_postponed_items{name="refunds"}"#, 1.0),
        (r#"flash_sale_postponed_items{name="openings"}"#, 0.0),
        (r#"flash_sale_postponed_oldest_seconds{name="openings"}"#, 0.0),
        (r#"flash_sale_payments_owed{status="held"}"#, 0.0),
        (r#"flash_sale_payments_owed{status="refunding"}"#, 0.0),
        ("flash_sale_log_unread_entries", 0.0),
        ("flash_sale_log_pending_entries", 0.0),
        ("flash_sale_log_oldest_entry_seconds", 0.0),
        (&*format!("flash_sale_conserved{{coupon=\"{coupon}\"}}"), 1.0),
    ] {
        assert_eq!(app.metric(name).await, number, "{name}");
    }
    for (name, hours) in [
        (r#"flash_sale_postponed_oldest_seconds{name="expiry"}"#, 20.0),
        (r#"flash_sale_postponed_oldest_seconds{name="refunds"}"#, 30.0),
    ] {
        assert_eq!((app.metric(name).await / 3_600.0).floor(), hours, "{name}");
    }
    let page = app.get("/metrics", "").await;
    let page = page.body.as_str().expect("text");
    assert!(!page.contains(r#"flash_sale_postponed_items{name="write"}"#), "it postpones nothing");
}

#[tokio::test]
async fn numbers_of_a_sale_and_of_a_log_that_can_not_be_read_are_left_out() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (good, bad) = (app.create_flash(5).await, app.create_flash(5).await);
    app.claim(1, good).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(bad), "stock", "many"]).await;
    app.app.numbers.run_once().bounded().await.expect("both stores answer");
    let units = |coupon, of: &str| format!("flash_sale_units{{coupon=\"{coupon}\",of=\"{of}\"}}");
    let conserved = |coupon| format!("flash_sale_conserved{{coupon=\"{coupon}\"}}");
    let told = [
        units(good, "total"),
        units(good, "left"),
        units(good, "buyers"),
        conserved(good),
        conserved(bad),
    ];
    let mut numbers = Vec::new();
    for name in &told {
        numbers.push(app.metric(name).await);
    }
    assert_eq!(numbers, [5.0, 4.0, 1.0, 1.0, 0.0]);
    assert_eq!(app.metric("flash_sale_log_unread_entries").await, 1.0);
    let page = app.get("/metrics", "").await;
    assert!(!page.body.as_str().expect("text").contains(&units(bad, "total")));

    let log = app.log(good.lane());
    let _: i64 = app.redis(&["DEL", &log]).await;
    let _: String = app.redis(&["SET", &log, "x"]).await;
    app.app.numbers.run_once().bounded().await.expect("both stores answer");
    let page = app.get("/metrics", "").await;
    let page = page.body.as_str().expect("text");
    assert!(
        !page.contains("flash_sale_log_unread_entries"),
        "the sum over the others would look like all"
    );
    assert_eq!(app.metric(&conserved(good)).await, 1.0, "the other numbers are there");
}
