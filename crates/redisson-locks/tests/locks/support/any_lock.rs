//! The three locks behind one face, for the tests that all of them have to pass.

use std::sync::OnceLock;
use std::time::Duration;

use private_servers::testing::{Bounded, PATIENCE, RedisServer};
use redis::aio::ConnectionManager;
use redisson_locks::owner::{self, OwnerLocks};
use redisson_locks::redlock::{self, Redlock, Settings};
use redisson_locks::{Guard, Lock, ReentrantLocks, Released, Tasks};
use tokio_util::sync::CancellationToken;

use super::{ask, client_of, connection, fresh_name, patient_settings, reconnecting, shared};

/// Time for which the locks of these tests outlive their holders.
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
    /// Connections to the servers of the lock.
    pub servers: Vec<ConnectionManager>,
    pub tasks: Tasks,
    pub stop: CancellationToken,
}

enum Locks {
    Owner(OwnerLocks),
    Reentrant(ReentrantLocks, Lock),
    Redlock(Redlock),
}

/// A guard of any of the three.
pub enum AnyGuard {
    Owner(owner::Guard),
    Reentrant(Guard),
    Redlock(redlock::Guard),
}

/// The five servers that the tests of Redlock share; no test breaks these.
fn shared_nodes() -> Vec<String> {
    static NODES_OF_ALL: OnceLock<Vec<RedisServer>> = OnceLock::new();
    let nodes = NODES_OF_ALL.get_or_init(|| (0..NODES).map(|_| RedisServer::start(&[])).collect());
    nodes.iter().map(RedisServer::url).collect()
}

/// Settings of Redlock that leave time for a busy machine.
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
            Kind::Redlock => shared_nodes(),
            _ => vec![shared()],
        };
        Self::on(kind, &urls, fresh_name()).await
    }

    /// A client of this lock, on these servers.
    pub async fn on(kind: Kind, urls: &[String], name: String) -> Self {
        let stop = CancellationToken::new();
        let tasks = Tasks::new(stop.clone());
        let servers: Vec<ConnectionManager> = urls.iter().map(|url| reconnecting(url)).collect();
        let locks = match kind {
            Kind::Owner => {
                let settings = owner::Settings { lease: LEASE, ..owner::Settings::default() };
                Locks::Owner(OwnerLocks::new(connection(&urls[0]).await, settings, tasks.clone()))
            }
            Kind::Reentrant => {
                let one = connection(&urls[0]).await;
                let client = client_of(&urls[0]);
                let settings = redisson_locks::Settings { lease: LEASE, ..patient_settings() };
                let locks = ReentrantLocks::new(one, client, settings, tasks.clone());
                let lock = locks.lock(name.as_str());
                Locks::Reentrant(locks, lock)
            }
            Kind::Redlock => {
                Locks::Redlock(Redlock::new(servers.clone(), redlock_settings(), tasks.clone()))
            }
        };
        if kind == Kind::Redlock {
            // A server that has just been started sits out for a lease; a majority would have none to spare.
            for server in &servers {
                let nodes = vec![server.clone()];
                let alone = Redlock::new(nodes, redlock_settings(), tasks.clone());
                let guard =
                    alone.acquire(&fresh_name(), Duration::ZERO, PATIENCE).bounded().await.unwrap();
                assert!(guard.expect("it counts").release().bounded().await);
            }
        }
        Self { name, locks, servers, tasks, stop }
    }

    /// Another client of the same lock.
    pub async fn another(&self) -> Self {
        let (kind, urls) = match &self.locks {
            Locks::Owner(_) => (Kind::Owner, vec![shared()]),
            Locks::Reentrant(..) => (Kind::Reentrant, vec![shared()]),
            Locks::Redlock(_) => (Kind::Redlock, shared_nodes()),
        };
        Self::on(kind, &urls, self.name.clone()).await
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// One try, as a new holder.
    pub async fn try_acquire(&self) -> Option<AnyGuard> {
        match &self.locks {
            Locks::Owner(locks) => {
                locks.try_acquire(&self.name).bounded().await.unwrap().map(AnyGuard::Owner)
            }
            Locks::Reentrant(locks, lock) => {
                lock.try_acquire(&locks.holder()).bounded().await.unwrap().map(AnyGuard::Reentrant)
            }
            Locks::Redlock(locks) => locks
                .try_acquire(&self.name, Duration::ZERO)
                .bounded()
                .await
                .unwrap()
                .map(AnyGuard::Redlock),
        }
    }

    /// Waits, as a new holder.
    pub async fn acquire(&self, patience: Duration) -> Option<AnyGuard> {
        match &self.locks {
            Locks::Owner(locks) => {
                locks.acquire(&self.name, patience).bounded().await.unwrap().map(AnyGuard::Owner)
            }
            Locks::Reentrant(locks, lock) => lock
                .acquire(&locks.holder(), patience)
                .bounded()
                .await
                .unwrap()
                .map(AnyGuard::Reentrant),
            Locks::Redlock(locks) => locks
                .acquire(&self.name, Duration::ZERO, patience)
                .bounded()
                .await
                .unwrap()
                .map(AnyGuard::Redlock),
        }
    }

    /// Makes the lock of a holder that has died.
    pub async fn plant(&self, lease: Duration) {
        let lease_ms = lease.as_millis().to_string();
        for server in &self.servers {
            if matches!(self.locks, Locks::Reentrant(..)) {
                let _: i64 = ask(server, &["HSET", &self.name, "another:1", "1"]).await;
                let _: i64 = ask(server, &["PEXPIRE", &self.name, &lease_ms]).await;
            } else {
                let words = ["SET", &self.name, "another", "PX", &lease_ms];
                let _: String = ask(server, &words).await;
            }
        }
    }

    /// Takes the lock away from its holder.
    pub async fn take_away(&self) {
        for server in &self.servers {
            let _: i64 = ask(server, &["DEL", &self.name]).await;
        }
    }

    /// Whether any server knows the lock.
    pub async fn exists(&self) -> bool {
        self.known_to().await > 0
    }

    /// Number of servers that know the lock.
    async fn known_to(&self) -> usize {
        let mut servers = 0;
        for server in &self.servers {
            servers += ask::<usize>(server, &["EXISTS", &self.name]).await;
        }
        servers
    }
}

impl AnyGuard {
    pub fn lost(&self) -> &CancellationToken {
        match self {
            Self::Owner(guard) => guard.lost(),
            Self::Reentrant(guard) => guard.lost(),
            Self::Redlock(guard) => guard.lost(),
        }
    }

    /// True if the lock was still this guard's.
    pub async fn release(self) -> bool {
        match self {
            Self::Owner(guard) => guard.release().bounded().await.unwrap(),
            Self::Reentrant(guard) => guard.release().bounded().await.unwrap() != Released::NotHeld,
            Self::Redlock(guard) => guard.release().bounded().await,
        }
    }
}
