//! The board's look at Postgres and at Redis: recoveries, letters in review, changes on their way, and logs.

use flash_sale::base::limits::BOARD_RECOVERIES_MAX;
use flash_sale::sale::ids::Lane;
use serde_json::{Value, json};

use crate::support::played::{OTHER_TYPE, Play, Played};
use crate::support::{TestApp, bounded};

/// The board once it is as expected.
async fn board(app: &TestApp, is_right: impl Fn(&Value) -> bool) -> Value {
    bounded("the board", async {
        loop {
            let asked = app.get("/v1/board", &app.admin_token()).await;
            assert_eq!(asked.status, 200, "{asked:?}");
            if is_right(&asked.body) {
                return asked.body;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn numbers(list: &Value, name: &str) -> Vec<i64> {
    let list = list.as_array().expect("a list").iter();
    list.map(|one| one[name].as_i64().expect("a number")).collect()
}

/// Nine recoveries, of which the first and the eighth wait to be settled.
const RECOVERIES: &str = r#"
    INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
    SELECT 0, n, 'x', now(), now(), CASE WHEN n IN (1, 8) THEN
           '[{"coupon_id": "1024", "user_id": "1", "order_id": "77", "reason": "superseded"}]'::jsonb ELSE '[]' END
    FROM generate_series(1, 9) AS n"#;

#[tokio::test]
async fn recoveries_are_the_newest_and_those_that_wait_are_listed() {
    let app = TestApp::start().await;
    app.execute(RECOVERIES).await;
    let recoveries = |board: &Value| -> usize {
        let waiting = board["waiting"].as_array().expect("a list");
        waiting.iter().filter(|one| one["kind"] == "recovery").count()
    };
    let told = board(&app, |board| recoveries(board) == 2).await;
    assert_eq!(BOARD_RECOVERIES_MAX, 5);
    assert_eq!(numbers(&told["recoveries"], "epoch"), [9, 8, 7, 6, 5]);
    let count = &told["waits"][0];
    assert_eq!((&count["kind"], &count["items"]), (&json!("recovery"), &json!(2)));
    app.execute("UPDATE recoveries SET settled_at = now(), note = 'told'").await;
    board(&app, |board| recoveries(board) == 0).await;
    app.execute("DELETE FROM recoveries").await;
}

#[tokio::test]
async fn a_sale_has_its_letters_in_review_and_a_change_that_is_on_its_way() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (first, second) = (app.create_flash(5).await, app.create_flash(6).await);
    app.order(1, first).await;
    app.claim(2, first).await;
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
         SELECT 0, n || '-1', '{{}}', 'conflict', '', {first}, n, n, CASE n WHEN 3 THEN now() END FROM generate_series(1, 3) AS n"
    ))
    .await;
    let is_counted = |board: &Value| {
        board["waits"][0]["items"] == 2
            && board["sales"]
                .as_array()
                .is_some_and(|sales| sales.iter().all(|sale| sale["units"]["in_review"].is_i64()))
            && board["backlog"] == 1
    };
    let told = board(&app, is_counted).await;
    let sale = |told: &Value, coupon| {
        let sales = told["sales"].as_array().expect("a list");
        sales.iter().find(|sale| sale["coupon_id"] == json!(coupon)).expect("it is there").clone()
    };
    let units = |told: &Value, coupon| {
        let units = sale(told, coupon)["units"].clone();
        ["total", "left", "buyers", "sold", "in_review"].map(|name| units[name].as_i64())
    };
    assert_eq!(units(&told, first), [Some(5), Some(3), Some(2), Some(1), Some(2)]);
    assert_eq!(units(&told, second), [Some(6), Some(6), Some(0), Some(0), Some(0)]);
    for coupon in [first, second] {
        let line = sale(&told, coupon);
        assert_eq!(
            (&line["is_pending"], &line["in_redis"], &line["state"]),
            (&json!(false), &json!(true), &json!("active"))
        );
    }
    assert_eq!(
        (&told["lanes"][0]["unread"], &told["lanes"][0]["is_open"]),
        (&json!(1), &json!(true))
    );

    // Postgres has a newer revision than Redis, which decides.
    app.execute(&format!(
        "UPDATE coupons SET revision = revision + 1, state = 'paused' WHERE id = {first}"
    ))
    .await;
    let told = board(&app, |board| sale(board, first)["is_pending"] == true).await;
    assert_eq!(sale(&told, first)["state"], "active");
    assert_eq!(sale(&told, second)["is_pending"], false);
    app.changes_pass().await;
    let told = board(&app, |board| sale(board, first)["is_pending"] == false).await;
    assert_eq!(sale(&told, first)["state"], "paused");
}

/// Redis refuses to tell the entries of the first log, once it has told the log's state.
#[tokio::test]
async fn a_log_that_cannot_be_read_is_unknown_and_hides_no_other() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let lanes: Vec<Lane> = Lane::all(2).collect();
    for (lane, user) in lanes.iter().zip(["1", "2"]) {
        app.append(*lane, &["coupon", "1024", "user", user, "order", user]).await;
    }
    let unreadable = app.log(lanes[0]);
    let played = Played::before(app.redis_url(), move |command| match command {
        [verb, key, ..] if verb == "XRANGE" && *key == unreadable => {
            Play::Reply(OTHER_TYPE.to_owned())
        }
        _ => Play::Real,
    })
    .await;
    let process = played.process(&app).await;
    let mut watching = process.board.watch().expect("there is room");
    let board = bounded("Redis is looked at", async {
        loop {
            let board = watching.next().await.expect("the producer goes on");
            if json!(*board)["stores"][0]["is_there"] == true {
                return json!(*board);
            }
        }
    })
    .await;
    let unread: Vec<&Value> =
        board["lanes"].as_array().expect("a list").iter().map(|lane| &lane["unread"]).collect();
    assert_eq!(unread, [&Value::Null, &json!(1)], "{board}");
    assert_eq!(board["backlog"], Value::Null, "{board}");
}
