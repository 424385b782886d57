//! What only the re-entrant lock does: counting, waking up, the latch, fencing tokens, force.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::lock::reentrant::{self, Guard, Holder, Lock, ReentrantLocks, Released};
use flash_sale::kit::redis::Redis;
use futures_util::future::join_all;
use private_servers::testing::RedisServer;
use tokio::time::{Instant, timeout};

use crate::support::any_lock::fresh_name;
use crate::support::{TestApp, eventually, patient_redis, proxy_before, shared};

/// Long, so that whoever wakes up in time was woken up.
const LEASE: Duration = Duration::from_mins(2);
const LONG: Duration = Duration::from_secs(45);

fn client(url: &str) -> ReentrantLocks {
    client_with(url, LEASE)
}

fn client_with(url: &str, lease: Duration) -> ReentrantLocks {
    ReentrantLocks::new(patient_redis(url), lease, Shutdown::default())
}

fn server() -> Redis {
    patient_redis(&shared().redis_url)
}

async fn ask<T: redis::FromRedisValue>(words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    server().query(command.arg(&words[1..])).await.expect("Redis does it")
}

async fn enter(lock: &Lock, holder: &Holder) -> Guard {
    lock.try_acquire(holder).await.expect("Redis answers").expect("it is free, or ours")
}

async fn listeners(name: &str) -> i64 {
    let reply: (String, i64) = ask(&["PUBSUB", "NUMSUB", &reentrant::channel(name)]).await;
    reply.1
}

#[tokio::test]
async fn who_enters_twice_leaves_twice() {
    let (locks, name) = (client(&shared().redis_url), fresh_name());
    let lock = locks.lock(name.as_str());
    let (holder, other) = (locks.holder(), locks.holder());
    let (outer, inner) = (enter(&lock, &holder).await, enter(&lock, &holder).await);
    let count: i64 = ask(&["HGET", &name, holder.as_str()]).await;
    assert_eq!(count, 2);
    assert!(lock.try_acquire(&other).await.unwrap().is_none(), "another task of the same client");
    assert_eq!(inner.release().await.unwrap(), Released::StillHeld);
    assert!(lock.try_acquire(&other).await.unwrap().is_none());
    assert!(!outer.lost().is_cancelled());
    assert_eq!(outer.release().await.unwrap(), Released::Freed);
    assert_eq!(enter(&lock, &other).await.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn waiters_share_a_subscription_and_are_woken_up() {
    let (locks, name) = (client(&shared().redis_url), fresh_name());
    let lock = locks.lock(name.as_str());
    let held = enter(&lock, &locks.holder()).await;
    let wait = || async {
        let guard = lock.acquire(&locks.holder(), LONG).await.unwrap().expect("in time");
        guard.release().await.unwrap()
    };
    let waiting = join_all((0..10).map(|_| wait()));
    let release = async {
        eventually("they listen", async || listeners(&name).await > 0).await;
        assert_eq!(listeners(&name).await, 1, "one subscription for all of a client");
        assert_eq!(held.release().await.unwrap(), Released::Freed);
    };
    // Each of them wakes up the next one; by the lease alone nobody would get it in time.
    let (released, ()) = tokio::join!(waiting, release);
    assert!(released.iter().all(|released| *released == Released::Freed));
    eventually("nobody listens", async || listeners(&name).await == 0).await;
}

#[tokio::test]
async fn a_waiter_who_leaves_takes_no_wake_up_along() {
    let (locks, name) = (client(&shared().redis_url), fresh_name());
    let lock = locks.lock(name.as_str());
    for _ in 0..20 {
        let held = enter(&lock, &locks.holder()).await;
        let holders = [locks.holder(), locks.holder(), locks.holder()];
        let gives_up = timeout(Duration::from_millis(2), lock.acquire(&holders[0], LONG));
        let (_, stays, freed) =
            tokio::join!(gives_up, lock.acquire(&holders[1], LONG), held.release());
        assert_eq!(freed.unwrap(), Released::Freed);
        drop(stays.unwrap().expect("it was woken up"));
        // Whatever the one who gave up had got is given back by itself.
        let last = lock.acquire(&holders[2], LONG).await.unwrap().expect("in time");
        assert_eq!(last.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn a_listener_whose_connection_breaks_listens_anew() {
    let server = RedisServer::start(&[]);
    let (locks, other) = (client(&server.url()), client(&server.url()));
    let held = enter(&other.lock("a"), &other.holder()).await;
    let redis = patient_redis(&server.url());
    let subscribers = async || {
        let mut command = redis::cmd("PUBSUB");
        let reply: (String, i64) =
            redis.query(command.arg("NUMSUB").arg(reentrant::channel("a"))).await.unwrap();
        reply.1
    };
    let cut = async {
        eventually("it listens", async || subscribers().await == 1).await;
        let mut kill = redis::cmd("CLIENT");
        let killed: i64 = redis.query(kill.arg("KILL").arg("TYPE").arg("pubsub")).await.unwrap();
        assert_eq!(killed, 1);
        eventually("it listens anew", async || subscribers().await == 1).await;
        held.release().await.unwrap()
    };
    let (lock, holder) = (locks.lock("a"), locks.holder());
    let (waited, released) = tokio::join!(lock.acquire(&holder, LONG), cut);
    assert_eq!(released, Released::Freed);
    assert!(waited.unwrap().is_some(), "it was woken up");
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_is_repeated_and_done_once() {
    let app = TestApp::start().await;
    let proxy = proxy_before(&app, "redisson_unlock_latch").await;
    // A reply has to be missed while the latch is kept.
    let redis = Redis::with_timeout(proxy.url(), limits::LOCK_LATCH_KEPT / 5).unwrap();
    let (locks, name) = (ReentrantLocks::new(redis, LEASE, Shutdown::default()), fresh_name());
    let (lock, holder) = (locks.lock(name.as_str()), locks.holder());
    let outer = enter(&lock, &holder).await;
    // Once in peace, so that the server knows the script.
    assert_eq!(enter(&lock, &holder).await.release().await.unwrap(), Released::StillHeld);

    let inner = enter(&lock, &holder).await;
    proxy.lose_next_reply();
    assert_eq!(inner.release().await.unwrap(), Released::StillHeld);
    assert_eq!(proxy.replies_to_lose(), 0);
    let count: i64 = ask(&["HGET", &name, holder.as_str()]).await;
    assert_eq!(count, 1, "a second decrement would have freed the lock under the outer guard");
    proxy.lose_next_reply();
    assert_eq!(outer.release().await.unwrap(), Released::Freed);
    let latches = format!("redisson_unlock_latch:{{{name}}}:*");
    eventually("the latches are gone", async || {
        ask::<Vec<String>>(&["KEYS", &latches]).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn fencing_tokens_rise_also_on_re_entry() {
    let (locks, other, name) =
        (client(&shared().redis_url), client(&shared().redis_url), fresh_name());
    let (lock, theirs) = (locks.fenced_lock(name.as_str()), other.fenced_lock(name.as_str()));
    let holder = locks.holder();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let (outer, inner) = (enter(&lock, &holder).await, enter(&lock, &holder).await);
        tokens.extend([outer.fencing_token(), inner.fencing_token()]);
        assert!(theirs.try_acquire(&other.holder()).await.unwrap().is_none());
        inner.release().await.unwrap();
        outer.release().await.unwrap();
        let guard = enter(&theirs, &other.holder()).await;
        tokens.push(guard.fencing_token());
        guard.release().await.unwrap();
    }
    let expected: Vec<Option<u64>> = (1..=9).map(Some).collect();
    assert_eq!(tokens, expected);
    assert_eq!(enter(&locks.lock(fresh_name()), &holder).await.fencing_token(), None);
}

#[tokio::test]
async fn a_lease_that_was_asked_for_is_not_renewed() {
    let (locks, name) = (client(&shared().redis_url), fresh_name());
    let lock = locks.lock(name.as_str());
    let lease = Duration::from_millis(300);
    let began = Instant::now();
    let guard = enter(&lock, &locks.holder_with_lease(lease)).await;
    let waiting = lock.acquire(&locks.holder(), LONG).await.unwrap().expect("it runs out");
    assert!(began.elapsed() >= lease, "{:?}", began.elapsed());
    timeout(LONG, guard.lost().cancelled()).await.expect("the holder is told");
    assert!(Instant::now() >= guard.sure_until());
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert_eq!(waiting.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn force_takes_the_lock_from_its_holder_and_wakes_up_who_waits() {
    let (name, lease) = (fresh_name(), Duration::from_millis(1_500));
    let locks = client_with(&shared().redis_url, lease);
    let (lock, other) = (locks.lock(name.as_str()), client(&shared().redis_url));
    let holder = locks.holder();
    let guards = [enter(&lock, &holder).await, enter(&lock, &holder).await];
    let waits = other.lock(name.as_str());
    let waiter = other.holder();
    let force = async {
        eventually("it waits", async || listeners(&name).await == 1).await;
        assert!(lock.force_release().await.unwrap());
    };
    let (waited, ()) = tokio::join!(waits.acquire(&waiter, LONG), force);
    let theirs = waited.unwrap().expect("it was woken up");
    for guard in guards {
        timeout(LONG, guard.lost().cancelled()).await.expect("told at the next renewal");
        assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    }
    assert!(!theirs.lost().is_cancelled());
    assert_eq!(theirs.release().await.unwrap(), Released::Freed);
    assert!(!lock.force_release().await.unwrap(), "nobody had it");
}

#[tokio::test]
async fn locks_of_many_holders_are_renewed_by_few_calls() {
    let server = RedisServer::start(&[]);
    let lease = Duration::from_millis(900);
    let locks = client_with(&server.url(), lease);
    let redis = patient_redis(&server.url());
    let names: Vec<String> = (0..250).map(|number| format!("lock-{number}")).collect();
    let take = |name: &String| {
        let (lock, holder) = (locks.lock(name.as_str()), locks.holder());
        async move { enter(&lock, &holder).await }
    };
    let guards = join_all(names.iter().map(take)).await;
    let calls = async || {
        let stats: redis::InfoDict =
            redis.query(redis::cmd("INFO").arg("commandstats")).await.unwrap();
        let line: String = stats.get("cmdstat_evalsha").unwrap_or_default();
        let calls =
            line.strip_prefix("calls=").and_then(|line| line.split(',').next()?.parse().ok());
        calls.unwrap_or(0_i64)
    };
    let before = calls().await;
    tokio::time::sleep(2 * lease).await;
    let after = calls().await;
    assert!(guards.iter().all(|guard| !guard.lost().is_cancelled()));
    // 250 locks are three calls, every third of a lease; one for each lock would be 1,500.
    assert!((9..=21).contains(&(after - before)), "{} calls", after - before);
    join_all(guards.into_iter().map(Guard::release)).await;
    let left: i64 = redis.query(&redis::cmd("DBSIZE")).await.unwrap();
    assert!(left <= 250, "nothing but latches: {left}");
    eventually("the latches are gone", async || {
        redis.query::<i64>(&redis::cmd("DBSIZE")).await.unwrap() == 0
    })
    .await;
}
