//! The locks of a batch, as the worker takes them, on a real Redis.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::kit::lock::reentrant::{self, ReentrantLocks, Released};

use crate::support::{OwnServers, PATIENCE, TestApp, bounded, eventually};

const LEASE: Duration = Duration::from_secs(6);

fn locks(app: &TestApp) -> ReentrantLocks {
    locks_with(app, LEASE)
}

fn locks_with(app: &TestApp, lease: Duration) -> ReentrantLocks {
    ReentrantLocks::new(app.app.stores.redis.clone(), lease, app.app.shutdown.clone())
}

/// A key of this test's own.
fn key(app: &TestApp, name: &str) -> String {
    format!("{}:{name}", app.keys().order_sequence())
}

#[tokio::test]
async fn a_batch_takes_what_is_free_in_one_call() {
    let app = TestApp::start().await;
    let (a, b, c) = (key(&app, "a"), key(&app, "b"), key(&app, "c"));
    let first = locks(&app).try_acquire_batch(vec![b.clone()]).await.unwrap();
    let second =
        locks(&app).try_acquire_batch(vec![a.clone(), b.clone(), c.clone()]).await.unwrap();
    assert!(first.holds(&b));
    assert_eq!((second.holds(&a), second.holds(&b), second.holds(&c)), (true, false, true));

    // Releasing the second must not touch the first one's lock.
    second.release().await;
    let third = locks(&app).try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    assert_eq!((third.holds(&a), third.holds(&b)), (true, false));
    first.release().await;
    third.release().await;
    let empty = locks(&app).try_acquire_batch(Vec::new()).await.unwrap();
    empty.release().await;
}

#[tokio::test]
async fn the_watchdog_keeps_a_lock_beyond_its_lease() {
    let app = TestApp::start().await;
    let a = key(&app, "a");
    let guard = locks(&app).try_acquire_batch(vec![a.clone()]).await.unwrap();
    let start = tokio::time::Instant::now();
    while start.elapsed() < 2 * LEASE {
        let other = locks(&app).try_acquire_batch(vec![a.clone()]).await.unwrap();
        assert!(!other.holds(&a), "somebody else got it after {:?}", start.elapsed());
        tokio::time::sleep(LEASE / 10).await;
    }
    assert!(!guard.lost().is_cancelled());
    guard.release().await;
    let next = locks(&app).try_acquire_batch(vec![a.clone()]).await.unwrap();
    assert!(next.holds(&a));
}

#[tokio::test]
async fn a_guard_that_is_dropped_releases() {
    let app = TestApp::start().await;
    let a = key(&app, "a");
    let (guard, other) =
        (locks(&app).try_acquire_batch(vec![a.clone()]).await.unwrap(), locks(&app));
    assert!(guard.holds(&a));
    drop(guard);
    eventually("it is free", async || {
        other.try_acquire_batch(vec![a.clone()]).await.unwrap().holds(&a)
    })
    .await;
}

#[tokio::test]
async fn the_holder_is_told_when_the_lock_is_no_longer_its_own() {
    let app = TestApp::start().await;
    let (a, b) = (key(&app, "a"), key(&app, "b"));
    let guard = locks(&app).try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    // One of the two has passed to somebody else, who keeps it.
    let _: bool = app.redis(&["DEL", &a]).await;
    let _: bool = app.redis(&["HSET", &a, "somebody else:1", "1"]).await;
    bounded("the watchdog notices", guard.lost().cancelled()).await;
    guard.release().await;
    let holders: Vec<String> = app.redis(&["HKEYS", &a]).await;
    assert_eq!(holders, ["somebody else:1"]);
    let gone: bool = app.redis(&["EXISTS", &b]).await;
    assert!(!gone, "the other one was ours to release");
}

#[tokio::test]
async fn a_batch_and_a_single_lock_keep_each_other_out() {
    let app = TestApp::start().await;
    // The channel of a name with braces is called otherwise.
    for of in ["of", "{of}"] {
        let (a, b) = (key(&app, &format!("{of}:a")), key(&app, &format!("{of}:b")));
        keep_each_other_out(&app, a, b).await;
    }
}

async fn keep_each_other_out(app: &TestApp, a: String, b: String) {
    // Longer than anybody waits here.
    let lease = 2 * PATIENCE;
    let (one, another) = (locks_with(app, lease), locks_with(app, lease));
    let holder = another.holder();
    let single = another.lock(a.as_str()).try_acquire(&holder).await.unwrap().expect("it is free");
    let batch = one.try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    assert_eq!((batch.holds(&a), batch.holds(&b)), (false, true));

    // Who waits for a lock of a batch is woken up by its release, long before the lease ends.
    let waiting = another.lock(b.as_str());
    let waits = async {
        let guard = waiting.acquire(&holder, PATIENCE).await.unwrap().expect("it is given back");
        guard.release().await.unwrap()
    };
    let releases = async {
        let channel = reentrant::channel(&b);
        eventually("it waits", async || {
            let reply: (String, i64) = app.redis(&["PUBSUB", "NUMSUB", &channel]).await;
            reply.1 == 1
        })
        .await;
        batch.release().await;
    };
    let (released, ()) = tokio::join!(waits, releases);
    assert_eq!(released, Released::Freed);
    assert_eq!(single.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_batch_is_not_in_the_append_only_file() {
    let mut servers = OwnServers::durable();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let (a, b, c) = (key(&app, "a"), key(&app, "b"), key(&app, "c"));
    let redis = app.app.stores.redis.clone();
    let locks = ReentrantLocks::new(redis, Duration::from_mins(10), app.app.shutdown.clone());
    let batch = locks.try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    assert!(batch.holds(&a) && batch.holds(&b));
    let single = locks.lock(c.as_str()).try_acquire(&locks.holder()).await.unwrap();
    assert!(single.is_some());

    servers.kill_redis();
    servers.bring_back();
    let ping = async || app.app.stores.redis.query::<String>(&redis::cmd("PING")).await.is_ok();
    eventually("Redis answers", ping).await;
    let there: Vec<i64> = vec![
        app.redis(&["EXISTS", &a]).await,
        app.redis(&["EXISTS", &b]).await,
        app.redis(&["EXISTS", &c]).await,
    ];
    assert_eq!(there, [0, 0, 1], "who started again has forgotten the batch, and nothing else");
    batch.release().await;
}

#[tokio::test]
async fn a_full_redis_can_still_be_drained() {
    // Redis of its own: maxmemory is a setting of the whole server.
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(20).await;
    for user in 1..=5 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    for user in 11..=15 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(app.claim(6, coupon).await.refusal(), (503, "unavailable"));
    let mut worker = app.workers().remove(0);
    worker.ensure_group().await.unwrap();
    let report = crate::support::write_all(&mut worker).await;
    assert_eq!(report.inserted, 5);
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    eventually("claims are taken again", async || app.claim(6, coupon).await.status == 202).await;
}
