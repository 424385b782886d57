//! `lane`: recoveries of lanes that differ in one fact, with their row, their beat, their hash in Redis and their log line.

// Receipts and logs that a recovery waits for.
mod waits;

use std::sync::LazyLock;

use flash_sale::sale::ids::Lane;

use super::{
    BY_HAND, SWITCH, add_stock, close_lanes, damage, end_of, fate, no_process_keeps, outcomes,
    pass_up_to_command, promise_in_redis, sold_to_two, write_letter,
};
use crate::faults::recovery::{keep, sell};
use crate::support::lines::{Lines, number};
use crate::support::played::hash;
use crate::support::{TestApp, lane, proxy_before};

static OPEN: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../../lua/open_lane.lua")));

/// Hash of each lane in Redis.
async fn hashes(app: &TestApp, lanes: i32) -> Vec<String> {
    let mut hashes = Vec::new();
    for lane in Lane::all(lanes) {
        let key = app.keys().lane(lane);
        let fields = ["epoch", "state", "beat", "promised", "written", "log", "steps"];
        let values: Vec<Option<String>> =
            app.redis(&[&["HMGET", &key], &fields[..]].concat()).await;
        let values: Vec<String> = values.into_iter().map(|of| of.unwrap_or("-".into())).collect();
        hashes.push(values.join(" "));
    }
    hashes
}

/// Of thirteen promised orders, four were settled, and six are known now: three new rows, a letter, a superseded claim, and
/// one that Postgres takes neither as an order nor as a letter.
#[tokio::test]
async fn unknown_are_promises_without_a_row_a_letter_or_a_newer_order() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (sale, other) = (app.create_flash(4).await, app.create_flash(9).await);
    for coupon in [sale, other] {
        sell(&app, coupon, 1..=2).await;
    }
    app.write_orders().await;
    app.next_second().await;
    keep(&app).await;
    app.set_buyer(sale, 1, 77).await;
    app.set_buyer(sale, 5, BY_HAND + 5).await;
    app.execute(&format!(
        "INSERT INTO receipts (order_id, coupon_id, user_id)
         VALUES ({BY_HAND} + 6, {sale}, 6), ({BY_HAND} + 8, {other}, 8), ({BY_HAND} + 9, {other}, 9);
         UPDATE lane_beats SET promised = 13"
    ))
    .await;
    for table in ["orders", "dead_letters"] {
        app.refuse("INSERT", table, "NEW.user_id = 9", "23514").await;
    }
    write_letter(&app, sale, (3, BY_HAND + 3), ("", "")).await;
    for coupon in [sale, other] {
        damage(&app, coupon).await;
    }
    close_lanes(&app).await;
    let lines = Lines::heard();
    keep(&app).await;
    assert_eq!(fate(&app, sale).await, "built 0 [1, 2, 5, 6]");
    assert_eq!(fate(&app, other).await, "built 6 [1, 2, 8]");
    let numbers = "buyers, harvested, receipts, jsonb_array_length(lost), unknown";
    assert_eq!(outcomes(&app, numbers).await, ["7 1 2 3 3"]);
    let of = |outcome: &str| {
        number(&app.app, &format!("flash_sale_recovered_claims_total{{outcome=\"{outcome}\"}}"))
    };
    let of_orders = ["receipt", "harvested"].map(of);
    let of_others = ["superseded", "promised_without_unit", "refused", "unknown"].map(of);
    assert_eq!((of_orders, of_others), ([2.0, 1.0], [1.0, 1.0, 1.0, 3.0]));
    assert_eq!(
        lines.count("ALARM: a claim that only Redis or its process knew can become neither"),
        1
    );
    assert_eq!(app.postponed().await, [""; 0], "the sale is built");
}

/// Another recovery begins in Postgres before this one has opened the lane.
#[tokio::test]
async fn recover_opens_no_lane_of_which_postgres_has_a_newer_epoch() {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    damage(&app, sale).await;
    close_lanes(&app).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    let lines = Lines::heard();
    let pass = pass_up_to_command(&app, &proxy).await;
    app.execute("UPDATE lanes SET epoch = epoch + 1").await;
    assert!(end_of(pass, &proxy).await.is_ok());
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL").await, 0);
    assert!(hashes(&app, 1).await[0].starts_with("3 recovering"));
    assert_eq!(lines.count("the lane is open again"), 0);
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
}

/// Redis goes back behind a step of the recovery before it opens the lane: only Postgres has it open, and the next look
/// closes it.
#[tokio::test]
async fn tell_says_that_a_lane_is_open_only_once_redis_has_opened_it() {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    damage(&app, sale).await;
    close_lanes(&app).await;
    let proxy = proxy_before(&app, &OPEN).await;
    let lines = Lines::heard();
    let pass = pass_up_to_command(&app, &proxy).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().lane(lane()), "steps", "-1"]).await;
    assert!(end_of(pass, &proxy).await.is_ok());
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 1);
    assert_eq!(lines.count("the lane is open again"), 0);
    assert!(hashes(&app, 1).await[0].starts_with("3 recovering"));
    no_process_keeps(&app).await;
    keep(&app).await;
    assert_eq!(lines.count("the lane is open again"), 1);
    let reasons = "SELECT reason FROM recoveries ORDER BY id";
    assert_eq!(app.texts(reasons).await, ["x", "a recovery was cut off"]);
    // Redis has an older beat than the one that was noted.
    assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
}

/// A sale that is whole is compared later, once for all: its lane is noted, and no other.
#[tokio::test]
async fn recover_takes_over_only_from_a_redis_that_is_believed() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let sales = sold_to_two::<2>(&app).await;
    for sale in sales {
        promise_in_redis(&app, sale, 5, BY_HAND + 5 + i64::from(sale.lane().get())).await;
    }
    app.execute("UPDATE lanes SET harvests = false WHERE lane = 1").await;
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(fate(&app, sales[0]).await, "kept 6 [1, 2, 5]");
    assert_eq!(fate(&app, sales[1]).await, "built 7 [1, 2]");
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE harvests").await, 2);
    // The word of the operator is for one recovery.
    add_stock(&app, sales[1], 1).await;
    promise_in_redis(&app, sales[1], 6, BY_HAND + 60).await;
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(fate(&app, sales[1]).await, "built 6 [1, 2, 6]");
}
