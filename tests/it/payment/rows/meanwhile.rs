//! Opened payments and refunds that another process changes while their gateway is asked, the times of its answers, and
//! the keys of refunds.

use serde_json::json;

use super::opened::{asked, opened};
use super::scripted::shop;
use super::{CLOCK, app_with, lines, orders, payments, states, statuses};
use crate::support::TestApp;

/// Runs the pass; a change of another process is committed when the pass comes upon it, after its gateway has answered.
async fn pass_beside(app: &TestApp, change: &str) {
    let other = app.holding(change).await;
    let pass = app.app.payments.refund_pass();
    let commits = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let _ = tokio::join!(pass, commits);
}

#[tokio::test]
async fn begin_next_and_note_opened_change_no_payment_that_another_process_has_changed() {
    let (app, gateway) = shop().await;
    let rows = [(101, 1, "closed/1/CNY/a", -40), (102, 2, "", -30), (103, 3, "", -20)];
    opened(&app, &rows).await;
    pass_beside(
        &app,
        "UPDATE opened_payments SET number = 2, gateway_payment_id = 'open///b' WHERE id = 101;
         UPDATE opened_payments SET number = 2 WHERE id = 102;
         UPDATE opened_payments SET gateway_payment_id = 'open///c', pay_url = 'https://other' WHERE id = 103",
    )
    .await;
    let key = |order: i64| format!("pay-{order}-wechat");
    let expected = [
        "closed/1/CNY/a",
        &key(2),
        &format!("open/{}", key(2)),
        &key(3),
        &format!("open/{}", key(3)),
    ];
    assert_eq!(gateway.asked(), expected);
    let rows = "SELECT concat_ws(' ', id, number, coalesce(gateway_payment_id, '-'), pay_url, closed_at IS NULL)
                FROM opened_payments ORDER BY id";
    assert_eq!(
        lines(&app, rows).await,
        ["101 2 open///b https://pay t", "102 2 - t", "103 1 open///c https://other t"]
    );
}

#[tokio::test]
async fn asked_leaves_a_payment_that_is_back_meanwhile() {
    let (app, gateway) = shop().await;
    payments(&app, &[(101, 1, "refunding", "too_late"), (102, 2, "refunding", "too_late")]).await;
    app.execute("UPDATE payments SET gateway_payment_id = 'fails/' || id").await;
    pass_beside(
        &app,
        "UPDATE payments SET status = 'refunded', refunded_at = now(), updated_at = now() WHERE id = 101",
    )
    .await;
    assert_eq!(gateway.asked(), ["fails/101", "fails/102"]);
    let rows =
        "SELECT concat_ws(' ', id, status, refund_asked_at IS NOT NULL) FROM payments ORDER BY id";
    assert_eq!(lines(&app, rows).await, ["101 refunded f", "102 refunding t"]);
}

/// One is closed by an administrator, one taken back by the payer's bank, and one is on its way back already.
#[tokio::test]
async fn leave_hold_leaves_payments_about_which_others_have_decided_meanwhile() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    let unpaid = [1, 2, 3, 4].map(|id| (id, "unpaid"));
    orders(&app, coupon, &unpaid).await;
    let held = unpaid.map(|(id, _)| (id + 100, id, "held", "unknown_order"));
    payments(&app, &held).await;
    app.execute("INSERT INTO held_payments SELECT id, now() FROM payments").await;
    pass_beside(
        &app,
        "UPDATE payments SET status = 'closed', closed_at = now(), note = 'by hand', updated_at = now() WHERE id = 101;
         UPDATE payments SET refund_reason = 'charged_back', updated_at = now() WHERE id = 102;
         UPDATE payments SET status = 'refunding', refunding_at = now(), updated_at = now() WHERE id = 104",
    )
    .await;
    assert_eq!(
        states(&app).await,
        [
            "101 closed unknown_order",
            "102 held charged_back",
            "103 accepted",
            "104 refunding unknown_order"
        ]
    );
    assert_eq!(statuses(&app).await, ["1 unpaid", "2 unpaid", "3 paid", "4 unpaid"]);
}

/// Opened payments in the order of their looks, with the minutes since each was heard of; then whether that is now, and
/// whether the payment is still open. The last one isn't due, and its answer got lost.
const HEARD: [(i64, &str, i64, bool, bool); 7] = [
    (101, "fails/a", 1_440, false, true),
    (102, "open///b", 1_440, true, true),
    // Half an hour less than a month, and a minute more.
    (103, "fails/c", 30 * 1_440 - 30, false, true),
    (104, "closed/1/CNY/d", 1_440, true, false),
    (105, "fails/e", 30 * 1_440 + 1, false, false),
    (106, "refunded/1/CNY/f", 1_440, true, false),
    (107, "", 1_440, true, true),
];

#[tokio::test]
async fn ask_later_and_other_answers_have_their_time_and_ask_after_a_pause_has_none() {
    let (app, gateway) = shop().await;
    let rows: Vec<_> =
        HEARD.iter().map(|(id, payment, ..)| (*id, *id, *payment, *id - 200)).collect();
    opened(&app, &rows).await;
    for (id, _, minutes, ..) in HEARD {
        app.execute(&format!(
            "UPDATE opened_payments SET updated_at = now() - {minutes} * interval '1 min' WHERE id = {id}"
        ))
        .await;
    }
    app.execute(
        "UPDATE opened_payments SET next_look_at = now() + interval '30 min' WHERE id = 107;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('openings', 107, 'x', now())",
    )
    .await;
    let began = app.number(CLOCK).await;
    assert_eq!(asked(&app, &gateway).await.len(), HEARD.len() + 1, "one is opened first");
    let ended = app.number(CLOCK).await;
    let heard =
        "SELECT concat_ws(' ', id, updated_at > now() - interval '12 hours', closed_at IS NULL)
                 FROM opened_payments ORDER BY id";
    let flag = |is: bool| if is { "t" } else { "f" };
    let expected: Vec<_> =
        HEARD.iter().map(|row| format!("{} {} {}", row.0, flag(row.3), flag(row.4))).collect();
    assert_eq!(lines(&app, heard).await, expected);
    let pauses = "SELECT extract(epoch FROM next_look_at)::bigint FROM opened_payments WHERE id IN (101, 103)";
    for next in app.numbers(pauses).await {
        assert!((began + 58..=ended + 62).contains(&next), "again after a minute: {next}");
    }
    let left = "SELECT concat_ws(' ', gateway_payment_id, pay_url) FROM opened_payments WHERE id IN (104, 107) ORDER BY id";
    let opened = "open/pay-107-wechat https://pay/pay-107-wechat";
    assert_eq!(lines(&app, left).await, ["", opened]);
}

#[tokio::test]
async fn begin_opening_counts_from_the_return_of_the_payer() {
    let (app, _gateway) = shop().await;
    let coupon = app.create_regular().await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.pay(1, order).await.status, 202);
    app.execute("UPDATE opened_payments SET updated_at = now() - interval '1 day'").await;
    assert_eq!(app.pay(1, order).await.status, 202);
    let heard =
        "SELECT count(*) FROM opened_payments WHERE updated_at > now() - interval '12 hours'";
    assert_eq!(app.number(heard).await, 1);
}

#[tokio::test]
async fn receipt_is_that_of_the_gateway_which_tells_again() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid"), (2, "paid")]).await;
    payments(&app, &[(101, 2, "accepted", "")]).await;
    app.execute("UPDATE payments SET gateway = 'in_process', gateway_payment_id = 'g1'").await;
    let notice = json!({"kind": "payment", "payment_id": "g1", "order_id": "1", "method": 2, "amount_cents": 1});
    for _ in 0..2 {
        assert_eq!(app.confirm(&notice).await.text("outcome"), "accepted");
    }
    assert_eq!(app.number("SELECT count(*) FROM payments").await, 2);
    assert!(states(&app).await.iter().all(|state| state.ends_with("accepted")));
}

/// A refund that began before the gateway was told other keys has the older one; and so has one of an unknown time. The last
/// two are postponed, and due.
#[tokio::test]
async fn to_give_back_and_refunding_among_name_a_refund_by_the_time_at_which_it_began() {
    let (app, gateway) = shop().await;
    let rows: Vec<_> = (101..=108).map(|id| (id, id, "refunding", "too_late")).collect();
    payments(&app, &rows).await;
    app.execute(
        "UPDATE payments SET gateway_payment_id = 'refunding/' || id,
                             refund_asked_at = CASE WHEN id IN (105, 106) THEN now() - interval '2 hours' END,
                             refunding_at = CASE WHEN id IN (103, 106, 108) THEN NULL ELSE
                                 refund_keys_from - CASE id WHEN 101 THEN 1 WHEN 104 THEN -1 ELSE 0 END * interval '1 ms' END
         FROM settings;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('refunds', 107, 'x', now()), ('refunds', 108, 'x', now())",
    )
    .await;
    let _ = app.app.payments.refund_pass().await;
    assert_eq!(
        gateway.refunds(),
        [
            "refund-101",
            "refund-of-refunding/102",
            "refund-103",
            "refund-of-refunding/104",
            "refund-of-refunding/105",
            "refund-106",
            "refund-of-refunding/107",
            "refund-108"
        ]
    );
}

#[tokio::test]
async fn to_give_back_here_takes_refunds_of_an_unknown_time() {
    let app = app_with(&[]).await;
    payments(&app, &[(101, 1, "refunding", "too_late"), (102, 2, "refunding", "too_late")]).await;
    app.execute(
        "UPDATE payments SET gateway = 'in_process', refunding_at = NULL;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('refunds', 102, 'x', now())",
    )
    .await;
    assert_eq!(app.refund_payments().await, 2);
    assert_eq!(states(&app).await, ["101 refunded too_late", "102 refunded too_late"]);
}
