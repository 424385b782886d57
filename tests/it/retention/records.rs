//! Records that have served their time: each kind goes after its days, and what is open stays.

use flash_sale::base::limits::{PASS_BATCHES_MAX, RETENTION_BATCH};
use flash_sale::kit::id;
use flash_sale::sale::retention::Forgotten;
use serde_json::json;

use crate::support::lines::{Lines, rows_returned};
use crate::support::{Bounded, SECRET, TestApp, now};

/// Rows with an order id below this are of the first days of 2022.
const OLD: i64 = 1 << 40;

async fn forgotten(app: &TestApp) -> Forgotten {
    app.app.retention.pass().bounded().await.expect("Postgres answers")
}

/// An app whose rows are unknown to Redis.
async fn in_postgres_only(arguments: &[&str]) -> TestApp {
    let app = TestApp::configured(arguments).await;
    app.expect_disagreements();
    app
}

/// Cancelled orders with these ids.
async fn cancelled(app: &TestApp, (first, last): (i64, i64)) {
    let coupon = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT n, {coupon}, 'flash', n, now(), 'cancelled', now() FROM generate_series({first}::bigint, {last}) AS n"
    ))
    .await;
}

#[tokio::test]
async fn done_returns_go_after_their_days() {
    let app = in_postgres_only(&["--returns-days", "3"]).await;
    cancelled(&app, (1, 4)).await;
    app.execute(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at) VALUES
             (1, 'unit', 1, 1, now() - interval '4 days'),
             (1, 'place', 1, 1, now() - interval '4 days'),
             (2, 'unit', 1, 2, now() - interval '2 days'),
             (3, 'unit', 1, 3, NULL),
             (4, 'unit', 1, 4, now() - interval '4 days'),
             (4, 'place', 1, 4, NULL)",
    )
    .await;
    assert_eq!(forgotten(&app).await, Forgotten { stock_returns: 3, ..Forgotten::default() });
    let left = "SELECT sum(order_id)::bigint FROM stock_returns";
    assert_eq!((app.number(left).await, forgotten(&app).await), (2 + 3 + 4, Forgotten::default()));
}

/// They can't have been done for days.
#[tokio::test]
async fn returns_of_young_orders_are_not_looked_at() {
    let app = in_postgres_only(&["--returns-days", "3"]).await;
    let young = id::first_at(now());
    for order in [1, young] {
        cancelled(&app, (order, order)).await;
        app.execute(&format!(
            "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at) VALUES ({order}, 1, 1, now())"
        ))
        .await;
    }
    let lines = Lines::down_to(tracing::Level::DEBUG);
    assert_eq!(forgotten(&app).await, Forgotten::default());
    let looked_at = "FROM stock_returns WHERE order_id > $1 AND order_id < $2";
    assert_eq!(rows_returned(&lines, looked_at), [1]);
}

#[tokio::test]
async fn a_batch_of_old_returns_goes() {
    let app = in_postgres_only(&[]).await;
    let batch = i64::from(RETENTION_BATCH);
    let mut first = 1;
    for count in [0, 1, batch, batch + 1] {
        let last = first + count - 1;
        cancelled(&app, (first, last)).await;
        app.execute(&format!(
            "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
             SELECT n, 1, n, now() - interval '1 year' FROM generate_series({first}, {last}) AS n"
        ))
        .await;
        first += count;
        let deleted = i64::try_from(forgotten(&app).await.stock_returns);
        assert_eq!(deleted, Ok(count), "in one run");
    }
}

#[tokio::test]
async fn open_returns_in_front_hold_up_no_done_one() {
    let app = in_postgres_only(&[]).await;
    let pages = i64::try_from(PASS_BATCHES_MAX).unwrap();
    let rows = pages * i64::from(RETENTION_BATCH) + 1;
    cancelled(&app, (1, rows)).await;
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
         SELECT n, 1, n, CASE WHEN n = {rows} THEN now() - interval '1 year' END
         FROM generate_series(1, {rows}) AS n"
    ))
    .await;
    assert_eq!(forgotten(&app).await.stock_returns, 0, "as many pages as one run looks at");
    assert_eq!(forgotten(&app).await.stock_returns, 1, "the next run goes on");
    app.execute("UPDATE stock_returns SET done_at = now() - interval '1 year'").await;
    let mut deleted = 0;
    for _ in 0..3 {
        deleted += forgotten(&app).await.stock_returns;
    }
    assert_eq!(i64::try_from(deleted).unwrap(), rows - 1, "it begins again at the front");
}

#[tokio::test]
async fn closed_letters_go_after_their_days() {
    let app = in_postgres_only(&["--dead-letters-days", "3"]).await;
    cancelled(&app, (1, 3)).await;
    app.execute(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at, created_at)
         SELECT 0, n || '-1', '{}', 'conflict', '', 1, n, n,
                CASE n WHEN 2 THEN NULL WHEN 4 THEN now() - interval '1 day' ELSE now() - interval '4 days' END,
                now() - interval '9 days'
         FROM generate_series(1, 4) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES (3, 1, 3)",
    )
    .await;
    assert_eq!(forgotten(&app).await, Forgotten { dead_letters: 1, ..Forgotten::default() });
    let left = "SELECT sum(id)::bigint FROM dead_letters";
    assert_eq!(app.number(left).await, 2 + 3 + 4, "open, with a unit on its way, and young");
    app.execute("UPDATE stock_returns SET done_at = now()").await;
    assert_eq!(forgotten(&app).await.dead_letters, 1, "its unit is back");
}

#[tokio::test]
async fn keys_of_restocks_go_after_the_end_of_their_coupon_and_no_repeat_adds_units() {
    let app = in_postgres_only(&["--restocks-days", "3"]).await;
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
    assert_eq!(forgotten(&app).await, Forgotten { restocks: 1, ..Forgotten::default() });
    assert_eq!(forgotten(&app).await, Forgotten::default());
    for coupon in [open, young] {
        assert_eq!(app.restock(coupon, 1, "k").await.status, 200, "a repeat of {coupon}");
    }
    assert_eq!(app.restock(old, 1, "k").await.refusal(), (409, "coupon_ended"));
    assert_eq!(app.number("SELECT sum(total)::bigint FROM flash_sales").await, 3 * (9 + 1));
}

#[tokio::test]
async fn keys_of_one_coupon_go_in_batches_and_those_behind_them_follow() {
    let app = in_postgres_only(&[]).await;
    let (first, second) = (app.create_flash(9).await, app.create_flash(9).await);
    let rows = i64::from(RETENTION_BATCH) * 2 + 7;
    app.execute(&format!(
        "UPDATE coupons SET state = 'ended', ended_at = now() - interval '1 year' WHERE id IN ({first}, {second});
         INSERT INTO restocks (coupon_id, key, units)
             SELECT {first}, n::text, 1 FROM generate_series(1, {rows}) AS n UNION ALL SELECT {second}, 'k', 1"
    ))
    .await;
    let gone = u64::try_from(rows).unwrap() + 1;
    assert_eq!(forgotten(&app).await, Forgotten { restocks: gone, ..Forgotten::default() });
    assert_eq!(app.number("SELECT count(*) FROM restocks").await, 0);
}

#[tokio::test]
async fn payments_that_are_over_go_after_their_days_and_their_money_goes_back_once() {
    let arguments = ["--payment-callback-secret", SECRET, "--payments-days", "3"];
    let app = in_postgres_only(&arguments).await;
    cancelled(&app, (1, 9)).await;
    app.execute(
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason,
                               refunded_at, closed_at, note, created_at, updated_at)
         SELECT n, 'external', 'g' || n, 'alipay', 1, status, CASE status WHEN 'accepted' THEN NULL ELSE 'too_late' END,
                CASE status WHEN 'refunded' THEN now() END, CASE status WHEN 'closed' THEN now() END,
                CASE status WHEN 'closed' THEN 'by hand' END, now() - interval '9 days', now() - age * interval '1 day'
         FROM (VALUES (1, 'refunded', 4), (2, 'closed', 4), (3, 'accepted', 4), (4, 'refunding', 4), (5, 'refunded', 2))
              AS payment (n, status, age)",
    )
    .await;
    assert_eq!(forgotten(&app).await, Forgotten { payments: 2, ..Forgotten::default() });
    assert_eq!(app.number("SELECT sum(order_id)::bigint FROM payments").await, 3 + 4 + 5);
    assert_eq!(
        app.number(
            "SELECT count(*) FROM settings WHERE payments_kept_from > now() - interval '4 days'"
        )
        .await,
        1
    );
    // The gateway says once more that the payer has paid: known, and forgotten.
    let notice = |n: i64| json!({"kind": "payment", "payment_id": format!("g{n}"), "order_id": n.to_string(), "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&notice(5)).await.text("outcome"), "handed_back");
    for _ in 0..2 {
        assert_eq!(app.confirm(&notice(2)).await.text("outcome"), "held");
    }
    app.execute("UPDATE payments SET created_at = now() - interval '2 days' WHERE order_id = 2")
        .await;
    app.refund_payments().await;
    assert_eq!(
        app.number("SELECT count(*) FROM payments WHERE order_id = 2 AND status = 'held'").await,
        1,
        "an administrator decides"
    );
    let owed = app.get("/v1/payments/owed?order=2", &app.admin_token()).await;
    let advice = owed.body["payments"][0]["what_to_do"].as_str().expect("a sentence").to_owned();
    assert!(advice.contains("Ask the gateway first"), "it may have gone back before: {advice}");
    let waiting = app.get("/v1/operations?kind=held_payment", &app.admin_token()).await;
    assert_eq!(waiting.body["items"][0]["what_to_do"], advice.as_str());
    // A payment of a younger order goes its usual way.
    let young = 1 << 62;
    cancelled(&app, (young, young)).await;
    assert_eq!(app.confirm(&notice(young)).await.text("outcome"), "handed_back");
    assert!(OLD < young);
}

#[tokio::test]
async fn opened_payments_comparisons_and_recoveries_go_after_their_days() {
    let app = in_postgres_only(&["--comparisons-days", "3", "--recoveries-days", "3"]).await;
    app.execute(
        "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at, created_at)
             -- Three are open: at two of them, no pass has looked for as long, and the last one waits for an operator.
             SELECT n, 'alipay', 1, 'CNY', now() - CASE WHEN n > 3 THEN interval '31 days' ELSE interval '0' END,
                    CASE n WHEN 2 THEN now() WHEN 3 THEN now() - interval '31 days' END, now() - interval '40 days'
             FROM generate_series(1, 5) AS n;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('openings', 5, 'x', now());
         INSERT INTO reconcile_runs (asked_by, started_at)
             SELECT 'period', now() - n * interval '2 days' FROM generate_series(0, 2) AS n;
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at) VALUES
             (0, 1, 'x', now() - interval '9 days', now()), (0, 2, 'x', now() - interval '8 days', NULL),
             (0, 3, 'x', now() - interval '7 days', now()), (0, 4, 'x', now() - interval '6 days', NULL),
             (1, 1, 'x', now() - interval '9 days', now());
         -- What could not be kept waits for a person.
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost, settled_at, note) VALUES
             (2, 1, 'x', now() - interval '9 days', now(), '[{}]', NULL, NULL), (2, 2, 'x', now() - interval '8 days', now(), '[{}]', now(), 'told'),
             (2, 3, 'x', now() - interval '7 days', now(), '[]', NULL, NULL)",
    )
    .await;
    let expected =
        Forgotten { opened_payments: 2, comparisons: 1, recoveries: 3, ..Forgotten::default() };
    assert_eq!(forgotten(&app).await, expected);
    assert_eq!(
        app.number(
            "SELECT count(*) FROM recoveries WHERE lane = 0 AND epoch IN (3, 4) OR lane = 1 OR lane = 2 AND epoch IN (1, 3)"
        )
        .await,
        5,
        "the last one that ended, those since, and one that waits for a person"
    );
    assert_eq!(forgotten(&app).await, Forgotten::default());
    app.execute("DELETE FROM recoveries").await;
}
