//! The end of a program: its token is cancelled, and the library's tasks end.

use std::time::Duration;

use private_servers::testing::{Bounded, bounded, eventually};
use redisson_locks::owner::{self, OwnerLocks};
use redisson_locks::{ReentrantLocks, Tasks};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{
    client_of, connection, fresh_name, listeners, patient_settings, reentrant, shared,
};

const LONG: Duration = Duration::from_secs(45);

#[tokio::test]
async fn tasks_end_after_the_token_and_the_last_guard() {
    let stop = CancellationToken::new();
    let name = fresh_name();
    let tasks = Tasks::new(stop.clone());
    let one = connection(&shared()).await;
    let client = client_of(&shared());
    let locks = ReentrantLocks::new(one.clone(), client, patient_settings(), tasks.clone());
    let plain = OwnerLocks::new(one.clone(), owner::Settings::default(), tasks.clone());
    let lock = locks.lock(name.as_str());
    let holder = locks.holder();
    let entry = lock.try_acquire(&holder).bounded().await.unwrap().expect("it is free");
    let entered = plain.try_acquire(&fresh_name()).bounded().await.unwrap().expect("it is free");
    let other = reentrant(&shared(), LONG).await;
    let waits = async {
        let other = other.lock(name.as_str()).acquire(&other.holder(), LONG).bounded().await;
        other.unwrap().expect("it was released")
    };
    let stops = async {
        eventually("it waits", async || listeners(&one, &name).await == 1).await;
        stop.cancel();
        // A lock in use is released by its guard, not by the end of the program.
        let again = lock.try_acquire(&holder).bounded().await.unwrap().expect("it is the holder's");
        again.release().bounded().await.unwrap();
        assert!(!entry.lost().is_cancelled());
        drop(entry);
        drop(entered);
        bounded("all tasks end", tasks.ended()).await;
    };
    let (theirs, ()) = tokio::join!(waits, stops);
    theirs.release().bounded().await.unwrap();
}

#[tokio::test]
async fn the_program_s_own_tracker_counts_the_tasks() {
    let stop = CancellationToken::new();
    let tracker = TaskTracker::new();
    let tasks = Tasks::tracked(stop.clone(), tracker.clone());
    let one = connection(&shared()).await;
    let client = client_of(&shared());
    let locks = ReentrantLocks::new(one, client, patient_settings(), tasks);
    let lock = locks.lock(fresh_name());
    let guard = lock.try_acquire(&locks.holder()).bounded().await.unwrap().expect("it is free");
    assert!(!tracker.is_empty(), "the renewal is one of its tasks");
    guard.release().bounded().await.unwrap();
    stop.cancel();
    tracker.close();
    bounded("all tasks end", tracker.wait()).await;
}
