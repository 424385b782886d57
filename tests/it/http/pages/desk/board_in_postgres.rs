//! Facts of Postgres on the board: what waits for an operator, and the last comparison that ended well.

use flash_sale::base::limits;
use serde_json::{Value, json};

use super::{Desk, line, service, still};

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
async fn recoveries_on_the_board_are_the_newest_and_those_that_wait_are_counted() {
    let app = service("1").await;
    app.execute(RECOVERIES).await;
    let desk = Desk::over(app).await;
    let (mut watching, board) = desk.opened().await;
    assert_eq!((limits::BOARD_RECOVERIES_MAX, limits::BOARD_ITEMS_MAX), (5, 20));
    assert_eq!(numbers(&board["recoveries"], "epoch"), [36, 35, 34, 33, 32]);
    assert_eq!(board["waits"][0]["items"], 30);
    assert_eq!(board["waiting"].as_array().map(Vec::len), Some(20));
    // A single one that waits is enough.
    let settle = "UPDATE recoveries SET settled_at = now(), note = 'x' WHERE epoch <> 4";
    still(desk.app.execute(settle)).await;
    for _ in 0..2 {
        desk.tick().await;
    }
    let board = desk.next(&mut watching).await;
    assert_eq!(board["waits"][0]["items"], 1);
    assert_eq!(board["waiting"].as_array().map(Vec::len), Some(1));
    still(desk.app.execute("DELETE FROM recoveries")).await;
}

/// Runs of which the newest goes on, the next has failed, and two have ended well.
const RUNS: &str = r#"
    INSERT INTO reconcile_runs (asked_by, started_at, finished_at, failure, at_rest, sales, in_flight, disagreements, findings)
    VALUES ('api', to_timestamp(10), to_timestamp(11), NULL, true, 1, 0, 0, '[]'),
           ('api', to_timestamp(20), to_timestamp(22), NULL, true, 2, 3, 1,
            '[{"code": "not_conserved", "coupon_id": null, "detail": "x"}]'),
           ('api', to_timestamp(30), to_timestamp(33), 'Redis', NULL, NULL, NULL, NULL, '[]'),
           ('api', to_timestamp(40), NULL, NULL, NULL, NULL, NULL, NULL, '[]')"#;

#[tokio::test]
async fn findings_are_those_of_the_last_comparison_that_ended_well() {
    let app = service("1").await;
    app.expect_disagreements();
    app.execute(RUNS).await;
    let desk = Desk::over(app).await;
    let (_, board) = desk.opened().await;
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
    let counted = |board: &Value| -> Vec<Value> {
        let waits = board["waits"].as_array().expect("a list").iter();
        waits.map(|it| json!([it["kind"], it["items"]])).collect()
    };
    let expected = json!([["dead_letter", 1], ["postponed", 3], ["refund", 1]]);
    assert_eq!(json!(counted(&board)), expected);
    assert_eq!(board["waiting"].as_array().map(Vec::len), Some(5));
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
    assert_eq!((&board["waits"], &board["waiting"]), (&json!([]), &json!([])));
    assert_eq!(line(&board, one)["units"]["in_review"], 0);
}
