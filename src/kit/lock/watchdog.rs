//! Renews leases, and tells the holder when it can no longer be sure.

use std::future::Future;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Renews at a third of the lease until `released`, and cancels `lost` at once when a renewal says that
/// the locks are no longer ours, or when `sure_until` has passed without a renewal.
///
/// `renew` answers whether everything is still ours. Time runs from *before* it is called: the lease
/// in Redis can only have started later.
pub(super) async fn watch<F, R>(
    lease: Duration,
    mut sure_until: Instant,
    renew: F,
    lost: CancellationToken,
    released: CancellationToken,
) where
    F: Fn() -> R,
    R: Future<Output = RedisResult<bool>>,
{
    let period = lease / 3;
    let mut next = sure_until - lease + period;
    loop {
        tokio::select! {
            () = released.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
        }
        let asked_at = Instant::now();
        let answer = tokio::select! {
            () = released.cancelled() => return,
            answer = tokio::time::timeout_at(sure_until, renew()) => answer,
        };
        match answer {
            Ok(Ok(true)) => sure_until = asked_at + lease,
            Ok(Ok(false)) | Err(_) => return lost.cancel(),
            // Redis didn't answer or refused: there may be time for another try.
            Ok(Err(_)) if Instant::now() < sure_until => {}
            Ok(Err(_)) => return lost.cancel(),
        }
        next = (asked_at + period).min(sure_until);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use redis::{ErrorKind, RedisError};

    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    /// Runs a watchdog over renewals that answer as `answer` says, and returns after how many
    /// milliseconds the holder was told, and how many renewals there were.
    async fn told_after(answer: fn(usize) -> RedisResult<bool>) -> (u128, usize) {
        let (lost, released) = (CancellationToken::new(), CancellationToken::new());
        let start = Instant::now();
        let count = AtomicUsize::new(0);
        let renew = || {
            let n = count.fetch_add(1, Ordering::SeqCst);
            async move { answer(n) }
        };
        watch(LEASE, start + LEASE, renew, lost.clone(), released).await;
        assert!(lost.is_cancelled());
        (start.elapsed().as_millis(), count.load(Ordering::SeqCst))
    }

    fn away() -> RedisResult<bool> {
        Err(RedisError::from((ErrorKind::Io, "away")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_no_longer_ours_is_told_at_once() {
        assert_eq!(told_after(|_| Ok(false)).await, (1_000, 1));
        assert_eq!(told_after(|n| Ok(n < 4)).await, (5_000, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_the_holder_is_told_when_the_lease_ends() {
        assert_eq!(told_after(|_| away()).await, (3_000, 3));
        // The last good renewal was sent at 2,000 ms, so the lease ends at 5,000 ms.
        let (told, _) = told_after(|n| if n < 2 { Ok(true) } else { away() }).await;
        assert_eq!(told, 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_renewal_does_not_hide_the_end_of_the_lease() {
        let (lost, released) = (CancellationToken::new(), CancellationToken::new());
        let start = Instant::now();
        watch(LEASE, start + LEASE, std::future::pending, lost.clone(), released).await;
        assert!(lost.is_cancelled());
        assert_eq!(start.elapsed(), LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lock_is_watched_no_more() {
        let (lost, released) = (CancellationToken::new(), CancellationToken::new());
        released.cancel();
        watch(LEASE, Instant::now() + LEASE, || async { Ok(true) }, lost.clone(), released).await;
        assert!(!lost.is_cancelled());
    }
}
