//! The worker after a failure: it goes on where it was, and writes the entries that it was given.

use flash_sale::worker;

use crate::support::process::{pending, rows};
use crate::support::{
    Bounded, TestApp, eventually, lane, patience, proxy_before, worker_of, write_all,
};

#[tokio::test]
async fn a_failure_that_lasts_costs_time_and_no_order() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    for user in 1..=5 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();

    // Postgres answers, and can't write, as when a migration is missing or a fail-over has made it read-only.
    app.execute("ALTER TABLE orders RENAME TO orders_aside").await;
    for _ in 0..20 {
        let failed = worker.write_job().bounded().await;
        assert!(matches!(failed, Err(worker::JobError::Postgres(_))), "{failed:?}");
    }
    app.execute("ALTER TABLE orders_aside RENAME TO orders").await;

    // The same worker has been given all of them again and again; the number of deliveries says nothing about an
    // entry.
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (5, 0));
}

/// Redis has delivered them by then, and gives them to no read of new entries again.
#[tokio::test]
async fn entries_whose_delivery_got_lost_are_written_by_the_worker_that_holds_them() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let proxy = proxy_before(&app, "XREADGROUP").await;
    let behind = app.another_instance_behind(&proxy).await;
    let mut worker = worker_of(&behind, &app.config, lane());
    worker.ensure_group().bounded().await.unwrap();
    assert_eq!(worker.write_job().bounded().await.unwrap().positions, 0, "it holds no entry");
    for user in 1..=3 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    proxy.lose_next_reply();
    let failed = worker.write_job().bounded().await;
    assert!(matches!(failed, Err(worker::JobError::Redis(_))), "{failed:?}");
    assert_eq!((pending(&app).await, proxy.replies_to_lose()), (3, 0));

    let mut inserted = None;
    eventually("Redis is reached again", async || {
        inserted = worker.write_job().bounded().await.ok().map(|report| report.inserted);
        inserted.is_some()
    })
    .await;
    assert_eq!((inserted, pending(&app).await), (Some(3), 0));
}

/// By hand, say. One of them is deleted besides.
#[tokio::test]
async fn entries_under_another_name_are_taken_over() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    app.worker(lane()).ensure_group().bounded().await.expect("Redis answers");
    for user in 1..=4 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    let log = app.log(lane());
    let read = ["XREADGROUP", "GROUP", "order-writers", "stranger", "COUNT", "3", "STREAMS"];
    let _: redis::Value = app.redis(&[&read[..], &[&log, ">"]].concat()).await;
    let first: Vec<(String, redis::Value)> =
        app.redis(&["XRANGE", &log, "-", "+", "COUNT", "1"]).await;
    assert_eq!(app.redis::<i64>(&["XDEL", &log, &first[0].0]).await, 1);
    worker::start(&app.app, &app.config);
    eventually("they are written", async || rows(&app).await == 3).await;
    let letters = "SELECT count(*) FROM dead_letters WHERE reason = 'deleted_from_log'";
    eventually("the loss is noted", async || app.number(letters).await == 1).await;
    eventually("none is pending", async || pending(&app).await == 0).await;
    assert!(app.app.shutdown.stop(patience()).await);
}

#[tokio::test]
async fn what_nobody_had_read_when_the_group_vanished_is_written() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    worker::start(&app.app, &app.config);
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let rows = async || app.number("SELECT count(*) FROM orders").await;
    eventually("a row", async || rows().await == 1).await;

    // In one step, so that no worker can read it in between: a claim by user 2, and the end of the group.
    let script = "
        redis.call('HSET', KEYS[2], '2', '99')
        redis.call('HINCRBY', KEYS[3], 'stock', -1)
        redis.call('XADD', KEYS[1], '*', 'coupon', ARGV[1], 'first', '2', 'order', '99', 'users', '2')
        return redis.call('XGROUP', 'DESTROY', KEYS[1], 'order-writers')";
    let keys = app.keys();
    let log = app.log(lane());
    let buyers = keys.buyers(coupon, 0);
    let sale = keys.coupon(coupon);
    let id = coupon.to_string();
    let destroyed: i64 = app.redis(&["EVAL", script, "3", &log, &buyers, &sale, &id]).await;
    assert_eq!(destroyed, 1);
    eventually("user 2's order", async || rows().await == 2).await;
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
    assert!(app.app.shutdown.stop(patience()).await);
}
