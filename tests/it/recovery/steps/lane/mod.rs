//! `lane`: recoveries of lanes that differ in one fact, with their row, their beat, their hash in Redis and their log line.

// Receipts and logs that a recovery waits for.
mod waits;

use std::sync::LazyLock;

use flash_sale::sale::ids::Lane;
use flash_sale::sale::keys::LogLayout;

use super::{
    BY_HAND, SWITCH, add_stock, close_lanes, damage, end_of, fate, no_process_keeps, outcomes,
    pass_up_to_command, promise_in_redis, sold_to_two, write_letter,
};
use crate::faults::recovery::{keep, sell};
use crate::support::lines::{Lines, number};
use crate::support::played::hash;
use crate::support::{TestApp, bounded, lane, older_process, proxy_before};

static OPEN: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../../lua/open_lane.lua")));

/// Beats of the lanes: the number, promised orders, the last settled state, its age, and whether the sales are unchecked.
const BEATS: &str = "
    SELECT concat_ws(' ', lane, beat, promised, settled_promised, settled_at > now() - interval '1 hour',
                     unchecked_since IS NOT NULL)
    FROM lane_beats ORDER BY lane";

/// One settled state is too old by a moment, and one is not. Lane 2 has no sale that Redis has to hold.
const FACTS: &str = "
    UPDATE flash_sales SET archived_at = now() WHERE (coupon_id & 1023) = 2;
    UPDATE lane_beats SET promised = 7 WHERE lane = 2;
    UPDATE lane_beats SET promised = 9 WHERE lane IN (4, 5, 6);
    UPDATE lane_beats SET settled_at = beat_at - interval '1 day' WHERE lane = 5;
    UPDATE lane_beats SET settled_at = beat_at - interval '1 day' + interval '1 s' WHERE lane = 6";

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

#[tokio::test]
async fn recover_opens_each_lane_with_its_beat_its_counts_and_its_record() {
    let app = TestApp::with_lanes(9).await;
    app.expect_disagreements();
    let sales = sold_to_two::<9>(&app).await;
    app.execute(FACTS).await;
    for lane in [1, 4, 5, 6] {
        damage(&app, sales[lane]).await;
    }
    assert_eq!(app.redis::<i64>(&["DEL", &app.log(sales[3].lane())]).await, 1);
    close_lanes(&app).await;
    // Redis has the epoch of an attempt before.
    let _: i64 = app.redis(&["HSET", &app.keys().lane(sales[8].lane()), "epoch", "2"]).await;
    let lines = Lines::heard();
    let ended = bounded("the end of the pass", app.app.keeper.pass()).await;
    ended.expect("both stores answer");

    let numbers = "lane, sales_kept, sales_built, buyers, coalesce(unknown::text, '-')";
    assert_eq!(
        outcomes(&app, numbers).await,
        [
            "0 1 0 0 0",
            "1 0 1 2 0",
            "2 0 0 0 5",
            "3 0 1 2 0",
            "4 0 1 2 7",
            "5 0 1 2 -",
            "6 0 1 2 5",
            "7 1 0 0 0",
            "8 1 0 0 0"
        ]
    );
    assert_eq!(
        app.texts(BEATS).await,
        [
            "0 3 2 2 t t",
            "1 3 2 2 t f",
            "2 3 7 7 t f",
            "3 3 2 2 t f",
            "4 3 9 9 t f",
            "5 3 9 9 t f",
            "6 3 9 9 t f",
            "7 3 2 2 t t",
            "8 3 2 2 t t"
        ]
    );
    let seven = "3 open 3 7 7 - -";
    let (two, nine) = ("3 open 3 2 2 - -", "3 open 3 9 9 - -");
    let expected = [two, two, seven, two, nine, nine, nine, two, two];
    assert_eq!(hashes(&app, 9).await, expected);
    let lanes =
        "SELECT concat_ws(' ', lane, epoch, state) FROM lanes WHERE epoch <> 3 OR state <> 'open'";
    assert_eq!(app.texts(lanes).await, [""; 0]);
    // Redis tells its time by the microsecond.
    let exact = "SELECT count(*) FROM lane_beats WHERE settled_at > date_trunc('second', settled_at) + interval '2 microseconds'";
    assert!(app.number(exact).await >= 5);
    let log = app.log(sales[3].lane());
    assert_eq!(app.redis::<Vec<redis::Value>>(&["XINFO", "GROUPS", &log]).await.len(), 1);

    assert_nine_are_told(&app, &lines);
}

fn assert_nine_are_told(app: &TestApp, lines: &Lines) {
    let opened = lines.with("the lane is open again");
    assert_eq!(opened.len(), 9);
    let told = |fields: &str| opened.iter().filter(|line| line.contains(fields)).count();
    assert_eq!(told("lane=0 epoch=3 kept=1 built=0 buyers=0 harvested=0 receipts=0"), 1);
    assert_eq!(told("lane=4 epoch=3 kept=0 built=1 buyers=2 harvested=0 receipts=0"), 1);
    assert_eq!(told("unknown=7 lost=0"), 1);
    let unknown = "flash_sale_recovered_claims_total{outcome=\"unknown\"}";
    assert_eq!(number(&app.app, unknown), 17.0);
    assert_eq!(number(&app.app, "flash_sale_lane_closed_seconds_count"), 9.0);
    assert_eq!(number(&app.app, "flash_sale_lanes_recovering"), 0.0);
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

/// The process was started while an older one was connected.
#[tokio::test]
async fn begin_log_begins_a_log_of_calls_only_in_a_lane_that_has_had_one() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let sales = sold_to_two::<2>(&app).await;
    let older = older_process(&app).await;
    let other = app.another_instance().await;
    let key = app.keys().lane(sales[0].lane());
    let _: i64 = app.redis(&["HDEL", &key, "promised", "written"]).await;
    for (lane, layout, there, unknown) in
        [(0, LogLayout::Claims, 0, "-"), (1, LogLayout::Calls, 1, "0")]
    {
        damage(&app, sales[lane]).await;
        let log = app.log(sales[lane].lane());
        let _: i64 = app.redis(&["DEL", &log]).await;
        app.execute(&format!(
            "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane = {lane}"
        ))
        .await;
        no_process_keeps(&app).await;
        bounded("the end of the pass", other.keeper.pass()).await.expect("both stores answer");
        assert_eq!(other.layout.get(), layout, "{lane}");
        assert_eq!(app.redis::<i64>(&["EXISTS", &log]).await, there, "{lane}");
        let told = "SELECT coalesce(unknown::text, '-') FROM recoveries ORDER BY id DESC LIMIT 1";
        assert_eq!(app.texts(told).await, [unknown], "{lane}");
    }
    // An open lane gets further beats while the other one is recovered.
    let hashes = hashes(&app, 2).await;
    for (hash, counts) in hashes.iter().zip(["- - - -", "2 2 - -"]) {
        assert!(hash.starts_with("3 open ") && hash.ends_with(&format!(" {counts}")), "{hashes:?}");
    }
    drop(older);
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
