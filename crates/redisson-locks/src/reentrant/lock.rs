//! One lock: trying, waiting, and the guard of an entry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::layout::{self, Holder, Released, Tried};
use super::names::Names;
use super::renewal::Hold;
use crate::connection::interrupted;

/// One lock, held or not.
#[derive(Clone)]
pub struct Lock {
    pub(super) client: Arc<Client>,
    pub(super) name: Arc<str>,
    pub(super) is_fenced: bool,
}

/// One entry into a lock.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    client: Arc<Client>,
    hold: Arc<Hold>,
    fencing_token: Option<u64>,
    is_released: bool,
}

/// The answer to one try to take the lock.
enum Try {
    Taken(Guard),
    /// Another holder has the lock, for the rest of this lease; `None` for a lease that never ends.
    Held(Option<Duration>),
}

impl Lock {
    /// Tries once to take the lock. `None` if another holder has it.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The lock may have been taken; it then ends with its lease.
    pub async fn try_acquire(&self, holder: &Holder) -> RedisResult<Option<Guard>> {
        match self.attempt(holder).await? {
            Try::Taken(guard) => Ok(Some(guard)),
            Try::Held(_) => Ok(None),
        }
    }

    /// Takes the lock. Waits for up to `patience` while another holder has it; `None` if the lock didn't become free in
    /// time.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and when Redis forbids SUBSCRIBE.
    pub async fn acquire(&self, holder: &Holder, patience: Duration) -> RedisResult<Option<Guard>> {
        let deadline = Instant::now() + patience;
        if let Try::Taken(guard) = self.attempt(holder).await? {
            return Ok(Some(guard));
        }
        loop {
            let listening = self.client.wakes.listen(layout::channel(&self.name));
            let Ok(listener) = timeout_at(deadline, listening).await else { return Ok(None) };
            let listener = listener?;
            let mut is_live = true;
            while is_live {
                let left = match self.attempt(holder).await {
                    Ok(Try::Taken(guard)) => return Ok(Some(guard)),
                    Ok(Try::Held(left)) => left,
                    Err(error) => {
                        listener.pass_on();
                        return Err(error);
                    }
                };
                if Instant::now() >= deadline {
                    return Ok(None);
                }
                // Redis rounds the rest of a lease down to milliseconds.
                let over = left.map(|left| Instant::now() + left + Duration::from_millis(1));
                tokio::select! {
                    woken = listener.woken() => is_live = woken,
                    () = sleep_until(over.map_or(deadline, |over| over.min(deadline))) => {}
                }
            }
        }
    }

    /// Takes the lock away from its holder, whose token is cancelled at its next renewal. True if the lock was held.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn force_release(&self) -> RedisResult<bool> {
        self.client.layout.force_unlock(&self.client.server, &self.name).await
    }

    /// In a task, so that a caller that goes away leaves no lock without a guard behind.
    async fn attempt(&self, holder: &Holder) -> RedisResult<Try> {
        let lock = self.clone();
        let holder = holder.clone();
        let attempt = async move {
            let client = &lock.client;
            // Taken before the request is sent, because the lease can only begin later.
            let sure_until = Instant::now() + holder.lease;
            let tried =
                client.layout.acquire(&client.server, &lock.name, &holder, lock.is_fenced).await?;
            Ok(match tried {
                Tried::Held(left) => {
                    client.cut_long_leases(left, std::slice::from_ref(&lock.name)).await?;
                    Try::Held(left)
                }
                Tried::Ours(fencing_token) => {
                    let names = Arc::new(Names::from(vec![&lock.name]));
                    let hold = client.renewals.enter(names, &holder, sure_until);
                    let client = client.clone();
                    Try::Taken(Guard { client, hold, fencing_token, is_released: false })
                }
            })
        };
        self.client.tasks.spawn(attempt).await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl Guard {
    /// Cancelled when the holder can no longer be sure that it holds the lock. Then stop the work that needs the lock,
    /// or let it show its [fencing token](Self::fencing_token).
    pub fn lost(&self) -> &CancellationToken {
        &self.hold.lost
    }

    /// When the holder stops being sure, unless [`lost`](Self::lost) is cancelled earlier. Renewals extend it.
    pub fn sure_until(&self) -> Instant {
        self.hold.sure_until()
    }

    /// Number of this entry into a [fenced lock](super::ReentrantLocks::fenced_lock), larger than all earlier ones. The
    /// resource that the lock protects remembers the largest token that it has seen, and rejects smaller ones. `None`
    /// for a lock that isn't fenced.
    pub fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }

    /// Releases this entry, and returns the state of the lock. Completes even if its future is dropped.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The lock then ends with its lease.
    pub async fn release(mut self) -> RedisResult<Released> {
        self.is_released = true;
        let client = self.client.clone();
        let hold = self.hold.clone();
        let released = self.client.tasks.spawn(async move { client.release(&hold).await });
        released.await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lock");
        debug.field("name", &self.name).field("is_fenced", &self.is_fenced).finish_non_exhaustive()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        debug.field("name", &&self.hold.names[0]).field("holder", &self.hold.holder.as_str());
        debug.field("fencing_token", &self.fencing_token).finish_non_exhaustive()
    }
}

impl Drop for Guard {
    /// A guard that is dropped without a release (because its request was cancelled, for example) releases in a task,
    /// and doesn't wait for it.
    fn drop(&mut self) {
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let client = self.client.clone();
        let hold = self.hold.clone();
        self.client.tasks.spawn(async move {
            if let Err(error) = client.release(&hold).await {
                tracing::debug!(%error, "a lock could not be released and will run out");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use private_servers::testing::{Bounded, bound_this_test};
    use redis::Value;
    use tokio::time::sleep;

    use super::*;
    use crate::broadcast::Broadcast;
    use crate::connection::tests::{Played, away};
    use crate::heard::Heard;
    use crate::reentrant::{ReentrantLocks, Settings};
    use crate::tasks::Tasks;

    const LEASE: Duration = Duration::from_secs(6);

    fn locks(server: &Played, air: &Broadcast) -> ReentrantLocks {
        let settings = Settings { lease: LEASE, release_tries_max: 1, ..Settings::default() };
        ReentrantLocks::new(server.clone(), air.clone(), settings, Tasks::default())
    }

    /// A server that gives these answers to tries in turn, repeats the last one, and grants renewals.
    fn answering(answers: Vec<RedisResult<Value>>) -> Played {
        let answers = Mutex::new(answers);
        Played::new(move |_| {
            let mut answers = answers.lock().expect("no holder panics");
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        })
    }

    fn free() -> RedisResult<Value> {
        Ok(Value::Nil)
    }

    /// Another holder has the lock for this many milliseconds.
    fn held(left_ms: i64) -> RedisResult<Value> {
        Ok(Value::Int(left_ms))
    }

    /// Lets all tasks that are ready run.
    async fn settle() {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_takes_a_free_lock_by_one_try_and_listens_to_nothing() {
        bound_this_test();
        let (server, air) = (answering(vec![free()]), Broadcast::default());
        let locks = locks(&server, &air);
        let holder = locks.holder();
        let guard = locks.lock("a").acquire(&holder, LEASE).bounded().await.unwrap();
        assert!(guard.is_some());
        assert_eq!(server.asked(), [format!("EVALSHA 1 a 6000 {}", holder.as_str())]);
        assert!(air.asked().is_empty());
    }

    /// When a waiter tried, in milliseconds, for these answers; when it stopped, and whether it got the lock.
    async fn tries(patience_ms: u64, answers: Vec<RedisResult<Value>>) -> (Vec<u128>, u128, bool) {
        let began = Instant::now();
        let tries = Arc::new(Mutex::new(Vec::new()));
        let times = tries.clone();
        let server = Played::new(move |command| {
            if !command.starts_with("EVALSHA 1 a ") {
                return Ok(Value::Int(1));
            }
            let mut times = times.lock().expect("no holder panics");
            times.push(began.elapsed().as_millis());
            // So that a waiter that doesn't sleep comes to an end.
            answers.get(times.len() - 1).cloned().unwrap_or_else(away)
        });
        let air = Broadcast::default();
        let locks = locks(&server, &air);
        let lock = locks.lock("a");
        let holder = locks.holder();
        let message = async {
            sleep(Duration::from_millis(300)).await;
            air.publish(&layout::channel("a"));
        };
        let acquired = lock.acquire(&holder, Duration::from_millis(patience_ms));
        let (acquired, ()) = tokio::join!(
            async {
                let acquired = acquired.bounded().await.expect("no try fails");
                (acquired.is_some(), began.elapsed().as_millis())
            },
            message
        );
        let tries = std::mem::take(&mut *tries.lock().expect("no holder panics"));
        (tries, acquired.1, acquired.0)
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_tries_when_it_listens_and_after_messages_and_ends_of_leases() {
        bound_this_test();
        for (patience_ms, answers, times, end, is_taken) in [
            // A lease that never ends: woken by the message at 300 ms, and by the end of the patience.
            (1_000, vec![held(-1); 4], vec![0, 0, 300, 1_000], 1_000, false),
            // Woken a millisecond after the rest of the lease, which Redis truncates to milliseconds.
            (1_000, vec![held(100), held(100), free()], vec![0, 0, 101], 101, true),
            (250, vec![held(100); 5], vec![0, 0, 101, 202, 250], 250, false),
            (1_000, vec![held(700), held(700), held(500), free()], vec![0, 0, 300, 801], 801, true),
            // Released between the first try and the subscription.
            (1_000, vec![held(-1), free()], vec![0, 0], 0, true),
        ] {
            let found = tries(patience_ms, answers.clone()).await;
            assert_eq!(found, (times, end, is_taken), "{answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_hands_a_message_on_when_its_try_fails() {
        bound_this_test();
        let held_by_another = [held(-1), held(-1), held(-1), held(-1)];
        let answers = held_by_another.into_iter().chain([away(), free()]).collect();
        let (server, air) = (answering(answers), Broadcast::default());
        let locks = locks(&server, &air);
        let lock = locks.lock("a");
        let holders = [locks.holder(), locks.holder()];
        let began = Instant::now();
        let message = async {
            settle().await;
            air.publish(&layout::channel("a"));
        };
        let (first, second, ()) = tokio::join!(
            lock.acquire(&holders[0], LEASE).bounded(),
            lock.acquire(&holders[1], LEASE).bounded(),
            message
        );
        // The waiter that was woken first failed.
        let guards: Vec<bool> =
            [first, second].into_iter().flatten().map(|g| g.is_some()).collect();
        assert_eq!(guards, [true]);
        assert_eq!(began.elapsed(), Duration::ZERO, "and not at the end of its patience");
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_listens_anew_when_the_connection_for_messages_ends() {
        bound_this_test();
        let (server, air) = (answering(vec![held(-1)]), Broadcast::default());
        let locks = locks(&server, &air);
        let (lock, holder) = (locks.lock("a"), locks.holder());
        let channel = layout::channel("a");
        let subscribe = format!("SUBSCRIBE {channel}");
        let interruption = async {
            settle().await;
            assert_eq!(air.asked(), ["HELLO 3", &subscribe]);
            assert_eq!(server.asked().len(), 2);
            air.cut();
            settle().await;
            assert_eq!(air.asked(), ["HELLO 3", &subscribe]);
            assert_eq!(server.asked().len(), 1, "tried once more now that it listens");
        };
        let (acquired, ()) = tokio::join!(lock.acquire(&holder, LEASE).bounded(), interruption);
        assert!(acquired.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_is_renewed_on_disk_and_one_with_a_lease_of_its_own_is_not() {
        bound_this_test();
        let own = Duration::from_secs(5);
        for (is_own, renewals) in [(false, 2), (true, 0)] {
            let server = answering(vec![free(), Ok(Value::Array(vec![Value::Int(1)]))]);
            let locks = locks(&server, &Broadcast::default());
            let holder = if is_own { locks.holder_with_lease(own) } else { locks.holder() };
            let guard =
                locks.lock("a").try_acquire(&holder).bounded().await.unwrap().expect("it is free");
            let began = Instant::now();
            server.asked();
            sleep(Duration::from_millis(4_500)).await;
            // At a third of the lease, and at two thirds.
            let renewal = format!("EVALSHA 1 a 6000 {}", holder.as_str());
            assert_eq!(server.asked(), vec![renewal; renewals]);
            assert!(!guard.lost().is_cancelled());
            if is_own {
                guard.lost().cancelled().bounded().await;
                assert_eq!(began.elapsed(), own);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_dropped_and_cannot_be_released_is_told_in_the_log() {
        bound_this_test();
        for (answer, told) in [(away(), true), (Ok(Value::Int(1)), false)] {
            let heard = Heard::from_now_on();
            let server = answering(vec![free(), answer]);
            let locks = locks(&server, &Broadcast::default());
            let holder = locks.holder();
            drop(
                locks.lock("a").try_acquire(&holder).bounded().await.unwrap().expect("it is free"),
            );
            settle().await;
            let lines = heard.lines();
            assert_eq!(lines.len(), usize::from(told), "{lines:?}");
            let expected = "DEBUG a lock could not be released and will run out error=";
            assert!(lines.iter().all(|line| line.starts_with(expected)), "{lines:?}");
        }
    }
}
