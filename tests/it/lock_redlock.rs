//! Redlock over five servers that are broken on purpose.

use std::time::Duration;

use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::lock::redlock::{Redlock, Settings};
use private_servers::testing::RedisServer;
use tokio::time::{Instant, timeout};

use crate::support::any_lock::NODES;
use crate::support::{bounded, eventually, patient_redis};

const LEASE: Duration = Duration::from_secs(6);
const NODE_TIMEOUT: Duration = Duration::from_millis(1_500);
const LONG: Duration = Duration::from_secs(50);

struct Rig {
    servers: Vec<RedisServer>,
    locks: Redlock,
}

fn settings() -> Settings {
    Settings {
        lease: LEASE,
        node_timeout: NODE_TIMEOUT,
        renewals_max: 1_000,
        retry_pause_max: Duration::from_millis(20),
    }
}

impl Rig {
    async fn start() -> Self {
        let servers: Vec<RedisServer> = (0..NODES).map(|_| RedisServer::start(&[])).collect();
        let locks = client(&servers, settings()).await;
        Self { servers, locks }
    }

    async fn keys(&self, key: &str) -> Vec<usize> {
        servers_with(key, &self.servers).await
    }
}

async fn servers_with(key: &str, servers: &[RedisServer]) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        let redis = patient_redis(&server.url());
        if redis.query::<bool>(redis::cmd("EXISTS").arg(key)).await == Ok(true) {
            found.push(number);
        }
    }
    found
}

/// A client for whom all servers count: those that were just started don't yet, and a majority would not be enough for
/// the tests that break some of them.
async fn client(servers: &[RedisServer], settings: Settings) -> Redlock {
    let locks = stranger(servers, settings);
    eventually("all servers count", async || {
        let Some(guard) = locks.try_acquire("warm-up", Duration::ZERO).await.unwrap() else {
            return false;
        };
        let granted = servers_with("warm-up", servers).await.len();
        guard.release().await && granted == servers.len()
    })
    .await;
    locks
}

/// A client that has not asked anybody yet.
fn stranger(servers: &[RedisServer], settings: Settings) -> Redlock {
    let nodes = servers.iter().map(|server| patient_redis(&server.url())).collect();
    Redlock::new(nodes, settings, Shutdown::default())
}

#[tokio::test]
async fn a_server_that_hangs_costs_one_time_out() {
    let rig = Rig::start().await;
    let other = client(&rig.servers, settings()).await;
    rig.servers[2].pause();
    let began = Instant::now();
    let guard = rig.locks.try_acquire("a", Duration::ZERO).await.unwrap().expect("four of five");
    let took = began.elapsed();
    assert!(took >= NODE_TIMEOUT && took < 2 * NODE_TIMEOUT, "{took:?}");
    // What it took to ask is off the validity.
    assert!(guard.valid_until() <= began + LEASE);
    assert!(guard.valid_until() - Instant::now() < LEASE - NODE_TIMEOUT);
    assert!(other.try_acquire("a", Duration::ZERO).await.unwrap().is_none());
    assert!(guard.release().await);
    assert!(other.try_acquire("a", Duration::ZERO).await.unwrap().is_some());
    rig.servers[2].resume();
}

#[tokio::test]
async fn a_minority_may_be_down_and_a_majority_may_not() {
    let mut rig = Rig::start().await;
    rig.servers[0].kill();
    rig.servers[1].kill();
    let guard = rig.locks.try_acquire("a", Duration::ZERO).await.unwrap().expect("three of five");
    assert_eq!(rig.keys("a").await, [2, 3, 4]);
    assert!(guard.release().await);
    rig.servers[2].kill();
    assert!(rig.locks.try_acquire("a", Duration::ZERO).await.unwrap().is_none());
    // The two that said yes have been told to forget it.
    assert!(rig.keys("a").await.is_empty());
}

#[tokio::test]
async fn without_a_majority_everything_is_given_back() {
    let rig = Rig::start().await;
    for server in &rig.servers[..3] {
        let redis = patient_redis(&server.url());
        let mut set = redis::cmd("SET");
        let _: () = redis.query(set.arg("a").arg("somebody else")).await.unwrap();
    }
    assert!(rig.locks.try_acquire("a", Duration::ZERO).await.unwrap().is_none());
    assert_eq!(rig.keys("a").await, [0, 1, 2], "somebody else's are left alone");
}

#[tokio::test]
async fn a_lease_that_ran_out_while_asking_is_given_back() {
    let rig = Rig::start().await;
    // A time-out as long as the lease: one server that hangs uses all of it up.
    let lease = Duration::from_millis(300);
    let slow = Settings { lease, node_timeout: lease, ..settings() };
    let locks = client(&rig.servers, slow).await;
    rig.servers[0].pause();
    let taken = locks.try_acquire("a", Duration::ZERO).await.unwrap();
    assert!(taken.is_none(), "four said yes, and there is no time left");
    rig.servers[0].resume();
    eventually("it is given back", async || rig.keys("a").await.is_empty()).await;
}

#[tokio::test]
async fn too_little_time_for_the_work_is_no_lock() {
    let rig = Rig::start().await;
    assert!(rig.locks.try_acquire("a", LEASE).await.unwrap().is_none());
    assert!(rig.keys("a").await.is_empty());
    let needed = LEASE / 2;
    let guard = rig.locks.try_acquire("a", needed).await.unwrap().expect("half of it is there");
    assert!(guard.valid_until() >= Instant::now() + needed - NODE_TIMEOUT);
    assert!(guard.release().await);
}

#[tokio::test]
async fn a_server_that_restarts_empty_sits_out_for_a_lease() {
    let mut rig = Rig::start().await;
    rig.servers[3].kill();
    rig.servers[4].kill();
    let guard = rig.locks.try_acquire("a", Duration::ZERO).await.unwrap().expect("three of five");
    // One of the three forgets, and the other two are back: three that have never heard of the lock.
    rig.servers[2].kill();
    for server in &mut rig.servers[2..] {
        server.start_again();
    }
    let other = stranger(&rig.servers, settings());
    while Instant::now() < guard.valid_until() && !guard.lost().is_cancelled() {
        let second = other.try_acquire("a", Duration::ZERO).await.unwrap();
        assert!(second.is_none() || guard.lost().is_cancelled(), "two hold it");
        if second.is_some() {
            break;
        }
    }
    bounded("it is told", guard.lost().cancelled()).await;
    let second = other.acquire("a", Duration::ZERO, LONG).await.unwrap();
    assert!(second.expect("they count again").release().await);
}

#[tokio::test]
async fn a_renewal_without_a_majority_leaves_the_lock_until_its_time_is_up() {
    let mut rig = Rig::start().await;
    let guard = rig.locks.try_acquire("a", Duration::ZERO).await.unwrap().expect("it is free");
    for server in &mut rig.servers[..3] {
        server.kill();
    }
    let until = guard.valid_until();
    // A renewal may have been under way.
    timeout(LONG, guard.lost().cancelled()).await.expect("told when the time is up");
    assert!(Instant::now() >= until);
    assert!(!guard.release().await, "two of five had it");
    assert!(rig.keys("a").await.is_empty());
}

#[tokio::test]
async fn renewals_come_to_an_end() {
    let rig = Rig::start().await;
    let locks = client(&rig.servers, Settings { renewals_max: 2, ..settings() }).await;
    let began = Instant::now();
    let guard = locks.try_acquire("a", Duration::ZERO).await.unwrap().expect("it is free");
    timeout(LONG, guard.lost().cancelled()).await.expect("nobody renews it for ever");
    let held = began.elapsed();
    assert!(held > LEASE && held < 3 * LEASE, "{held:?}: a lease, and two thirds of one");
    assert!(rig.locks.acquire("a", Duration::ZERO, LONG).await.unwrap().is_some());
}
