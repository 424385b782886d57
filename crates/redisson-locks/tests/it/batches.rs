//! The locks of a batch, on a real Redis.

use std::time::Duration;

use private_servers::testing::{PATIENCE, RedisServer, bounded, eventually};
use redisson_locks::{ReentrantLocks, Released, Settings, Tasks};

use crate::support::{
    ask, client_of, connection, fresh_name, listeners, patient_settings, reconnecting, reentrant,
    shared, try_ask,
};

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
    let first = locks().await.try_acquire_batch(vec![b.clone()]).await.unwrap();
    let second =
        locks().await.try_acquire_batch(vec![a.clone(), b.clone(), c.clone()]).await.unwrap();
    assert!(first.holds(&b));
    assert_eq!((second.holds(&a), second.holds(&b), second.holds(&c)), (true, false, true));

    // Releasing the second must not touch the first one's lock.
    second.release().await;
    let third = locks().await.try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    assert_eq!((third.holds(&a), third.holds(&b)), (true, false));
    first.release().await;
    third.release().await;
    let empty = locks().await.try_acquire_batch(Vec::new()).await.unwrap();
    empty.release().await;
}

#[tokio::test]
async fn a_batch_is_renewed_beyond_its_lease() {
    let test = fresh_name();
    let a = key(&test, "a");
    let guard = locks().await.try_acquire_batch(vec![a.clone()]).await.unwrap();
    let start = tokio::time::Instant::now();
    while start.elapsed() < 2 * LEASE {
        let other = locks().await.try_acquire_batch(vec![a.clone()]).await.unwrap();
        assert!(!other.holds(&a), "another batch got it after {:?}", start.elapsed());
        tokio::time::sleep(LEASE / 10).await;
    }
    assert!(!guard.lost().is_cancelled());
    guard.release().await;
    let next = locks().await.try_acquire_batch(vec![a.clone()]).await.unwrap();
    assert!(next.holds(&a));
}

#[tokio::test]
async fn a_guard_that_is_dropped_releases() {
    let test = fresh_name();
    let a = key(&test, "a");
    let (guard, other) =
        (locks().await.try_acquire_batch(vec![a.clone()]).await.unwrap(), locks().await);
    assert!(guard.holds(&a));
    drop(guard);
    eventually("it is free", async || {
        other.try_acquire_batch(vec![a.clone()]).await.unwrap().holds(&a)
    })
    .await;
}

#[tokio::test]
async fn the_holder_is_told_when_one_lock_is_lost() {
    let test = fresh_name();
    let a = key(&test, "a");
    let b = key(&test, "b");
    let guard = locks().await.try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    // One of the two has passed to another holder, which keeps it.
    let one = connection(&shared()).await;
    let _: bool = ask(&one, &["DEL", &a]).await;
    let _: bool = ask(&one, &["HSET", &a, "another:1", "1"]).await;
    bounded("the watchdog notices", guard.lost().cancelled()).await;
    guard.release().await;
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
    let single = another.lock(a.as_str()).try_acquire(&holder).await.unwrap().expect("it is free");
    let batch = first.try_acquire_batch(vec![a.clone(), b.clone()]).await.unwrap();
    assert_eq!((batch.holds(&a), batch.holds(&b)), (false, true));

    // A waiter for a lock of a batch is woken up by its release, long before the lease ends.
    let waiting = another.lock(b.as_str());
    let waits = async {
        let guard = waiting.acquire(&holder, PATIENCE).await.unwrap().expect("it was released");
        guard.release().await.unwrap()
    };
    let releases = async {
        eventually("it waits", async || listeners(&one, &b).await == 1).await;
        batch.release().await;
    };
    let (released, ()) = tokio::join!(waits, releases);
    assert_eq!(released, Released::Freed);
    assert_eq!(single.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_batch_is_not_in_the_append_only_file() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let one = reconnecting(&server.url());
    let settings = Settings { lease: Duration::from_mins(10), ..patient_settings() };
    let client = client_of(&server.url());
    let locks = ReentrantLocks::new(one.clone(), client, settings, Tasks::default());
    let batch = locks.try_acquire_batch(vec!["a".to_owned(), "b".to_owned()]).await.unwrap();
    assert!(batch.holds("a") && batch.holds("b"));
    let single = locks.lock("c").try_acquire(&locks.holder()).await.unwrap();
    assert!(single.is_some());

    server.kill();
    server.start_again();
    let pings = async || try_ask::<String>(&one, &["PING"]).await.is_ok();
    eventually("the connection is back", pings).await;
    let mut there: Vec<i64> = Vec::new();
    for name in ["a", "b", "c"] {
        there.push(ask(&one, &["EXISTS", name]).await);
    }
    assert_eq!(there, [0, 0, 1], "the new life has forgotten the batch, and nothing else");
    batch.release().await;
}
