//! `build`: a damaged sale is built from Postgres, with its terms, its buyers and its letters, and nothing else is left.

use flash_sale::sale::ids::CouponId;

use super::{
    BY_HAND, SWITCH, close_lanes, damage, end_of, fate, no_process_keeps, outcomes,
    pass_up_to_command, sold_to_two, write_letter,
};
use crate::faults::recovery::{keep, sell};
use crate::support::{TestApp, proxy_before, user};

/// The recovery that is to come has epoch 22. Those of 11 to 13 were broken off since the last one that opened the lane.
const EPOCHS: &str = "
    INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
    VALUES (0, 9, 'x', now(), NULL), (0, 10, 'x', now(), now()), (0, 11, 'x', now(), NULL),
           (0, 12, 'x', now(), NULL), (0, 13, 'x', now(), NULL), (0, 23, 'x', now(), NULL);
    UPDATE lanes SET epoch = 20";

/// Generations among these of which Redis has the first shard.
async fn generations(app: &TestApp, coupon: CouponId) -> Vec<i64> {
    let mut there = Vec::new();
    for generation in [0, 9, 11, 12, 13, 22, 23] {
        let key = app.keys().buyers_of(coupon, generation, 0);
        if app.redis::<i64>(&["EXISTS", &key]).await == 1 {
            there.push(generation);
        }
    }
    there
}

#[tokio::test]
async fn build_leaves_the_shards_of_its_own_epoch_alone() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sales = sold_to_two::<6>(&app).await;
    let [plain, headless, same, abandoned, in_the_way, unreadable] = sales;
    app.execute(EPOCHS).await;
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(headless)]).await;
    app.rename_shards(same, 22).await;
    for coupon in [abandoned, in_the_way] {
        app.rename_shards(coupon, 12).await;
    }
    for generation in [9, 11, 13, 23] {
        let key = app.keys().buyers_of(abandoned, generation, 0);
        let _: i64 = app.redis(&["HSET", &key, "-", ""]).await;
    }
    let key = app.keys().buyers_of(in_the_way, 22, 0);
    let _: String = app.redis(&["SET", &key, "of another program"]).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(unreadable), "shards", "x"]).await;
    for coupon in [plain, same, abandoned, in_the_way] {
        damage(&app, coupon).await;
    }
    close_lanes(&app).await;
    keep(&app).await;

    for coupon in [plain, headless, same, abandoned, unreadable] {
        assert_eq!(fate(&app, coupon).await, "built 7 [1, 2]", "{coupon}");
    }
    for (coupon, expected) in [
        (plain, &[22][..]),
        (headless, &[22]),
        (same, &[22]),
        (abandoned, &[9, 22, 23]),
        // It can't be built: the shards that it had stay, and the sale itself is removed.
        (in_the_way, &[12]),
        (unreadable, &[22]),
    ] {
        assert_eq!(generations(&app, coupon).await, expected, "{coupon}");
    }
    assert_eq!(app.redis::<i64>(&["EXISTS", &app.keys().coupon(in_the_way)]).await, 0);
    assert_eq!(app.postponed().await, [format!("rebuild {in_the_way} 1")]);
    let error = "SELECT count(*) FROM postponed WHERE error LIKE '%WRONGTYPE%'";
    assert_eq!(app.number(error).await, 1);
    assert_eq!(outcomes(&app, "sales_kept, sales_built, buyers").await, ["0 5 10"]);
}

#[tokio::test]
async fn build_gives_units_to_letters_as_far_as_there_is_room() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [large] = sold_to_two::<1>(&app).await;
    let coupon = app.create_flash(5).await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    // User 4 has two letters, and user 1 has an order.
    for (order, user) in [(60, 6), (30, 3), (41, 4), (50, 5), (40, 4), (10, 1)] {
        write_letter(&app, coupon, (user, BY_HAND + order), (", holds_unit", ", true")).await;
    }
    write_letter(&app, large, (3, BY_HAND + 70), (", holds_unit", ", false")).await;
    let closed = (", holds_unit, resolved_at", ", true, now()");
    write_letter(&app, large, (4, BY_HAND + 71), closed).await;
    keep(&app).await;
    for coupon in [coupon, large] {
        damage(&app, coupon).await;
    }
    close_lanes(&app).await;
    keep(&app).await;

    assert_eq!(fate(&app, coupon).await, "built 0 [1, 2, 3, 4, 5]");
    assert_eq!(fate(&app, large).await, "built 6 [1, 2, 3]");
    let letters = format!(
        "SELECT concat_ws(' ', user_id, order_id - {BY_HAND}, holds_unit) FROM dead_letters ORDER BY order_id"
    );
    let expected = ["1 10 f", "3 30 t", "4 40 t", "4 41 f", "5 50 t", "6 60 f", "3 70 t", "4 71 t"];
    assert_eq!(app.texts(&letters).await, expected);
    let lost = format!(
        "SELECT concat_ws(' ', one->>'coupon_id', one->>'user_id', (one->>'order_id')::bigint - {BY_HAND}, one->>'reason')
         FROM recoveries, jsonb_array_elements(lost) AS one"
    );
    let without = |user, order| format!("{coupon} {user} {order} promised_without_unit");
    assert_eq!(app.texts(&lost).await, [without(4, 41), without(6, 60)]);
    assert_eq!(outcomes(&app, "sales_built, buyers").await, ["2 8"]);
}

/// Terms that Postgres has, and Redis has not.
const TERMS: &str = "
    UPDATE coupons SET state = 'paused', revision = 7;
    UPDATE flash_sales SET opens_at = '2026-03-01T00:00:00Z', closes_at = '2036-03-01T00:00:00.5Z',
                           applied_revision = 1";

#[tokio::test]
async fn build_writes_the_terms_that_postgres_has() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    sell(&app, coupon, 1..=9).await;
    app.write_orders().await;
    keep(&app).await;
    let [load] = app.in_redis(coupon, ["load"]).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "returns", "4", "old", "x"]).await;
    app.execute(TERMS).await;
    close_lanes(&app).await;
    keep(&app).await;

    let terms = app.in_redis(coupon, ["opens_ms", "closes_ms", "state", "opens_as"]).await;
    assert_eq!(terms, ["1772323200000", "2087942400500", "paused", "paused"]);
    let units = app.in_redis(coupon, ["stock", "total", "returns", "shards"]).await;
    assert_eq!(units, ["91", "100", "5", "4@3"]);
    let ids = app.in_redis(coupon, ["load", "revision", "epoch"]).await;
    assert_eq!(ids, [&*load, "7", "3"]);
    assert_eq!(app.in_redis(coupon, ["old"]).await, [""]);
    assert_eq!(app.number("SELECT applied_revision FROM flash_sales").await, 7);
    assert!(app.buyers(coupon).await.into_keys().eq(1..=9));
    for shard in app.shard_keys(coupon).await {
        assert_eq!(app.redis::<i64>(&["HEXISTS", &shard, "-"]).await, 1, "{shard}");
    }
    let of_load = app.keys().buyers_of(coupon, 0, 3);
    assert_eq!(app.redis::<i64>(&["EXISTS", &of_load]).await, 0);
}

/// Redis changes between the filling of the shards and the switch: a buyer goes, a shard goes, or the lane has a newer epoch.
#[tokio::test]
async fn build_of_a_sale_whose_shards_or_lane_change_before_its_switch_opens_nothing() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(100).await;
    sell(&app, coupon, 1..=1).await;
    app.write_orders().await;
    keep(&app).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    for change in ["buyer", "shard", "epoch"] {
        damage(&app, coupon).await;
        close_lanes(&app).await;
        let pass = pass_up_to_command(&app, &proxy).await;
        let epoch = app.number("SELECT epoch FROM lanes").await;
        let shards = app.shards(coupon).await.of_generation(epoch);
        let lane = app.keys().lane(coupon.lane());
        let with_buyer = shards.key(app.keys(), coupon, shards.of(user(1)));
        let mut keys = shards.all().map(|shard| shards.key(app.keys(), coupon, shard));
        let empty = keys.find(|key| *key != with_buyer).expect("there are four");
        let _: i64 = match change {
            "buyer" => app.redis(&["HDEL", &with_buyer, "1"]).await,
            "shard" => app.redis(&["DEL", &empty]).await,
            _ => 0,
        };
        if change == "epoch" {
            let newer = (epoch + 1).to_string();
            let _: i64 = app.redis(&["HSET", &lane, "epoch", &newer]).await;
        }
        let ended = end_of(pass, &proxy).await;
        assert!(ended.is_err_and(|failure| failure.is_recovering()), "{change}");
        assert_eq!(app.postponed().await, [""; 0], "{change}");
        assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);
        let there: i64 = app.redis(&["EXISTS", &app.keys().coupon(coupon)]).await;
        assert_eq!(there, 1, "{change}");
        let _: i64 = app.redis(&["HSET", &lane, "epoch", &epoch.to_string()]).await;
    }
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(fate(&app, coupon).await, "built 99 [1]");
}
