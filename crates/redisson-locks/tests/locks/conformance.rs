//! Behaviour that all three locks share: the plain one, the re-entrant one, and Redlock over five servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use private_servers::testing::{Bounded, RedisServer, bounded, eventually};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::support::any_lock::{AnyLock, Kind, LEASE, NODES};
use crate::support::listeners;

const LONG: Duration = Duration::from_secs(60);

/// One test of each name for each lock.
macro_rules! of_all {
    ($($test:ident)*) => {
        mod owner {
            $(#[tokio::test] async fn $test() { super::$test(super::Kind::Owner).await })*
        }
        mod reentrant {
            $(#[tokio::test] async fn $test() { super::$test(super::Kind::Reentrant).await })*
        }
        mod redlock {
            $(#[tokio::test] async fn $test() { super::$test(super::Kind::Redlock).await })*
        }
    };
}

of_all! {
    one_of_sixty_four_is_inside
    a_lost_lock_is_not_released_for_its_next_holder
    a_lock_whose_holder_died_runs_out_and_not_before
    a_lock_is_renewed_while_it_is_held
    a_waiter_gets_the_lock_or_runs_out_of_patience
    a_waiter_that_gives_up_leaves_nothing_behind
    a_guard_that_is_dropped_releases_the_lock
    the_holder_is_told_when_the_lock_was_taken_away
    the_holder_is_told_in_time_when_no_server_answers
}

/// Pauses for a random time up to `max`.
async fn pause(max: Duration) {
    let random = Uuid::new_v4().as_u128() as u32;
    sleep(max.mul_f64(f64::from(random) / f64::from(u32::MAX))).await;
}

/// 64 contenders in four clients; the figures of fairness are printed.
async fn one_of_sixty_four_is_inside(kind: Kind) {
    let first = AnyLock::new(kind).await;
    let mut clients = vec![Arc::new(first)];
    while clients.len() < 4 {
        clients.push(Arc::new(clients[0].another().await));
    }
    let inside = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs(2);
    let contend = |number: usize| {
        let client = clients[number % clients.len()].clone();
        let inside = inside.clone();
        async move {
            let mut entries = 0_u64;
            let mut longest = Duration::ZERO;
            while Instant::now() < until {
                let began = Instant::now();
                let Some(guard) = client.acquire(LONG).bounded().await else {
                    panic!("never got in")
                };
                longest = longest.max(began.elapsed());
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                pause(Duration::from_millis(2)).await;
                assert!(!guard.lost().is_cancelled(), "it was not taken away");
                inside.store(false, Ordering::SeqCst);
                assert!(guard.release().bounded().await, "it was still ours");
                entries += 1;
            }
            (entries, longest)
        }
    };
    let mut figures = join_all((0..64).map(contend)).await;
    figures.sort_unstable();
    let total: u64 = figures.iter().map(|(entries, _)| entries).sum();
    let longest = figures.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    println!(
        "{kind:?}: 64 contenders entered {total} times; fewest {}, median {}, most {}; longest wait {} ms",
        figures[0].0,
        figures[32].0,
        figures[63].0,
        longest.as_millis()
    );
    assert!(total >= 64, "each got in once, or waits for ever");
    assert!(!clients[0].exists().await);
}

async fn a_lost_lock_is_not_released_for_its_next_holder(kind: Kind) {
    let lock = AnyLock::new(kind).await;
    let first = lock.try_acquire().bounded().await.expect("it is free");
    lock.take_away().await;
    let second = lock.another().await.try_acquire().bounded().await.expect("it was taken away");
    assert!(!first.release().bounded().await, "it was another holder's by then");
    assert!(lock.try_acquire().bounded().await.is_none(), "the second one still has it");
    assert!(second.release().bounded().await);
    assert!(!lock.exists().await);
}

async fn a_lock_whose_holder_died_runs_out_and_not_before(kind: Kind) {
    let lock = AnyLock::new(kind).await;
    let began = Instant::now();
    let left = Duration::from_secs(2);
    lock.plant(left).await;
    assert!(lock.try_acquire().bounded().await.is_none());
    let guard = lock.acquire(LONG).bounded().await.expect("it runs out");
    assert!(began.elapsed() >= left, "{:?}", began.elapsed());
    assert!(guard.release().bounded().await);
}

async fn a_lock_is_renewed_while_it_is_held(kind: Kind) {
    let lock = AnyLock::new(kind).await;
    let other = lock.another().await;
    let guard = lock.try_acquire().bounded().await.expect("it is free");
    let began = Instant::now();
    while began.elapsed() < 2 * LEASE {
        let entered = other.try_acquire().bounded().await;
        assert!(entered.is_none(), "another holder got in after {:?}", began.elapsed());
        sleep(LEASE / 20).await;
    }
    assert!(!guard.lost().is_cancelled());
    assert!(guard.release().bounded().await);
}

async fn a_waiter_gets_the_lock_or_runs_out_of_patience(kind: Kind) {
    let lock = AnyLock::new(kind).await;
    let held = lock.try_acquire().bounded().await.expect("it is free");
    let patience = Duration::from_millis(100);
    assert!(lock.acquire(patience).bounded().await.is_none(), "it is held, and renewed");
    let (waited, was_ours) = tokio::join!(lock.acquire(LONG), held.release());
    assert!(was_ours);
    assert!(waited.expect("it was released").release().bounded().await);
}

/// Futures are dropped wherever they happen to be: before the first try, between the tries, with the lock in hand.
async fn a_waiter_that_gives_up_leaves_nothing_behind(kind: Kind) {
    let lock = Arc::new(AnyLock::new(kind).await);
    let entered = Arc::new(AtomicU64::new(0));
    let impatient = (0..200_u64).map(|number| {
        let lock = lock.clone();
        let entered = entered.clone();
        async move {
            pause(Duration::from_millis(50)).await;
            let patience = Duration::from_micros(number * 50);
            if let Ok(Some(guard)) = timeout(patience, lock.acquire(LONG)).bounded().await {
                entered.fetch_add(1, Ordering::SeqCst);
                drop(guard);
            }
        }
    });
    join_all(impatient).await;
    println!("{kind:?}: {} of 200 got in", entered.load(Ordering::SeqCst));
    eventually("the lock is free", async || !lock.exists().await).await;
    let guard = lock.try_acquire().bounded().await.expect("it is free");
    assert!(guard.release().bounded().await);
    let name = lock.name();
    eventually("no waiter listens", async || listeners(&lock.servers[0], name).await == 0).await;
    lock.stop.cancel();
    bounded("all tasks end", lock.tasks.ended()).await;
}

async fn a_guard_that_is_dropped_releases_the_lock(kind: Kind) {
    let lock = AnyLock::new(kind).await;
    let guard = lock.try_acquire().bounded().await.expect("it is free");
    assert!(lock.try_acquire().bounded().await.is_none());
    drop(guard);
    eventually("it is free", async || lock.try_acquire().bounded().await.is_some()).await;
}

async fn the_holder_is_told_when_the_lock_was_taken_away(kind: Kind) {
    let lock = AnyLock::new(kind).await;
    let guard = lock.try_acquire().bounded().await.expect("it is free");
    lock.take_away().await;
    lock.plant(LONG).await;
    let told = timeout(LEASE, guard.lost().cancelled()).bounded().await;
    told.expect("at the next renewal, so before the lease ends");
    assert!(!guard.release().bounded().await);
    assert!(lock.exists().await, "it is another holder's now");
    lock.take_away().await;
}

/// Servers of the test's own, which hang.
async fn the_holder_is_told_in_time_when_no_server_answers(kind: Kind) {
    let count = if kind == Kind::Redlock { NODES } else { 1 };
    let servers: Vec<RedisServer> = (0..count).map(|_| RedisServer::start(&[])).collect();
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let lock = AnyLock::on(kind, &urls, "a lock".to_owned()).await;
    let guard = lock.try_acquire().bounded().await.expect("it is free");
    let began = Instant::now();
    servers.iter().for_each(RedisServer::pause);
    bounded("it is told", guard.lost().cancelled()).await;
    let told = Instant::now();
    servers.iter().for_each(RedisServer::resume);
    // The clock of a busy machine may be late; the lease is counted from before the lock was asked for.
    assert!(told - began < LEASE + LEASE / 4, "told after {:?}", told - began);
    println!("{kind:?}: told {} ms after it got the lock", (told - began).as_millis());
}
