//! `to_give_back`, `to_give_back_here` and `refunding_among`: the refunds that the pass asks for, and what an answer does.

use flash_sale::base::limits::REFUNDS_BATCH;

use super::scripted::{Scripted, shop};
use super::{app_with, lines, payments};
use crate::support::TestApp;

/// Payments on their way back, and some that are not. The gateway calls them by the state that it answers, and their id.
async fn refunds(app: &TestApp, answer: &str, ids: std::ops::RangeInclusive<i64>) {
    let rows: Vec<_> = ids.clone().map(|id| (id, id, "refunding", "too_late")).collect();
    payments(app, &rows).await;
    let (first, last) = (ids.start(), ids.end());
    app.execute(&format!(
        "UPDATE payments SET gateway_payment_id = '{answer}/' || id WHERE id BETWEEN {first} AND {last}"
    ))
    .await;
}

/// Runs the pass. Returns the ids of the payments that the gateway was asked to refund.
async fn asked(app: &TestApp, gateway: &Scripted) -> Vec<i64> {
    let _ = app.app.payments.refund_pass().await;
    let id = |name: &String| name.rsplit('/').next().and_then(|id| id.parse().ok()).expect("an id");
    gateway.asked().iter().map(id).collect()
}

const MIXED: &str = "
    UPDATE payments SET refund_asked_at = now() - interval '2 min' WHERE id IN (102, 108, 112);
    UPDATE payments SET refund_asked_at = now() - interval '3 min' WHERE id = 110;
    UPDATE payments SET refund_asked_at = now() WHERE id IN (103, 111);
    UPDATE payments SET status = 'accepted', refund_reason = NULL WHERE id = 104;
    UPDATE payments SET status = 'held' WHERE id = 106;
    UPDATE payments SET status = 'refunded', refunded_at = now() WHERE id IN (105, 112);
    UPDATE payments SET refund_asked_at = now() - interval '2 min' WHERE id = 105;
    UPDATE payments SET gateway = 'in_process' WHERE id IN (113, 114);
    INSERT INTO postponed (pass, item, error, next_try_at)
        SELECT CASE WHEN id IN (109, 110) THEN 'expiry' ELSE 'refunds' END, id, 'x',
               now() + CASE WHEN id IN (111, 112) THEN interval '0' ELSE interval '1 hour' END
        FROM payments WHERE id IN (107, 108, 109, 110, 111, 112, 114)";

#[tokio::test]
async fn to_give_back_are_new_ones_then_those_that_were_asked_for_long_ago_then_postponed_ones() {
    let (app, gateway) = shop().await;
    refunds(&app, "refunding", 101..=114).await;
    app.execute(MIXED).await;
    assert_eq!(asked(&app, &gateway).await, [101, 109, 110, 102, 111]);
    let here = "SELECT id::text FROM payments WHERE status = 'refunded' ORDER BY id";
    assert_eq!(lines(&app, here).await, ["105", "112", "113"]);
    assert_eq!(
        app.postponed().await,
        ["expiry 109 1", "expiry 110 1", "refunds 107 1", "refunds 108 1", "refunds 114 1"]
    );
    assert_eq!(asked(&app, &gateway).await, [0; 0], "each was asked for just now");
    app.execute("UPDATE payments SET refund_asked_at = now() - interval '59 min' WHERE id = 102")
        .await;
    assert_eq!(asked(&app, &gateway).await, [102]);
}

#[tokio::test]
async fn to_give_back_are_a_batch_in_each_run() {
    let (app, gateway) = shop().await;
    let half = i64::from(REFUNDS_BATCH) / 2 + 10;
    refunds(&app, "refunding", 1..=2 * half).await;
    app.execute(&format!(
        "UPDATE payments SET refund_asked_at = now() - interval '1 hour' - id * interval '1 s' WHERE id <= {half}"
    ))
    .await;
    let batch = usize::try_from(REFUNDS_BATCH).expect("it is small");
    let expected: Vec<_> = (half + 1..=2 * half).chain((1..=half).rev()).collect();
    assert_eq!(asked(&app, &gateway).await, expected[..batch]);
    assert_eq!(asked(&app, &gateway).await, expected[batch..]);
}

#[tokio::test]
async fn to_give_back_here_are_those_of_the_service_itself() {
    let app = app_with(&[]).await;
    refunds(&app, "refunding", 101..=114).await;
    app.execute(MIXED).await;
    app.execute("UPDATE payments SET gateway = 'in_process' WHERE id IN (101, 104, 106, 107, 109)")
        .await;
    assert_eq!(app.refund_payments().await, 3, "two, and one that is postponed elsewhere");
    let here = "SELECT id::text FROM payments WHERE status = 'refunded' ORDER BY id";
    assert_eq!(lines(&app, here).await, ["101", "105", "109", "112", "113"]);
    assert_eq!(
        app.postponed().await,
        ["expiry 109 1", "expiry 110 1", "refunds 107 1", "refunds 108 1", "refunds 114 1"],
        "nothing is asked of the gateway, so nothing is left to do for a payment of it that is due"
    );
}

#[tokio::test]
async fn to_give_back_here_are_a_batch_in_the_order_of_their_ids() {
    let app = app_with(&[]).await;
    let last = i64::from(REFUNDS_BATCH) + 5;
    refunds(&app, "refunding", 1..=last).await;
    // Those of the gateway take no room from them.
    app.execute("UPDATE payments SET gateway = 'in_process' WHERE id > 3").await;
    assert_eq!(app.refund_payments().await, usize::try_from(REFUNDS_BATCH).expect("it is small"));
    let left = "SELECT id FROM payments WHERE status = 'refunding' AND id > 3 ORDER BY id";
    assert_eq!(app.number(left).await, last - 1);
}

/// Payments by the answer of the gateway, and what is written then: status, whether it was asked, and tries.
const ANSWERED: [(i64, &str, &str); 12] = [
    (1, "refunded", "refunded f"),
    (2, "fails", "refunding t"),
    (3, "refunding", "refunding t"),
    (4, "fails", "refunding t"),
    (5, "open", "refunding f 1"),
    (6, "fails", "refunding t"),
    (7, "unknown", "refunding f 1"),
    (8, "paid", "refunding f 1"),
    // Three in a row: the gateway is asked no more. What needs no gateway goes on.
    (9, "fails", "refunding t"),
    (10, "fails", "refunding t"),
    (11, "fails", "refunding t"),
    (12, "refunded", "refunding f"),
];

#[tokio::test]
async fn give_back_does_what_the_answer_says() {
    let (app, gateway) = shop().await;
    for (id, answer, _) in ANSWERED {
        refunds(&app, answer, id..=id).await;
    }
    refunds(&app, "here", 13..=13).await;
    app.execute("UPDATE payments SET gateway = 'in_process' WHERE id = 13").await;
    let failed = app.app.payments.refund_pass().await.expect_err("some have no answer");
    assert!(failed.to_string().contains("payment 11: "), "{failed}");
    assert_eq!(gateway.asked().len(), 11);
    let rows = "SELECT concat_ws(' ', status, left((refund_asked_at IS NOT NULL)::text, 1), tries) FROM payments
                LEFT JOIN postponed ON pass = 'refunds' AND item = payments.id ORDER BY payments.id";
    let expected: Vec<_> = ANSWERED.iter().map(|row| row.2).chain(["refunded f"]).collect();
    assert_eq!(lines(&app, rows).await, expected);
    let words = lines(&app, "SELECT error FROM postponed ORDER BY item").await;
    for (words, part) in
        words.iter().zip(["payment is Open", "404 Not Found: no such payment", "payment is Paid"])
    {
        assert!(words.contains(part), "{words}");
    }
    // A due one that has no answer again goes on waiting.
    app.execute("UPDATE payments SET gateway_payment_id = 'fails/7' WHERE id = 7; DELETE FROM payments WHERE id > 7; DELETE FROM postponed WHERE item > 7")
        .await;
    app.let_postponed_be_due().await;
    app.app.payments.refund_pass().await.expect_err("it has no answer");
    assert_eq!(app.postponed().await, ["refunds 5 2", "refunds 7 2"]);
}
