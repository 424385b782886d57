//! Renews the leases of all re-entrant locks of one client, in batches, and tells holders when they can no longer be
//! sure.
//!
//! One task runs while anything is held. At every third of the lease it renews all locks, in as many calls as needed.
//! So no lock is first renewed later than a third of its lease after it was taken. Whatever Redis does, the task also
//! watches the local monotonic clock: each lease counts from before its last successful renewal was sent. When that
//! time is over, or a renewal says that a lock is no longer the holder's, the task cancels the holder's token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::layout::{Holder, Layout};
use super::names::Names;
use super::settings::Settings;
use crate::connection::{Server, answer_within};
use crate::tasks::Tasks;

/// Locks that one holder has taken together, and loses together.
pub(super) struct Hold {
    pub(super) names: Arc<Names>,
    pub(super) holder: Holder,
    /// Cancelled when the holder can no longer be sure.
    pub(super) lost: CancellationToken,
    sure_until: Mutex<Instant>,
}

/// Everything that a client holds.
#[derive(Clone)]
pub(super) struct Renewals(Arc<Shared>);

struct Shared {
    server: Server,
    layout: Arc<Layout>,
    settings: Settings,
    tasks: Tasks,
    held: Mutex<Held>,
    /// Notified when the clock has to be checked earlier than planned.
    sooner: Notify,
    /// Notified when nothing is held any more.
    emptied: Notify,
}

#[derive(Default)]
struct Held {
    /// Holds, with their numbers of entries, by holder and first name. That key is unique, because each hold with
    /// several names has its own holder.
    holds: HashMap<(Arc<str>, String), (Arc<Hold>, usize)>,
    is_watched: bool,
    /// When the clock is checked next.
    looked_at: Option<Instant>,
}

impl Hold {
    /// When the holder stops being sure, unless its token is cancelled earlier.
    pub(super) fn sure_until(&self) -> Instant {
        *self.time()
    }

    fn time(&self) -> MutexGuard<'_, Instant> {
        self.sure_until.lock().expect("no holder panics")
    }

    /// All leases of a holder have the same length, so the lease that was sent last ends last.
    fn extend(&self, sure_until: Instant) {
        let mut time = self.time();
        *time = sure_until.max(*time);
    }

    fn key(&self) -> (Arc<str>, String) {
        (self.holder.id.clone(), self.names[0].to_owned())
    }

    /// Holds with equal values may be renewed by one call.
    fn renewed_with(&self) -> (bool, &str) {
        (self.holder.is_volatile, hash_tag(&self.names[0]))
    }
}

impl Renewals {
    pub(super) fn new(
        server: Server,
        layout: Arc<Layout>,
        settings: Settings,
        tasks: Tasks,
    ) -> Self {
        Self(Arc::new(Shared {
            server,
            layout,
            settings,
            tasks,
            held: Mutex::default(),
            sooner: Notify::new(),
            emptied: Notify::new(),
        }))
    }

    /// Records an entry of `holder`, the first or a further one. `names` must not be empty.
    pub(super) fn enter(
        &self,
        names: Arc<Names>,
        holder: &Holder,
        sure_until: Instant,
    ) -> Arc<Hold> {
        let mut held = self.0.held();
        let key = (holder.id.clone(), names[0].to_owned());
        let (hold, times) = held.holds.entry(key).or_insert_with(|| {
            let hold = Hold {
                names,
                holder: holder.clone(),
                lost: CancellationToken::new(),
                sure_until: Mutex::new(sure_until),
            };
            (Arc::new(hold), 0)
        });
        *times += 1;
        hold.extend(sure_until);
        let hold = hold.clone();
        if held.looked_at.is_none_or(|at| sure_until < at) {
            self.0.sooner.notify_one();
        }
        if !std::mem::replace(&mut held.is_watched, true) {
            let shared = self.0.clone();
            self.0.tasks.spawn(async move { shared.watch().await });
        }
        hold
    }

    /// Records that the holder has left once. False if it had lost the locks before.
    pub(super) fn leave(&self, hold: &Arc<Hold>) -> bool {
        let mut held = self.0.held();
        let key = hold.key();
        let Some((found, times)) = held.holds.get_mut(&key) else { return false };
        if !Arc::ptr_eq(found, hold) {
            return false;
        }
        *times -= 1;
        if *times == 0 {
            held.holds.remove(&key);
        }
        if held.holds.is_empty() {
            self.0.emptied.notify_one();
        }
        true
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no holder panics")
    }

    async fn watch(&self) {
        tokio::select! {
            () = self.renew_in_time() => {}
            () = self.tell_in_time() => {}
            () = self.stopped_and_empty() => {}
        }
    }

    /// Returns when nothing is held. The next entry starts the task again.
    async fn renew_in_time(&self) {
        let period = self.settings.lease / 3;
        let mut next = Instant::now() + period;
        loop {
            sleep_until(next).await;
            if self.ends() {
                return;
            }
            let asked_at = Instant::now();
            self.renew_all(asked_at).await;
            next = asked_at + period;
        }
    }

    fn ends(&self) -> bool {
        let mut held = self.held();
        held.is_watched = !held.holds.is_empty();
        !held.is_watched
    }

    async fn renew_all(&self, asked_at: Instant) {
        let batches = self.batches();
        let asked = batches.into_iter().map(|batch| {
            let server = self.server.clone();
            let layout = self.layout.clone();
            let Settings { lease, renewal_timeout, .. } = self.settings;
            self.tasks.spawn(async move {
                let renewed = renew(&server, &layout, lease, &batch);
                let answers = answer_within(renewal_timeout, renewed).await;
                (batch, answers)
            })
        });
        // All calls are under way before the first is awaited.
        for asked in asked.collect::<Vec<_>>() {
            let Ok((batch, answers)) = asked.await else { continue };
            match answers {
                Ok(answers) => self.apply(&batch, &answers, asked_at),
                // There may be time for another try; if not, the clock ends the hold.
                Err(error) => {
                    tracing::debug!(%error, "leases could not be renewed");
                }
            }
        }
    }

    /// Holds to be renewed, in batches of one slot each. Locks without a hash tag are assumed to share a slot, because
    /// a client speaks to one server. In-memory locks are renewed separately.
    fn batches(&self) -> Vec<Vec<Arc<Hold>>> {
        let mut holds: Vec<Arc<Hold>> = {
            let held = self.held();
            let renewed = held.holds.values().filter(|(hold, _)| hold.holder.is_renewed);
            renewed.map(|(hold, _)| hold.clone()).collect()
        };
        holds.sort_by(|a, b| a.renewed_with().cmp(&b.renewed_with()));
        let mut batches = Vec::new();
        for together in holds.chunk_by(|a, b| a.renewed_with() == b.renewed_with()) {
            let mut locks = usize::MAX;
            for hold in together {
                locks = locks.saturating_add(hold.names.len());
                if locks > self.settings.renewal_locks_max {
                    batches.push(Vec::new());
                    locks = hold.names.len();
                }
                batches.last_mut().expect("the first hold has opened one").push(hold.clone());
            }
        }
        batches
    }

    fn apply(&self, batch: &[Arc<Hold>], answers: &[bool], asked_at: Instant) {
        let mut answers = answers.iter().copied();
        for hold in batch {
            let ours: Vec<bool> = answers.by_ref().take(hold.names.len()).collect();
            if ours.len() == hold.names.len() && ours.iter().all(|ours| *ours) {
                hold.extend(asked_at + self.settings.lease);
            } else {
                self.lose(hold);
            }
        }
    }

    /// A hold that was released during its renewal is no longer in the map, and keeps its token.
    fn lose(&self, hold: &Arc<Hold>) {
        let mut held = self.held();
        let key = hold.key();
        if held.holds.get(&key).is_some_and(|(found, _)| Arc::ptr_eq(found, hold)) {
            held.holds.remove(&key);
            hold.lost.cancel();
        }
        if held.holds.is_empty() {
            self.emptied.notify_one();
        }
    }

    async fn tell_in_time(&self) {
        loop {
            let now = Instant::now();
            for hold in self.over(now) {
                self.lose(&hold);
            }
            let next = self.plan();
            tokio::select! {
                () = self.sooner.notified() => {}
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }

    fn over(&self, now: Instant) -> Vec<Arc<Hold>> {
        let held = self.held();
        let over = held.holds.values().filter(|(hold, _)| hold.sure_until() <= now);
        over.map(|(hold, _)| hold.clone()).collect()
    }

    fn plan(&self) -> Option<Instant> {
        let mut held = self.held();
        held.looked_at = held.holds.values().map(|(hold, _)| hold.sure_until()).min();
        held.looked_at
    }

    /// When the program stops, ends the task as soon as nothing is held, instead of at the next renewal.
    async fn stopped_and_empty(&self) {
        self.tasks.stop_token().cancelled().await;
        while !self.ends() {
            self.emptied.notified().await;
        }
    }
}

async fn renew(
    server: &Server,
    layout: &Layout,
    lease: Duration,
    batch: &[Arc<Hold>],
) -> RedisResult<Vec<bool>> {
    let mut locks: Vec<(&str, &Holder)> = Vec::new();
    for hold in batch {
        locks.extend(hold.names.iter().map(|name| (name, &hold.holder)));
    }
    layout.renew(server, lease, &locks).await
}

/// The part of a key in its first braces, which decides its slot; empty without braces.
fn hash_tag(name: &str) -> &str {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.map_or("", |(tag, _)| tag)
}

#[cfg(test)]
mod tests {
    use private_servers::testing::{Bounded, bound_this_test};
    use tokio::time::timeout;

    use super::*;
    use crate::connection::tests::Dialled;

    const LEASE: Duration = Duration::from_secs(3);

    /// Renewals that always fail.
    fn renewals(tasks: &Tasks) -> Renewals {
        let settings = Settings { lease: LEASE, ..Settings::default() };
        let server = Server::new(Dialled::nowhere());
        Renewals::new(server, Arc::new(Layout::new()), settings, tasks.clone())
    }

    fn holder(number: u64, is_renewed: bool) -> Holder {
        Holder::new("test", number, LEASE, is_renewed)
    }

    fn named(name: &str) -> Arc<Names> {
        Arc::new(Names::from(vec![name]))
    }

    fn enter(renewals: &Renewals, name: &str, holder: &Holder) -> Arc<Hold> {
        renewals.enter(named(name), holder, Instant::now() + LEASE)
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_the_holder_is_told_when_the_lease_ends() {
        bound_this_test();
        let renewals = renewals(&Tasks::default());
        let start = Instant::now();
        let first = holder(1, true);
        let second = holder(2, false);
        let hold = enter(&renewals, "a", &first);
        tokio::time::sleep(LEASE / 2).await;
        let later = enter(&renewals, "a", &second);
        hold.lost.cancelled().bounded().await;
        assert_eq!(start.elapsed(), LEASE);
        assert!(!later.lost.is_cancelled());
        later.lost.cancelled().bounded().await;
        assert_eq!(start.elapsed(), LEASE + LEASE / 2);
        assert!(!renewals.leave(&hold), "it had been lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_lease_is_noticed_in_time() {
        bound_this_test();
        let renewals = renewals(&Tasks::default());
        let start = Instant::now();
        let _long = enter(&renewals, "a", &holder(1, true));
        tokio::task::yield_now().await;
        let soon = start + LEASE / 10;
        let short = renewals.enter(named("b"), &holder(2, false), soon);
        short.lost.cancelled().bounded().await;
        assert_eq!(start.elapsed(), LEASE / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn two_entries_take_two_exits() {
        bound_this_test();
        let renewals = renewals(&Tasks::default());
        let one = holder(1, true);
        let outer = enter(&renewals, "a", &one);
        let inner = enter(&renewals, "a", &one);
        assert!(Arc::ptr_eq(&outer, &inner));
        assert!(renewals.leave(&inner));
        assert!(!outer.lost.is_cancelled());
        assert!(renewals.leave(&outer));
        assert!(!renewals.leave(&outer));
        tokio::time::sleep(2 * LEASE).await;
        assert!(!outer.lost.is_cancelled(), "a released hold is watched no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_what_is_held_and_for_no_renewal() {
        bound_this_test();
        let stop = CancellationToken::new();
        let tasks = Tasks::new(stop.clone());
        let renewals = renewals(&tasks);
        let hold = enter(&renewals, "a", &holder(1, true));
        stop.cancel();
        assert!(timeout(LEASE / 10, tasks.ended()).await.is_err(), "it is still held");
        assert!(renewals.leave(&hold));
        assert!(timeout(Duration::from_millis(1), tasks.ended()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_nothing_ends_at_the_time_of_its_renewal() {
        bound_this_test();
        let tasks = Tasks::default();
        let renewals = renewals(&tasks);
        let start = Instant::now();
        for time in [1, 2] {
            let hold = enter(&renewals, "a", &holder(1, true));
            assert!(renewals.leave(&hold));
            assert!(timeout(LEASE, tasks.ended()).await.is_ok());
            // The same task would have watched another entry.
            assert_eq!(start.elapsed(), time * LEASE / 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lose_tells_a_stop_when_the_last_lock_is_lost() {
        bound_this_test();
        let stop = CancellationToken::new();
        let tasks = Tasks::new(stop.clone());
        let renewals = renewals(&tasks);
        let start = Instant::now();
        let holds = [(1, 10), (2, 5)].map(|(number, part)| {
            renewals.enter(named("a"), &holder(number, false), start + LEASE / part)
        });
        stop.cancel();
        tasks.ended().bounded().await;
        assert!(holds.iter().all(|hold| hold.lost.is_cancelled()));
        assert_eq!(start.elapsed(), LEASE / 5, "with the last lock, and before the next renewal");
    }

    #[tokio::test(start_paused = true)]
    async fn over_are_the_holds_whose_time_has_come_and_plan_looks_at_the_next() {
        bound_this_test();
        let renewals = renewals(&Tasks::default());
        let shared = &renewals.0;
        assert_eq!(shared.plan(), None);
        let now = Instant::now();
        let first = renewals.enter(named("a"), &holder(1, true), now + LEASE);
        let second = renewals.enter(named("b"), &holder(2, true), now + 2 * LEASE);
        let moment = Duration::from_nanos(1);
        for (at, over) in [
            (now, vec![]),
            (now + LEASE - moment, vec![]),
            (now + LEASE, vec!["a"]),
            (now + 2 * LEASE - moment, vec!["a"]),
            (now + 2 * LEASE, vec!["a", "b"]),
        ] {
            let found = shared.over(at);
            let mut names: Vec<&str> = found.iter().map(|hold| &hold.names[0]).collect();
            names.sort_unstable();
            assert_eq!(names, over);
        }
        assert_eq!(shared.plan(), Some(now + LEASE));
        assert_eq!(shared.held().looked_at, Some(now + LEASE));
        assert!(renewals.leave(&first));
        assert_eq!(shared.plan(), Some(now + 2 * LEASE));
        assert!(renewals.leave(&second));
        assert_eq!((shared.plan(), shared.held().looked_at), (None, None));
    }

    #[test]
    fn a_batch_stays_in_its_slot_and_in_memory() {
        let renewals = renewals(&Tasks::default());
        let names = ["x:{1}:a", "x:{2}:b", "c", "x:{1}:d", "e", "x:{1}:f"];
        for (number, name) in (0_u64..).zip(names) {
            let hold = Hold {
                names: named(name),
                holder: holder(number, true).keep_volatile(name == "x:{1}:f"),
                lost: CancellationToken::new(),
                sure_until: Mutex::new(Instant::now()),
            };
            renewals.0.held().holds.insert(hold.key(), (Arc::new(hold), 1));
        }
        let mut tags: Vec<Vec<&str>> = Vec::new();
        let batches = renewals.0.batches();
        for batch in &batches {
            tags.push(batch.iter().map(|hold| hash_tag(&hold.names[0])).collect());
        }
        assert_eq!(tags, [vec!["", ""], vec!["1", "1"], vec!["2"], vec!["1"]]);
        assert!(batches[3][0].holder.is_volatile, "locks in memory only are renewed apart");
    }

    /// Enters a hold of this many locks, as if they had been taken.
    fn put(renewals: &Renewals, number: u64, locks: usize, is_renewed: bool) -> Arc<Hold> {
        let names: Names = (0..locks).map(|lock| format!("{number}-{lock}")).collect();
        let hold = Arc::new(Hold {
            names: Arc::new(names),
            holder: holder(number, is_renewed),
            lost: CancellationToken::new(),
            sure_until: Mutex::new(Instant::now()),
        });
        renewals.0.held().holds.insert(hold.key(), (hold.clone(), 1));
        hold
    }

    #[tokio::test(start_paused = true)]
    async fn batches_have_no_more_locks_than_a_call_may_renew() {
        bound_this_test();
        for (holds, sizes) in [
            (vec![1, 1], vec![2]),
            (vec![1, 1, 1], vec![3]),
            (vec![1, 1, 1, 1], vec![1, 3]),
            (vec![1, 1, 1, 1, 1, 1, 1], vec![1, 3, 3]),
            (vec![2, 2], vec![2, 2]),
            // More than a call may renew, but of one hold.
            (vec![5], vec![5]),
            (vec![5, 1], vec![1, 5]),
            (vec![], vec![]),
        ] {
            let settings = Settings { renewal_locks_max: 3, ..Settings::default() };
            let server = Server::new(Dialled::nowhere());
            let layout = Arc::new(Layout::new());
            let renewals = Renewals::new(server, layout, settings, Tasks::default());
            for (number, locks) in (0_u64..).zip(holds) {
                put(&renewals, number, locks, true);
            }
            put(&renewals, 100, 1, false);
            let mut found: Vec<usize> = Vec::new();
            for batch in renewals.0.batches() {
                found.push(batch.iter().map(|hold| hold.names.len()).sum());
            }
            found.sort_unstable();
            assert_eq!(found, sizes);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn apply_extends_what_is_still_held_and_loses_what_is_not() {
        bound_this_test();
        for (answers, are_held) in [
            (vec![true, true, true, true], [true, true, true]),
            (vec![true, false, true, true], [true, false, true]),
            (vec![true, true, false, true], [true, false, true]),
            (vec![true, false, false, true], [true, false, true]),
            (vec![false, true, true, false], [false, true, false]),
            // Some answers are missing.
            (vec![true, true], [true, false, false]),
            (vec![], [false, false, false]),
        ] {
            let renewals = renewals(&Tasks::default());
            let holds = [1, 2, 1].into_iter().zip(1_u64..);
            let holds: Vec<Arc<Hold>> =
                holds.map(|(locks, number)| put(&renewals, number, locks, true)).collect();
            let asked_at = Instant::now() + LEASE;
            renewals.0.apply(&holds, &answers, asked_at);
            for (hold, is_held) in holds.iter().zip(are_held) {
                assert_eq!(hold.lost.is_cancelled(), !is_held, "{answers:?}");
                let sure = if is_held { asked_at + LEASE } else { Instant::now() };
                assert_eq!(hold.sure_until(), sure, "{answers:?}");
                assert_eq!(renewals.leave(hold), is_held, "{answers:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_was_lost_does_not_touch_the_next_one_of_its_holder() {
        bound_this_test();
        let renewals = renewals(&Tasks::default());
        let one = holder(1, true);
        let lost = enter(&renewals, "a", &one);
        renewals.0.lose(&lost);
        assert!(lost.lost.is_cancelled());
        let next = enter(&renewals, "a", &one);
        assert!(!Arc::ptr_eq(&lost, &next));
        assert!(!renewals.leave(&lost));
        renewals.0.lose(&lost);
        assert!(!next.lost.is_cancelled());
        assert!(renewals.leave(&next));
        // Another name, or another holder.
        let other = enter(&renewals, "b", &one);
        let third = enter(&renewals, "b", &holder(2, true));
        assert!(renewals.leave(&other) && !renewals.leave(&other));
        assert!(renewals.leave(&third));
    }

    #[tokio::test(start_paused = true)]
    async fn another_entry_never_makes_a_lock_last_shorter() {
        bound_this_test();
        let renewals = renewals(&Tasks::default());
        let one = holder(1, true);
        let now = Instant::now();
        for (until, expected) in [(2, 2), (1, 2), (3, 3), (2, 3)] {
            let hold = renewals.enter(named("a"), &one, now + until * LEASE);
            assert_eq!(hold.sure_until(), now + expected * LEASE);
        }
    }

    #[test]
    fn the_hash_tag_is_what_stands_in_the_first_braces() {
        for (name, tag) in [("a", ""), ("{1}:a", "1"), ("x:{1}:{2}", "1"), ("{a", ""), ("a}", "")] {
            assert_eq!(hash_tag(name), tag, "{name}");
        }
    }
}
