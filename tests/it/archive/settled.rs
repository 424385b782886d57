//! Archiving by the worker: a sale leaves Redis only when every claim is known to be an order, an interruption loses
//! nothing, and Postgres answers as Redis did.

use chrono::TimeDelta;
use flash_sale::base::limits;
use flash_sale::coupon::stock;
use flash_sale::store::ids::CouponId;
use serde_json::json;
use tokio::time::sleep;

use crate::support::{Bounded, TestApp, lane, now, user};

/// An app in which a sale is archived at once.
const AT_ONCE: [&str; 2] = ["--archive-after-ms", "0"];

/// A sale of three with a paid order of user 1 and a cancelled one of user 2. Returns it and the first order.
async fn sale(app: &TestApp) -> (CouponId, i64) {
    let coupon = app.create_flash(3).await;
    let order = app.paid_order(1, coupon).await;
    let cancelled = app.order(2, coupon).await;
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    app.release().await;
    (coupon, order)
}

async fn end(app: &TestApp, coupon: CouponId) {
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
}

async fn archive_job(app: &TestApp) -> usize {
    app.app.archive.run_once().bounded().await.expect("both stores answer")
}

/// The number of the sale's keys in Redis.
async fn keys_in_redis(app: &TestApp, coupon: CouponId) -> i64 {
    let keys = [vec![app.keys().coupon(coupon)], app.shard_keys(coupon).await].concat();
    let words: Vec<&str> = ["EXISTS"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    app.redis(&words).await
}

async fn is_noted(app: &TestApp, column: &str) -> bool {
    app.number(&format!("SELECT count(*) FROM flash_sales WHERE {column} IS NOT NULL")).await > 0
}

/// Checks the answers about a sale that is over, wherever the sale is.
async fn assert_answers(app: &TestApp, (coupon, order): (CouponId, i64), when: &str) {
    let repeat = app.claim(1, coupon).await;
    assert_eq!(repeat.refusal(), (409, "already_claimed"), "{when}");
    assert_eq!(repeat.order_id(), order, "{when}");
    for newcomer in [2, 3] {
        assert_eq!(app.claim(newcomer, coupon).await.refusal(), (410, "sale_ended"), "{when}");
    }
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "paid", "{when}");
    assert_eq!(app.my_claim(2, coupon).await.text("status"), "cancelled", "{when}");
    assert_eq!(app.my_claim(3, coupon).await.refusal(), (404, "not_claimed"), "{when}");
    let shown = app.get(&format!("/v1/coupons/{coupon}"), "").await;
    assert_eq!(shown.body["sale"]["left"], 2, "{when}");
    let metrics = app.get("/metrics", "").await;
    let quiet = metrics.body.as_str().unwrap().contains("flash_sale_redis_data_lost_total 0");
    assert!(quiet, "{when}: an alarm");
}

#[tokio::test]
async fn an_archived_sale_is_answered_by_postgres_as_it_was_by_redis() {
    for lanes in ["1", "4"] {
        let app = TestApp::configured(&[&AT_ONCE[..], &["--lanes", lanes]].concat()).await;
        let (coupon, order) = sale(&app).await;
        assert_eq!(archive_job(&app).await, 0, "it is still on");
        end(&app, coupon).await;
        assert_answers(&app, (coupon, order), "ended").await;
        assert_eq!(archive_job(&app).await, 1);
        assert_eq!(keys_in_redis(&app, coupon).await, 0);
        assert!(is_noted(&app, "archived_at").await && is_noted(&app, "removed_at").await);
        // At once, also in a process that remembers the sale.
        assert_answers(&app, (coupon, order), "archived").await;
        let another = app.another_instance().await;
        let told = another.claims.claim(coupon, user(3)).await.expect("nothing is broken");
        assert_eq!(told.status().code, "sale_ended");

        assert_eq!(archive_job(&app).await, 0);
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
        assert_eq!(app.r#move(coupon, "resume").await.refusal(), (409, "invalid_transition"));
        assert_eq!(app.restock(coupon, 1, "k").await.refusal(), (409, "coupon_ended"));
        app.changes_job().await;
        assert_eq!(keys_in_redis(&app, coupon).await, 0, "it has come back");
    }
}

#[tokio::test]
async fn a_sale_stays_as_long_as_anything_of_it_is_open() {
    let app = TestApp::configured(&AT_ONCE).await;
    let (coupon, order) = sale(&app).await;
    let stays = async |why: &str| {
        assert_eq!(archive_job(&app).await, 0, "{why}");
        assert_eq!(keys_in_redis(&app, coupon).await, 2, "{why}");
    };
    // Also when the obstacle appears between the comparison and the note.
    let stays_at_the_note = async |why: &str| {
        stays(why).await;
        let noted = stock::archive(&app.app.stores.pool, coupon).await;
        assert!(!noted.expect("Postgres answers"), "{why}");
    };
    stays_at_the_note("it is on").await;
    assert_eq!(app.claim(4, coupon).await.status, 202);
    app.decide_on(coupon, flash_sale::coupon::model::CouponState::Ended).await;
    stays_at_the_note("Redis hasn't heard of its end").await;
    app.changes_job().await;

    stays("a claim is unread").await;
    let group = flash_sale::log::GROUP;
    let log = app.log(lane());
    let read = ["XREADGROUP", "GROUP", group, "another", "COUNT", "1", "STREAMS", &log, ">"];
    let _: redis::Value = app.redis(&read).await;
    stays("a claim is pending").await;
    let entry: Vec<(String, Vec<String>)> =
        app.redis(&["XREVRANGE", &log, "+", "-", "COUNT", "1"]).await;
    let entry_id = &entry[0].0;
    let late = app.my_claim(4, coupon).await.order_id();
    // An acknowledged entry that is no row counts as lost.
    let _: i64 = app.redis(&["XACK", &log, group, entry_id]).await;
    stays("a buyer has no order").await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({late}, {coupon}, 'flash', 4, now());
         UPDATE flash_sales SET sold = sold + 1"
    ))
    .await;
    stays_at_the_note("an order is unpaid").await;

    assert_eq!(app.cancel(4, late).await.status, 200);
    stays_at_the_note("a unit is on its way back").await;
    app.release().await;

    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         VALUES (0, '1-1', '{{}}', 'conflict', '', {coupon}, 5, 5)"
    ))
    .await;
    stays_at_the_note("a dead letter is open").await;
    app.execute("UPDATE dead_letters SET resolved_at = now()").await;

    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HINCRBY", &key, "stock", "1"]).await;
    stays("it doesn't add up").await;
    let _: i64 = app.redis(&["HINCRBY", &key, "stock", "-1"]).await;
    app.set_buyer(coupon, 1, 77).await;
    stays("a buyer has another order").await;
    app.set_buyer(coupon, 1, order).await;

    assert_eq!(archive_job(&app).await, 1, "nothing is open");
    assert_eq!(keys_in_redis(&app, coupon).await, 0);
    assert_answers(&app, (coupon, order), "archived").await;
}

#[tokio::test]
async fn a_window_that_has_closed_is_an_end_after_a_while() {
    let app = TestApp::start().await;
    let (coupon, _) = sale(&app).await;
    let close = async |hours_ago| app.let_window_end(coupon, TimeDelta::hours(hours_ago)).await;
    let state =
        async || app.get(&format!("/v1/coupons/{coupon}"), "").await.text("state").to_owned();
    close(23).await;
    assert_eq!(archive_job(&app).await, 0);
    assert_eq!(state().await, "active");

    // An administrator resumes the sale at the last moment.
    close(25).await;
    let day = TimeDelta::hours(24).to_std().unwrap();
    let due = stock::closed(&app.app.stores.pool, day).await.expect("Postgres answers");
    assert_eq!(due.len(), 1);
    let window = json!({"closes_at": now() + TimeDelta::hours(1)});
    assert_eq!(app.edit(coupon, &json!({"sale": window})).await.status, 200);
    let late = flash_sale::coupon::rules::Change::EndClosed(due[0].1);
    app.decide(coupon, late).await.expect("it may");
    assert_eq!(state().await, "active");
    assert_eq!(app.claim(7, coupon).await.status, 202);

    close(25).await;
    let order = app.my_claim(7, coupon).await.order_id();
    app.write_orders().await;
    assert_eq!(app.pay(7, order).await.status, 200);
    // The job ends it; once Redis has heard of that, the next one archives it.
    assert_eq!(archive_job(&app).await, 0);
    assert_eq!(state().await, "ended");
    app.changes_job().await;
    assert_eq!(archive_job(&app).await, 1);
    assert_eq!(app.claim(9, coupon).await.refusal(), (410, "sale_ended"));
}

#[tokio::test]
async fn dying_between_the_steps_does_no_harm() {
    let app = TestApp::configured(&AT_ONCE).await;
    let (coupon, order) = sale(&app).await;
    end(&app, coupon).await;

    // After the note: Redis still has the sale, and answers.
    assert!(stock::archive(&app.app.stores.pool, coupon).await.expect("Postgres answers"));
    assert!(!stock::archive(&app.app.stores.pool, coupon).await.expect("Postgres answers"));
    assert_eq!(keys_in_redis(&app, coupon).await, 2);
    assert_answers(&app, (coupon, order), "noted").await;
    assert_eq!(app.changes_job().await, 0);

    // After the removal, and before it is noted.
    app.lose_sale(coupon).await;
    assert_answers(&app, (coupon, order), "removed").await;
    assert!(!is_noted(&app, "removed_at").await);
    assert_eq!(archive_job(&app).await, 0);
    assert!(is_noted(&app, "removed_at").await);
    assert_answers(&app, (coupon, order), "noted as removed").await;
}

#[tokio::test]
async fn a_unit_that_comes_back_late_is_counted_in_postgres_alone() {
    let app = TestApp::configured(&AT_ONCE).await;
    let (coupon, order) = sale(&app).await;
    end(&app, coupon).await;
    for (step, archived) in [("noted", 2), ("removed", 0)] {
        match step {
            "noted" => assert!(stock::archive(&app.app.stores.pool, coupon).await.unwrap()),
            _ => drop(archive_job(&app).await),
        }
        assert_eq!(keys_in_redis(&app, coupon).await, archived, "{step}");
    }
    app.execute(&format!(
        "UPDATE orders SET status = 'refunded', refunding_at = now(), refunded_at = now() WHERE id = {order};
         UPDATE flash_sales SET sold = sold - 1;
         INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES ({order}, {coupon}, 1)"
    ))
    .await;
    assert_eq!(app.release().await, 1);
    assert_eq!(app.release().await, 0);
    assert_eq!(keys_in_redis(&app, coupon).await, 0);
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "refunded");
    assert_eq!(app.claim(1, coupon).await.refusal(), (410, "sale_ended"));
    sleep(limits::LEFT_SHOWN_MAX).await;
    assert_eq!(app.get(&format!("/v1/coupons/{coupon}"), "").await.body["sale"]["left"], 3);
}

#[tokio::test]
async fn a_log_that_is_read_again_finds_the_orders_of_an_archived_sale() {
    let app = TestApp::configured(&AT_ONCE).await;
    let (coupon, order) = sale(&app).await;
    end(&app, coupon).await;
    assert_eq!(archive_job(&app).await, 1);
    let log = app.log(lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, flash_sale::log::GROUP]).await;
    let again = app.write_orders().await;
    assert_eq!((again.inserted, again.repeated, again.dead_letters), (0, 2, 0));
    assert_eq!(keys_in_redis(&app, coupon).await, 0);
    assert_answers(&app, (coupon, order), "read again").await;
}

#[tokio::test]
async fn a_sale_that_redis_has_lost_is_not_archived() {
    let app = TestApp::configured(&AT_ONCE).await;
    let (coupon, _) = sale(&app).await;
    end(&app, coupon).await;
    app.lose_sale(coupon).await;
    assert_eq!(archive_job(&app).await, 0);
    assert!(!is_noted(&app, "archived_at").await);
    assert_eq!(app.claim(1, coupon).await.refusal(), (503, "unavailable"));
    app.expect_disagreements();
}
