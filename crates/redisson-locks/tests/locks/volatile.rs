//! Batches of locks in memory only: nothing of them in the append-only file, nothing at replicas.

use std::fs;
use std::path::Path;
use std::time::Duration;

use private_servers::testing::{Bounded, RedisServer, eventually};
use redis::aio::ConnectionManager;
use redisson_locks::{Connection, ReentrantLocks, Settings, Tasks};

use crate::support::{ask, client_of, connection, patient_settings, reconnecting, try_ask};

const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Lease of locks that are renewed: longer than any stall of the machine, because the end of a lease is in the file.
const LEASE: Duration = Duration::from_secs(15);

/// A client of locks on this server, over a connection that outlives a restart.
fn client(server: &RedisServer, lease: Duration) -> (ReentrantLocks, ConnectionManager) {
    let one = reconnecting(&server.url());
    let settings = Settings { lease, ..patient_settings() };
    let client = client_of(&server.url());
    (ReentrantLocks::new(one.clone(), client, settings, Tasks::default()), one)
}

/// Content of all files that the server appends to.
async fn append_only_files(server: &impl Connection) -> String {
    let (_, folder): (String, String) = ask(server, &["CONFIG", "GET", "dir"]).await;
    let (_, files): (String, String) = ask(server, &["CONFIG", "GET", "appenddirname"]).await;
    let files = fs::read_dir(Path::new(&folder).join(files)).expect("the server has made it");
    let read = |file: fs::DirEntry| fs::read(file.path()).expect("the server's file is readable");
    let all: Vec<u8> = files.map(Result::unwrap).flat_map(read).collect();
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn nothing_of_a_volatile_batch_is_in_the_append_only_file() {
    let server = RedisServer::start(&PERSISTENT);
    let (locks, one) = client(&server, LEASE);
    let other = locks.lock("plain-lock").try_acquire(&locks.holder()).bounded().await.unwrap();
    let other = other.expect("it is free");
    let before = append_only_files(&one).await;
    assert!(
        before.contains("plain-lock"),
        "a lock that is taken by itself is in the file: {before}"
    );

    let names = vec!["plain-lock", "volatile-1", "volatile-2", "volatile-2"];
    let batch = locks.batch(names.clone()).volatile().try_acquire().bounded().await.unwrap();
    assert!(batch.holds("volatile-1") && batch.holds("volatile-2") && !batch.holds("plain-lock"));
    let again = locks.batch(names).volatile().try_acquire().bounded().await.unwrap();
    assert!(!again.holds("volatile-1"));
    again.release().bounded().await;
    let end: i64 = ask(&one, &["PEXPIRETIME", "volatile-2"]).await;
    eventually("it is renewed", async || {
        ask::<i64>(&one, &["PEXPIRETIME", "volatile-2"]).await > end
    })
    .await;
    batch.release().bounded().await;
    assert_eq!(ask::<i64>(&one, &["EXISTS", "volatile-1", "volatile-2"]).await, 0);

    // Written after all of it, and before its reply.
    let _: String = ask(&one, &["SET", "after", "1"]).await;
    let file = append_only_files(&one).await;
    assert!(file.contains("after"), "{file}");
    assert!(!file.contains("volatile"), "{file}");
    other.release().bounded().await.unwrap();
}

#[tokio::test]
async fn a_restart_frees_the_locks_of_a_volatile_batch_and_no_others() {
    let mut server = RedisServer::start(&PERSISTENT);
    let (locks, one) = client(&server, Duration::from_mins(10));
    let volatile = locks.batch(vec!["a", "b"]).volatile().try_acquire().bounded().await.unwrap();
    let kept = locks.batch(vec!["c", "d"]).try_acquire().bounded().await.unwrap();
    let single = locks.lock("e").try_acquire(&locks.holder()).bounded().await.unwrap();
    assert!(volatile.holds("a") && volatile.holds("b"));
    assert!(kept.holds("c") && kept.holds("d") && single.is_some());

    server.kill();
    server.start_again();
    let pings = async || try_ask::<String>(&one, &["PING"]).await.is_ok();
    eventually("the connection is back", pings).await;
    let mut there: Vec<i64> = Vec::new();
    let mut leases: Vec<bool> = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        there.push(ask(&one, &["EXISTS", name]).await);
        leases.push(ask::<i64>(&one, &["PTTL", name]).await > 0);
    }
    assert_eq!(there, [0, 0, 1, 1, 1], "the new life has forgotten the volatile batch alone");
    assert_eq!(leases, [false, false, true, true, true], "the others still have their leases");
    volatile.release().bounded().await;
    kept.release().bounded().await;
    let left: Vec<String> = ask(&one, &["KEYS", "*"]).await;
    assert_eq!(left, ["e"]);
}

#[tokio::test]
async fn replicas_hear_of_a_batch_unless_it_is_volatile() {
    let (server, port) = RedisServer::on_tcp(&[]);
    let master = format!("127.0.0.1 {port}");
    let replica = RedisServer::start(&["--replicaof", &master, "--repl-diskless-sync-delay", "0"]);
    let (locks, one) = client(&server, Duration::from_mins(10));
    let copy = connection(&replica.url()).await;
    eventually("the replica follows", async || {
        let told: redis::InfoDict = ask(&copy, &["INFO", "replication"]).await;
        told.get::<String>("master_link_status").as_deref() == Some("up")
    })
    .await;
    let volatile = locks.batch(vec!["a", "b"]).volatile().try_acquire().bounded().await.unwrap();
    let kept = locks.batch(vec!["c", "d"]).try_acquire().bounded().await.unwrap();
    assert!(volatile.holds("b") && kept.holds("d"));
    eventually("the batch is there", async || ask::<i64>(&copy, &["EXISTS", "c", "d"]).await == 2)
        .await;
    // They would have come first.
    assert_eq!(ask::<i64>(&copy, &["EXISTS", "a", "b"]).await, 0);
    volatile.release().bounded().await;
    kept.release().bounded().await;
    eventually("the release is there", async || ask::<i64>(&copy, &["DBSIZE"]).await == 0).await;
    assert_eq!(ask::<i64>(&one, &["DBSIZE"]).await, 0);
}
