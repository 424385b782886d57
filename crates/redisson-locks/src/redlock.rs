//! A lock on most of several independent Redis servers: Redlock, <https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>.
//!
//! # Model
//!
//! A client writes the same random value to the same key on all servers at once. Each server has a short time-out, so
//! one that hangs holds up no other. The client holds the lock if more than half of the servers said yes and there is
//! time left. The *validity* is the lease, minus the time that asking took, minus the possible drift between the
//! servers' clocks. If there was no majority, or the validity isn't enough for the work, the client releases the lock
//! on **all** servers, even those that didn't answer, and retries after a random pause.
//!
//! # Authority
//!
//! The majority. A server counts only if it has been up for a whole lease; otherwise it may have forgotten a lock that
//! it granted before a restart. Time is measured by the local monotonic clock, and a server's uptime by its own clock.
//!
//! The client asks for the uptime by INFO, in one round trip with the SET and over the same connection, so that both
//! replies come from the same run of the server. A `MultiplexedConnection` never reconnects: it leads to one run, so
//! the client asks only until the server counts. Any other connection, such as `ConnectionManager`, may silently
//! reconnect, so the client asks at each try.
//!
//! # Effect of each failure
//!
//! * A minority is down or hangs: none. Each try takes the time-out at most.
//! * A majority is down: no client gets the lock. A lock never lasts *longer* than its validity.
//! * A server restarts empty: it sits out for a lease, so the locks that it granted before have expired by then.
//! * A renewal finds no majority: nothing is released. The renewal is retried until the validity has run out, and then
//!   the guard's token is cancelled.
//! * A `MultiplexedConnection` ends: its server is down for this client from then on. `ConnectionManager` comes back.
//!
//! # What is not promised
//!
//! A *paused* holder may wrongly believe that it is alone, because time can pass between the check of the validity and
//! the work. A majority doesn't help there. Only a fencing token at the resource does, and Redlock has none, because
//! the servers share no counter. All clients of a lock have to use the same lease. A server whose clock is set forward
//! while it restarts counts too early.

use std::any::TypeId;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, InfoDict, RedisError, RedisResult};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::connection::{Connection, Server, answer_within, interrupted};
use super::owner::{self, Scripts};
use super::tasks::Tasks;
use super::watchdog::{self, Watched};

/// Times and counts of Redlock. All clients of a lock have to use the same lease.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time for which a lock outlives a holder that died. It is renewed at a third of this. Default: 10 s.
    pub lease: Duration,
    /// Time for each server to answer; short compared with the lease. Default: 50 ms.
    pub node_timeout: Duration,
    /// Renewals of a lock. After that it runs out, even if its holder never ends. Default: 1,000.
    pub renewals_max: u32,
    /// Upper bound of the random pause between two tries. Default: 200 ms.
    pub retry_pause_max: Duration,
}

/// Client of locks on several servers. Clones are the same client.
#[derive(Clone)]
pub struct Redlock(Arc<Shared>);

struct Shared {
    nodes: Vec<Node>,
    scripts: Scripts,
    settings: Settings,
    tasks: Tasks,
}

struct Node {
    server: Server,
    /// Whether the connection leads to only one run of the server: it ends with that run, and never reconnects.
    has_one_life: bool,
    /// When the server begins to count, if the connection leads to one run.
    counts_from: OnceLock<Instant>,
}

/// A lock that a majority has granted, until [`release`](Self::release) or until the guard is dropped.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    redlock: Redlock,
    key: String,
    owner: String,
    watched: Watched,
    is_released: bool,
}

/// What each server is asked.
#[derive(Clone, Copy)]
enum Question {
    Acquire,
    Renew,
    Release,
}

/// Servers by their answer. The others didn't answer in time, or don't count yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Votes {
    yes: usize,
    no: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            node_timeout: Duration::from_millis(50),
            renewals_max: 1_000,
            retry_pause_max: Duration::from_millis(200),
        }
    }
}

impl Redlock {
    /// Locks on these servers, which must be independent: neither replicas nor nodes of one cluster. Takes one
    /// connection to each; `ConnectionManager::new_lazy_with_config` makes connections to servers that may be down at
    /// first.
    pub fn new<C: Connection>(connections: Vec<C>, settings: Settings, tasks: Tasks) -> Self {
        let nodes = connections.into_iter().map(Node::new).collect();
        Self(Arc::new(Shared { nodes, scripts: Scripts::new(), settings, tasks }))
    }

    /// Tries once to take the lock. The guard is valid for at least `needed`, the time for the work. `None` if less
    /// would be left, or without a majority.
    ///
    /// # Errors
    ///
    /// When the runtime is being shut down. A server that doesn't answer just has no vote.
    pub async fn try_acquire(&self, key: &str, needed: Duration) -> RedisResult<Option<Guard>> {
        let redlock = self.clone();
        let key = key.to_owned();
        // In a task, so that a caller that goes away leaves no lock without a guard behind.
        let attempt = async move { redlock.attempt(key, needed).await };
        self.0.tasks.spawn(attempt).await.map_err(|_| interrupted())
    }

    /// Takes the lock. Retries with random pauses for up to `patience`. `None` if no try succeeded.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire(
        &self,
        key: &str,
        needed: Duration,
        patience: Duration,
    ) -> RedisResult<Option<Guard>> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(guard) = self.try_acquire(key, needed).await? {
                return Ok(Some(guard));
            }
            let pause = random_up_to(self.0.settings.retry_pause_max);
            if Instant::now() + pause > deadline {
                return Ok(None);
            }
            sleep(pause).await;
        }
    }

    async fn attempt(&self, key: String, needed: Duration) -> Option<Guard> {
        let owner = Uuid::new_v4().simple().to_string();
        // Measured for each try: counted from the first try, the lock of a later one would begin expired.
        let began = Instant::now();
        let votes = self.ask(Question::Acquire, &key, &owner).await;
        let valid_until = began + self.trusted_lease();
        if !self.is_majority(votes.yes) || Instant::now() + needed >= valid_until {
            self.ask(Question::Release, &key, &owner).await;
            return None;
        }
        Some(self.guard(key, owner, valid_until))
    }

    fn guard(&self, key: String, owner: String, valid_until: Instant) -> Guard {
        let watched = Watched::new(valid_until);
        let renewals_left = Arc::new(Mutex::new(self.0.settings.renewals_max));
        let renew = {
            let redlock = self.clone();
            let key = key.clone();
            let owner = owner.clone();
            move || {
                let redlock = redlock.clone();
                let key = key.clone();
                let owner = owner.clone();
                let renewals_left = renewals_left.clone();
                async move {
                    if !take_one(&renewals_left) {
                        return Err(RedisError::from((ErrorKind::Client, "renewed often enough")));
                    }
                    redlock.renew(&key, &owner).await
                }
            }
        };
        let watch = watchdog::watch(self.trusted_lease(), renew, watched.clone());
        self.0.tasks.spawn(watch);
        Guard { redlock: self.clone(), key, owner, watched, is_released: false }
    }

    /// Whether the lock is still the owner's, if a majority agrees on that.
    async fn renew(&self, key: &str, owner: &str) -> RedisResult<bool> {
        let votes = self.ask(Question::Renew, key, owner).await;
        if self.is_majority(votes.yes) {
            return Ok(true);
        }
        if self.is_majority(votes.no) {
            return Ok(false);
        }
        Err(RedisError::from((ErrorKind::Io, "no majority of the servers answered")))
    }

    /// The lease, minus the drift of the servers' clocks: 1 %, and 2 ms for short leases.
    fn trusted_lease(&self) -> Duration {
        let lease = self.0.settings.lease;
        lease.saturating_sub(lease / 100 + Duration::from_millis(2))
    }

    fn is_majority(&self, votes: usize) -> bool {
        votes > self.0.nodes.len() / 2
    }

    /// Asks all servers at the same time.
    async fn ask(&self, question: Question, key: &str, owner: &str) -> Votes {
        let ask = |number| -> JoinHandle<RedisResult<bool>> {
            let shared = self.0.clone();
            let key = key.to_owned();
            let owner = owner.to_owned();
            self.0.tasks.spawn(async move {
                let asked = shared.ask_node(&shared.nodes[number], question, &key, &owner);
                answer_within(shared.settings.node_timeout, asked).await
            })
        };
        let asked: Vec<_> = (0..self.0.nodes.len()).map(ask).collect();
        let mut votes = Votes::default();
        for answer in asked {
            match answer.await {
                Ok(Ok(true)) => votes.yes += 1,
                Ok(Ok(false)) => votes.no += 1,
                Ok(Err(_)) | Err(_) => {}
            }
        }
        votes
    }
}

impl Shared {
    async fn ask_node(
        &self,
        node: &Node,
        question: Question,
        key: &str,
        owner: &str,
    ) -> RedisResult<bool> {
        let server = &node.server;
        let scripts = &self.scripts;
        let lease = self.settings.lease;
        match question {
            Question::Acquire => node.acquire(key, owner, lease).await,
            Question::Renew => scripts.renew(server, key, owner, lease).await,
            Question::Release => scripts.release(server, key, owner).await,
        }
    }
}

impl Node {
    fn new<C: Connection>(connection: C) -> Self {
        let has_one_life = TypeId::of::<C>() == TypeId::of::<MultiplexedConnection>();
        Self { server: Server::new(connection), has_one_life, counts_from: OnceLock::new() }
    }

    /// True if the owner has taken the key.
    ///
    /// # Errors
    ///
    /// Also when the server doesn't count yet. The owner may have the key then; the end of the try or of the guard
    /// releases it.
    async fn acquire(&self, key: &str, owner: &str, lease: Duration) -> RedisResult<bool> {
        let set = owner::set(key, owner, lease);
        if self.counts_from.get().is_some_and(|from| Instant::now() >= *from) {
            let reply: Option<String> = self.server.query(&set).await?;
            return Ok(reply.is_some());
        }
        let mut both = redis::pipe();
        both.cmd("INFO").arg("server").add_command(set);
        let (info, reply): (InfoDict, Option<String>) = self.server.query_all(&both).await?;
        let to_sit_out = lease.saturating_sub(time_up(&info));
        if self.has_one_life {
            self.counts_from.get_or_init(|| Instant::now() + to_sit_out);
        }
        if to_sit_out > Duration::ZERO {
            return Err(RedisError::from((ErrorKind::Client, "not up for a lease yet")));
        }
        Ok(reply.is_some())
    }
}

/// Least time for which the server has been up. The server subtracts two times that are truncated to seconds, so its
/// answer may be too large by almost a second.
fn time_up(info: &InfoDict) -> Duration {
    let seconds: u64 = info.get("uptime_in_seconds").unwrap_or(0);
    Duration::from_secs(seconds.saturating_sub(1))
}

impl Guard {
    /// Cancelled when the validity has run out, or when a majority says that the lock is no longer the holder's.
    pub fn lost(&self) -> &CancellationToken {
        &self.watched.lost
    }

    /// End of the validity. Renewals extend it.
    pub fn valid_until(&self) -> Instant {
        self.watched.sure_until()
    }

    /// Releases the lock on all servers. True if a majority still had it.
    pub async fn release(mut self) -> bool {
        self.watched.released.cancel();
        self.is_released = true;
        let votes = self.redlock.ask(Question::Release, &self.key, &self.owner).await;
        self.redlock.is_majority(votes.yes)
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Redlock");
        debug.field("servers", &self.0.nodes.len()).field("settings", &self.0.settings).finish()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        debug.field("key", &self.key).field("valid_until", &self.valid_until()).finish()
    }
}

impl Drop for Guard {
    /// Releases the lock in a task, and doesn't wait for it.
    fn drop(&mut self) {
        self.watched.released.cancel();
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let key = std::mem::take(&mut self.key);
        let owner = std::mem::take(&mut self.owner);
        let redlock = self.redlock.clone();
        self.redlock.0.tasks.spawn(async move {
            redlock.ask(Question::Release, &key, &owner).await;
        });
    }
}

fn take_one(left: &Mutex<u32>) -> bool {
    let mut left = left.lock().expect("no holder panics");
    let taken = left.checked_sub(1);
    *left = taken.unwrap_or(0);
    taken.is_some()
}

fn random_up_to(max: Duration) -> Duration {
    // 32 random bits. Nothing here has to be unpredictable.
    let random = Uuid::new_v4().as_u128() as u32;
    max.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use private_servers::testing::{Bounded, bound_this_test};
    use redis::Value;

    use super::*;
    use crate::connection::tests::{Played, away};

    const LEASE: Duration = Duration::from_secs(10);

    /// A client of servers that answer like these.
    fn redlock(servers: &[Played]) -> Redlock {
        let retry_pause_max = Duration::from_millis(20);
        let settings = Settings { lease: LEASE, retry_pause_max, ..Settings::default() };
        Redlock::new(servers.to_vec(), settings, Tasks::default())
    }

    fn of_size(nodes: usize) -> Redlock {
        redlock(&vec![no(); nodes])
    }

    fn info(uptime: &str) -> Value {
        Value::BulkString(format!("# Server\r\nuptime_in_seconds:{uptime}\r\n").into_bytes())
    }

    /// A server that has been up for this many seconds, and says yes to everything.
    fn yes_after(uptime: &'static str) -> Played {
        Played::new(move |command| {
            Ok(if command.starts_with("INFO") { info(uptime) } else { Value::Okay })
        })
    }

    fn yes() -> Played {
        yes_after("100")
    }

    /// A server that says no.
    fn no() -> Played {
        Played::new(|command| {
            Ok(match command.split(' ').next() {
                Some("INFO") => info("100"),
                Some("SET") => Value::Nil,
                _ => Value::Int(0),
            })
        })
    }

    /// A server that grants a lock, and later says that another owner has it.
    fn forgetful() -> Played {
        Played::new(|command| {
            Ok(match command.split(' ').next() {
                Some("INFO") => info("100"),
                Some("SET") => Value::Okay,
                _ => Value::Int(0),
            })
        })
    }

    /// A server that grants a lock, and is down afterwards.
    fn leaving() -> Played {
        Played::new(|command| match command.split(' ').next() {
            Some("INFO") => Ok(info("100")),
            Some("SET") => Ok(Value::Okay),
            _ => away(),
        })
    }

    /// Lets all tasks that are ready run.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_majority_is_more_than_half() {
        for (nodes, votes, is_majority) in
            [(1, 0, false), (1, 1, true), (4, 2, false), (4, 3, true), (5, 2, false), (5, 3, true)]
        {
            assert_eq!(of_size(nodes).is_majority(votes), is_majority, "{votes} of {nodes}");
        }
    }

    #[test]
    fn the_trusted_lease_is_the_lease_less_the_drift() {
        for (lease_ms, trusted_ms) in [(10_000, 9_898), (300, 295), (100, 97), (2, 0), (1, 0)] {
            let settings =
                Settings { lease: Duration::from_millis(lease_ms), ..Settings::default() };
            let redlock = Redlock::new(vec![no()], settings, Tasks::default());
            assert_eq!(redlock.trusted_lease(), Duration::from_millis(trusted_ms), "{lease_ms}");
        }
    }

    #[test]
    fn take_one_takes_no_more_than_there_are() {
        let left = Mutex::new(2);
        let taken: Vec<(bool, u32)> =
            (0..4).map(|_| (take_one(&left), *left.lock().unwrap())).collect();
        assert_eq!(taken, [(true, 1), (true, 0), (false, 0), (false, 0)]);
    }

    #[test]
    fn time_up_is_a_second_less_than_the_server_says() {
        for (info, seconds) in [
            ("uptime_in_seconds:5\r\n", 4),
            ("uptime_in_seconds:1\r\n", 0),
            ("uptime_in_seconds:0\r\n", 0),
            ("other:5\r\n", 0),
        ] {
            assert_eq!(time_up(&InfoDict::new(info)), Duration::from_secs(seconds), "{info}");
        }
    }

    #[test]
    fn random_pauses_lie_between_nothing_and_the_bound() {
        let max = Duration::from_secs(100);
        let pauses: Vec<Duration> = (0..64).map(|_| random_up_to(max)).collect();
        assert!(pauses.iter().all(|pause| *pause <= max), "{pauses:?}");
        let [least, most] = [pauses.iter().min().unwrap(), pauses.iter().max().unwrap()];
        assert!(*least < max / 2 && *most > max / 2, "{pauses:?}");
        assert_eq!(random_up_to(Duration::ZERO), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_needs_the_votes_of_a_majority() {
        bound_this_test();
        let gone = || Played::new(|_| away());
        for (servers, is_taken) in [
            (vec![yes(), yes(), yes(), no(), no()], true),
            (vec![yes(), yes(), no(), no(), no()], false),
            (vec![yes(), yes(), yes(), gone(), gone()], true),
            (vec![yes(), yes(), gone(), gone(), gone()], false),
            (vec![yes(), yes(), no(), no()], false),
            (vec![yes()], true),
        ] {
            let guard = redlock(&servers).try_acquire("a", Duration::ZERO).bounded().await.unwrap();
            assert_eq!(guard.is_some(), is_taken);
            // A lock without a majority is released everywhere.
            let is_release = |command: &String| command.starts_with("EVALSHA 1 a");
            let releases = servers.iter().filter(|server| server.asked().iter().any(is_release));
            assert_eq!(releases.count(), if is_taken { 0 } else { servers.len() });
            if let Some(guard) = guard {
                assert_eq!(guard.valid_until(), Instant::now() + Duration::from_millis(9_898));
                assert!(guard.release().bounded().await);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_whose_validity_is_too_short_for_the_work_is_not_taken() {
        bound_this_test();
        let locks = redlock(&[yes(), yes(), yes()]);
        for (needed_ms, is_taken) in [(9_897, true), (9_898, false), (9_899, false)] {
            let needed = Duration::from_millis(needed_ms);
            let guard = locks.try_acquire("a", needed).bounded().await.unwrap();
            assert_eq!(guard.is_some(), is_taken, "{needed_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_not_been_up_for_a_lease_has_no_vote() {
        bound_this_test();
        // The lease is 10 s, and the uptime may be a second too large.
        for (uptime, is_taken) in [("10", false), ("11", true), ("12", true), ("", false)] {
            let server = yes_after(uptime);
            let guard = redlock(std::slice::from_ref(&server))
                .try_acquire("a", Duration::ZERO)
                .bounded()
                .await
                .unwrap();
            assert_eq!(guard.is_some(), is_taken, "{uptime}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_may_reconnect_is_asked_for_its_life_at_each_try() {
        bound_this_test();
        let server = yes();
        let locks = redlock(std::slice::from_ref(&server));
        for _ in 0..2 {
            let guard = locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap();
            assert!(guard.expect("it is free").release().bounded().await);
            let asked = server.asked();
            assert_eq!(asked.len(), 3, "{asked:?}");
            assert_eq!(asked[0], "INFO server");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_asks_a_connection_with_one_life_until_its_server_counts() {
        bound_this_test();
        // Up for at least four seconds, so it sits out six of the lease's ten.
        let server = yes_after("5");
        let node = Node { has_one_life: true, ..Node::new(server.clone()) };
        let began = Instant::now();
        let mut found = Vec::new();
        for ms in [0, 1, 5_999, 6_000, 7_000] {
            tokio::time::sleep_until(began + Duration::from_millis(ms)).await;
            let is_taken =
                node.acquire("a", "me", LEASE).bounded().await.is_ok_and(|is_taken| is_taken);
            let asked: Vec<String> = server.asked();
            let verbs: Vec<&str> =
                asked.iter().filter_map(|command| command.split(' ').next()).collect();
            found.push((ms, verbs.join(" "), is_taken));
        }
        let expected = [
            (0, "INFO SET", false),
            (1, "INFO SET", false),
            (5_999, "INFO SET", false),
            (6_000, "SET", true),
            (7_000, "SET", true),
        ];
        assert_eq!(found, expected.map(|(ms, verbs, taken)| (ms, verbs.to_owned(), taken)));
    }

    #[tokio::test(start_paused = true)]
    async fn release_ends_the_renewals_before_its_answers_are_there() {
        bound_this_test();
        // The first renewal would come after 3.3 s.
        let server = yes().slow("EVALSHA", Duration::from_secs(5));
        let settings = Settings { lease: LEASE, node_timeout: 2 * LEASE, ..Settings::default() };
        let locks = Redlock::new(vec![server.clone()], settings, Tasks::default());
        let guard =
            locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("it is free");
        let release = format!("EVALSHA 1 a {}", guard.owner);
        server.asked();
        assert!(guard.release().bounded().await);
        assert_eq!(server.asked(), [release]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_tries_for_as_long_as_its_patience() {
        bound_this_test();
        let locks = redlock(&[no()]);
        let began = Instant::now();
        let patience = Duration::from_millis(100);
        assert!(locks.acquire("a", Duration::ZERO, patience).bounded().await.unwrap().is_none());
        // A pause takes 20 ms at most.
        let waited = began.elapsed();
        assert!((80..=101).contains(&waited.as_millis()), "{waited:?}");
        let free = redlock(&[yes()]);
        let guard = free.acquire("a", Duration::ZERO, Duration::ZERO).bounded().await.unwrap();
        assert!(guard.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_counts_the_votes() {
        bound_this_test();
        for (servers, lost_after_ms) in [
            // A majority has it: it is renewed until the renewals are used up, and then lasts one more lease.
            (vec![yes(), yes(), yes(), forgetful(), leaving()], None),
            // A majority says no, at the first renewal.
            (vec![yes(), yes(), forgetful(), forgetful(), forgetful()], Some(9_898 / 3)),
            // No majority for either answer: the validity runs out.
            (vec![yes(), yes(), forgetful(), forgetful(), leaving()], Some(9_898)),
        ] {
            let guard = redlock(&servers).try_acquire("a", Duration::ZERO).bounded().await.unwrap();
            let guard = guard.expect("all have granted it");
            let began = Instant::now();
            let told = tokio::time::timeout(5 * LEASE, guard.lost().cancelled()).await;
            assert_eq!(told.is_ok(), lost_after_ms.is_some());
            if let Some(ms) = lost_after_ms {
                let after = began.elapsed().as_millis();
                assert!((ms..=ms + 2).contains(&after), "{after} and not {ms}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_renewed_no_more_often_than_is_allowed() {
        bound_this_test();
        let settings = Settings { lease: LEASE, renewals_max: 2, ..Settings::default() };
        let locks = Redlock::new(vec![yes()], settings, Tasks::default());
        let guard =
            locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("it is free");
        let began = Instant::now();
        let told = tokio::time::timeout(10 * LEASE, guard.lost().cancelled()).await;
        told.expect("it is left to run out");
        // Renewed at one and two thirds of the lease; the validity counts from the second.
        let after = began.elapsed().as_millis();
        let expected = 9_898 * 2 / 3 + 9_898;
        assert!((expected - 2..=expected + 4).contains(&after), "{after} and not {expected}");
    }

    #[tokio::test(start_paused = true)]
    async fn release_says_whether_a_majority_still_had_the_lock() {
        bound_this_test();
        for (servers, was_held) in [
            (vec![yes(), yes(), forgetful()], true),
            (vec![yes(), forgetful(), forgetful()], false),
            (vec![yes(), leaving(), leaving()], false),
        ] {
            let guard = redlock(&servers).try_acquire("a", Duration::ZERO).bounded().await.unwrap();
            assert_eq!(guard.expect("all have granted it").release().bounded().await, was_held);
            settle().await;
            let first = servers[0].asked();
            assert_eq!(first.len(), 3, "taken with INFO, and released once: {first:?}");
            sleep(3 * LEASE).await;
            assert!(servers[0].asked().is_empty(), "it is renewed no more");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_dropped_releases_once_and_is_renewed_no_more() {
        bound_this_test();
        let server = yes();
        let guard = redlock(std::slice::from_ref(&server))
            .try_acquire("a", Duration::ZERO)
            .bounded()
            .await
            .unwrap();
        server.asked();
        drop(guard.expect("it is free"));
        settle().await;
        assert_eq!(server.asked().len(), 1);
        sleep(3 * LEASE).await;
        assert!(server.asked().is_empty());
    }

    #[test]
    fn a_guard_may_be_dropped_outside_of_a_runtime() {
        let server = yes();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let locks = redlock(std::slice::from_ref(&server));
        let guard = runtime.block_on(locks.try_acquire("a", Duration::ZERO)).unwrap();
        server.asked();
        drop(guard.expect("it is free"));
        assert!(server.asked().is_empty(), "the lock runs out");
    }
}
