//! Redlock over five servers that are broken on purpose.

use std::time::Duration;

use private_servers::testing::{Bounded, RedisServer, bounded, eventually};
use redisson_locks::Tasks;
use redisson_locks::redlock::{Redlock, Settings};
use tokio::time::{Instant, timeout};

use crate::support::any_lock::NODES;
use crate::support::{ask, connection, reconnecting, try_ask};

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
        let one = reconnecting(&server.url());
        if try_ask::<bool>(&one, &["EXISTS", key]).await == Ok(true) {
            found.push(number);
        }
    }
    found
}

/// A client for which all servers count. A server that was just started doesn't yet, and a majority would not be enough
/// for the tests that break some of them.
async fn client(servers: &[RedisServer], settings: Settings) -> Redlock {
    for server in servers {
        let alone = stranger(std::slice::from_ref(server), settings);
        let guard = alone.acquire("warm-up", Duration::ZERO, LONG).bounded().await.unwrap();
        assert!(guard.expect("it counts").release().bounded().await);
    }
    stranger(servers, settings)
}

/// A client that has asked no server yet.
fn stranger(servers: &[RedisServer], settings: Settings) -> Redlock {
    let nodes = servers.iter().map(|server| reconnecting(&server.url())).collect();
    Redlock::new(nodes, settings, Tasks::default())
}

#[tokio::test]
async fn a_server_that_hangs_costs_one_time_out() {
    let rig = Rig::start().await;
    let other = client(&rig.servers, settings()).await;
    rig.servers[2].pause();
    let began = Instant::now();
    let guard =
        rig.locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("four of five");
    let took = began.elapsed();
    assert!(took >= NODE_TIMEOUT && took < 2 * NODE_TIMEOUT, "{took:?}");
    // The time that asking took is off the validity.
    assert!(guard.valid_until() <= began + LEASE);
    assert!(guard.valid_until() - Instant::now() < LEASE - NODE_TIMEOUT);
    assert!(other.try_acquire("a", Duration::ZERO).bounded().await.unwrap().is_none());
    assert!(guard.release().bounded().await);
    assert!(other.try_acquire("a", Duration::ZERO).bounded().await.unwrap().is_some());
    rig.servers[2].resume();
}

#[tokio::test]
async fn a_minority_may_be_down_and_a_majority_may_not() {
    let mut rig = Rig::start().await;
    rig.servers[0].kill();
    rig.servers[1].kill();
    let guard =
        rig.locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("three of five");
    assert_eq!(rig.keys("a").await, [2, 3, 4]);
    assert!(guard.release().bounded().await);
    rig.servers[2].kill();
    assert!(rig.locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().is_none());
    // The two that said yes have been told to forget it.
    assert!(rig.keys("a").await.is_empty());
}

#[tokio::test]
async fn without_a_majority_the_lock_is_released_everywhere() {
    let rig = Rig::start().await;
    for server in &rig.servers[..3] {
        let one = connection(&server.url()).await;
        let _: () = ask(&one, &["SET", "a", "another owner"]).await;
    }
    assert!(rig.locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().is_none());
    assert_eq!(rig.keys("a").await, [0, 1, 2], "another owner's are left alone");
}

#[tokio::test]
async fn a_lease_that_ended_while_asking_is_released() {
    let rig = Rig::start().await;
    // A time-out as long as the lease: one server that hangs uses all of it up.
    let lease = Duration::from_millis(300);
    let slow = Settings { lease, node_timeout: lease, ..settings() };
    let locks = client(&rig.servers, slow).await;
    rig.servers[0].pause();
    let taken = locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap();
    assert!(taken.is_none(), "four said yes, and there is no time left");
    rig.servers[0].resume();
    eventually("it is released", async || rig.keys("a").await.is_empty()).await;
}

#[tokio::test]
async fn too_little_time_for_the_work_is_no_lock() {
    let rig = Rig::start().await;
    assert!(rig.locks.try_acquire("a", LEASE).bounded().await.unwrap().is_none());
    assert!(rig.keys("a").await.is_empty());
    let needed = LEASE / 2;
    let guard =
        rig.locks.try_acquire("a", needed).bounded().await.unwrap().expect("half of it is there");
    assert!(guard.valid_until() >= Instant::now() + needed - NODE_TIMEOUT);
    assert!(guard.release().bounded().await);
}

#[tokio::test]
async fn a_server_that_restarts_empty_sits_out_for_a_lease() {
    let mut rig = Rig::start().await;
    rig.servers[3].kill();
    rig.servers[4].kill();
    let guard =
        rig.locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("three of five");
    // One of the three forgets, and the other two are back: three that have never heard of the lock.
    rig.servers[2].kill();
    for server in &mut rig.servers[2..] {
        server.start_again();
    }
    let other = stranger(&rig.servers, settings());
    while Instant::now() < guard.valid_until() && !guard.lost().is_cancelled() {
        let second = other.try_acquire("a", Duration::ZERO).bounded().await.unwrap();
        assert!(second.is_none() || guard.lost().is_cancelled(), "two hold it");
        if second.is_some() {
            break;
        }
    }
    bounded("it is told", guard.lost().cancelled()).await;
    let second = other.acquire("a", Duration::ZERO, LONG).bounded().await.unwrap();
    assert!(second.expect("they count again").release().bounded().await);
}

#[tokio::test]
async fn a_renewal_without_a_majority_leaves_the_lock_until_its_time_is_up() {
    let mut rig = Rig::start().await;
    let guard =
        rig.locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("it is free");
    for server in &mut rig.servers[..3] {
        server.kill();
    }
    let until = guard.valid_until();
    // A renewal may have been under way.
    timeout(LONG, guard.lost().cancelled()).bounded().await.expect("told when the time is up");
    assert!(Instant::now() >= until);
    assert!(!guard.release().bounded().await, "two of five had it");
    assert!(rig.keys("a").await.is_empty());
}

#[tokio::test]
async fn renewals_come_to_an_end() {
    let rig = Rig::start().await;
    let locks = client(&rig.servers, Settings { renewals_max: 2, ..settings() }).await;
    let began = Instant::now();
    let guard =
        locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("it is free");
    timeout(LONG, guard.lost().cancelled()).bounded().await.expect("no lock is renewed for ever");
    let held = began.elapsed();
    assert!(held > LEASE && held < 3 * LEASE, "{held:?}: a lease, and two thirds of one");
    assert!(rig.locks.acquire("a", Duration::ZERO, LONG).bounded().await.unwrap().is_some());
}

/// Time up is told in seconds, and a server that started at the end of one would seem to be up for a second too long.
#[tokio::test]
async fn a_server_does_not_count_before_its_time() {
    let lease = Duration::from_secs(2);
    for _ in 0..4 {
        // No server is up for longer than this.
        let began = Instant::now();
        let server = RedisServer::start(&[]);
        let locks = stranger(std::slice::from_ref(&server), Settings { lease, ..settings() });
        let guard =
            locks.acquire("a", Duration::ZERO, LONG).bounded().await.unwrap().expect("it counts");
        assert!(began.elapsed() >= lease, "it counted after {:?}", began.elapsed());
        assert!(guard.release().bounded().await);
        // The next server starts in another part of a second.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// A connection that reconnects without a word leads to a life of the server that has forgotten its locks.
#[tokio::test]
async fn a_restart_behind_a_connection_that_reconnects_is_noticed() {
    let mut server = RedisServer::start(&[]);
    let one = client(std::slice::from_ref(&server), settings()).await;
    let another = client(std::slice::from_ref(&server), settings()).await;
    // It has found that the server counts.
    let before =
        another.try_acquire("b", Duration::ZERO).bounded().await.unwrap().expect("it is free");
    assert!(before.release().bounded().await);
    let guard = one.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("it is free");
    let until = guard.valid_until();
    server.kill();
    server.start_again();
    let second = another.acquire("a", Duration::ZERO, LONG).bounded().await.unwrap();
    assert!(second.is_some(), "the server counts again");
    assert!(Instant::now() > until, "it was granted twice");
}

/// A multiplexed connection ends with the life of its server, so the server is asked until it counts, and then no more.
#[tokio::test]
async fn a_connection_with_one_life_is_asked_once() {
    let mut server = RedisServer::start(&[]);
    let lease = Duration::from_secs(1);
    let nodes = vec![connection(&server.url()).await];
    let locks = Redlock::new(nodes, Settings { lease, ..settings() }, Tasks::default());
    let guard =
        locks.acquire("a", Duration::ZERO, LONG).bounded().await.unwrap().expect("it counts");
    assert!(guard.release().bounded().await);
    // The server, which counts whole seconds, may have said so sooner than the connection reckoned at its first question.
    tokio::time::sleep(lease).await;
    let observer = connection(&server.url()).await;
    let asked = async || {
        let stats: redis::InfoDict = ask(&observer, &["INFO", "commandstats"]).await;
        let line: String = stats.get("cmdstat_info").unwrap_or_default();
        line.strip_prefix("calls=").and_then(|line| line.split(',').next()?.parse::<i64>().ok())
    };
    let before = asked().await.expect("it has been asked");
    for _ in 0..3 {
        let guard =
            locks.try_acquire("a", Duration::ZERO).bounded().await.unwrap().expect("it is free");
        assert!(guard.release().bounded().await);
    }
    assert_eq!(asked().await, Some(before + 1), "only this test has asked");
    server.kill();
    server.start_again();
    assert!(
        locks.acquire("a", Duration::ZERO, 2 * lease).bounded().await.unwrap().is_none(),
        "it has ended"
    );
}
