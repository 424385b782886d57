//! Behaviour of the re-entrant lock alone: counting, waking up, the latch, fencing tokens, force.

use std::time::Duration;

use futures_util::future::join_all;
use private_servers::testing::{Bounded, RedisProxy, RedisServer, eventually};
use redis::Client;
use redisson_locks::{Guard, Holder, Lock, ReentrantLocks, Released, Settings, Tasks};
use tokio::time::{Instant, timeout};

use crate::support::{
    ask, client_of, connection, fresh_name, listeners, patient_settings, reconnecting, reentrant,
    shared,
};

/// Long, so that a waiter that gets a lock in time was woken up.
const LEASE: Duration = Duration::from_mins(2);
const LONG: Duration = Duration::from_secs(45);

async fn client() -> ReentrantLocks {
    reentrant(&shared(), LEASE).await
}

async fn enter(lock: &Lock, holder: &Holder) -> Guard {
    lock.try_acquire(holder)
        .bounded()
        .await
        .expect("Redis answers")
        .expect("it is free, or the holder's")
}

#[tokio::test]
async fn two_entries_take_two_releases() {
    let locks = client().await;
    let name = fresh_name();
    let lock = locks.lock(name.as_str());
    let holder = locks.holder();
    let other = locks.holder();
    let outer = enter(&lock, &holder).await;
    let inner = enter(&lock, &holder).await;
    let one = connection(&shared()).await;
    let count: i64 = ask(&one, &["HGET", &name, holder.as_str()]).await;
    assert_eq!(count, 2);
    assert!(
        lock.try_acquire(&other).bounded().await.unwrap().is_none(),
        "another task of the same client"
    );
    assert_eq!(inner.release().bounded().await.unwrap(), Released::StillHeld);
    assert!(lock.try_acquire(&other).bounded().await.unwrap().is_none());
    assert!(!outer.lost().is_cancelled());
    assert_eq!(outer.release().bounded().await.unwrap(), Released::Freed);
    assert_eq!(enter(&lock, &other).await.release().bounded().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn waiters_share_a_subscription_and_are_woken_up() {
    let locks = client().await;
    let name = fresh_name();
    let one = connection(&shared()).await;
    let lock = locks.lock(name.as_str());
    let held = enter(&lock, &locks.holder()).await;
    let wait = || async {
        let guard = lock.acquire(&locks.holder(), LONG).bounded().await.unwrap().expect("in time");
        guard.release().bounded().await.unwrap()
    };
    let waiting = join_all((0..10).map(|_| wait()));
    let release = async {
        eventually("they listen", async || listeners(&one, &name).await > 0).await;
        assert_eq!(listeners(&one, &name).await, 1, "one subscription for all of a client");
        assert_eq!(held.release().bounded().await.unwrap(), Released::Freed);
    };
    // Each of them wakes up the next one; by the lease alone none would get it in time.
    let (released, ()) = tokio::join!(waiting, release);
    assert!(released.iter().all(|released| *released == Released::Freed));
    eventually("no waiter listens", async || listeners(&one, &name).await == 0).await;
}

#[tokio::test]
async fn a_waiter_that_leaves_takes_no_wake_up_along() {
    let locks = client().await;
    let name = fresh_name();
    let lock = locks.lock(name.as_str());
    for _ in 0..20 {
        let held = enter(&lock, &locks.holder()).await;
        let holders = [locks.holder(), locks.holder(), locks.holder()];
        let gives_up = timeout(Duration::from_millis(2), lock.acquire(&holders[0], LONG));
        let (_, stays, freed) =
            tokio::join!(gives_up, lock.acquire(&holders[1], LONG), held.release());
        assert_eq!(freed.unwrap(), Released::Freed);
        drop(stays.unwrap().expect("it was woken up"));
        // A lock that the one that gave up had got is released by itself.
        let last = lock.acquire(&holders[2], LONG).bounded().await.unwrap().expect("in time");
        assert_eq!(last.release().bounded().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn a_listener_whose_connection_breaks_listens_anew() {
    let server = RedisServer::start(&[]);
    let (locks, other) =
        (reentrant(&server.url(), LEASE).await, reentrant(&server.url(), LEASE).await);
    let held = enter(&other.lock("a"), &other.holder()).await;
    let one = connection(&server.url()).await;
    let cut = async {
        eventually("it listens", async || listeners(&one, "a").await == 1).await;
        let killed: i64 = ask(&one, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        assert_eq!(killed, 1);
        eventually("it listens anew", async || listeners(&one, "a").await == 1).await;
        held.release().bounded().await.unwrap()
    };
    let lock = locks.lock("a");
    let holder = locks.holder();
    let (waited, released) = tokio::join!(lock.acquire(&holder, LONG), cut);
    assert_eq!(released, Released::Freed);
    assert!(waited.unwrap().is_some(), "it was woken up");
}

#[tokio::test]
async fn a_connection_that_reconnects_carries_the_locks_over_a_restart() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let one = reconnecting(&server.url());
    let url = server.url();
    let settings = Settings { lease: LEASE, ..patient_settings() };
    let locks = ReentrantLocks::new(one, client_of(&url), settings, Tasks::default());
    let guard = enter(&locks.lock("a"), &locks.holder()).await;
    server.kill();
    server.start_again();
    // Its scripts are unknown to the new life of the server, and the connection has to be made anew.
    let mut released = Err(());
    eventually("it answers", async || {
        let again = locks.lock("b").try_acquire(&locks.holder()).bounded().await;
        released = again.map(|_| ()).map_err(|_| ());
        released.is_ok()
    })
    .await;
    assert!(!guard.lost().is_cancelled(), "the lock was on disk");
    assert_eq!(guard.release().bounded().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_is_repeated_and_done_once() {
    let proxy = RedisProxy::before(&shared(), "redisson_unlock_latch").await;
    // A reply has to be missed, and the request repeated, while the latch is there.
    let settings = Settings { lease: LEASE, ..Settings::default() };
    let through = Client::open(proxy.url()).unwrap();
    let one = connection(&shared()).await;
    let name = fresh_name();
    let locks = ReentrantLocks::new(reconnecting(proxy.url()), through, settings, Tasks::default());
    let lock = locks.lock(name.as_str());
    let holder = locks.holder();
    let outer = enter(&lock, &holder).await;
    // Once in peace, so that the server knows the script.
    assert_eq!(enter(&lock, &holder).await.release().bounded().await.unwrap(), Released::StillHeld);

    let inner = enter(&lock, &holder).await;
    proxy.lose_next_reply();
    assert_eq!(inner.release().bounded().await.unwrap(), Released::StillHeld);
    assert_eq!(proxy.replies_to_lose(), 0);
    let count: i64 = ask(&one, &["HGET", &name, holder.as_str()]).await;
    assert_eq!(count, 1, "a second decrement would have freed the lock under the outer guard");
    proxy.lose_next_reply();
    assert_eq!(outer.release().bounded().await.unwrap(), Released::Freed);
    let latches = format!("redisson_unlock_latch:{{{name}}}:*");
    eventually("the latches are gone", async || {
        ask::<Vec<String>>(&one, &["KEYS", &latches]).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn fencing_tokens_rise_also_on_re_entry() {
    let locks = client().await;
    let other = client().await;
    let name = fresh_name();
    let lock = locks.fenced_lock(name.as_str());
    let theirs = other.fenced_lock(name.as_str());
    let holder = locks.holder();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let outer = enter(&lock, &holder).await;
        let inner = enter(&lock, &holder).await;
        tokens.extend([outer.fencing_token(), inner.fencing_token()]);
        assert!(theirs.try_acquire(&other.holder()).bounded().await.unwrap().is_none());
        inner.release().bounded().await.unwrap();
        outer.release().bounded().await.unwrap();
        let guard = enter(&theirs, &other.holder()).await;
        tokens.push(guard.fencing_token());
        guard.release().bounded().await.unwrap();
    }
    let expected: Vec<Option<u64>> = (1..=9).map(Some).collect();
    assert_eq!(tokens, expected);
    assert_eq!(enter(&locks.lock(fresh_name()), &holder).await.fencing_token(), None);
}

#[tokio::test]
async fn a_lease_that_was_asked_for_is_not_renewed() {
    let locks = client().await;
    let name = fresh_name();
    let lock = locks.lock(name.as_str());
    let lease = Duration::from_millis(300);
    let began = Instant::now();
    let guard = enter(&lock, &locks.holder_with_lease(lease)).await;
    let waiting =
        lock.acquire(&locks.holder(), LONG).bounded().await.unwrap().expect("its lease ends");
    assert!(began.elapsed() >= lease, "{:?}", began.elapsed());
    timeout(LONG, guard.lost().cancelled()).bounded().await.expect("the holder is told");
    assert!(Instant::now() >= guard.sure_until());
    assert_eq!(guard.release().bounded().await.unwrap(), Released::NotHeld);
    assert_eq!(waiting.release().bounded().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn force_takes_the_lock_from_its_holder_and_wakes_up_its_waiters() {
    let name = fresh_name();
    let lease = Duration::from_millis(1_500);
    let locks = reentrant(&shared(), lease).await;
    let lock = locks.lock(name.as_str());
    let other = client().await;
    let one = connection(&shared()).await;
    let holder = locks.holder();
    let guards = [enter(&lock, &holder).await, enter(&lock, &holder).await];
    let waits = other.lock(name.as_str());
    let waiter = other.holder();
    let force = async {
        eventually("it waits", async || listeners(&one, &name).await == 1).await;
        assert!(lock.force_release().bounded().await.unwrap());
    };
    let (waited, ()) = tokio::join!(waits.acquire(&waiter, LONG), force);
    let theirs = waited.unwrap().expect("it was woken up");
    for guard in guards {
        timeout(LONG, guard.lost().cancelled()).bounded().await.expect("told at the next renewal");
        assert_eq!(guard.release().bounded().await.unwrap(), Released::NotHeld);
    }
    assert!(!theirs.lost().is_cancelled());
    assert_eq!(theirs.release().bounded().await.unwrap(), Released::Freed);
    assert!(!lock.force_release().bounded().await.unwrap(), "it was free");
}

#[tokio::test]
async fn locks_of_many_holders_are_renewed_by_few_calls() {
    let server = RedisServer::start(&[]);
    let lease = Duration::from_millis(900);
    let locks = reentrant(&server.url(), lease).await;
    let one = connection(&server.url()).await;
    let names: Vec<String> = (0..250).map(|number| format!("lock-{number}")).collect();
    let take = |name: &String| {
        let lock = locks.lock(name.as_str());
        let holder = locks.holder();
        async move { enter(&lock, &holder).await }
    };
    let guards = join_all(names.iter().map(take)).await;
    let calls = async || {
        let stats: redis::InfoDict = ask(&one, &["INFO", "commandstats"]).await;
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
    let left: i64 = ask(&one, &["DBSIZE"]).await;
    assert!(left <= 250, "nothing but latches: {left}");
    eventually("the latches are gone", async || ask::<i64>(&one, &["DBSIZE"]).await == 0).await;
}
