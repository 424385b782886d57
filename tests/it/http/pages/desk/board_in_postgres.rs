//! Facts of Postgres on the board: what waits for an operator, and the last comparison that ended well.

use flash_sale::base::limits;
use serde_json::{Value, json};

use super::{Desk, line, service, still};
use crate::support::lines::Lines;

/// Many recoveries of which the first wait to be settled, and some newer ones that lost nothing.
const RECOVERIES: &str = r#"
    INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
    SELECT 0, n, 'x', now(), now(), CASE WHEN n <= 30 THEN
           '[{"coupon_id": "1024", "user_id": "1", "order_id": "77", "reason": "superseded"}]'::jsonb ELSE '[]' END
    FROM generate_series(1, 36) AS n"#;

fn numbers(list: &Value, name: &str) -> Vec<i64> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list}")).iter();
    list.map(|one| one[name].as_i64().expect("a number")).collect()
}

#[tokio::test]
async fn recoveries_on_the_board_are_the_newest_and_twenty_of_those_that_wait() {
    let app = service("1").await;
    app.execute(RECOVERIES).await;
    let desk = Desk::over(app).await;
    let (mut watching, board) = desk.opened().await;
    assert_eq!((limits::BOARD_RECOVERIES_MAX, limits::BOARD_ITEMS_MAX), (5, 20));
    let expected: Vec<i64> = (32..=36).rev().chain((11..=30).rev()).collect();
    assert_eq!(numbers(&board["recoveries"], "epoch"), expected);
    assert_eq!(board["recoveries_unsettled"], 30);
    // A single one that waits is enough.
    let settle = "UPDATE recoveries SET settled_at = now(), note = 'x' WHERE epoch <> 4";
    still(desk.app.execute(settle)).await;
    for _ in 0..2 {
        desk.tick().await;
    }
    let board = desk.next(&mut watching).await;
    assert_eq!(board["recoveries_unsettled"], 1);
    assert_eq!(numbers(&board["recoveries"], "epoch"), [36, 35, 34, 33, 32, 4]);
    still(desk.app.execute("DELETE FROM recoveries")).await;
}

/// Runs of which the newest goes on, the next has failed, and two have ended well.
const RUNS: &str = r#"
    INSERT INTO reconcile_runs (asked_by, started_at, finished_at, failure, at_rest, sales, in_flight, orders, disagreements, findings)
    VALUES ('api', to_timestamp(10), to_timestamp(11), NULL, true, 1, 0, '{"unpaid": 1}', 0, '[]'),
           ('api', to_timestamp(20), to_timestamp(22), NULL, true, 2, 3, '{"paid": 4, "unpaid": 5}', 1,
            '[{"code": "not_conserved", "coupon_id": null, "detail": "x"}]'),
           ('api', to_timestamp(30), to_timestamp(33), 'Redis', NULL, NULL, NULL, NULL, NULL, '[]'),
           ('api', to_timestamp(40), NULL, NULL, NULL, NULL, NULL, NULL, NULL, '[]')"#;

#[tokio::test]
async fn orders_and_findings_are_those_of_the_last_comparison_that_ended_well() {
    let app = service("1").await;
    app.expect_disagreements();
    app.execute(RUNS).await;
    let desk = Desk::over(app).await;
    let (_, board) = desk.opened().await;
    assert_eq!(board["orders"], json!({"paid": 4, "unpaid": 5}));
    assert_eq!(board["orders_at"], 22_000);
    assert_eq!(board["findings"].as_array().map(Vec::len), Some(1));
    let runs = board["runs"].as_array().expect("a list").iter();
    let told: Vec<Value> = runs
        .map(|run| {
            let is_over = run["finished_at"].is_string();
            json!([is_over, run["failure"], run["sales"], run["in_flight"], run["disagreements"]])
        })
        .collect();
    let expected = json!([
        [false, null, null, null, null],
        [true, "Redis", null, null, null],
        [true, null, 2, 3, 1],
        [true, null, 1, 0, 0],
    ]);
    assert_eq!(json!(told), expected);
}

#[tokio::test]
async fn letters_payments_and_postponed_items_are_counted_and_listed_from_the_first_one_on() {
    let app = service("1").await;
    app.expect_disagreements();
    let (one, other) = (app.create_flash(5).await, app.create_flash(5).await);
    for rows in [
        format!(
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
             VALUES (0, '1-1', '{{}}', 'conflict', '', {one}, 1, 1)"
        ),
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
         VALUES (7, 'external', 'p', 'balance', 1, 'refunding', 'too_late')"
            .to_owned(),
        "INSERT INTO postponed (pass, item, error, next_try_at) VALUES
         ('expiry', 1, '', now()), ('expiry', 2, '', now()), ('places', 1, '', now())"
            .to_owned(),
    ] {
        app.execute(&rows).await;
    }
    let desk = Desk::over(app).await;
    let (mut watching, board) = desk.opened().await;
    let counted = [&board["letters_open"], &board["postponed_waiting"]];
    assert_eq!(counted, [&json!(1), &json!(3)]);
    let lists = ["letters", "owed_payments", "postponed"];
    let lengths = |board: &Value| lists.map(|list| board[list].as_array().map(Vec::len));
    assert_eq!(lengths(&board), [Some(1), Some(1), Some(3)]);
    let owed: Vec<Value> = board["owed"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| json!([it["status"], it["payments"]]))
        .collect();
    assert_eq!(json!(owed), json!([["held", 0], ["refunding", 1]]));
    for (coupon, in_review) in [(one, 1), (other, 0)] {
        assert_eq!(line(&board, coupon)["units"]["in_review"], in_review);
    }
    for statement in ["DELETE FROM dead_letters", "DELETE FROM payments", "DELETE FROM postponed"] {
        still(desk.app.execute(statement)).await;
    }
    for _ in 0..2 {
        desk.tick().await;
    }
    let board = desk.next(&mut watching).await;
    assert_eq!(lengths(&board), [Some(0); 3]);
    assert_eq!(line(&board, one)["units"]["in_review"], 0);
}

/// Words of the statements that list what waits: letters, those in review, payments and recoveries.
const LISTS: [&str; 4] = [
    "AND id < coalesce($5, 9223372036854775807)",
    "NOT EXISTS (SELECT FROM orders WHERE orders.id = dead_letters.order_id",
    "refund_reason = 'unknown_order' AND next_look_at = 'infinity'",
    "(lost <> '[]' OR unknown > 0) AND id < coalesce($1, 9223372036854775807)",
];

/// The counts alone tell that nothing waits.
#[tokio::test]
async fn a_look_lists_letters_payments_and_recoveries_only_while_there_are_some() {
    let app = service("1").await;
    app.expect_disagreements();
    app.create_flash(5).await;
    let desk = Desk::over(app).await;
    let asked = Lines::down_to(tracing::Level::DEBUG);
    let (_watching, _) = desk.opened().await;
    let count = || LISTS.map(|words| asked.count(words));
    assert!(asked.count("FROM dead_letters WHERE resolved_at IS NULL") > 0, "they are counted");
    assert_eq!(count(), [0; 4]);
    for row in [
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail) VALUES (0, '1-1', '{}', 'undecodable', '')",
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
         VALUES (7, 'external', 'p', 'balance', 1, 'refunding', 'too_late')",
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, unknown) VALUES (0, 1, 'x', now(), now(), 1)",
    ] {
        still(desk.app.execute(row)).await;
    }
    for _ in 0..3 {
        desk.tick().await;
    }
    assert_eq!(count(), [1; 4]);
}
