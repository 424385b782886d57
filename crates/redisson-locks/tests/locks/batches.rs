//! The locks of a batch, on a real Redis.

use std::time::Duration;

use private_servers::testing::{Bounded, PATIENCE, RedisServer, bounded, eventually};
use redisson_locks::{Names, ReentrantLocks, Released};

use crate::support::{ask, connection, fresh_name, listeners, reentrant, shared, try_ask};

const LEASE: Duration = Duration::from_secs(6);

async fn locks() -> ReentrantLocks {
    reentrant(&shared(), LEASE).await
}

/// The key of a lock of this test's own.
fn key(test: &str, name: &str) -> String {
    format!("{test}:{name}")
}

#[tokio::test]
async fn a_batch_takes_what_is_free_in_one_call() {
    let test = fresh_name();
    let a = key(&test, "a");
    let b = key(&test, "b");
    let c = key(&test, "c");
    let first = locks().await.try_acquire_batch(vec![b.clone()]).bounded().await.unwrap();
    let second = locks()
        .await
        .try_acquire_batch(vec![a.clone(), b.clone(), c.clone()])
        .bounded()
        .await
        .unwrap();
    assert!(first.holds(&b));
    assert_eq!((second.holds(&a), second.holds(&b), second.holds(&c)), (true, false, true));

    // Releasing the second must not touch the first one's lock.
    second.release().bounded().await;
    let third =
        locks().await.try_acquire_batch(vec![a.clone(), b.clone()]).bounded().await.unwrap();
    assert_eq!((third.holds(&a), third.holds(&b)), (true, false));
    first.release().bounded().await;
    third.release().bounded().await;
    let empty = locks().await.try_acquire_batch(Vec::new()).bounded().await.unwrap();
    empty.release().bounded().await;
}

#[tokio::test]
async fn a_batch_is_renewed_beyond_its_lease() {
    let test = fresh_name();
    let a = key(&test, "a");
    let guard = locks().await.try_acquire_batch(vec![a.clone()]).bounded().await.unwrap();
    let start = tokio::time::Instant::now();
    while start.elapsed() < 2 * LEASE {
        let other = locks().await.try_acquire_batch(vec![a.clone()]).bounded().await.unwrap();
        assert!(!other.holds(&a), "another batch got it after {:?}", start.elapsed());
        tokio::time::sleep(LEASE / 10).await;
    }
    assert!(!guard.lost().is_cancelled());
    guard.release().bounded().await;
    let next = locks().await.try_acquire_batch(vec![a.clone()]).bounded().await.unwrap();
    assert!(next.holds(&a));
}

#[tokio::test]
async fn a_guard_that_is_dropped_releases() {
    let test = fresh_name();
    let a = key(&test, "a");
    let (guard, other) =
        (locks().await.try_acquire_batch(vec![a.clone()]).bounded().await.unwrap(), locks().await);
    assert!(guard.holds(&a));
    drop(guard);
    eventually("it is free", async || {
        other.try_acquire_batch(vec![a.clone()]).bounded().await.unwrap().holds(&a)
    })
    .await;
}

#[tokio::test]
async fn the_holder_is_told_when_one_lock_is_lost() {
    let test = fresh_name();
    let a = key(&test, "a");
    let b = key(&test, "b");
    let guard =
        locks().await.try_acquire_batch(vec![a.clone(), b.clone()]).bounded().await.unwrap();
    // One of the two has passed to another holder, which keeps it.
    let one = connection(&shared()).await;
    let _: bool = ask(&one, &["DEL", &a]).await;
    let _: bool = ask(&one, &["HSET", &a, "another:1", "1"]).await;
    bounded("the watchdog notices", guard.lost().cancelled()).await;
    guard.release().bounded().await;
    let holders: Vec<String> = ask(&one, &["HKEYS", &a]).await;
    assert_eq!(holders, ["another:1"]);
    let gone: bool = ask(&one, &["EXISTS", &b]).await;
    assert!(!gone, "the other one was still the batch's");
}

#[tokio::test]
async fn a_batch_and_a_single_lock_keep_each_other_out() {
    let test = fresh_name();
    // The channel of a name with braces is called otherwise.
    for of in ["of", "{of}"] {
        let a = key(&test, &format!("{of}:a"));
        let b = key(&test, &format!("{of}:b"));
        keep_each_other_out(a, b).await;
    }
}

async fn keep_each_other_out(a: String, b: String) {
    // Longer than any wait here.
    let lease = 2 * PATIENCE;
    let first = reentrant(&shared(), lease).await;
    let another = reentrant(&shared(), lease).await;
    let one = connection(&shared()).await;
    let holder = another.holder();
    let single =
        another.lock(a.as_str()).try_acquire(&holder).bounded().await.unwrap().expect("it is free");
    let batch = first.try_acquire_batch(vec![a.clone(), b.clone()]).bounded().await.unwrap();
    assert_eq!((batch.holds(&a), batch.holds(&b)), (false, true));

    // A waiter for a lock of a batch is woken up by its release, long before the lease ends.
    let waiting = another.lock(b.as_str());
    let waits = async {
        let guard =
            waiting.acquire(&holder, PATIENCE).bounded().await.unwrap().expect("it was released");
        guard.release().bounded().await.unwrap()
    };
    let releases = async {
        eventually("it waits", async || listeners(&one, &b).await == 1).await;
        batch.release().bounded().await;
    };
    let (released, ()) = tokio::join!(waits, releases);
    assert_eq!(released, Released::Freed);
    assert_eq!(single.release().bounded().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_name_that_another_client_holds_is_contended_and_no_other() {
    let one = connection(&shared()).await;
    let test = fresh_name();
    let names: Names = (0..5).map(|number| format!("{test}:{number}")).collect();
    // As Java's Redisson writes it, and as a program that knows nothing of these locks.
    let _: i64 =
        ask(&one, &["HSET", &names[1], "5f0c1d1e-9a0a-4c4e-8d69-0c7f1d1f0001:47", "2"]).await;
    let _: String = ask(&one, &["SET", &names[3], "of another type"]).await;
    let batch = locks().await.batch(names.clone()).try_acquire().bounded().await.unwrap();
    let held: Vec<bool> = (0..5).map(|at| batch.holds_at(at)).collect();
    assert_eq!(held, [true, false, true, false, true]);
    let by_name: Vec<bool> = names.iter().map(|name| batch.holds(name)).collect();
    assert_eq!(by_name, held);
    assert!(!batch.holds_at(5) && !batch.holds(&test), "no names of the batch");

    // The guard's own locks are gone after the release, and the others as they were.
    batch.release().bounded().await;
    let mut there: Vec<String> = Vec::new();
    for name in names.iter() {
        there.push(ask(&one, &["TYPE", name]).await);
    }
    assert_eq!(there, ["none", "hash", "none", "string", "none"]);
    let count: i64 =
        ask(&one, &["HGET", &names[1], "5f0c1d1e-9a0a-4c4e-8d69-0c7f1d1f0001:47"]).await;
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_name_that_comes_twice_is_held_at_both_positions() {
    let one = connection(&shared()).await;
    let other = locks().await;
    let test = fresh_name();
    let [a, b, c] = ["a", "b", "c"].map(|name| key(&test, name));
    let held = other.try_acquire_batch(vec![c.clone()]).bounded().await.unwrap();
    let names = vec![&a, &b, &c, &a, &b, &c];
    let batch = locks().await.batch(names).volatile().try_acquire().bounded().await.unwrap();
    let positions: Vec<bool> = (0..6).map(|at| batch.holds_at(at)).collect();
    assert_eq!(positions, [true, true, false, true, true, false]);
    let counts: Vec<i64> = ask(&one, &["HVALS", &a]).await;
    assert_eq!(counts, [1], "one release frees it");
    batch.release().bounded().await;
    let left: i64 = ask(&one, &["EXISTS", &a, &b]).await;
    assert_eq!(left, 0);
    held.release().bounded().await;
}

#[tokio::test]
async fn a_lock_whose_lease_ran_out_and_that_another_client_took_stays_when_the_batch_is_released()
{
    let one = connection(&shared()).await;
    let other = locks().await;
    let test = fresh_name();
    let [a, b] = ["a", "b"].map(|name| key(&test, name));
    // Longer than any wait here, so that no renewal comes in between.
    let first = reentrant(&shared(), 4 * PATIENCE).await;
    let batch = first.try_acquire_batch(vec![a.clone(), b.clone()]).bounded().await.unwrap();
    assert!(batch.holds(&a) && batch.holds(&b));
    let _: i64 = ask(&one, &["PEXPIRE", &a, "1"]).await;
    let holder = other.holder();
    let lock = other.lock(a.as_str());
    let taken =
        lock.acquire(&holder, PATIENCE).bounded().await.unwrap().expect("its lease ran out");

    batch.release().bounded().await;
    let holders: Vec<String> = ask(&one, &["HKEYS", &a]).await;
    assert_eq!(holders, [holder.as_str()]);
    let left: i64 = ask(&one, &["EXISTS", &b]).await;
    assert_eq!(left, 0, "the other one was still the batch's");
    assert_eq!(taken.release().bounded().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_full_redis_takes_renews_and_releases_the_locks_of_a_batch() {
    let server = RedisServer::start(&[]);
    let one = connection(&server.url()).await;
    let locks = reentrant(&server.url(), 2 * LEASE).await;
    let _: String = ask(&one, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = try_ask::<String>(&one, &["SET", "a", "b"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"));
    for is_volatile in [true, false] {
        let batch = locks.batch(vec!["a", "b"]);
        let batch = if is_volatile { batch.volatile() } else { batch };
        let guard = batch.try_acquire().bounded().await.unwrap();
        assert!(guard.holds_at(0) && guard.holds_at(1));
        let end: i64 = ask(&one, &["PEXPIRETIME", "b"]).await;
        eventually("it is renewed", async || ask::<i64>(&one, &["PEXPIRETIME", "b"]).await > end)
            .await;
        assert!(!guard.lost().is_cancelled());
        guard.release().bounded().await;
        let left: i64 = ask(&one, &["DBSIZE"]).await;
        assert_eq!(left, 0);
    }
}
