//! Repairs: each corrects its finding, changes nothing when it is repeated, and never makes a buyer of a user without
//! a promise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flash_sale::kit::postgres;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};

use crate::support::{Bounded, TestApp, eventually, user, write_all};

/// Reads the unread entries as another consumer, and acknowledges them without writing them: the classic way to lose
/// an order.
const ACKNOWLEDGE_UNWRITTEN: &str =
    "local read = redis.call('XREADGROUP', 'GROUP', 'order-writers', 'x', 'STREAMS', KEYS[1], '>')
    if not read then return 0 end
    for _, entry in ipairs(read[1][2]) do redis.call('XACK', KEYS[1], 'order-writers', entry[1]) end
    return #read[1][2]";

/// Compares and repairs. Returns the record.
async fn repair(app: &TestApp) -> Value {
    let reply = app.compare(true).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body
}

/// Every repair of the record, as `code done`.
fn repairs(run: &Value) -> Vec<String> {
    let repairs = run["repairs"].as_array().expect("a list");
    repairs.iter().map(|one| format!("{} {}", one["code"].as_str().unwrap(), one["done"])).collect()
}

async fn lose_entries(app: &TestApp, coupon: CouponId) -> i64 {
    app.workers().remove(0).ensure_group().bounded().await.expect("Redis answers");
    app.redis(&["EVAL", ACKNOWLEDGE_UNWRITTEN, "1", &app.log(coupon.lane())]).await
}

#[tokio::test]
async fn a_lost_order_is_written_with_the_id_that_was_promised() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.claim(1, coupon).await.order_id();
    assert_eq!(lose_entries(&app, coupon).await, 1);

    let run = repair(&app).await;
    assert_eq!(run["disagreements"], 1, "{run}");
    assert_eq!(repairs(&run), ["order_lost true"]);
    let mine = app.my_claim(1, coupon).await;
    assert_eq!((mine.order_id(), mine.text("status")), (order, "unpaid"));
    let off = "SELECT abs(extract(epoch FROM claimed_at - created_at))::bigint FROM orders";
    assert!(app.number(off).await < 60, "it was claimed just now");
    assert!(app.reconcile().await.agrees());

    let again = repair(&app).await;
    assert_eq!((&again["disagreements"], repairs(&again).len()), (&json!(0), 0));
    // The entry is a repeat if it turns up after all.
    let log = app.log(coupon.lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.repeated, report.dead_letters), (0, 1, 0));
}

#[tokio::test]
async fn without_being_asked_nothing_is_repaired() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    lose_entries(&app, coupon).await;
    let reply = app.compare(false).await;
    assert_eq!((reply.status, repairs(&reply.body).len()), (200, 0), "{reply:?}");
    app.app.reconciler.pass(Duration::from_secs(60)).bounded().await.expect("both stores answer");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
    assert!(!app.reconcile().await.agrees());
    app.expect_disagreements();
}

#[tokio::test]
async fn a_lost_order_whose_id_is_taken_becomes_a_dead_letter() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.claim(1, coupon).await.order_id();
    lose_entries(&app, coupon).await;
    let regular = app.create_regular().await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({order}, {regular}, 'regular', 9, now())"
    ))
    .await;
    for expected in [&["order_lost true"][..], &[]] {
        assert_eq!(repairs(&repair(&app).await), expected);
        assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 1);
    }
    let mine = app.my_claim(1, coupon).await;
    assert_eq!((mine.order_id(), mine.text("status")), (order, "in_review"));
}

#[tokio::test]
async fn the_word_of_a_redis_that_contradicts_itself_is_no_promise() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    // A buyer without a claim gets no unit.
    app.set_buyer(coupon, 1, 77).await;
    let run = repair(&app).await;
    assert_eq!(repairs(&run), ["order_lost false"]);
    assert!(run["repairs"][0]["detail"].as_str().unwrap().contains("can't be believed"), "{run}");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
    app.expect_disagreements();
}

#[tokio::test]
async fn sold_is_counted_again() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    for user in 1..=2 {
        app.claim(user, coupon).await;
    }
    app.write_orders().await;
    for wrong in [0, 1, 5] {
        app.execute(&format!("UPDATE flash_sales SET sold = {wrong}")).await;
        assert_eq!(repairs(&repair(&app).await), ["sold_miscounted true"]);
        assert_eq!(app.number("SELECT sold FROM flash_sales").await, 2);
        assert_eq!(repairs(&repair(&app).await).len(), 0);
    }
    // A `sold` above the number of units can't be counted away.
    app.execute("UPDATE flash_sales SET sold = 1, total = 1").await;
    assert_eq!(repairs(&repair(&app).await), ["sold_miscounted false"]);
    app.expect_disagreements();
}

#[tokio::test]
async fn sold_is_counted_again_beside_orders_that_are_being_written() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    app.write_orders().await;
    app.execute("UPDATE flash_sales SET sold = 0").await;
    // A worker is in the middle of writing an order: the row is there, and `sold` has just been changed.
    let mut other = postgres::begin(&app.app.stores.pool).await.unwrap();
    let insert = format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES (9, {coupon}, 'flash', 2, now());
         UPDATE flash_sales SET sold = sold + 1, updated_at = now()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut *other).await.unwrap();
    let repaired = app.repaired();
    let commit = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        eventually("the repair waits", async || app.number(waits).await == 1).await;
        other.commit().await.unwrap();
    };
    let (run, ()) = tokio::join!(repaired, commit);
    assert!(run.repairs[0].done);
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 2);
    app.expect_disagreements();
}

/// A crowd twice as large as the stock, a consumer that loses entries all the time, and repairs without pause.
#[tokio::test]
async fn repairs_under_load_neither_lose_nor_over_admit() {
    const STOCK: i64 = 400;
    let app = TestApp::configured(&["--batch-orders-max", "20"]).await;
    let coupon = app.create_flash(STOCK).await;
    app.workers().remove(0).ensure_group().bounded().await.unwrap();
    let claimed = AtomicUsize::new(0);
    let lost = AtomicUsize::new(0);
    let claims_of = &app.app.claims;
    let goes_on = || claimed.load(Ordering::SeqCst) == 0;
    let claims = async {
        let mut promised = BTreeMap::new();
        for first in (1..=2 * STOCK).step_by(10) {
            let calls = (first..first + 10).map(|n| async move {
                (n, claims_of.claim(coupon, user(n)).await.expect("Redis answers"))
            });
            for (user, outcome) in futures_util::future::join_all(calls).await {
                if let ClaimOutcome::Accepted(order) = outcome {
                    promised.insert(user, order.get());
                }
            }
        }
        claimed.store(1, Ordering::SeqCst);
        promised
    };
    let writes = async {
        let mut worker = app.workers().remove(0);
        while goes_on() {
            worker.write_pass().bounded().await.unwrap();
            let gone = lose_entries(&app, coupon).await;
            lost.fetch_add(usize::try_from(gone).unwrap(), Ordering::SeqCst);
        }
        write_all(&mut worker).await;
    };
    let repairs = async {
        while goes_on() {
            app.repaired().await;
        }
    };
    let (promised, (), ()) = tokio::join!(claims, writes, repairs);
    repair(&app).await;

    assert!(lost.load(Ordering::SeqCst) > 0, "no entry was ever lost");
    assert_eq!(promised.len(), 400);
    let rows: Vec<(i64, i64)> = sqlx::query_as("SELECT user_id, id FROM orders ORDER BY 1")
        .fetch_all(&app.app.stores.pool)
        .await
        .unwrap();
    assert_eq!(rows, promised.into_iter().collect::<Vec<_>>());
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
    let report = app.reconcile().await;
    assert!(report.agrees() && report.sales[0].identical, "{report:?}");
}

#[tokio::test]
async fn a_unit_that_never_came_back_comes_back_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    for user in 1..=2 {
        let order = app.order(user, coupon).await;
        assert_eq!(app.cancel(user, order).await.status, 200);
    }
    // One was written down as done and wasn't, the other was never written down.
    app.execute(
        "UPDATE stock_returns SET done_at = now() WHERE user_id = 1; DELETE FROM stock_returns WHERE user_id = 2",
    )
    .await;
    assert_eq!((app.give_back().await, app.stock(coupon).await), (0, 3));
    assert_eq!(repairs(&repair(&app).await), ["not_given_back true", "not_given_back true"]);
    assert_eq!(repairs(&repair(&app).await).len(), 0, "they are on their way");
    assert_eq!((app.give_back().await, app.stock(coupon).await), (2, 5));
    assert_eq!(repairs(&repair(&app).await).len(), 0);
    assert_eq!((app.give_back().await, app.stock(coupon).await), (0, 5));
    assert!(app.reconcile().await.sales[0].identical);
}
