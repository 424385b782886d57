//! The look at the lanes, at suspected sales and at late receipts closes those that differ, each for its reason.

use std::time::Duration;

use flash_sale::sale::ids::Lane;

use crate::faults::recovery::keep;
use crate::recovery::steps::{
    BY_HAND, add_stock, fate, no_process_keeps, promise_in_redis, sold_to_two, write_letter,
};
use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp};

/// Facts of Postgres about the lanes.
const FACTS: &str = "
    UPDATE lanes SET run_id = 'x' WHERE lane = 1;
    UPDATE lanes SET replication_id = 'x' WHERE lane = 2;
    UPDATE lanes SET epoch = 5 WHERE lane = 4;
    DELETE FROM lane_beats WHERE lane = 10;
    UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane = 11";

const CLOSED: &str = "a lane is closed until Redis has been compared with Postgres";

/// Number of lanes that this app's keeper has closed.
fn closed(app: &TestApp) -> f64 {
    number(&app.app, "flash_sale_lanes_closed_total")
}

/// Reason of each recovery, by lane.
async fn reasons(app: &TestApp) -> Vec<String> {
    app.texts("SELECT concat_ws(' ', lane, reason) FROM recoveries ORDER BY lane, id").await
}

#[tokio::test]
async fn look_closes_each_lane_that_differs_for_its_reason() {
    let app = TestApp::with_lanes(12).await;
    app.expect_disagreements();
    let sales = sold_to_two::<12>(&app).await;
    let key = |lane: usize| app.keys().lane(sales[lane].lane());
    app.execute(FACTS).await;
    for (lane, words) in [
        (3, &["DEL"][..]),
        (5, &["HINCRBY", "beat", "-1"]),
        (6, &["HSET", "state", "recovering"]),
        (9, &["HSET", "epoch", "01"]),
    ] {
        let _: i64 = app.redis(&[&words[..1], &[&*key(lane)], &words[1..]].concat()).await;
    }
    let _: i64 = app.redis(&["DEL", &app.log(sales[7].lane())]).await;
    let lines = Lines::heard();
    keep(&app).await;

    let of_lanes = [
        "1 Redis has been started anew",
        "2 Redis has another replication ID",
        "3 Redis has lost its data",
        "4 Redis has an older epoch",
        "5 Redis went back in time",
        "6 a recovery was cut off",
        "7 Redis has lost the order log",
        "9 Redis has an older epoch",
        "11 x",
    ];
    assert_eq!(reasons(&app).await, of_lanes);
    let is_open =
        "SELECT concat_ws(' ', lane, epoch) FROM lanes WHERE state = 'open' ORDER BY lane";
    let epochs =
        ["0 1", "1 3", "2 3", "3 3", "4 7", "5 3", "6 3", "7 3", "8 1", "9 3", "10 1", "11 3"];
    assert_eq!(app.texts(is_open).await, epochs);
    let beats = "SELECT concat_ws(' ', lane, beat) FROM lane_beats WHERE lane = 11 ORDER BY lane";
    assert_eq!(app.texts(beats).await, ["11 3"]);
    assert_eq!((closed(&app), lines.count(CLOSED)), (8.0, 8));
    for reason in &of_lanes[..7] {
        let (lane, reason) = reason.split_once(' ').expect("a reason");
        let told =
            format!("lane={lane} epoch={} reason=\"{reason}\"", if lane == "4" { 6 } else { 2 });
        assert_eq!(lines.count(&told), 1, "{told}");
    }
    assert_eq!(lines.count("ALARM: Redis has lost the order log of this lane"), 1);
    assert_eq!(number(&app.app, "flash_sale_redis_data_lost_total"), 1.0);
    assert_eq!(number(&app.app, "flash_sale_lanes_recovering"), 0.0);
}

/// A sale is suspected by a claim, or due after it could not be built.
#[tokio::test]
async fn look_at_sales_closes_lanes_of_sales_that_are_suspected_or_due_and_lost() {
    let app = TestApp::with_lanes(11).await;
    app.expect_disagreements();
    let sales = sold_to_two::<11>(&app).await;
    for lane in [1, 2, 3, 4, 5, 10] {
        app.lose_sale(sales[lane]).await;
    }
    let key = app.keys().coupon(sales[6]);
    let _: i64 = app.redis(&["HSET", &key, "epoch", "9"]).await;
    let _: String = app.redis(&["SET", &app.keys().coupon(sales[7]), "x"]).await;
    add_stock(&app, sales[8], 1).await;
    let due = |lane: usize, when: &str| {
        format!(
            "INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('rebuild', {}, 'x', now() {when});",
            sales[lane]
        )
    };
    let (past, future) = ("- interval '1 s'", "+ interval '1 hour'");
    let postponed = [due(0, past), due(2, future), due(3, past), due(4, past)];
    app.execute(&postponed.concat()).await;
    app.execute(
        "UPDATE flash_sales SET archived_at = now() WHERE (coupon_id & 1023) = 3;
         UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane = 10",
    )
    .await;
    for lane in [0, 1, 2, 3, 6, 7, 8, 10] {
        app.app.lanes.suspect_sale(sales[lane]);
    }
    let lines = Lines::heard();
    keep(&app).await;
    let lost = [1, 4, 6, 7, 8].map(|lane| format!("{lane} Redis has lost a sale"));
    assert_eq!(reasons(&app).await, [&lost[..], &["10 x".to_owned()]].concat());
    assert_eq!((closed(&app), lines.count(CLOSED)), (5.0, 5));
    assert_eq!(lines.count("ALARM: Redis has lost this sale, or part of it"), 5);
    let waiting = [2, 4].map(|lane| format!("rebuild {} 1", sales[lane]));
    assert_eq!(app.postponed().await, waiting);
    for lane in [1, 4, 7, 8, 10] {
        assert_eq!(fate(&app, sales[lane]).await, "built 7 [1, 2]", "{lane}");
    }
    // Only its epoch was another one.
    assert_eq!(fate(&app, sales[6]).await, "kept 7 [1, 2]");
    for lane in [2, 3, 5] {
        assert_eq!(app.shards(sales[lane]).await.generation(), 0, "{lane}");
    }
}

#[tokio::test]
async fn look_at_receipts_closes_lanes_with_a_promise_that_neither_store_has() {
    let app = TestApp::with_lanes(7).await;
    app.expect_disagreements();
    let sales = sold_to_two::<7>(&app).await;
    for lane in [1, 4] {
        promise_in_redis(&app, sales[lane], 5, BY_HAND + 5 + lane as i64).await;
    }
    write_letter(&app, sales[3], (5, BY_HAND + 30), ("", "")).await;
    let of_row = app.order_of(sales[0], 1).await;
    for (lane, user, order) in [
        (0, 1, of_row),
        (1, 5, BY_HAND + 6),
        (2, 5, BY_HAND + 20),
        (3, 5, BY_HAND + 30),
        // One of two is kept.
        (4, 5, BY_HAND + 9),
        (4, 6, BY_HAND + 40),
        (5, 5, BY_HAND + 50),
        (6, 5, BY_HAND + 60),
    ] {
        app.execute(&format!(
            "INSERT INTO receipts (order_id, coupon_id, user_id) VALUES ({order}, {}, {user})",
            sales[lane]
        ))
        .await;
    }
    let key = app.keys().coupon(sales[5]);
    let _: i64 = app.redis(&["HSET", &key, "shards", "x"]).await;
    app.execute("UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane = 6").await;
    keep(&app).await;
    let lost = [2, 4, 5].map(|lane| format!("{lane} a process promised claims that were lost"));
    assert_eq!(reasons(&app).await, [&lost[..], &["6 x".to_owned()]].concat());
    assert_eq!(closed(&app), 3.0);
    assert_eq!(app.number("SELECT count(*) FROM receipts").await, 0);
    for (lane, expected) in [
        (0, "kept 7 [1, 2]"),
        (1, "kept 6 [1, 2, 5]"),
        (2, "built 6 [1, 2, 5]"),
        (4, "built 5 [1, 2, 5, 6]"),
        (5, "built 6 [1, 2, 5]"),
        (6, "built 6 [1, 2, 5]"),
    ] {
        assert_eq!(fate(&app, sales[lane]).await, expected, "{lane}");
    }
}

/// The other lane is as noted, but its note is older, so Redis may have lost what came after it.
#[tokio::test]
async fn look_closes_a_lane_with_an_older_note_beside_one_that_went_back() {
    let app = TestApp::with_lanes(2).await;
    let sales = sold_to_two::<2>(&app).await;
    app.execute("UPDATE lane_beats SET beat_at = beat_at - interval '1 ms' WHERE lane = 0").await;
    let set: i64 = app.redis(&["HSET", &app.keys().lane(sales[1].lane()), "beat", "0"]).await;
    assert_eq!(set, 0, "it had a beat");
    keep(&app).await;
    let of_both = ["0 Redis went back in time", "1 Redis went back in time"];
    assert_eq!(reasons(&app).await, of_both);
}

/// Another process keeps the lanes: this one closes those of its suspected sales, and recovers none.
#[tokio::test]
async fn look_and_recover_is_the_work_of_one_process_that_keeps_the_lanes() {
    let app = TestApp::with_lanes(3).await;
    let sales = sold_to_two::<3>(&app).await;
    app.app.keeper.give_up().await;
    assert_eq!(app.number("SELECT count(*) FROM lane_keeper WHERE until > now()").await, 0);
    let other = app.another_instance().await;
    app.execute("UPDATE lane_keeper SET process = 'another', until = now() + interval '1 hour'")
        .await;
    let _: i64 = app.redis(&["DEL", &app.keys().lane(sales[0].lane())]).await;
    for lane in [1, 2] {
        app.lose_sale(sales[lane]).await;
    }
    // Before a look that a suspicion has asked for, and after it.
    other.lanes.suspect_sale(sales[1]);
    assert!(other.lanes.take_suspicion());
    let open = "SELECT lane::bigint FROM lanes WHERE state = 'open' ORDER BY lane";
    other.keeper.tick().bounded().await;
    assert_eq!(app.numbers(open).await, [0, 1, 2]);
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(app.numbers(open).await, [0, 2]);
    assert_eq!(reasons(&app).await, [""; 0]);
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(number(&other, "flash_sale_lanes_recovering"), 1.0);

    // A lane more is added by the process that keeps the lanes, and begun.
    app.execute("UPDATE settings SET lanes = 4").await;
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(app.number("SELECT count(*) FROM lanes").await, 3);
    no_process_keeps(&app).await;
    app.app.lanes.suspect_sale(sales[2]);
    keep(&app).await;
    let begun = "SELECT count(*) FROM lanes JOIN lane_beats USING (lane) WHERE run_id IS NOT NULL AND state = 'open'";
    assert_eq!(app.number(begun).await, 4);
    assert_eq!(app.app.lanes.all().len(), 4);
    assert_eq!(number(&app.app, "flash_sale_lanes_recovering"), 0.0);
    for sale in sales {
        assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
    }
}

#[tokio::test]
async fn look_and_recover_notes_the_median_time_of_recoveries_while_a_lane_is_closed() {
    let app = TestApp::with_lanes(2).await;
    app.execute("UPDATE lane_keeper SET process = 'another', until = now() + interval '1 hour'")
        .await;
    let other = app.another_instance().await;
    let back_in = || other.lanes.suspect(Lane::all(1).next().expect("a lane")).back_in();
    let before = back_in();
    other.keeper.pass().bounded().await.expect("both stores answer");
    app.execute("UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane = 1").await;
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(back_in(), before, "no lane has been recovered yet");
    app.execute(
        "UPDATE lanes SET state = 'open' WHERE lane = 1;
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
         SELECT 0, 0, 'x', now() - interval '1 hour', now() - interval '1 hour' + seconds * interval '1 second'
         FROM unnest(ARRAY[3, 30, 7]) AS seconds",
    )
    .await;
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(back_in(), before, "all lanes are open");
    app.execute("UPDATE lanes SET state = 'recovering' WHERE lane = 1").await;
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(back_in(), Some(Duration::from_secs(7)));
    no_process_keeps(&app).await;
    app.recover().await;
}
