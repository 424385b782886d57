//! Another server, or the same one in another role, behind the address that the service knows.

use std::collections::BTreeMap;
use std::fs;

use flash_sale::base::clock::Clock;
use flash_sale::store::redis::{Redis, trouble};
use flash_sale::worker;
use private_servers::testing::{RedisServer, Switch};
use serde_json::json;

use crate::support::servers::{Addresses, connection};
use crate::support::{TestApp, eventually, patience, shared, user};

/// A service whose Redis is at this URL.
async fn app_at(url: &str) -> TestApp {
    let at = Addresses { redis_url: url.to_owned(), ..shared().clone() };
    TestApp::on(&at, &[], Clock::System).await
}

/// One command to the server itself.
pub async fn ask<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let mut connection = connection(&server.url()).await;
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.expect("it does that")
}

pub async fn make_replica(server: &RedisServer, of_port: u16) {
    let _: String = ask(server, &["REPLICAOF", "127.0.0.1", &of_port.to_string()]).await;
}

pub async fn make_master(server: &RedisServer) {
    let _: String = ask(server, &["REPLICAOF", "NO", "ONE"]).await;
}

/// On several threads, because the switch has to work while the end of the test compares the stores.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_master_that_lives_on_as_a_replica_is_left_for_the_new_one() {
    let ((old, old_port), (new, new_port)) = (RedisServer::on_tcp(&[]), RedisServer::on_tcp(&[]));
    make_replica(&new, old_port).await;
    let address = Switch::to(&old.url()).await;
    let app = app_at(address.url()).await;
    worker::start(&app.app, &app.config);
    flash_sale::app::start_housekeeping(&app.app);
    let coupon = app.create_flash(100).await;
    for user in 1..=10 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    let rows = async || app.number("SELECT count(*) FROM orders").await;
    eventually("the worker has written", async || rows().await == 10).await;
    let replicated = async || ask::<i64>(&old, &["WAIT", "1", "100"]).await == 1;
    eventually("the replica has everything", replicated).await;

    make_master(&new).await;
    address.lead_to(&new.url());
    make_replica(&old, new_port).await;
    for user in 11..=20 {
        // A claim at the moment of the switch may be unknown, and is found by asking again.
        eventually("a claim", async || matches!(app.claim(user, coupon).await.status, 202 | 409))
            .await;
    }
    for user in 1..=20 {
        let again = app.claim(user, coupon).await;
        assert_eq!(again.refusal(), (409, "already_claimed"), "user {user}");
    }
    eventually("the worker has followed", async || rows().await == 20).await;
    // Units that come back are heard of from the new master, so its answers are remembered.
    let promised = &app.app.memories.first().accepted;
    eventually("the process listens to the new master", async || {
        app.claim(20, coupon).await;
        promised.order_of(coupon, user(20)).is_some()
    })
    .await;
    assert!(app.app.shutdown.stop(patience()).await);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_not_ready() {
    let (server, _) = RedisServer::on_tcp(&[]);
    let app = app_at(&server.url()).await;
    let coupon = app.create_flash(10).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert_eq!(app.get("/readyz", "").await.status, 200);

    // A replica of no server: it keeps its data, and says "replica" to readers.
    make_replica(&server, 1).await;
    let ready = app.get("/readyz", "").await;
    let expected = json!({
        "status": "unavailable", "redis": "is a replica, which takes no writes", "postgres": "ok",
        "backlog": "unknown", "lanes": "ok", "durability": "ok", "clock": "ok", "process": "ok",
    });
    assert_eq!((ready.status, ready.body), (503, expected));
    assert_eq!(app.claim(2, coupon).await.refusal(), (503, "unavailable"));
    let refused = Redis::new(&server.url()).unwrap().link().await.map(drop);
    assert!(refused.is_err_and(|error| error.to_string().contains("replica")));

    make_master(&server).await;
    eventually("it is ready again", async || app.get("/readyz", "").await.status == 200).await;
    // It may have been given older data meanwhile: its lanes are compared.
    eventually("a claim", async || {
        let _ = app.app.leaders.first().run_once().await;
        app.claim(2, coupon).await.status == 202
    })
    .await;
    app.write_orders().await;
}

#[tokio::test]
async fn a_peer_that_goes_away_silently_is_probed_on_every_connection() {
    let (_server, port) = RedisServer::on_tcp(&[]);
    let app = app_at(&format!("redis://127.0.0.1:{port}")).await;
    flash_sale::app::start_housekeeping(&app.app);
    worker::start(&app.app, &app.config);
    let coupon = app.create_flash(1).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    // The connection for commands, the one that listens for units, those of the readers.
    eventually("all of them are probed", async || {
        let listening = listening_ports(&app).await;
        let timers = timers_of_connections_to(port);
        let listener_is_there = listening.iter().any(|port| timers.contains_key(port));
        listener_is_there && timers.len() >= 3 && timers.values().all(|timer| timer == KEEPALIVE)
    })
    .await;
    eventually("a row", async || app.number("SELECT count(*) FROM orders").await == 1).await;
    assert!(app.app.shutdown.stop(patience()).await);
}

/// The code in `/proc/net/tcp` of a timer for probes, with no data unacknowledged.
const KEEPALIVE: &str = "02";

/// The ports of the clients that listen to channels.
async fn listening_ports(app: &TestApp) -> Vec<u16> {
    let clients: String = app.redis(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let port = |line: &str| {
        let address = line.split(' ').find_map(|field| field.strip_prefix("addr="));
        let (_, port) = address.and_then(|address| address.rsplit_once(':')).expect("an address");
        port.parse().expect("a port")
    };
    clients.lines().map(port).collect()
}

/// The timer of each established connection to this port of 127.0.0.1, by the port of its client.
fn timers_of_connections_to(port: u16) -> BTreeMap<u16, String> {
    let table = fs::read_to_string("/proc/net/tcp").expect("this is Linux");
    let to = format!("0100007F:{port:04X}");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = fields.filter(|line| line[2] == to && line[3] == "01");
    let timer = |line: Vec<&str>| {
        let (_, client) = line[1].split_once(':').expect("an address and a port");
        let (timer, _) = line[5].split_once(':').expect("a timer and its time");
        (u16::from_str_radix(client, 16).expect("a port"), timer.to_owned())
    };
    established.map(timer).collect()
}

/// As a library sends commands that takes any connection.
#[tokio::test]
async fn a_replica_s_refusal_of_a_pipeline_ends_the_link() {
    let server = RedisServer::start(&[]);
    let redis = Redis::new(&server.url()).unwrap();
    let mut pipeline = redis::pipe();
    pipeline.cmd("SET").arg("a").arg(7).ignore().cmd("GET").arg("a");
    let values: (i64,) = pipeline.query_async(&mut redis.clone()).await.unwrap();
    assert_eq!(values, (7,));

    let mut follow = redis::cmd("REPLICAOF");
    let _: String = redis.query(follow.arg("127.0.0.1").arg("1")).await.unwrap();
    assert!(redis.link().await.is_ok(), "the link does not know yet");
    let refused = pipeline.query_async::<(i64,)>(&mut redis.clone()).await.unwrap_err();
    assert_eq!(trouble(&refused), "is a replica, which takes no writes");
    assert!(redis.link().await.is_err(), "no link leads to a replica");
}
