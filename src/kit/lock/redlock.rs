//! A lock on most of several independent Redis servers: Redlock, <https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>.
//!
//! # Model
//!
//! The same random value is written to the same key on all servers at once, each with a short time-out, so that one that
//! hangs holds nobody up. The lock is held if more than half of them said yes and there is time left: the *validity* is
//! the lease, less the time that it took to ask, less the drift that the servers' clocks may have among themselves. If
//! that isn't enough for the work, or there was no majority, everything is given back on **all** servers, those included
//! that didn't answer, and tried again after a random pause.
//!
//! # Authority
//!
//! The majority. A server counts only if it has been up for a whole lease, or it may have forgotten what it had promised
//! before it was restarted. Time is measured by the local, monotonic clock.
//!
//! # What each failure does
//!
//! * A minority is down or hangs: nothing; each try takes the time-out at most.
//! * A majority is down: nobody gets the lock. It never runs out *later* than promised.
//! * A server restarts empty: it sits out for a lease, so its promises have run out before it makes new ones.
//! * A renewal finds no majority: nothing is given back; it is tried again until the validity has run out, and then the
//!   guard's token is cancelled.
//!
//! # What is not promised
//!
//! That nobody else is inside while a *paused* holder believes that it is alone: time can pass between looking at the
//! validity and acting on it. A majority doesn't help there; only a fencing token at the resource does, and Redlock has
//! none, because five servers share no counter. All who use a lock have to use the same lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{ErrorKind, InfoDict, RedisError, RedisResult};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::owner::Scripts;
use super::watchdog::{self, Watched};
use crate::base::shutdown::Shutdown;
use crate::kit::redis::{Redis, ServerId};

/// How Redlock asks.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a lock outlives its holder.
    pub lease: Duration,
    /// How long one server may take to answer; short beside the lease.
    pub node_timeout: Duration,
    /// How often a lock is renewed before it is left to run out: a holder that never ends is found out.
    pub renewals_max: u32,
    /// Upper bound of the random pause between two tries.
    pub retry_pause_max: Duration,
}

/// Takes locks on several servers.
#[derive(Clone)]
pub struct Redlock(Arc<Shared>);

struct Shared {
    nodes: Vec<Node>,
    scripts: Scripts,
    settings: Settings,
    shutdown: Shutdown,
}

struct Node {
    redis: Redis,
    /// The life of the server that answered last, and from when on it counts.
    life: Mutex<Option<(ServerId, Instant)>>,
}

/// A lock that a majority has granted, until [`release`](Self::release) or the end of the guard.
pub struct Guard {
    redlock: Redlock,
    key: String,
    owner: String,
    watched: Watched,
    is_released: bool,
}

/// What is asked of every server.
#[derive(Clone, Copy)]
enum Question {
    Acquire,
    Renew,
    Release,
}

/// How many servers said what; the rest didn't answer in time, or doesn't count yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Votes {
    yes: usize,
    no: usize,
}

impl Redlock {
    /// Locks on these servers, which have to be independent of each other: not replicas, not nodes of one cluster.
    /// Connects when somebody asks.
    pub fn new(nodes: Vec<Redis>, settings: Settings, shutdown: Shutdown) -> Self {
        let nodes = nodes.into_iter().map(|redis| Node { redis, life: Mutex::new(None) }).collect();
        Self(Arc::new(Shared { nodes, scripts: Scripts::new(), settings, shutdown }))
    }

    /// Tries once. The guard's validity is at least `needed`; less would not be enough for the work, so then there is
    /// none.
    ///
    /// # Errors
    ///
    /// When the runtime is being shut down. Servers that don't answer are a "no".
    pub async fn try_acquire(&self, key: &str, needed: Duration) -> RedisResult<Option<Guard>> {
        let (redlock, key) = (self.clone(), key.to_owned());
        // A task, so that a caller who goes away doesn't leave a lock behind that nobody knows of.
        let attempt = async move { redlock.attempt(key, needed).await };
        self.0.shutdown.spawn(attempt).await.map_err(|_| interrupted())
    }

    /// Takes the lock, trying up to `patience` with random pauses.
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
        // Anew for each try: counted from the first one, the lock of a later one would be born expired.
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
        let left = Arc::new(Mutex::new(self.0.settings.renewals_max));
        let renew = {
            let (redlock, key, owner) = (self.clone(), key.clone(), owner.clone());
            move || {
                let (redlock, key, owner) = (redlock.clone(), key.clone(), owner.clone());
                let left = left.clone();
                async move {
                    if !take_one(&left) {
                        return Err(RedisError::from((ErrorKind::Client, "renewed often enough")));
                    }
                    redlock.renew(&key, &owner).await
                }
            }
        };
        let watch = watchdog::watch(self.trusted_lease(), renew, watched.clone());
        self.0.shutdown.spawn(watch);
        Guard { redlock: self.clone(), key, owner, watched, is_released: false }
    }

    /// Whether the lock is still ours: true or false if a majority says so.
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

    /// The lease, less what the clocks of the servers may differ by: a hundredth, and 2 ms for short leases.
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
            let (shared, key, owner) = (self.0.clone(), key.to_owned(), owner.to_owned());
            self.0.shutdown.spawn(async move {
                let asked = shared.ask_node(&shared.nodes[number], question, &key, &owner);
                timeout(shared.settings.node_timeout, asked).await.unwrap_or(Err(interrupted()))
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
        let (redis, scripts, lease) = (&node.redis, &self.scripts, self.settings.lease);
        match question {
            Question::Acquire if !node.counts(lease).await? => Err(interrupted()),
            Question::Acquire => scripts.acquire(redis, key, owner, lease).await,
            Question::Renew => scripts.renew(redis, key, owner, lease).await,
            Question::Release => scripts.release(redis, key, owner).await,
        }
    }
}

impl Node {
    /// Whether the server has been up for a lease. Asked once for each of its lives.
    async fn counts(&self, lease: Duration) -> RedisResult<bool> {
        let link = self.redis.link().await?;
        let known = self.life.lock().expect("nobody panics with it in hand").clone();
        if let Some((_, counts_from)) = known.filter(|(server, _)| server == link.server()) {
            return Ok(Instant::now() >= counts_from);
        }
        let info: InfoDict = link.query(redis::cmd("INFO").arg("server")).await?;
        let up = Duration::from_secs(info.get("uptime_in_seconds").unwrap_or(0));
        let counts_from = Instant::now() + lease.saturating_sub(up);
        let life = (link.server().clone(), counts_from);
        *self.life.lock().expect("nobody panics with it in hand") = Some(life);
        Ok(Instant::now() >= counts_from)
    }
}

impl Guard {
    /// Cancelled when the validity has run out, or a majority says that the lock is no longer ours.
    pub fn lost(&self) -> &CancellationToken {
        &self.watched.lost
    }

    /// Until when the lock is valid; renewals move it.
    pub fn valid_until(&self) -> Instant {
        self.watched.sure_until()
    }

    /// Gives the lock back on all servers; true if a majority still had it.
    pub async fn release(mut self) -> bool {
        self.watched.released.cancel();
        self.is_released = true;
        let votes = self.redlock.ask(Question::Release, &self.key, &self.owner).await;
        self.redlock.is_majority(votes.yes)
    }
}

impl Drop for Guard {
    /// As for a lock on one server: in a task, and nothing is waited for here.
    fn drop(&mut self) {
        self.watched.released.cancel();
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (key, owner) = (std::mem::take(&mut self.key), std::mem::take(&mut self.owner));
        let redlock = self.redlock.clone();
        self.redlock.0.shutdown.spawn(async move {
            redlock.ask(Question::Release, &key, &owner).await;
        });
    }
}

fn take_one(left: &Mutex<u32>) -> bool {
    let mut left = left.lock().expect("nobody panics with it in hand");
    let taken = left.checked_sub(1);
    *left = taken.unwrap_or(0);
    taken.is_some()
}

fn random_up_to(max: Duration) -> Duration {
    // 32 random bits; nothing here has to be unpredictable.
    let random = Uuid::new_v4().as_u128() as u32;
    max.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// No answer.
fn interrupted() -> RedisError {
    RedisError::from((ErrorKind::Io, "no answer in time"))
}
