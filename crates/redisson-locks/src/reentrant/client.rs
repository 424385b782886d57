//! What all locks of one client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::layout::{self, Holder, Layout, Released};
use super::renewal::{Hold, Renewals};
use super::settings::Settings;
use super::wake::Wakes;
use crate::connection::{Connection, Server, Subscribe, answer_within};
use crate::tasks::Tasks;

/// One client: a connection, an identity, and everything that it holds.
pub(super) struct Client {
    pub(super) server: Server,
    pub(super) layout: Arc<Layout>,
    pub(super) settings: Settings,
    /// First part of the name of each holder.
    id: String,
    /// Number of the next holder.
    holders: AtomicU64,
    pub(super) renewals: Renewals,
    pub(super) wakes: Wakes,
    /// Runs the tasks that try, renew and release.
    pub(super) tasks: Tasks,
}

impl Client {
    pub(super) fn new(
        connection: impl Connection,
        subscribe: impl Subscribe,
        settings: Settings,
        tasks: Tasks,
    ) -> Self {
        let server = Server::new(connection);
        let layout = Arc::new(Layout::new());
        Self {
            renewals: Renewals::new(server.clone(), layout.clone(), settings, tasks.clone()),
            wakes: Wakes::new(subscribe, tasks.clone()),
            server,
            layout,
            settings,
            id: Uuid::new_v4().to_string(),
            holders: AtomicU64::new(1),
            tasks,
        }
    }

    pub(super) fn holder(&self, lease: Duration, is_renewed: bool) -> Holder {
        let number = self.holders.fetch_add(1, Ordering::Relaxed);
        Holder::new(&self.id, number, lease, is_renewed)
    }

    /// Shortens the leases of these locks, which other holders have, if the first lease has longer to run than any
    /// client would ask for.
    pub(super) async fn cut_long_leases(
        &self,
        left: Option<Duration>,
        names: &[impl AsRef<str>],
    ) -> RedisResult<()> {
        let Settings { lease, lease_max, .. } = self.settings;
        let Some(lease_max) = lease_max.filter(|max| left.is_some_and(|left| left > *max)) else {
            return Ok(());
        };
        let cut = self.layout.cut_leases(&self.server, names, lease_max, lease).await?;
        if cut > 0 {
            tracing::warn!(
                locks = cut,
                "leases were longer than any that is asked for and have been cut: Redis's clock has been set back"
            );
        }
        Ok(())
    }

    pub(super) async fn release(self: &Arc<Self>, hold: &Arc<Hold>) -> RedisResult<Released> {
        // The same holder may have entered again after it lost this hold. That entry has a guard of its own.
        if !self.renewals.leave(hold) {
            return Ok(Released::NotHeld);
        }
        let name = &hold.names[0];
        let request = Uuid::new_v4().simple().to_string();
        let released = self.unlock(name, &hold.holder, &request).await?;
        if released != Released::NotHeld {
            self.forget_latch(layout::latch_key(name, &request));
        }
        Ok(released)
    }

    /// Repeats the request if there is no answer, as long as its latch still exists for sure. After that, Redis would
    /// take a repeat for a new request.
    async fn unlock(&self, name: &str, holder: &Holder, request: &str) -> RedisResult<Released> {
        let Settings { latch, release_timeout, release_pause, .. } = self.settings;
        let tries_end = Instant::now() + latch.saturating_sub(release_timeout + release_pause);
        let mut tries = 1;
        loop {
            let answer = self.layout.unlock(&self.server, name, holder, request, latch);
            let released = answer_within(release_timeout, answer).await;
            let is_last = tries >= self.settings.release_tries_max || Instant::now() >= tries_end;
            if released.is_ok() || is_last {
                return released;
            }
            tries += 1;
            sleep(release_pause).await;
        }
    }

    /// Deletes the latch early, without waiting; otherwise it expires.
    fn forget_latch(self: &Arc<Self>, latch: String) {
        let client = self.clone();
        self.tasks.spawn(async move {
            let _: RedisResult<()> = client.server.query(redis::cmd("DEL").arg(latch)).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::{Bounded, bound_this_test};
    use redis::Value;

    use super::*;
    use crate::connection::tests::{Played, away};
    use crate::heard::Heard;
    use crate::reentrant::{Guard, ReentrantLocks};

    const LEASE: Duration = Duration::from_secs(6);
    const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
    const RELEASE_PAUSE: Duration = Duration::from_millis(100);

    fn settings() -> Settings {
        Settings {
            lease: LEASE,
            release_timeout: RELEASE_TIMEOUT,
            release_pause: RELEASE_PAUSE,
            ..Settings::default()
        }
    }

    fn locks_with(server: &Played, settings: Settings) -> ReentrantLocks {
        let nowhere = redis::Client::open("redis+unix:///nowhere/redis.sock").expect("a valid URL");
        ReentrantLocks::new(server.clone(), nowhere, settings, Tasks::default())
    }

    /// Takes the lock `a` on a server that grants it.
    async fn take(locks: &ReentrantLocks) -> Guard {
        locks.lock("a").try_acquire(&locks.holder()).bounded().await.unwrap().expect("it is free")
    }

    /// A server that grants each lock, and answers unlock requests like this.
    fn unlocking(answer: fn() -> RedisResult<Value>) -> Played {
        Played::new(move |command| match command.split(' ').take(2).collect::<Vec<_>>()[..] {
            ["EVALSHA", "3"] => answer(),
            ["DEL", _] => Ok(Value::Int(1)),
            _ => Ok(Value::Nil),
        })
    }

    /// Lets all tasks that are ready run.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn release_unlocks_once_and_forgets_the_latch_of_an_answer() {
        bound_this_test();
        for (answer, released, forgets) in [
            (Value::Int(1), Released::Freed, true),
            (Value::Int(0), Released::StillHeld, true),
            (Value::Nil, Released::NotHeld, false),
        ] {
            let server = Played::new(move |command| {
                Ok(if command.starts_with("EVALSHA 3") { answer.clone() } else { Value::Nil })
            });
            let guard = take(&locks_with(&server, settings())).await;
            server.asked();
            assert_eq!(guard.release().bounded().await.unwrap(), released);
            settle().await;
            let asked = server.asked();
            let latch = asked[0].split(' ').nth(4).expect("the third key");
            assert!(latch.starts_with("redisson_unlock_latch:{a}:"), "{asked:?}");
            let expected = if forgets { vec![format!("DEL {latch}")] } else { Vec::new() };
            assert_eq!(asked[1..], expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unlock_is_sent_again_as_often_as_is_allowed() {
        bound_this_test();
        for tries in [1, 3] {
            let server = unlocking(away);
            let settings = Settings { release_tries_max: tries, ..settings() };
            let guard = take(&locks_with(&server, settings)).await;
            server.asked();
            let began = Instant::now();
            assert!(guard.release().bounded().await.is_err());
            assert_eq!(server.asked().len(), tries as usize);
            assert_eq!(began.elapsed(), RELEASE_PAUSE * (tries - 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unlock_is_sent_again_while_its_latch_is_sure_to_be_there() {
        bound_this_test();
        let server = unlocking(away);
        let latch = RELEASE_TIMEOUT + 3 * RELEASE_PAUSE;
        let settings = Settings { release_tries_max: 100, latch, ..settings() };
        let guard = take(&locks_with(&server, settings)).await;
        server.asked();
        let began = Instant::now();
        assert!(guard.release().bounded().await.is_err());
        // One more request would be sent, and answered, after the latch has expired.
        assert_eq!(began.elapsed(), 2 * RELEASE_PAUSE);
        assert_eq!(server.asked().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_lost_is_not_unlocked() {
        bound_this_test();
        // Granted, but no longer the holder's at the first renewal.
        let calls = AtomicU64::new(0);
        let server = Played::new(move |_| {
            let is_first = calls.fetch_add(1, Ordering::Relaxed) == 0;
            Ok(if is_first { Value::Nil } else { Value::Array(vec![Value::Int(0)]) })
        });
        let guard = take(&locks_with(&server, settings())).await;
        sleep(LEASE / 2).await;
        assert!(guard.lost().is_cancelled());
        server.asked();
        assert_eq!(guard.release().bounded().await.unwrap(), Released::NotHeld);
        assert!(server.asked().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_dropped_is_released_once() {
        bound_this_test();
        let server = unlocking(|| Ok(Value::Int(1)));
        let guard = take(&locks_with(&server, settings())).await;
        server.asked();
        drop(guard);
        settle().await;
        let unlocks = server.asked();
        assert_eq!(unlocks.iter().filter(|text| text.starts_with("EVALSHA 3")).count(), 1);
    }

    #[test]
    fn a_guard_may_be_dropped_outside_of_a_runtime() {
        let server = unlocking(|| Ok(Value::Int(1)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(take(&locks_with(&server, settings())));
        server.asked();
        drop(guard);
        assert!(server.asked().is_empty(), "the lock runs out");
    }

    #[tokio::test(start_paused = true)]
    async fn cut_long_leases_asks_only_about_leases_that_are_too_long() {
        bound_this_test();
        let max = Duration::from_secs(10);
        for (lease_max, left_ms, cuts) in [
            (Some(max), 10_001, true),
            (Some(max), 10_000, false),
            (Some(max), 9_999, false),
            (Some(max), -1, false),
            (None, 10_001, false),
        ] {
            let server = Played::new(move |command| {
                Ok(Value::Int(if command.ends_with(" 10000 6000") { 1 } else { left_ms }))
            });
            let settings = Settings { lease_max, ..settings() };
            let locks = locks_with(&server, settings);
            let holder = locks.holder();
            assert!(locks.lock("a").try_acquire(&holder).bounded().await.unwrap().is_none());
            let expected = if cuts { vec!["EVALSHA 1 a 10000 6000"] } else { Vec::new() };
            assert_eq!(server.asked()[1..], expected, "{lease_max:?} {left_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cut_long_leases_says_how_many_were_cut() {
        bound_this_test();
        for (cut, told) in [(0, None), (1, Some(" locks=1")), (2, Some(" locks=2"))] {
            let heard = Heard::from_now_on();
            let server = Played::new(move |_| Ok(Value::Int(cut)));
            let settings = Settings { lease_max: Some(2 * LEASE), ..settings() };
            let client = locks_with(&server, settings).0;
            client.cut_long_leases(Some(3 * LEASE), &["a", "b"]).bounded().await.unwrap();
            let lines = heard.lines();
            assert_eq!(lines.len(), usize::from(told.is_some()), "{lines:?}");
            for (line, told) in lines.iter().zip(told) {
                assert!(line.starts_with("WARN leases were longer"), "{line}");
                assert!(line.ends_with(told), "{line}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sure_until_counts_from_before_the_request() {
        bound_this_test();
        let server = unlocking(|| Ok(Value::Int(1)));
        let locks = locks_with(&server, settings());
        let guard = take(&locks).await;
        assert_eq!(guard.sure_until(), Instant::now() + LEASE);
        assert_eq!(guard.fencing_token(), None);
        let lease = Duration::from_secs(2);
        let holder = locks.holder_with_lease(lease);
        let short =
            locks.lock("b").try_acquire(&holder).bounded().await.unwrap().expect("it is free");
        assert_eq!(short.sure_until(), Instant::now() + lease);
    }
}
