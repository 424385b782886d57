//! Many independent locks in one call, for a worker that must not wait in the middle of its batch.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::names::Names;
use super::renewal::Hold;
use crate::connection::interrupted;

/// Locks that are tried in one call, independently of each other. [`try_acquire`](Self::try_acquire) sends the call.
#[derive(Clone)]
pub struct Batch {
    client: Arc<Client>,
    names: Names,
    is_volatile: bool,
}

/// The locks of a batch that were free. If one is lost, the token of all is cancelled.
#[must_use = "the locks are released when their guard is dropped"]
pub struct BatchGuard {
    client: Arc<Client>,
    /// All names of the batch.
    names: Arc<Names>,
    /// Positions of the names that other holders had, ascending.
    contended: Vec<usize>,
    /// Positions of all names, sorted by name; computed at the first search.
    sorted: OnceLock<Vec<usize>>,
    /// `None` if no lock was free, or after the release.
    hold: Option<Arc<Hold>>,
    /// Token of a guard without locks; never cancelled.
    never: CancellationToken,
}

impl Batch {
    pub(super) fn new(client: Arc<Client>, names: Names) -> Self {
        Self { client, names, is_volatile: false }
    }

    /// Keeps the locks only in the memory of this Redis: taking, renewing and releasing them is neither written to the
    /// append-only file nor sent to replicas, and waits for no sync of the disk.
    ///
    /// **After a restart of Redis or a fail-over the locks are gone**, and any client may take them at once. This
    /// holder learns of that at its next renewal. So use this for locks that only save work, where a constraint or a
    /// fencing token decides. If a holder dies without releasing, the end of each lease is still a `DEL` in the file
    /// and at replicas.
    #[must_use]
    pub fn volatile(mut self) -> Self {
        self.is_volatile = true;
        self
    }

    /// Tries each lock once, for a new holder.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Locks may have been taken; they then end with their lease.
    pub async fn try_acquire(self) -> RedisResult<BatchGuard> {
        let tasks = self.client.tasks.clone();
        // In a task, so that a caller that goes away leaves no locks without a guard behind.
        tasks.spawn(self.take()).await.unwrap_or_else(|_| Err(interrupted()))
    }

    async fn take(self) -> RedisResult<BatchGuard> {
        let Self { client, names, is_volatile } = self;
        let names = Arc::new(names);
        let mut contended = Vec::new();
        let mut hold = None;
        if !names.is_empty() {
            let lease = client.settings.lease;
            let holder = client.holder(lease, true).keep_volatile(is_volatile);
            let sure_until = Instant::now() + lease;
            contended = client.layout.acquire_batch(&client.server, &names, &holder).await?;
            let mut held = names.clone();
            if !contended.is_empty() {
                held = Arc::new(without(&names, &contended));
                let of_others: Vec<&str> = contended.iter().map(|at| &names[*at]).collect();
                // The script doesn't say how long they are still held.
                client.cut_long_leases(Some(Duration::MAX), &of_others).await?;
            }
            hold = (!held.is_empty()).then(|| client.renewals.enter(held, &holder, sure_until));
        }
        let sorted = OnceLock::new();
        let never = CancellationToken::new();
        Ok(BatchGuard { client, names, contended, sorted, hold, never })
    }
}

/// The names at all other positions.
fn without(names: &Names, positions: &[usize]) -> Names {
    let others = (0..names.len()).filter(|at| positions.binary_search(at).is_err());
    others.map(|at| &names[at]).collect()
}

impl BatchGuard {
    /// Whether this lock was free, and now is the batch's. [`holds_at`](Self::holds_at) needs no search.
    pub fn holds(&self, name: &str) -> bool {
        let sorted = self.sorted.get_or_init(|| {
            let mut positions: Vec<usize> = (0..self.names.len()).collect();
            positions.sort_unstable_by_key(|at| &self.names[*at]);
            positions
        });
        let found = sorted.binary_search_by(|at| self.names[*at].cmp(name));
        found.is_ok_and(|found| self.holds_at(sorted[found]))
    }

    /// Whether the lock at this position of the batch's names, counted from 0, was free, and now is the batch's.
    pub fn holds_at(&self, position: usize) -> bool {
        position < self.names.len() && self.contended.binary_search(&position).is_err()
    }

    /// Cancelled when the holder can no longer be sure that it holds all its locks.
    pub fn lost(&self) -> &CancellationToken {
        self.hold.as_ref().map_or(&self.never, |hold| &hold.lost)
    }

    /// Releases the locks that are still the batch's. A lock that can't be released ends with its lease.
    pub async fn release(mut self) {
        if let Some(hold) = self.hold.take() {
            self.client.release_batch(&hold).await;
        }
    }
}

impl Client {
    /// Unlocks even if the holder isn't sure any more: the holder belongs to this batch alone, so no later entry can be
    /// hit.
    async fn release_batch(&self, hold: &Arc<Hold>) {
        self.renewals.leave(hold);
        let released = self.layout.unlock_batch(&self.server, &hold.names, &hold.holder).await;
        if let Err(error) = released {
            tracing::debug!(%error, locks = hold.names.len(), "locks could not be released and will run out");
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Batch");
        debug.field("names", &self.names).field("is_volatile", &self.is_volatile);
        debug.finish_non_exhaustive()
    }
}

impl fmt::Debug for BatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BatchGuard");
        debug.field("names", &self.names).field("contended", &self.contended);
        debug.finish_non_exhaustive()
    }
}

impl Drop for BatchGuard {
    /// Releases the locks in a task, and doesn't wait for it.
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        if let Some(hold) = self.hold.take() {
            let client = self.client.clone();
            self.client.tasks.spawn(async move { client.release_batch(&hold).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::{Bounded, bound_this_test};
    use redis::Value;
    use tokio::time::sleep;

    use super::*;
    use crate::connection::tests::{Played, away};
    use crate::heard::Heard;
    use crate::reentrant::{ReentrantLocks, Settings};
    use crate::tasks::Tasks;

    const LEASE: Duration = Duration::from_secs(6);

    /// A server that says that the locks at these positions, counted from 1, are held elsewhere.
    fn contended(positions: &[i64]) -> Played {
        let reply = Value::Array(positions.iter().copied().map(Value::Int).collect());
        Played::new(move |command| {
            Ok(if command.contains("redisson_lock__channel") {
                Value::Int(1)
            } else {
                reply.clone()
            })
        })
    }

    fn locks(server: &Played, lease_max: Option<Duration>) -> ReentrantLocks {
        let nowhere = redis::Client::open("redis+unix:///nowhere/redis.sock").expect("a valid URL");
        let settings = Settings { lease: LEASE, lease_max, ..Settings::default() };
        ReentrantLocks::new(server.clone(), nowhere, settings, Tasks::default())
    }

    /// The commands since the last call, with `h` in place of the holder.
    fn asked(server: &Played) -> Vec<String> {
        let is_holder = |word: &str| word.len() > 36 && word.as_bytes()[36] == b':';
        let shorten = |command: String| {
            let words = command.split(' ').map(|word| if is_holder(word) { "h" } else { word });
            words.collect::<Vec<_>>().join(" ")
        };
        server.asked().into_iter().map(shorten).collect()
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_holds_the_names_that_are_not_contended() {
        bound_this_test();
        // Not sorted, and not all different.
        let names = vec!["c", "a", "d", "b", "a"];
        for (elsewhere, held) in [
            (vec![], [true, true, true, true, true]),
            (vec![1], [false, true, true, true, true]),
            (vec![2, 5], [true, false, true, true, false]),
            (vec![4], [true, true, true, false, true]),
            (vec![1, 2, 3, 4, 5], [false; 5]),
        ] {
            let locks = locks(&contended(&elsewhere), None);
            let guard = locks.batch(names.clone()).try_acquire().bounded().await.unwrap();
            assert_eq!([0, 1, 2, 3, 4].map(|at| guard.holds_at(at)), held);
            assert_eq!([0, 1, 2, 3, 4].map(|at| guard.holds(names[at])), held);
            assert!(!guard.holds_at(5) && !guard.holds_at(usize::MAX));
            assert!(!guard.holds("") && !guard.holds("aa") && !guard.holds("e"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_releases_what_it_holds_once() {
        bound_this_test();
        for (elsewhere, release) in [
            (vec![], Some("EVALSHA 3 a b c 0 h redisson_lock__channel:* 0")),
            (vec![2], Some("EVALSHA 2 a c 0 h redisson_lock__channel:* 0")),
            (vec![1, 3], Some("EVALSHA 1 b 0 h redisson_lock__channel:* 0")),
            (vec![1, 2, 3], None),
        ] {
            for is_dropped in [false, true] {
                let server = contended(&elsewhere);
                let batch = locks(&server, None).batch(vec!["a", "b", "c"]);
                let guard = batch.try_acquire().bounded().await.unwrap();
                assert_eq!(asked(&server), ["EVALSHA 3 a b c 6000 h 0"]);
                assert!(!guard.lost().is_cancelled());
                if is_dropped {
                    drop(guard)
                } else {
                    guard.release().bounded().await
                }
                settle().await;
                assert_eq!(asked(&server), release.into_iter().collect::<Vec<_>>());
                sleep(2 * LEASE).await;
                assert!(server.asked().is_empty(), "it is renewed no more");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_volatile_batch_is_so_in_each_call() {
        bound_this_test();
        let server = contended(&[]);
        let locks = locks(&server, None);
        let guard = locks.batch(vec!["a"]).volatile().try_acquire().bounded().await.unwrap();
        assert_eq!(asked(&server), ["EVALSHA 1 a 6000 h 1"]);
        let short = locks.try_acquire_batch(vec!["b".to_owned()]).bounded().await.unwrap();
        assert_eq!(asked(&server), ["EVALSHA 1 b 6000 h 1"]);
        drop(short);
        guard.release().bounded().await;
        settle().await;
        let mut releases = asked(&server);
        releases.sort_unstable();
        let channels = "redisson_lock__channel:*";
        let expected = ["a", "b"].map(|name| format!("EVALSHA 1 {name} 0 h {channels} 1"));
        assert_eq!(releases, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_without_names_asks_nothing() {
        bound_this_test();
        let server = contended(&[]);
        let guard = locks(&server, Some(LEASE))
            .batch(Names::default())
            .try_acquire()
            .bounded()
            .await
            .unwrap();
        assert!(!guard.holds_at(0) && !guard.holds(""));
        guard.release().bounded().await;
        settle().await;
        assert!(server.asked().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn leases_of_others_are_cut_if_there_is_a_longest_one() {
        bound_this_test();
        for (elsewhere, lease_max, cut) in [
            (vec![2, 3], Some(2 * LEASE), Some("EVALSHA 2 b c 12000 6000")),
            (vec![], Some(2 * LEASE), None),
            (vec![2, 3], None, None),
        ] {
            let positions = Value::Array(elsewhere.into_iter().map(Value::Int).collect());
            let server = Played::new(move |command| {
                Ok(if command.ends_with(" 6000") { Value::Int(1) } else { positions.clone() })
            });
            let batch = locks(&server, lease_max).batch(vec!["a", "b", "c"]);
            let guard = batch.try_acquire().bounded().await.unwrap();
            assert_eq!(asked(&server)[1..], cut.into_iter().collect::<Vec<_>>());
            guard.release().bounded().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_holder_is_told_when_a_batch_is_not_renewed_in_time() {
        bound_this_test();
        // No lock is renewed, because the answer is empty.
        let server = contended(&[]);
        let guard =
            locks(&server, None).batch(vec!["a", "b"]).try_acquire().bounded().await.unwrap();
        assert!(!guard.lost().is_cancelled());
        sleep(LEASE / 2).await;
        assert!(guard.lost().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn release_batch_tells_the_log_of_locks_that_will_run_out() {
        bound_this_test();
        for (is_away, told) in [(true, 1), (false, 0)] {
            let server =
                Played::new(move |command| match command.contains("redisson_lock__channel") {
                    true if is_away => away(),
                    true => Ok(Value::Int(2)),
                    false => Ok(Value::Array(Vec::new())),
                });
            let guard =
                locks(&server, None).batch(vec!["a", "b"]).try_acquire().bounded().await.unwrap();
            let heard = Heard::from_now_on();
            guard.release().bounded().await;
            let lines = heard.lines();
            let told_of = |line: &&String| {
                line.starts_with("DEBUG locks could not be released") && line.ends_with(" locks=2")
            };
            assert_eq!(lines.iter().filter(told_of).count(), told, "{lines:?}");
        }
    }

    #[test]
    fn a_guard_may_be_dropped_outside_of_a_runtime() {
        let server = contended(&[]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let batch = locks(&server, None).batch(vec!["a"]);
        let guard = runtime.block_on(batch.try_acquire()).unwrap();
        server.asked();
        drop(guard);
        assert!(server.asked().is_empty(), "the lock runs out");
    }
}
