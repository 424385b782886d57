//! `held_due` and `look_again`: the held payments that the pass looks at, and the end of each.

use flash_sale::base::limits::REFUNDS_BATCH;

use super::{CLOCK, app_with, lines, orders, payments, states, statuses};

/// Orders by their ids. Those of 80 and more are unknown.
const ORDERS: [(i64, &str); 15] = [
    (1, "unpaid"),
    (2, "unpaid"),
    (3, "unpaid"),
    (4, "unpaid"),
    (5, "cancelled"),
    (6, "expired"),
    (7, "paid"),
    (12, "unpaid"),
    (13, "unpaid"),
    (14, "unpaid"),
    (15, "unpaid"),
    (16, "unpaid"),
    (18, "unpaid"),
    (19, "unpaid"),
    (20, "unpaid"),
];

/// Payments, the orders that they are for, and what becomes of them.
const HELD: [(i64, i64, &str); 21] = [
    (101, 1, "accepted"),
    // Of another amount, and of another currency; and one whose gateway tells no currency.
    (102, 2, "refunding wrong_amount"),
    (103, 3, "refunding wrong_amount"),
    (104, 4, "accepted"),
    (105, 5, "refunding too_late"),
    (106, 6, "refunding too_late"),
    (107, 7, "refunding paid_twice"),
    // Held for 59 minutes, and for 61: the order of the third one is an open dead letter, that of the fourth a closed one.
    (108, 80, "held unknown_order"),
    (109, 90, "refunding unknown_order"),
    (110, 91, "held unknown_order"),
    (111, 92, "refunding unknown_order"),
    // Due in half an hour, and never; then two that are postponed: by this pass, and by another one.
    (112, 12, "held unknown_order"),
    (113, 13, "held unknown_order"),
    (114, 14, "held unknown_order"),
    (115, 15, "accepted"),
    // Due in half an hour, and postponed until now.
    (116, 16, "accepted"),
    // The hold of a payment that was closed, and of one whose reason is another one.
    (117, 81, "closed unknown_order"),
    (118, 18, "held id_used_twice"),
    // Two for one order: the older payment pays it.
    (119, 19, "accepted"),
    (120, 19, "refunding paid_twice"),
    (121, 20, "held unknown_order"),
];

const PREPARED: &str = "
    UPDATE payments SET amount_cents = 7 WHERE id = 102;
    UPDATE payments SET currency = 'USD' WHERE id = 103;
    UPDATE payments SET currency = NULL WHERE id = 104;
    UPDATE payments SET created_at = now() - interval '59 min' WHERE id = 108;
    UPDATE payments SET created_at = now() - interval '61 min' WHERE id IN (109, 110, 111);
    UPDATE payments SET refund_reason = 'id_used_twice' WHERE id = 118;
    UPDATE payments SET status = 'closed', closed_at = now(), note = 'by hand' WHERE id = 117;
    INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
        VALUES (0, '1-1', '{}', 'conflict', '', 1, 1, 91, NULL), (0, '2-1', '{}', 'conflict', '', 1, 1, 92, now());
    INSERT INTO held_payments SELECT id, now() - id * interval '1 s' FROM payments WHERE id < 121;
    UPDATE held_payments SET next_look_at = now() + interval '30 min' WHERE payment_id IN (112, 116);
    UPDATE held_payments SET next_look_at = 'infinity' WHERE payment_id = 113;
    INSERT INTO postponed (pass, item, error, next_try_at) VALUES
        ('refunds', 114, 'x', now() + interval '1 hour'), ('expiry', 115, 'x', now() + interval '1 hour'),
        ('refunds', 116, 'x', now() - interval '1 s')";

#[tokio::test]
async fn held_due_finds_those_that_are_due_and_look_again_settles_them() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &ORDERS).await;
    let rows: Vec<_> =
        HELD.iter().map(|(id, order, _)| (*id, *order, "held", "unknown_order")).collect();
    payments(&app, &rows).await;
    app.execute(PREPARED).await;
    let holds = "SELECT payment_id || ' ' || next_look_at FROM held_payments
                 WHERE payment_id NOT IN (108, 110) ORDER BY payment_id";
    let before = lines(&app, holds).await;
    let began = app.number(CLOCK).await;
    assert_eq!(app.refund_payments().await, 0, "there is no gateway to ask");

    let expected: Vec<_> = HELD.iter().map(|(id, _, state)| format!("{id} {state}")).collect();
    assert_eq!(states(&app).await, expected);
    let is_paid = |id: i64| [1, 4, 7, 15, 16, 19].contains(&id);
    let expected: Vec<_> = ORDERS
        .iter()
        .map(|(id, status)| format!("{id} {}", if is_paid(*id) { "paid" } else { status }))
        .collect();
    assert_eq!(statuses(&app).await, expected);
    let by_wechat = "SELECT count(*) FROM orders WHERE pay_method = 'wechat'";
    assert_eq!(app.number(by_wechat).await, 5, "by the method of the payment");
    let times = "SELECT count(*) FROM payments WHERE (status = 'refunding') <> coalesce(refunding_at <= clock_timestamp(), false)";
    assert_eq!(app.number(times).await, 0, "each that goes back has the time of that");

    let stays =
        |line: &&String| ["112", "113", "114", "117", "118"].iter().any(|id| line.starts_with(id));
    let untouched: Vec<_> = before.iter().filter(stays).cloned().collect();
    assert_eq!(lines(&app, holds).await, untouched, "no other hold is left, and none is moved");
    let looked = "SELECT extract(epoch FROM next_look_at)::bigint::text FROM held_payments WHERE payment_id IN (108, 110)";
    let (ended, next) = (app.number(CLOCK).await, lines(&app, looked).await);
    for next in next.iter().map(|next| next.parse::<i64>().expect("seconds")) {
        assert!((began + 4..=ended + 6).contains(&next), "again after five seconds: {next}");
    }
    assert_eq!(next.len(), 2, "both wait for their orders");
    assert_eq!(app.postponed().await, ["expiry 115 1", "refunds 114 1"]);
}

#[tokio::test]
async fn held_due_takes_a_batch_of_those_that_wait_longest() {
    let app = app_with(&[]).await;
    let last = 102 + i64::from(REFUNDS_BATCH);
    let rows: Vec<_> = (101..=last).map(|id| (id, id, "held", "unknown_order")).collect();
    payments(&app, &rows).await;
    app.execute("INSERT INTO held_payments SELECT id, now() - id * interval '1 min' FROM payments")
        .await;
    app.refund_payments().await;
    let due = "SELECT payment_id::text FROM held_payments WHERE next_look_at < now() - interval '90 min' ORDER BY 1";
    assert_eq!(lines(&app, due).await, ["101", "102"], "the two that became due last");
}
