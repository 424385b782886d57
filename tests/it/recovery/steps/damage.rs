//! `damage`: the look at the sales of a closed lane takes over those that are whole, and has the others built.

use super::{
    BY_HAND, add_stock, close_lanes, damage, fate, outcomes, promise_in_redis, sold_to_two,
    write_letter,
};
use crate::faults::recovery::keep;
use crate::support::TestApp;

/// Recoveries of lane 0: one that has opened the lane, and since then two that were broken off.
const RECOVERIES: &str = "
    INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
    VALUES (0, 7, 'x', now(), now()), (0, 1, 'x', now(), NULL), (0, 0, 'x', now(), NULL)";

#[tokio::test]
async fn look_keeps_sales_that_are_whole_and_has_each_other_one_built() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sales = sold_to_two::<14>(&app).await;
    let [whole, uncounted, older, shardless, lost, other_load, unreadable, ..] = sales;
    let [.., buyer_gone, other_order, promised, letter_gone, in_vain, finished, kept] = sales;
    add_stock(&app, uncounted, 1).await;
    app.execute(&format!("UPDATE coupons SET revision = revision + 1 WHERE id = {older}")).await;
    app.lose_buyers(shardless).await;
    app.lose_sale(lost).await;
    for (coupon, field) in [(other_load, "load"), (unreadable, "shards")] {
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), field, "x"]).await;
    }
    app.forget_buyer(buyer_gone, 1).await;
    add_stock(&app, buyer_gone, 1).await;
    app.set_buyer(other_order, 1, 77).await;
    let of_kept = app.order_of(kept, 1).await;
    app.execute(&format!(
        "INSERT INTO receipts (order_id, coupon_id, user_id)
         VALUES ({BY_HAND} + 9, {promised}, 9), ({of_kept}, {kept}, 1)"
    ))
    .await;
    write_letter(&app, letter_gone, (3, BY_HAND + 3), ("", "")).await;
    app.execute(RECOVERIES).await;
    // However slow the machine is, all claims are newer than the beat.
    app.execute("UPDATE lane_beats SET beat_at = beat_at - interval '1 hour'").await;
    app.rename_shards(in_vain, 1).await;
    app.rename_shards(finished, 7).await;
    close_lanes(&app).await;
    keep(&app).await;

    let built = "built 7 [1, 2]";
    for (what, coupon, expected) in [
        ("whole", whole, "kept 7 [1, 2]"),
        ("a unit too many", uncounted, built),
        ("an older revision", older, built),
        ("no shard", shardless, built),
        ("nothing", lost, built),
        ("another load", other_load, built),
        ("shards that can't be read", unreadable, built),
        ("a buyer less", buyer_gone, built),
        ("a buyer by another order", other_order, built),
        ("a promise of a process", promised, "built 6 [1, 2, 9]"),
        ("a dead letter", letter_gone, "built 6 [1, 2, 3]"),
        ("built by a recovery that was broken off", in_vain, built),
        ("built by a recovery that has ended", finished, "kept 7 [1, 2]"),
        ("a promise that is kept", kept, "kept 7 [1, 2]"),
    ] {
        assert_eq!(fate(&app, coupon).await, expected, "{what}");
    }
    let numbers =
        "sales_kept, sales_built, buyers, harvested, receipts, jsonb_array_length(lost), absent";
    assert_eq!(outcomes(&app, numbers).await, ["3 11 24 0 1 1 0"]);
    assert_eq!(app.number("SELECT count(*) FROM receipts").await, 0);
}

/// A sale of each lane that has been archived, and whose keys are removed.
const ARCHIVED: &str = "
    INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
    SELECT (900::bigint << 10) + lane, 'flash', 't', '', '', 1, 2 FROM lanes;
    INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total, loaded_at, load_id, archived_at, removed_at)
    SELECT (900::bigint << 10) + lane, now() - interval '2 hours', now() - interval '1 hour', 9, now(), 'x', now(), now()
    FROM lanes";

/// User 2 of each sale has cancelled the order, and the unit has come back. User 5 is known to Redis alone.
#[tokio::test]
async fn look_believes_a_redis_with_the_noted_beat_or_the_next_one() {
    let app = TestApp::with_lanes(7).await;
    app.expect_disagreements();
    let sales = sold_to_two::<7>(&app).await;
    for coupon in sales {
        assert_eq!(app.cancel(2, app.order_of(coupon, 2).await).await.status, 200);
    }
    assert_eq!(app.give_back().await, 7);
    keep(&app).await;
    for coupon in sales {
        promise_in_redis(&app, coupon, 5, BY_HAND + coupon.get()).await;
    }
    let beat = |lane: usize| app.keys().lane(sales[lane].lane());
    for (lane, beats) in [(1, "1"), (2, "-1"), (5, "2")] {
        let _: i64 = app.redis(&["HINCRBY", &beat(lane), "beat", beats]).await;
    }
    let _: i64 = app.redis(&["HDEL", &beat(3), "beat"]).await;
    app.execute("UPDATE lanes SET harvests = false WHERE lane = 4").await;
    add_stock(&app, sales[6], 1).await;
    app.execute(ARCHIVED).await;
    // However slow the machine is, all claims are newer than the beat.
    app.execute("UPDATE lane_beats SET beat_at = beat_at - interval '1 hour'").await;
    close_lanes(&app).await;
    keep(&app).await;

    let kept = ("kept 7 [1, 5]", "1 0 0 0 0", 1, 1);
    let harvested = ("built 7 [1, 5]", "0 1 2 1 0", 0, 0);
    let expected = [
        kept,
        kept,
        harvested,
        harvested,
        ("built 8 [1]", "0 1 1 0 -", 0, 0),
        harvested,
        // Of the noted beat: its sales are looked at, and only sale is not whole.
        ("built 7 [1, 5]", "0 1 2 1 0", 0, 1),
    ];
    let numbers = "sales_kept, sales_built, buyers, harvested, coalesce(unknown::text, '-')";
    let outcomes = outcomes(&app, numbers).await;
    assert_eq!(outcomes.len(), 7);
    for (lane, (told, numbers, returns, removed)) in expected.into_iter().enumerate() {
        assert_eq!((&*fate(&app, sales[lane]).await, &*outcomes[lane]), (told, numbers), "{lane}");
        let of_lane = |table, column: &str| {
            format!("SELECT count(*) FROM {table} WHERE (coupon_id & 1023) = {lane} AND {column}")
        };
        let again = app.number(&of_lane("stock_returns", "done_at IS NULL")).await;
        let gone = app.number(&of_lane("flash_sales", "removed_at IS NOT NULL")).await;
        assert_eq!((again, gone), (returns, removed), "lane {lane}");
    }
}

/// Redis is believed about the units of letters, as far as nothing else speaks about them.
#[tokio::test]
async fn note_units_notes_which_letters_of_a_kept_sale_are_buyers() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [sale] = sold_to_two::<1>(&app).await;
    for (user, order) in [(3, 3), (5, 55), (6, 6), (8, 8)] {
        promise_in_redis(&app, sale, user, BY_HAND + order).await;
    }
    let old = (", holds_unit, created_at", ", true, now() - interval '1 day'");
    for (user, columns) in [
        (3, (", holds_unit", ", false")),
        (4, old),
        (5, old),
        (6, (", holds_unit, resolved_at", ", false, now()")),
        // The user has an order.
        (1, (", holds_unit", ", true")),
        (8, (", holds_unit", ", true")),
    ] {
        write_letter(&app, sale, (user, BY_HAND + user), columns).await;
    }
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(fate(&app, sale).await, "kept 3 [1, 2, 3, 5, 6, 8]");
    let letters = "SELECT concat_ws(' ', user_id, holds_unit) FROM dead_letters ORDER BY user_id";
    assert_eq!(app.texts(letters).await, ["1 t", "3 t", "4 f", "5 f", "6 f", "8 t"]);
}

/// By the noted beat, the orders of lane 0 are older, so that the counters alone tell, and those of lane 1 are newer.
#[tokio::test]
async fn look_asks_for_the_buyers_of_orders_since_the_last_beat() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let sales = sold_to_two::<2>(&app).await;
    for sale in sales {
        app.forget_buyer(sale, 1).await;
        add_stock(&app, sale, 1).await;
    }
    app.execute(
        "UPDATE lane_beats SET beat_at = now() + CASE lane WHEN 0 THEN interval '1 minute' ELSE - interval '1 hour' END",
    )
    .await;
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(fate(&app, sales[0]).await, "kept 8 [2]");
    assert_eq!(fate(&app, sales[1]).await, "built 7 [1, 2]");
    // A sale that can't be read is built.
    damage(&app, sales[0]).await;
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(fate(&app, sales[0]).await, "built 7 [1, 2]");
}
