//! A board that has more of everything than it shows: its lists are bounded, the newest stand first, and the numbers
//! beside them count all.

use flash_sale::base::limits;
use serde_json::{Value, json};

use crate::support::{SECRET, TestApp, eventually};

/// More than any list of the board shows.
const MANY: usize = limits::BOARD_RUNS_MAX as usize + 7;

#[tokio::test]
async fn lists_of_the_board_are_bounded_and_begin_with_the_newest() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    app.expect_disagreements();
    let finding =
        "jsonb_build_object('code', 'not_conserved', 'coupon_id', NULL, 'detail', n::text)";
    for rows in [
        r"INSERT INTO dead_letters (lane, entry_id, payload, reason, detail)
          SELECT 0, n || '-0', ARRAY['\x01'::bytea], 'undecodable', 'x'"
            .to_owned(),
        "INSERT INTO postponed (job, item, next_try_at, error)
          SELECT 'expiry', n, now() + interval '1 hour', 'x'"
            .to_owned(),
        format!(
            "INSERT INTO reconcile_runs (asked_by, finished_at, at_rest, sales, in_flight, disagreements, findings)
             SELECT 'api', clock_timestamp(), true, n, 0, {MANY},
                 (SELECT jsonb_agg({finding}) FROM generate_series(1, {MANY}) n)"
        ),
    ] {
        app.execute(&format!("{rows} FROM generate_series(1, {MANY}) n ORDER BY n")).await;
    }
    for number in 1..=MANY {
        let order = 1_024 * number;
        let notice = json!({"kind": "payment", "payment_id": format!("p{number}"), "order_id": order.to_string(), "method": 3, "amount_cents": 7});
        assert_eq!(app.confirm(&notice).await.status, 200);
    }
    let mut board = Value::Null;
    // The first answer waits for both stores for a while, and no longer.
    eventually("both stores are looked at", async || {
        board = app.get("/v1/board", &app.admin_token()).await.body;
        (0..2).all(|store| board["stores"][store]["is_there"] == true)
    })
    .await;
    let items = limits::BOARD_ITEMS_MAX as usize;
    for (list, name, bound, newest) in [
        ("runs", "sales", limits::BOARD_RUNS_MAX as usize, json!(MANY)),
        ("findings", "detail", items, json!("1")),
    ] {
        let shown = board[list].as_array().unwrap_or_else(|| panic!("{list} in {board}"));
        assert_eq!((shown.len(), &shown[0][name]), (bound, &newest), "{list}");
    }
    for kind in ["finding", "dead_letter", "held_payment", "postponed"] {
        let waiting = board["waiting"].as_array().expect("a list");
        let shown = waiting.iter().filter(|one| one["kind"] == kind).count();
        assert_eq!(shown, items, "{kind}");
        let counts = board["waits"].as_array().expect("a list");
        let count = counts.iter().find(|it| it["kind"] == kind).expect("it is counted");
        // A record spells out the first hundred findings.
        assert!(count["items"] == MANY || kind == "finding", "{count}");
    }
    assert_eq!(board["runs"][0]["disagreements"], MANY);
}
