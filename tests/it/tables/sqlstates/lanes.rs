//! Recoveries: sales that are built anew, the notes about their lanes, and receipts that are handed in.

use flash_sale::sale::ids::CouponId;

use super::{Poison, count, meaning_of, oversell};
use crate::faults::recovery::keep;
use crate::recovery::steps::{close_lanes, damage, fate, sold_to_two};
use crate::support::buyers::FIRST_ORDER_BY_HAND as BY_HAND;
use crate::support::{Bounded, TestApp};

/// Two codes about data, and two others.
const STATES: [&str; 4] = ["22003", "23514", "40001", "57014"];

/// Writes about a sale that is built anew, and what poison does: the dead letters that the sale has then, or none if the
/// sale is put aside. `{bad}` is the sale.
const REBUILT: [(&str, &str, &str, Option<i64>); 4] = [
    ("INSERT", "orders", "NEW.coupon_id = {bad} AND NEW.user_id = 3", Some(2)),
    ("UPDATE", "flash_sales", "NEW.coupon_id = {bad} AND NEW.sold > OLD.sold", Some(3)),
    ("UPDATE", "flash_sales", "NEW.coupon_id = {bad} AND NEW.sold = OLD.sold", None),
    ("UPDATE", "dead_letters", "NEW.coupon_id = {bad}", None),
];

/// A damaged sale with an order of user 1, a dead letter of user 2 that is to hold a unit, and users 3 and 4, of whom only
/// Redis knows.
async fn damaged(app: &TestApp) -> CouponId {
    let coupon = app.create_flash(9).await;
    app.order(1, coupon).await;
    oversell(app, 2, coupon, 1).await;
    keep(app).await;
    for user in [3, 4] {
        app.set_buyer(coupon, user, BY_HAND + 10 * coupon.get() + user).await;
    }
    app.execute(&format!("UPDATE dead_letters SET holds_unit = false WHERE coupon_id = {coupon}"))
        .await;
    damage(app, coupon).await;
    coupon
}

/// Both sales have all their buyers, and no sale waits.
async fn both_are_built(app: &TestApp, sales: [CouponId; 2], case: &str) {
    app.let_postponed_be_due().await;
    // A sale that has been built by the first run is settled by the next one.
    for _ in 0..2 {
        keep(app).await;
    }
    for coupon in sales {
        let fate = fate(app, coupon).await;
        assert!(fate.ends_with(" 5 [1, 2, 3, 4]"), "{case}: {fate}");
    }
    assert_eq!(app.postponed().await, [""; 0], "{case}");
}

#[tokio::test]
async fn a_rebuild_of_two_sales() {
    let app = TestApp::configured(&["--unpaid-orders-max", "1000"]).await;
    app.expect_disagreements();
    for (write, table, when, letters) in REBUILT {
        for state in STATES {
            let case = format!("{state} on {write} {table} if {when}");
            let (bad, good) = (damaged(&app).await, damaged(&app).await);
            close_lanes(&app).await;
            app.execute("DELETE FROM processes").await;
            app.refuse(write, table, &when.replace("{bad}", &bad.to_string()), state).await;
            let ended = app.app.keeper.pass().bounded().await;
            app.accept(table).await;
            if meaning_of(state) == Poison {
                assert!(ended.is_ok(), "{case}: {ended:?}");
                let there: i64 = app.redis(&["EXISTS", &app.keys().coupon(bad)]).await;
                assert_eq!(there == 1, letters.is_some(), "{case}: a sale stays closed alone");
                let aside = format!("rebuild {bad} 1");
                let postponed = app.postponed().await;
                assert_eq!(postponed.contains(&aside), letters.is_none(), "{case}: {postponed:?}");
                let of_bad = count(&app, "dead_letters", bad).await;
                assert_eq!(of_bad, letters.unwrap_or(1), "{case}: the culprits alone");
                assert_eq!(count(&app, "dead_letters", good).await, 1, "{case}");
                assert_eq!(fate(&app, good).await, "built 5 [1, 2, 3, 4]", "{case}");
            } else {
                assert!(ended.is_err(), "{case}: the pass fails");
                let open = "SELECT count(*) FROM lanes WHERE state = 'open'";
                assert_eq!(app.number(open).await, 0, "{case}: the lane stays closed");
                assert_eq!(app.postponed().await, [""; 0], "{case}");
            }
            both_are_built(&app, [bad, good], &case).await;
        }
    }
}

/// Writes about lane 0 in its recovery. None is about an item: that lane stays closed, whatever Postgres says.
const RECOVERED: [(&str, &str, &str); 6] = [
    ("UPDATE", "lanes", "NEW.lane = 0 AND NEW.state = 'recovering'"),
    ("INSERT", "recoveries", "NEW.lane = 0"),
    ("UPDATE", "lane_beats", "NEW.lane = 0"),
    ("UPDATE", "lanes", "NEW.lane = 0 AND NEW.state = 'open'"),
    ("UPDATE", "recoveries", "NEW.lane = 0"),
    ("DELETE", "receipts", "true"),
];

/// The lanes that are open in both stores, in the same epoch.
async fn open_lanes(app: &TestApp) -> Vec<i64> {
    let mut open = Vec::new();
    for lane in flash_sale::sale::ids::Lane::all(app.lanes()) {
        let of_redis: Vec<Option<String>> =
            app.redis(&["HMGET", &app.keys().lane(lane), "epoch", "state"]).await;
        let of_redis: Vec<String> = of_redis.into_iter().flatten().collect();
        let row = format!("SELECT concat_ws(' ', epoch, state) FROM lanes WHERE lane = {lane}");
        let is_same = app.texts(&row).await == [of_redis.join(" ")];
        if is_same && of_redis.last().is_some_and(|state| state == "open") {
            open.push(i64::from(lane.get()));
        }
    }
    open
}

#[tokio::test]
async fn a_recovery_of_two_lanes() {
    let app = TestApp::with_lanes(2).await;
    let [bad, good] = sold_to_two::<2>(&app).await;
    let order = app.order_of(bad, 1).await;
    for (write, table, when) in RECOVERED {
        for state in STATES {
            let case = format!("{state} on {write} {table} if {when}");
            close_lanes(&app).await;
            app.execute(&format!(
                "DELETE FROM processes;
                 INSERT INTO receipts (order_id, coupon_id, user_id) VALUES ({order}, {bad}, 1)"
            ))
            .await;
            app.refuse(write, table, when, state).await;
            let failed = app.app.keeper.pass().bounded().await;
            app.accept(table).await;
            assert!(failed.is_err(), "{case}: the pass tells it");
            assert_eq!(open_lanes(&app).await, [1], "{case}: one lane holds up no other");
            assert_eq!(app.postponed().await, [""; 0], "{case}");
            keep(&app).await;
            assert_eq!(open_lanes(&app).await, [0, 1], "{case}");
            for coupon in [bad, good] {
                let fate = fate(&app, coupon).await;
                assert!(fate.ends_with(" 7 [1, 2]"), "{case}: {fate}");
            }
            assert_eq!(app.number("SELECT count(*) FROM receipts").await, 0, "{case}");
        }
    }
}

/// Writes of a look at two lanes, and the lanes that are open after one that is refused as poison.
const LOOKED_AT: [(&str, &str, &str, &[i64]); 3] = [
    ("UPDATE", "lanes", "NEW.lane = 0", &[1]),
    ("UPDATE", "lane_beats", "NEW.lane = 0", &[0, 1]),
    ("DELETE", "receipts", "true", &[0, 1]),
];

/// Nothing can be written about the first lane, and the second one is closed.
#[tokio::test]
async fn a_look_at_two_lanes() {
    let app = TestApp::with_lanes(2).await;
    let sales = sold_to_two::<2>(&app).await;
    let order = app.order_of(sales[0], 1).await;
    for (write, table, when, open) in LOOKED_AT {
        for state in STATES {
            let case = format!("{state} on {write} {table}");
            if table == "lanes" {
                let key = app.keys().lane(sales[0].lane());
                assert_eq!(
                    app.redis::<i64>(&["DEL", &key]).await,
                    1,
                    "{case}: it has to be closed"
                );
            }
            app.execute(&format!(
                "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1 WHERE lane = 1;
                 DELETE FROM processes;
                 INSERT INTO receipts (order_id, coupon_id, user_id) VALUES ({order}, {}, 1) ON CONFLICT DO NOTHING",
                sales[0]
            ))
            .await;
            app.refuse(write, table, when, state).await;
            let failed = app.app.keeper.pass().bounded().await;
            app.accept(table).await;
            assert!(failed.is_err(), "{case}: the pass tells it");
            let expected = if meaning_of(state) == Poison { open } else { &open[..open.len() - 1] };
            assert_eq!(open_lanes(&app).await, expected, "{case}: poison holds up no other lane");
            keep(&app).await;
            assert_eq!(open_lanes(&app).await, [0, 1], "{case}");
            for coupon in sales {
                let fate = fate(&app, coupon).await;
                assert!(fate.ends_with(" 7 [1, 2]"), "{case}: {fate}");
            }
        }
    }
}

/// A process hands in for two lanes, and Postgres refuses a write about the first one.
#[tokio::test]
async fn receipts_that_are_handed_in() {
    let app = TestApp::with_lanes(2).await;
    let [first, second] = sold_to_two::<2>(&app).await;
    app.app.receipts_pass().bounded().await;
    let mut promised = Vec::new();
    for coupon in [first, second] {
        promised.push(app.claim(3, coupon).await.order_id());
    }
    let beside = app.claim(4, first).await.order_id();
    let receipts = async || {
        app.numbers("SELECT order_id FROM receipts WHERE user_id = 3 ORDER BY (coupon_id & 1023)")
            .await
    };
    let complete = async || {
        app.numbers(
            "SELECT lane::bigint FROM receipt_hand_ins JOIN lanes USING (lane, epoch) ORDER BY lane",
        )
        .await
    };
    for (write, table, when) in [
        ("INSERT", "receipts", "NEW.coupon_id & 1023 = 0 AND NEW.user_id = 3"),
        ("INSERT", "receipt_hand_ins", "NEW.lane = 0"),
    ] {
        for state in STATES {
            let case = format!("{state} on {write} {table}");
            close_lanes(&app).await;
            app.execute("DELETE FROM receipts").await;
            app.app.lanes.read_now().bounded().await.expect("Postgres answers");
            app.refuse(write, table, when, state).await;
            app.app.receipts_pass().bounded().await;
            app.accept(table).await;
            let handed_in: &[i64] = if meaning_of(state) == Poison { &[1] } else { &[] };
            assert_eq!(complete().await, handed_in, "{case}");
            let is_of_second = handed_in.len() == 1;
            assert_eq!(receipts().await.contains(&promised[1]), is_of_second, "{case}");
            let beside_it = app.numbers("SELECT order_id FROM receipts WHERE user_id = 4").await;
            let expected = is_of_second || table == "receipt_hand_ins";
            assert_eq!(beside_it.contains(&beside), expected, "{case}");
            app.app.receipts_pass().bounded().await;
            assert_eq!(
                (complete().await, receipts().await),
                (vec![0, 1], promised.clone()),
                "{case}"
            );
        }
    }
    app.execute("DELETE FROM processes").await;
    keep(&app).await;
    assert_eq!(app.write_orders().await.inserted, 3);
    for (coupon, order) in [first, second].into_iter().zip(promised) {
        assert_eq!(app.order_of(coupon, 3).await, order);
    }
}
