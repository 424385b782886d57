//! `received`, `receipt` and `refunded`: what a notice of a gateway does to a payment and its order, and to no other one.

use serde_json::json;

use super::{app_with, lines, orders, payments, states, statuses};
use crate::support::TestApp;

/// Outcome and reason of the notice of a refund.
async fn refund(app: &TestApp, name: &str) -> String {
    let reply = app.confirm(&json!({"kind": "refund", "payment_id": name})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.text("outcome").to_owned()
}

/// All payments and holds, without the times of their last changes.
async fn rows(app: &TestApp) -> Vec<String> {
    let payments = "SELECT (to_jsonb(payments) - 'updated_at')::text FROM payments ORDER BY id";
    let holds = "SELECT held_payments::text FROM held_payments ORDER BY payment_id";
    [lines(app, payments).await, lines(app, holds).await].concat()
}

const ORDERS: [(i64, &str); 9] = [
    (1, "paid"),
    (2, "redeemed"),
    (3, "refunding"),
    (4, "cancelled"),
    (6, "redeemed"),
    (7, "refunded"),
    (8, "refunded"),
    (9, "expired"),
    (11, "paid"),
];

/// Payments by id, order, status and reason; then the answer to a notice of their refund, and their state after it.
const REFUNDED: [(i64, i64, &str, &str, &str, &str); 9] = [
    (101, 1, "accepted", "", "charged_back", "refunded charged_back"),
    (102, 2, "accepted", "", "charged_back", "held charged_back"),
    (103, 3, "refunding", "asked_for", "refunded", "refunded asked_for"),
    (104, 4, "refunding", "too_late", "refunded", "refunded too_late"),
    (105, 50, "held", "unknown_order", "refunded", "refunded unknown_order"),
    (106, 6, "held", "charged_back", "charged_back", "held charged_back"),
    (107, 7, "refunded", "charged_back", "charged_back", "refunded charged_back"),
    (108, 8, "refunded", "asked_for", "refunded", "refunded asked_for"),
    (109, 9, "closed", "too_late", "refunded", "closed too_late"),
];

/// An app with these payments, and with another gateway's payment of the same name as the first one.
async fn prepared(more: &[&str]) -> TestApp {
    let app = app_with(more).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &ORDERS).await;
    payments(&app, &[(100, 11, "accepted", "")]).await;
    app.execute("UPDATE payments SET gateway = 'in_process', gateway_payment_id = 'g101'").await;
    payments(&app, &REFUNDED.map(|(id, order, status, reason, ..)| (id, order, status, reason)))
        .await;
    app.execute(
        "INSERT INTO held_payments VALUES (105, now() + interval '1 hour'), (106, 'infinity');
         UPDATE payments SET refunded_at = '2026-01-01' WHERE status = 'refunded'",
    )
    .await;
    app
}

#[tokio::test]
async fn refunded_payments_end_with_their_orders_and_no_other_one_does() {
    let app = prepared(&[]).await;
    for (id, _, status, reason, outcome, after) in REFUNDED {
        for again in [false, true] {
            let before = rows(&app).await;
            assert_eq!(refund(&app, &format!("g{id}")).await, outcome, "{id}");
            let now = rows(&app).await;
            let changed = now.iter().filter(|row| !before.contains(row)).count();
            let changes = !again && format!("{status} {reason}") != after;
            // A hold that begins is a row of its own.
            let expected = usize::from(changes) + usize::from(id == 102 && changes);
            assert_eq!(changed, expected, "{id}: {before:#?} becomes {now:#?}");
        }
    }
    let expected: Vec<_> = REFUNDED.iter().map(|row| format!("{} {}", row.0, row.5)).collect();
    assert_eq!(states(&app).await[1..], expected);
    let holds = "SELECT payment_id || ' ' || next_look_at FROM held_payments ORDER BY 1";
    assert_eq!(lines(&app, holds).await, ["102 infinity", "106 infinity"]);
    assert_eq!(
        statuses(&app).await,
        [
            "1 refunded",
            "2 redeemed",
            "3 refunded",
            "4 cancelled",
            "6 redeemed",
            "7 refunded",
            "8 refunded",
            "9 expired",
            "11 paid"
        ]
    );
    let book = "SELECT concat_ws(' ', scope, action, subject_id, before->>'status', after->>'status', after->>'payment_id')
                FROM audit WHERE action = 'charge_back_order' ORDER BY id";
    assert_eq!(
        lines(&app, book).await,
        [
            "gateway charge_back_order 1 paid refunded 101",
            "gateway charge_back_order 2 redeemed redeemed 102"
        ]
    );
    let none = app.confirm(&json!({"kind": "refund", "payment_id": "g110"})).await;
    assert_eq!(none.refusal(), (404, "payment_not_found"));
}

#[tokio::test]
async fn charged_back_orders_keep_their_unit_where_that_is_set() {
    let app = prepared(&["--chargeback-keeps-unit"]).await;
    for id in [101, 102, 103] {
        for _ in 0..2 {
            refund(&app, &format!("g{id}")).await;
        }
    }
    assert_eq!(
        states(&app).await[1..4],
        ["101 held charged_back", "102 held charged_back", "103 refunded asked_for"]
    );
    assert_eq!(statuses(&app).await[..3], ["1 refunding", "2 redeemed", "3 refunded"]);
    let holds = "SELECT payment_id || ' ' || next_look_at FROM held_payments WHERE payment_id < 105 ORDER BY 1";
    assert_eq!(lines(&app, holds).await, ["101 infinity", "102 infinity"]);
    let book = "SELECT concat_ws(' ', subject_id, before->>'status', after->>'status') FROM audit
                WHERE action = 'charge_back_order' ORDER BY id";
    assert_eq!(lines(&app, book).await, ["1 paid refunding", "2 redeemed redeemed"]);
}

const PAYABLE: [(i64, &str); 15] = [
    (1, "unpaid"),
    (2, "unpaid"),
    (3, "unpaid"),
    (4, "unpaid"),
    (5, "unpaid"),
    (6, "unpaid"),
    (7, "unpaid"),
    (8, "unpaid"),
    (9, "cancelled"),
    (10, "expired"),
    (11, "paid"),
    (12, "redeemed"),
    (13, "refunding"),
    (14, "refunded"),
    (15, "unpaid"),
];

/// Notices of payments by order, amount and currency; then the outcome, and the currency that is written.
const PAID: [(i64, i64, &str, &str, &str); 18] = [
    (1, 5, "", "accepted", "CNY"),
    (2, 4, "", "handed_back wrong_amount", "CNY"),
    (3, 6, "", "handed_back wrong_amount", "CNY"),
    (4, 5, "CNY", "accepted", "CNY"),
    (5, 5, "EUR", "handed_back wrong_amount", "EUR"),
    // Orders of older versions: of the coupon's price, of its currency, and of no coupon.
    (6, 1, "", "accepted", "EUR"),
    (7, 5, "EUR", "accepted", "EUR"),
    (8, 5, "", "accepted", "CNY"),
    (9, 5, "", "handed_back too_late", "CNY"),
    (10, 5, "", "handed_back too_late", "CNY"),
    (11, 5, "", "handed_back paid_twice", "CNY"),
    (12, 5, "", "handed_back paid_twice", "CNY"),
    (13, 5, "", "handed_back paid_twice", "CNY"),
    (14, 5, "", "handed_back paid_twice", "CNY"),
    (99, 5, "", "held unknown_order", ""),
    (98, 5, "USD", "held unknown_order", "USD"),
    // Of an order whose payments may have been deleted; and again the first one, which is known.
    (15, 5, "", "held unknown_order", ""),
    (1, 5, "", "accepted", "CNY"),
];

#[tokio::test]
async fn received_payments_pay_their_orders_or_go_back_or_are_held() {
    let app = app_with(&[]).await;
    let (first, other) = (app.create_regular().await, app.create_regular().await);
    orders(&app, first, &PAYABLE).await;
    app.execute(&format!(
        "UPDATE coupons SET currency = 'EUR' WHERE id = {other}; UPDATE orders SET pay_cents = 5;
         UPDATE orders SET pay_cents = NULL, currency = 'EUR' WHERE id = 6;
         UPDATE orders SET currency = NULL, coupon_id = {other} WHERE id = 7;
         UPDATE orders SET currency = NULL, coupon_id = 5 WHERE id = 8"
    ))
    .await;
    for (number, (order, amount, currency, outcome, written)) in (0..).zip(PAID) {
        // From here on, payments of older orders may have been deleted.
        if order == 15 {
            app.execute("UPDATE settings SET payments_kept_from = now()").await;
        }
        let id = format!("g{order}");
        let mut notice = json!({"kind": "payment", "payment_id": id, "order_id": order.to_string(), "method": 2,
                                "amount_cents": amount});
        if !currency.is_empty() {
            notice["currency"] = json!(currency);
        }
        let told = app.confirm(&notice).await;
        let reason = told.body["reason"].as_str().map(|reason| format!(" {reason}"));
        assert_eq!(
            told.text("outcome").to_owned() + &reason.unwrap_or_default(),
            outcome,
            "{number}: {order}"
        );
        let row = format!(
            "SELECT concat_ws(' ', order_id, amount_cents, method, currency) FROM payments WHERE gateway_payment_id = '{id}'"
        );
        let expected = [format!("{order} {amount} alipay {written}").trim_end().to_owned()];
        assert_eq!(lines(&app, &row).await, expected);
    }
    let paid = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM orders WHERE status = 'paid' AND pay_method = 'alipay'";
    assert_eq!(lines(&app, paid).await, ["1 4 6 7 8"]);
    let holds = "SELECT substr(gateway_payment_id, 2) || CASE next_look_at WHEN 'infinity' THEN ' stays' ELSE '' END
                 FROM held_payments JOIN payments ON payments.id = payment_id
                 WHERE next_look_at <= now() OR next_look_at = 'infinity' ORDER BY 1";
    assert_eq!(lines(&app, holds).await, ["15 stays", "98", "99"]);
    let times = "SELECT count(*) FROM payments WHERE (status = 'refunding') <> coalesce(refunding_at <= now(), false)";
    assert_eq!(app.number(times).await, 0);

    // The name of a payment for another order: a payment of its own, whichever came first.
    let twice = json!({"kind": "payment", "payment_id": "g1", "order_id": "2", "method": 2, "amount_cents": 5});
    for _ in 0..2 {
        let told = app.confirm(&twice).await;
        assert_eq!((told.text("outcome"), told.text("reason")), ("held", "id_used_twice"));
    }
    let held = "SELECT concat_ws(' ', order_id, gateway_payment_id, payments.status, next_look_at) FROM payments
                JOIN held_payments ON payment_id = id WHERE refund_reason = 'id_used_twice'";
    assert_eq!(lines(&app, held).await, ["2 g1 for 2 held infinity"]);
    assert_eq!(statuses(&app).await[1], "2 unpaid");
}
