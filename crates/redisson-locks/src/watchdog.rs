//! Renews the lease of one lock, and tells the holder when it can no longer be sure.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// State that a guard shares with its watchdog.
#[derive(Clone)]
pub(super) struct Watched {
    /// Cancelled when the holder can no longer be sure.
    pub(super) lost: CancellationToken,
    /// Cancelled to end the watchdog.
    pub(super) released: CancellationToken,
    /// When the holder stops being sure.
    pub(super) sure_until: Arc<tokio::sync::watch::Sender<Instant>>,
}

impl Watched {
    pub(super) fn new(sure_until: Instant) -> Self {
        let lost = CancellationToken::new();
        let released = CancellationToken::new();
        Self { lost, released, sure_until: Arc::new(tokio::sync::watch::Sender::new(sure_until)) }
    }

    pub(super) fn sure_until(&self) -> Instant {
        *self.sure_until.borrow()
    }
}

/// Renews at every third of the lease until `released`. Cancels `lost` as soon as a renewal says that the lock is no
/// longer the holder's, or when `sure_until` passes without a renewal.
///
/// `renew` returns whether the lock is still the holder's. A lease counts from *before* the call, because in Redis it
/// can only have started later.
pub(super) async fn watch<F, R>(lease: Duration, renew: F, watched: Watched)
where
    F: Fn() -> R,
    R: Future<Output = RedisResult<bool>>,
{
    let Watched { lost, released, .. } = &watched;
    let period = lease / 3;
    let mut next = watched.sure_until() - lease + period;
    loop {
        tokio::select! {
            () = released.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
        }
        let asked_at = Instant::now();
        let answer = tokio::select! {
            () = released.cancelled() => return,
            answer = tokio::time::timeout_at(watched.sure_until(), renew()) => answer,
        };
        match answer {
            Ok(Ok(true)) => drop(watched.sure_until.send_replace(asked_at + lease)),
            Ok(Ok(false)) | Err(_) => return lost.cancel(),
            // Redis didn't answer, or refused. There may be time for another try.
            Ok(Err(_)) if Instant::now() < watched.sure_until() => {}
            Ok(Err(_)) => return lost.cancel(),
        }
        next = (asked_at + period).min(watched.sure_until());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use private_servers::testing::{Bounded, bound_this_test};
    use redis::{ErrorKind, RedisError};

    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    /// Runs a watchdog whose renewals return what `answer` says. Returns the milliseconds until the holder was told,
    /// and the number of renewals.
    async fn told_after(answer: fn(usize) -> RedisResult<bool>) -> (u128, usize) {
        let start = Instant::now();
        let watched = Watched::new(start + LEASE);
        let count = AtomicUsize::new(0);
        let renew = || {
            let n = count.fetch_add(1, Ordering::SeqCst);
            async move { answer(n) }
        };
        watch(LEASE, renew, watched.clone()).bounded().await;
        assert!(watched.lost.is_cancelled());
        (start.elapsed().as_millis(), count.load(Ordering::SeqCst))
    }

    fn away() -> RedisResult<bool> {
        Err(RedisError::from((ErrorKind::Io, "away")))
    }

    #[tokio::test(start_paused = true)]
    async fn the_loss_of_a_lock_is_told_at_once() {
        bound_this_test();
        assert_eq!(told_after(|_| Ok(false)).await, (1_000, 1));
        assert_eq!(told_after(|n| Ok(n < 4)).await, (5_000, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_the_holder_is_told_when_the_lease_ends() {
        bound_this_test();
        assert_eq!(told_after(|_| away()).await, (3_000, 3));
        // The last successful renewal was sent at 2,000 ms, so the lease ends at 5,000 ms.
        let (told, _) = told_after(|n| if n < 2 { Ok(true) } else { away() }).await;
        assert_eq!(told, 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_renewal_does_not_hide_the_end_of_the_lease() {
        bound_this_test();
        let start = Instant::now();
        let watched = Watched::new(start + LEASE);
        watch(LEASE, std::future::pending, watched.clone()).bounded().await;
        assert!(watched.lost.is_cancelled());
        assert_eq!(start.elapsed(), LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lock_is_watched_no_more() {
        bound_this_test();
        let watched = Watched::new(Instant::now() + LEASE);
        watched.released.cancel();
        watch(LEASE, || async { Ok(true) }, watched.clone()).bounded().await;
        assert!(!watched.lost.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_released_during_its_renewal_is_watched_no_more() {
        bound_this_test();
        let start = Instant::now();
        let watched = Watched::new(start + LEASE);
        let release = async {
            tokio::time::sleep(LEASE / 2).await;
            watched.released.cancel();
        };
        let watching = async {
            watch(LEASE, std::future::pending, watched.clone()).bounded().await;
            start.elapsed()
        };
        let (watched_for, ()) = tokio::join!(watching, release);
        assert_eq!(watched_for, LEASE / 2);
        assert!(!watched.lost.is_cancelled());
    }
}
