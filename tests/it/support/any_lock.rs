//! The three locks behind one face, for the tests that all of them have to pass.

use std::sync::OnceLock;
use std::time::Duration;

use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::lock::redlock::{Redlock, Settings};
use flash_sale::kit::lock::reentrant::{Lock, ReentrantLocks, Released};
use flash_sale::kit::lock::{owner, redlock, reentrant};
use flash_sale::kit::redis::Redis;
use private_servers::testing::{RedisServer, bound_this_test};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::servers::shared;
use super::{eventually, patient_redis};

/// How long the locks of these tests outlive their holders.
pub const LEASE: Duration = Duration::from_secs(6);
/// Servers under Redlock.
pub const NODES: usize = 5;

/// Which lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Owner,
    Reentrant,
    Redlock,
}

/// A client of one lock.
pub struct AnyLock {
    name: String,
    locks: Locks,
    /// The servers that it is on.
    pub servers: Vec<Redis>,
    pub shutdown: Shutdown,
}

enum Locks {
    Owner(owner::OwnerLocks),
    Reentrant(ReentrantLocks, Lock),
    Redlock(Redlock),
}

/// A guard of any of the three.
pub enum AnyGuard {
    Owner(owner::Guard),
    Reentrant(reentrant::Guard),
    Redlock(redlock::Guard),
}

/// A name that no other test uses.
pub fn fresh_name() -> String {
    bound_this_test();
    format!("lock-{}", Uuid::new_v4().simple())
}

/// The five servers that the tests of Redlock share; nobody breaks these.
async fn shared_nodes() -> Vec<String> {
    static NODES_OF_ALL: OnceLock<Vec<RedisServer>> = OnceLock::new();
    let nodes = NODES_OF_ALL.get_or_init(|| (0..NODES).map(|_| RedisServer::start(&[])).collect());
    nodes.iter().map(RedisServer::url).collect()
}

/// How Redlock asks in these tests.
pub fn redlock_settings() -> Settings {
    Settings {
        lease: LEASE,
        node_timeout: Duration::from_secs(1),
        renewals_max: 1_000,
        retry_pause_max: Duration::from_millis(20),
    }
}

impl AnyLock {
    /// The first client of a lock with a fresh name, on servers that are shared.
    pub async fn new(kind: Kind) -> Self {
        let urls = match kind {
            Kind::Redlock => shared_nodes().await,
            _ => vec![shared().redis_url.clone()],
        };
        Self::on(kind, &urls, fresh_name()).await
    }

    /// A client of this lock, on these servers.
    pub async fn on(kind: Kind, urls: &[String], name: String) -> Self {
        let shutdown = Shutdown::default();
        let servers: Vec<Redis> = urls.iter().map(|url| patient_redis(url)).collect();
        let one = servers[0].clone();
        let locks = match kind {
            Kind::Owner => Locks::Owner(owner::OwnerLocks::new(one, LEASE, shutdown.clone())),
            Kind::Reentrant => {
                let locks = ReentrantLocks::new(one, LEASE, shutdown.clone());
                let lock = locks.lock(name.as_str());
                Locks::Reentrant(locks, lock)
            }
            Kind::Redlock => {
                let nodes = servers.clone();
                Locks::Redlock(Redlock::new(nodes, redlock_settings(), shutdown.clone()))
            }
        };
        let lock = Self { name, locks, servers, shutdown };
        if kind == Kind::Redlock {
            // Servers that have just been started sit out for a lease; a majority of them would have no server to spare.
            eventually("all of them count", async || {
                let Some(guard) = lock.try_acquire().await else { return false };
                let granted = lock.known_to().await;
                guard.release().await && granted == lock.servers.len()
            })
            .await;
        }
        lock
    }

    /// Another client of the same lock.
    pub async fn another(&self) -> Self {
        let (kind, urls) = match &self.locks {
            Locks::Owner(_) => (Kind::Owner, vec![shared().redis_url.clone()]),
            Locks::Reentrant(..) => (Kind::Reentrant, vec![shared().redis_url.clone()]),
            Locks::Redlock(_) => (Kind::Redlock, shared_nodes().await),
        };
        Self::on(kind, &urls, self.name.clone()).await
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// One try, as somebody new.
    pub async fn try_acquire(&self) -> Option<AnyGuard> {
        match &self.locks {
            Locks::Owner(locks) => {
                locks.try_acquire(&self.name).await.unwrap().map(AnyGuard::Owner)
            }
            Locks::Reentrant(locks, lock) => {
                lock.try_acquire(&locks.holder()).await.unwrap().map(AnyGuard::Reentrant)
            }
            Locks::Redlock(locks) => {
                locks.try_acquire(&self.name, Duration::ZERO).await.unwrap().map(AnyGuard::Redlock)
            }
        }
    }

    /// Waits, as somebody new.
    pub async fn acquire(&self, patience: Duration) -> Option<AnyGuard> {
        match &self.locks {
            Locks::Owner(locks) => {
                locks.acquire(&self.name, patience).await.unwrap().map(AnyGuard::Owner)
            }
            Locks::Reentrant(locks, lock) => {
                lock.acquire(&locks.holder(), patience).await.unwrap().map(AnyGuard::Reentrant)
            }
            Locks::Redlock(locks) => locks
                .acquire(&self.name, Duration::ZERO, patience)
                .await
                .unwrap()
                .map(AnyGuard::Redlock),
        }
    }

    /// What a holder that died a moment ago has left behind.
    pub async fn plant(&self, lease: Duration) {
        let lease_ms = lease.as_millis().to_string();
        for server in &self.servers {
            if matches!(self.locks, Locks::Reentrant(..)) {
                run(server, &["HSET", &self.name, "somebody:1", "1"]).await;
                run(server, &["PEXPIRE", &self.name, &lease_ms]).await;
            } else {
                run(server, &["SET", &self.name, "somebody", "PX", &lease_ms]).await;
            }
        }
    }

    /// Takes the lock away from whoever has it.
    pub async fn take_away(&self) {
        for server in &self.servers {
            run(server, &["DEL", &self.name]).await;
        }
    }

    /// Whether any server knows the lock.
    pub async fn exists(&self) -> bool {
        self.known_to().await > 0
    }

    /// How many servers know it.
    async fn known_to(&self) -> usize {
        let mut servers = 0;
        for server in &self.servers {
            let mut exists = redis::cmd("EXISTS");
            let there: usize = server.query(exists.arg(&self.name)).await.expect("Redis answers");
            servers += there;
        }
        servers
    }
}

async fn run(server: &Redis, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = server.query(&command).await.expect("Redis does it");
}

impl AnyGuard {
    pub fn lost(&self) -> &CancellationToken {
        match self {
            Self::Owner(guard) => guard.lost(),
            Self::Reentrant(guard) => guard.lost(),
            Self::Redlock(guard) => guard.lost(),
        }
    }

    /// True if it was still ours.
    pub async fn release(self) -> bool {
        match self {
            Self::Owner(guard) => guard.release().await.unwrap(),
            Self::Reentrant(guard) => guard.release().await.unwrap() != Released::NotHeld,
            Self::Redlock(guard) => guard.release().await,
        }
    }
}
