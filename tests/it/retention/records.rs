//! Records that have served their time go after `--records-days`, and what is open stays.

use flash_sale::base::limits::RETENTION_BATCH;

use crate::support::{Bounded, TestApp};

async fn run_once(app: &TestApp) {
    app.app.retention.run_once().bounded().await.expect("Postgres answers");
}

/// An app whose rows are unknown to Redis.
async fn in_postgres_only() -> TestApp {
    let app = TestApp::configured(&["--records-days", "3"]).await;
    app.expect_disagreements();
    app
}

#[tokio::test]
async fn done_returns_go_after_their_days() {
    let app = in_postgres_only().await;
    let coupon = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT n, {coupon}, 'flash', n, now(), 'cancelled', now() FROM generate_series(1, 4) AS n;
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at) VALUES
             (1, 'unit', 1, 1, now() - interval '4 days'),
             (1, 'place', 1, 1, now() - interval '4 days'),
             (2, 'unit', 1, 2, now() - interval '2 days'),
             (3, 'unit', 1, 3, NULL),
             (4, 'unit', 1, 4, now() - interval '4 days'),
             (4, 'place', 1, 4, NULL)"
    ))
    .await;
    run_once(&app).await;
    assert_eq!(app.number("SELECT sum(order_id)::bigint FROM stock_returns").await, 2 + 3 + 4);
}

#[tokio::test]
async fn keys_of_restocks_go_after_the_end_of_their_coupon_and_no_repeat_adds_units() {
    let app = in_postgres_only().await;
    let mut coupons = Vec::new();
    for _ in 0..3 {
        let coupon = app.create_flash(9).await;
        assert_eq!(app.restock(coupon, 1, "k").await.status, 200);
        coupons.push(coupon);
    }
    let [open, young, old] = coupons[..] else { panic!("{coupons:?}") };
    app.execute("UPDATE restocks SET created_at = now() - interval '9 days'").await;
    for (coupon, days) in [(young, 2), (old, 4)] {
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
        app.execute(&format!(
            "UPDATE coupons SET ended_at = now() - interval '{days} days' WHERE id = {coupon}"
        ))
        .await;
    }
    run_once(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM restocks").await, 2);
    for coupon in [open, young] {
        assert_eq!(app.restock(coupon, 1, "k").await.status, 200, "a repeat of {coupon}");
    }
    assert_eq!(app.restock(old, 1, "k").await.refusal(), (409, "coupon_ended"));
    assert_eq!(app.number("SELECT sum(total)::bigint FROM flash_sales").await, 3 * (9 + 1));
}

#[tokio::test]
async fn changes_comparisons_and_recoveries_go_after_their_days() {
    let app = in_postgres_only().await;
    app.execute(&format!(
        "INSERT INTO audit (at, scope, action)
             SELECT now() - interval '4 days', 'command_line', 'end_coupon' FROM generate_series(0, {RETENTION_BATCH});
         INSERT INTO audit (at, scope, action) VALUES (now() - interval '2 days', 'command_line', 'end_coupon');
         INSERT INTO reconcile_runs (asked_by, started_at)
             SELECT 'period', now() - n * interval '2 days' FROM generate_series(0, 2) AS n;
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at) VALUES
             (0, 1, 'x', now() - interval '9 days', now()), (0, 2, 'x', now() - interval '8 days', NULL),
             (0, 3, 'x', now() - interval '7 days', now()), (0, 4, 'x', now() - interval '6 days', NULL),
             (1, 1, 'x', now() - interval '9 days', now());
         -- What could not be kept waits for a person.
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost, settled_at, note) VALUES
             (2, 1, 'x', now() - interval '9 days', now(), '[{{}}]', NULL, NULL), (2, 2, 'x', now() - interval '8 days', now(), '[{{}}]', now(), 'told'),
             (2, 3, 'x', now() - interval '7 days', now(), '[]', NULL, NULL)"
    ))
    .await;
    run_once(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM audit").await, 1);
    assert_eq!(app.number("SELECT count(*) FROM reconcile_runs").await, 2);
    let left = "SELECT count(*) FROM recoveries WHERE lane = 0 AND epoch IN (3, 4) OR lane = 1 OR lane = 2 AND epoch IN (1, 3)";
    assert_eq!(app.number(left).await, 5, "the last that ended, those since, and one that waits");
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 5);
    app.execute("DELETE FROM recoveries").await;
}
