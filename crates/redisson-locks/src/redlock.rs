//! A lock on most of several independent Redis servers: Redlock, <https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>.
//!
//! # Model
//!
//! The same random value is written to the same key on all servers at once, each with a short time-out, so that a server
//! that hangs holds up no other. The lock is held if more than half of the servers said yes and there is time left: the
//! *validity* is the lease, less the time that asking took, less the drift that the servers' clocks may have among
//! themselves. If the validity isn't enough for the work, or there was no majority, the lock is released on **all**
//! servers, those included that didn't answer, and tried again after a random pause.
//!
//! # Authority
//!
//! The majority. A server counts only if it has been up for a whole lease, or it may have forgotten a promise that it made
//! before it was restarted. Time is measured by the local, monotonic clock; the time that a server has been up, by its own.
//!
//! A server is asked for that time by INFO, in one round trip with the SET and over the same connection, so that both
//! answers come from one life of the server. A `MultiplexedConnection` never reconnects: it leads to one life, and is
//! asked until the server counts, never again after that. Every other connection, `ConnectionManager` among them, may
//! reconnect without a word, so it is asked at each try.
//!
//! # Effect of each failure
//!
//! * A minority is down or hangs: none; each try takes the time-out at most.
//! * A majority is down: no client gets the lock. A lock never lasts *longer* than promised.
//! * A server restarts empty: it sits out for a lease, so its promises have run out before it makes new ones.
//! * A renewal finds no majority: nothing is released; the renewal is tried again until the validity has run out, and then
//!   the guard's token is cancelled.
//! * A `MultiplexedConnection` ends: its server is down for this client from then on. `ConnectionManager` comes back.
//!
//! # What is not promised
//!
//! That a *paused* holder is alone when it believes so: time can pass between a look at the validity and the work. A
//! majority doesn't help there; only a fencing token at the resource does, and Redlock has none, because five servers
//! share no counter. All clients of a lock have to use the same lease. A server whose clock is set forward while it
//! restarts counts too early.

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
    /// Time for which a lock outlives a holder that died; renewed at a third of it. Default: 10 s.
    pub lease: Duration,
    /// Time in which one server has to answer; short beside the lease. Default: 50 ms.
    pub node_timeout: Duration,
    /// Renewals of a lock before it is left to run out, which ends the lock of a holder that never ends. Default: 1,000.
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
    /// Whether the connection leads to one life of the server: it ends with that life, and never reconnects.
    has_one_life: bool,
    /// Moment from which the server counts, of a connection with one life.
    counts_from: OnceLock<Instant>,
}

/// A lock that a majority has granted, until [`release`](Self::release) or the end of the guard.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    redlock: Redlock,
    key: String,
    owner: String,
    watched: Watched,
    is_released: bool,
}

/// A question to every server.
#[derive(Clone, Copy)]
enum Question {
    Acquire,
    Renew,
    Release,
}

/// Servers by their answer; the others didn't answer in time, or don't count yet.
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
    /// Locks on these servers, which have to be independent of each other: not replicas, not nodes of one cluster. One
    /// connection to each; `ConnectionManager::new_lazy_with_config` makes some that may be down at first.
    pub fn new<C: Connection>(connections: Vec<C>, settings: Settings, tasks: Tasks) -> Self {
        let nodes = connections.into_iter().map(Node::new).collect();
        Self(Arc::new(Shared { nodes, scripts: Scripts::new(), settings, tasks }))
    }

    /// Tries once. The guard's validity is at least `needed`, the time for the work; `None` if less would be left, or there
    /// is no majority.
    ///
    /// # Errors
    ///
    /// When the runtime is being shut down. A server that doesn't answer has no vote.
    pub async fn try_acquire(&self, key: &str, needed: Duration) -> RedisResult<Option<Guard>> {
        let redlock = self.clone();
        let key = key.to_owned();
        // A task, so that a caller that goes away leaves no lock behind that has no guard.
        let attempt = async move { redlock.attempt(key, needed).await };
        self.0.tasks.spawn(attempt).await.map_err(|_| interrupted())
    }

    /// Takes the lock, and tries for up to `patience` with random pauses. `None` if no try succeeded.
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
        // Anew for each try: counted from the first one, the lock of a later try would be born expired.
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

    /// Whether the lock is still the owner's, if a majority agrees about that.
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

    /// The lease, less the drift of the servers' clocks: a hundredth, and 2 ms for short leases.
    fn trusted_lease(&self) -> Duration {
        let lease = self.0.settings.lease;
        lease.saturating_sub(lease / 100 + Duration::from_millis(2))
    }

    fn is_majority(&self, votes: usize) -> bool {
        votes > self.0.nodes.len() / 2
    }

    /// Asks all servers at once.
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

    /// True if the key is the owner's now.
    ///
    /// # Errors
    ///
    /// Also when the server doesn't count yet. The key may be the owner's then; the end of the try or the guard releases it.
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

/// Time for which a server has been up, at least. The server subtracts two moments that are cut to seconds, so its answer
/// may be too large by almost one.
fn time_up(info: &InfoDict) -> Duration {
    let seconds: u64 = info.get("uptime_in_seconds").unwrap_or(0);
    Duration::from_secs(seconds.saturating_sub(1))
}

impl Guard {
    /// Token that is cancelled when the validity has run out, or a majority says that the lock is no longer the holder's.
    pub fn lost(&self) -> &CancellationToken {
        &self.watched.lost
    }

    /// End of the validity; renewals move it.
    pub fn valid_until(&self) -> Instant {
        self.watched.sure_until()
    }

    /// Releases the lock on all servers; true if a majority still had it.
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
    /// Releases in a task; nothing is waited for here.
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
    // 32 random bits; nothing here has to be unpredictable.
    let random = Uuid::new_v4().as_u128() as u32;
    max.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
