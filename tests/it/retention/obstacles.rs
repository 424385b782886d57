//! `obstacles`: everything of a user that is under way is named before the user is erased, ten of each kind at most.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::person::erase::{Erasure, erase};

use crate::support::{TestApp, user};

async fn refusals(app: &TestApp, id: i64) -> Vec<String> {
    let by = Actor::command_line();
    match erase(&app.app.stores, user(id), &by).await.expect("both stores answer") {
        Erasure::Refused(refusals) => refusals,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn live_orders_letters_returns_money_and_receipts_of_the_user_are_named() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sale = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, pay_method, paid_at, refunding_at, redeemed_at, cancelled_at)
         SELECT id, coupon, CASE coupon WHEN {sale} THEN 'flash' ELSE 'regular' END, user_id, now(), status,
                CASE WHEN was_paid THEN 'alipay' END, CASE WHEN was_paid THEN now() END,
                CASE status WHEN 'refunding' THEN now() END, CASE status WHEN 'redeemed' THEN now() END,
                CASE status WHEN 'cancelled' THEN now() END
         FROM (SELECT *, status IN ('paid', 'refunding', 'redeemed') AS was_paid FROM (VALUES
             (101, 1, 7, 'unpaid'), (102, 1, 7, 'paid'), (103, 1, 7, 'refunding'), (104, {sale}, 7, 'redeemed'),
             (105, 1, 7, 'redeemed'), (106, 1, 7, 'cancelled'), (107, 1, 8, 'unpaid')) AS row (id, coupon, user_id, status)) AS row;
         INSERT INTO dead_letters (id, lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
             OVERRIDING SYSTEM VALUE SELECT n, 0, n || '-1', '{{}}', 'conflict', '', 1, CASE n WHEN 203 THEN 8 ELSE 7 END, n,
                    CASE n WHEN 202 THEN now() END FROM generate_series(201, 203) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
             VALUES (101, 1, 7, NULL), (102, 1, 7, now()), (107, 1, 8, NULL);
         INSERT INTO payments (id, order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, refunded_at)
             OVERRIDING SYSTEM VALUE VALUES (301, 101, 'external', 'a', 'alipay', 1, 'held', 'id_used_twice', NULL),
                 (302, 103, 'external', 'b', 'alipay', 1, 'refunding', 'too_late', NULL),
                 (303, 102, 'external', 'c', 'alipay', 1, 'accepted', NULL, NULL),
                 (304, 106, 'external', 'd', 'alipay', 1, 'refunded', 'too_late', now()),
                 (305, 107, 'external', 'e', 'alipay', 1, 'refunding', 'too_late', NULL);
         INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at)
             VALUES (101, 'alipay', 1, 'CNY', now(), NULL), (102, 'alipay', 1, 'CNY', now(), now()), (107, 'alipay', 1, 'CNY', now(), NULL);
         INSERT INTO receipts (order_id, coupon_id, user_id) VALUES (401, 1, 7), (402, 1, 8)"
    ))
    .await;
    let first = "it has to be cancelled, redeemed or refunded first.";
    assert_eq!(
        refusals(&app, 7).await,
        [
            format!("Order 101 is unpaid: {first}"),
            format!("Order 102 is paid: {first}"),
            "Order 103 is refunding: its gateway has not confirmed yet.".into(),
            format!(
                "Order 104 is redeemed, and Redis still has its sale: coupon {sale} leaves Redis --archive-after-ms after its end."
            ),
            "Dead letter 201 is open: retry or discard it.".into(),
            "Order 101 is on its way out of Redis: try again in a moment.".into(),
            "Payment 301 is held: `flash-sale payments` says what to do.".into(),
            "Payment 302 is refunding: `flash-sale payments` says what to do.".into(),
            "The gateway is still asked about a payment that was opened for order 101.".into(),
            "A recovery has not settled the promise of order 401 yet.".into(),
        ]
    );
    let there = "SELECT count(*) FROM orders WHERE user_id = 7";
    assert_eq!(app.number(there).await, 6, "nothing is erased");
}

#[tokio::test]
async fn ten_obstacles_of_each_kind_are_named() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.execute(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             SELECT 100 + n, n, 'regular', 7, now() FROM generate_series(1, 12) AS n;
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
             SELECT 0, n || '-1', '{}', 'conflict', '', 1, 7, 200 + n FROM generate_series(1, 12) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id) SELECT 100 + n, n, 7 FROM generate_series(1, 12) AS n;
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
             SELECT 100 + n, 'external', n, 'alipay', 1, 'held', 'id_used_twice' FROM generate_series(1, 12) AS n;
         INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at)
             SELECT 100 + n, 'alipay', 1, 'CNY', now() FROM generate_series(1, 12) AS n;
         INSERT INTO receipts (order_id, coupon_id, user_id) SELECT 300 + n, 1, 7 FROM generate_series(1, 12) AS n",
    )
    .await;
    let named = refusals(&app, 7).await;
    for (begins, ends) in [
        ("Order 1", "first."),
        ("Dead letter ", "discard it."),
        ("Order 1", "in a moment."),
        ("Payment ", "what to do."),
        ("The gateway is still asked", "."),
        ("A recovery has not settled the promise of order 3", "yet."),
    ] {
        let of_kind =
            named.iter().filter(|words| words.starts_with(begins) && words.ends_with(ends));
        assert_eq!(of_kind.count(), 10, "{begins}...{ends}: {named:#?}");
    }
    assert_eq!(named.len(), 60);
}
