//! Entries that hold the claims of a call: written in parts, acknowledged as a whole, counted once.

use std::time::Duration;

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::log::LogState;
use flash_sale::worker::LaneWorker;

use crate::support::{Bounded, TestApp, eventually, lane, user, write_all};

/// First order id of these entries.
const ORDERS: i64 = 663_123_456_789_012_000;

/// Appends an entry with the claims of these users, who are buyers in Redis.
async fn append_call(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    for id in users.clone() {
        app.set_buyer(coupon, id, ORDERS + id).await;
    }
    let count = users.clone().count();
    let sale = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HINCRBY", &sale, "stock", &format!("-{count}")]).await;
    let first = ORDERS + users.start();
    let users: Vec<String> = users.map(|id| id.to_string()).collect();
    append_claims(app, coupon, first, &users).await;
}

/// Appends an entry with claims of these users, by orders from this one on, each counted by the lane.
async fn append_claims(app: &TestApp, coupon: CouponId, order: i64, users: &[String]) {
    let of_lane = app.keys().lane(lane());
    let counted = users.len() as i64;
    let promised: i64 = app.redis(&["HINCRBY", &of_lane, "promised", &counted.to_string()]).await;
    let first = (promised - counted + 1).to_string();
    let (coupon, order) = (coupon.to_string(), order.to_string());
    let fields = ["coupon", &coupon, "epoch", "1", "first", &first, "order", &order];
    app.append(lane(), &[&fields[..], &["users", &users.join(" ")]].concat()).await;
}

async fn state(app: &TestApp) -> LogState {
    LogState::of(&app.app.stores.redis, app.keys(), lane()).await.expect("Redis answers")
}

async fn worker(app: &TestApp, batch: usize) -> LaneWorker {
    let worker = LaneWorker::new(app.app.clone(), lane(), batch);
    worker.ensure_group().bounded().await.expect("Redis answers");
    worker
}

async fn rows(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM orders").await
}

#[tokio::test]
async fn a_crowd_fills_few_entries() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(300).await;
    let claims = (1..=300).map(|id| app.app.claims.claim(coupon, user(id)));
    for claimed in futures_util::future::join_all(claims).await {
        assert_eq!(claimed.expect("both stores answer").status().code, "accepted");
    }
    let entries: usize = app.redis(&["XLEN", &app.log(lane())]).await;
    assert!(entries <= 10, "{entries} entries");
    assert_eq!(state(&app).await.unwritten, 300);
    assert_eq!(app.write_orders().await.inserted, 300);
    let state = state(&app).await;
    assert_eq!((state.unwritten, state.written, state.is_settled()), (0, 300, true));
}

#[tokio::test]
async fn an_entry_that_is_larger_than_a_batch_is_written_in_parts_and_then_acknowledged() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(20).await;
    append_call(&app, coupon, 1..=7).await;
    append_call(&app, coupon, 8..=9).await;
    let mut worker = worker(&app, 3).await;
    for (written, pending, counted) in [(3, 2, 0), (6, 2, 0), (9, 0, 9)] {
        assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 3);
        assert_eq!(rows(&app).await, written);
        let state = state(&app).await;
        assert_eq!(
            (state.pending, state.written, state.unwritten),
            (pending, counted, 9 - counted)
        );
        let report = app.reconcile().await;
        assert!(report.agrees(), "{:?}", report.disagreements);
    }
}

#[tokio::test]
async fn a_worker_that_died_within_an_entry_leaves_all_of_it_to_another() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(20).await;
    append_call(&app, coupon, 1..=7).await;
    let mut dead = worker(&app, 3).await;
    assert_eq!(dead.write_pass().bounded().await.expect("both stores answer").inserted, 3);
    drop(dead);
    let mut next = app.worker(lane());
    let report = write_all(&mut next).await;
    assert_eq!((report.inserted, report.repeated), (4, 3));
    let state = state(&app).await;
    assert_eq!((state.written, state.unwritten, state.pending), (7, 0, 0));
}

#[tokio::test]
async fn a_contended_user_holds_up_nobody_else_of_the_entry() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(20).await;
    append_call(&app, coupon, 1..=5).await;
    let key = app.keys().order_lock(lane(), user(2));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    let mut worker = worker(&app, 100).await;
    let report = worker.write_pass().bounded().await.expect("both stores answer");
    assert_eq!((report.inserted, report.contended), (4, 1));
    assert_eq!((state(&app).await.pending, state(&app).await.written), (1, 0));
    assert_eq!(app.my_claim(2, coupon).await.text("status"), "pending");
    held.release().await;
    eventually("the last position is written", async || {
        worker.write_pass().bounded().await.expect("both stores answer").inserted == 1
    })
    .await;
    assert_eq!((state(&app).await.pending, state(&app).await.written), (0, 5));
}

/// The second letter of an entry would count as repeated, and vanish, if letters were told apart by their entry.
#[tokio::test]
async fn each_position_of_an_entry_may_become_a_letter_of_its_own() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(20).await;
    append_call(&app, coupon, 1..=1).await;
    // The first order is that of user 1, and users 5 and 6 are no buyers twice.
    let users = ["5", "junk", "6", "6", ""].map(str::to_owned);
    append_claims(&app, coupon, ORDERS + 1, &users).await;
    let mut worker = worker(&app, 100).await;
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (2, 4));
    let letters =
        "SELECT string_agg(position || ' ' || reason, ', ' ORDER BY position) FROM dead_letters";
    let letters: String = sqlx::query_scalar(letters)
        .fetch_one(&app.app.stores.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(letters, "0 conflict, 1 undecodable, 3 conflict, 4 undecodable");
    let state = state(&app).await;
    assert_eq!((state.written, state.unwritten, state.pending), (6, 0, 0));
}

/// A Redis that went back in time gives the id of an entry to another one.
#[tokio::test]
async fn an_entry_with_a_known_id_and_another_claim_is_another_letter() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let id = "4000000000000-1";
    for (order, new) in [("7", 1), ("7", 0), ("8", 1)] {
        app.append_as(lane(), id, &["coupon", "999424", "user", "1", "order", order]).await;
        let mut worker = worker(&app, 100).await;
        assert_eq!(write_all(&mut worker).await.dead_letters, new, "{order}");
        // As in another life of Redis: the lane's counts go, too.
        let _: i64 = app.redis(&["DEL", &app.log(lane())]).await;
        let _: i64 = app.redis(&["HDEL", &app.keys().lane(lane()), "promised", "written"]).await;
    }
}

#[tokio::test]
async fn a_lost_entry_no_longer_counts_as_backlog() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(30).await;
    append_call(&app, coupon, 1..=3).await;
    append_call(&app, coupon, 4..=8).await;
    append_call(&app, coupon, 9..=10).await;
    let entries: Vec<(String, Vec<String>)> =
        app.redis(&["XRANGE", &app.log(lane()), "-", "+"]).await;
    let mut worker = worker(&app, 1).await;
    assert_eq!(worker.log().read_new(10, Duration::ZERO).await.expect("Redis answers").len(), 3);
    let _: i64 = app.redis(&["XDEL", &app.log(lane()), &entries[1].0]).await;
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (5, 1));
    let tidied_up = worker.log().trim().await.expect("Redis answers");
    assert_eq!(tidied_up.unaccounted, 5);
    assert_eq!((state(&app).await.unwritten, state(&app).await.written), (0, 10));
    assert_eq!(worker.log().trim().await.expect("Redis answers").unaccounted, 0);
}
