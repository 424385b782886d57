//! Clients that are slow, silent or gone: they cost the others nothing, and leave nothing behind.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::kit::open_files;
use flash_sale::store::ids::CouponId;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::load::{History, Load};
use crate::support::process::Process;
use crate::support::{TestApp, bounded, eventually, token};

/// Clients that hang up at the same time.
const WAVE: i64 = 500;
/// Time within which the pools are full again once the stores answer.
const FULL_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a head, or of a body, that is far too large.
const GIANT: usize = 1_000_000;
/// Part of a time that says nothing: timers of the clients have this resolution.
const CLOCK_TICK: Duration = Duration::from_millis(2);
/// Connections that the service has room for in the test of hang-ups: a wave, and a few more.
const CONNECTIONS_MAX: usize = 600;

#[tokio::test]
async fn a_thousand_clients_that_hang_up_in_mid_request_leave_nothing_behind() {
    hang_up(2).await;
}

#[tokio::test]
#[ignore = "long: make faults"]
async fn long_ten_thousand_clients_that_hang_up_in_mid_request_leave_nothing_behind() {
    let took = hang_up(20).await;
    assert!(took <= FULL_WITHIN, "{took:?}");
}

/// Half of each wave has claimed and waits for its order, the other half reads orders; Postgres answers neither. Returns
/// the time after which all connections of the pools are free again.
async fn hang_up(waves: i64) -> Duration {
    open_files::raise_limit().expect("the system lets us");
    let app = TestApp::configured(&["--connections-max", &CONNECTIONS_MAX.to_string()]).await;
    let coupon = app.create_flash(waves * WAVE).await;
    // Its order id is of a block that Postgres has granted: the others need nothing of Postgres.
    assert_eq!(app.claim(waves * WAVE + 1, coupon).await.status, 202);
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let (opened, ended) = &app.app.metrics.tally.connections;
    let mut claimed = 1;
    for wave in 0..waves {
        let mut clients = Vec::new();
        for n in 1..=WAVE / 2 {
            let user = wave * WAVE + n;
            clients.push(send(&app.url, &claim_and_wait(user, coupon)).await);
            clients.push(send(&app.url, &get("/v1/orders", user)).await);
        }
        claimed += WAVE / 2;
        let accepted = async || app.buyers_count(coupon).await == claimed;
        eventually("their claims are accepted", accepted).await;
        drop(clients);
        // One is kept by the test's own client.
        eventually("their connections end", async || opened.get() - ended.get() <= 1).await;
    }
    lock.rollback().await.expect("Postgres answers");

    let gone_at = Instant::now();
    let pool = &app.app.stores.pool;
    let waiters = &app.app.order_waiters;
    eventually("the pools are full again", async || {
        pool.num_idle() == pool.size() as usize && waiters.count() == 0
    })
    .await;
    let took = gone_at.elapsed();
    println!("{} clients hung up: the pools were full {took:.0?} later", waves * WAVE);
    // All connections at one time, but that of the test's own client: every slot is free.
    let mut clients = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        clients.push(send(&app.url, &get("/v1/orders", 1)).await);
    }
    for reply in join_all(clients.iter_mut().map(head)).await {
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    drop(clients);
    assert_eq!(app.write_orders().await.inserted, usize::try_from(claimed).unwrap());
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_connections_that_do_nothing_hold_up_nobody() {
    open_files::raise_limit().expect("the system lets us");
    let app = TestApp::start().await;
    let coupon = app.create_flash(100_000).await;
    let service = Process::serve(&app, &["--roles", "api"]);
    let url = service.url().await;
    let alone = slowest_claim(&url, coupon).await;

    let half_a_body = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        app.admin_token()
    );
    let beginnings = ["", "P", "GET /livez HTTP/1.1\r\nhost: x\r\nx-a", &half_a_body];
    let mut idle = Vec::new();
    for n in 0..2_000 {
        idle.push(send(&url, beginnings[n % beginnings.len()]).await);
    }
    let together = slowest_claim(&url, app.create_flash(100_000).await).await;
    println!("slowest of 200 claims: {alone:?} alone, {together:?} beside 2,000 idle connections");

    let patience = limits::REQUEST_TIMEOUT + Duration::from_secs(30);
    let cut_off = join_all(idle.iter_mut().map(async |client| {
        let mut rest = Vec::new();
        // A reset is a way to be cut off, too.
        timeout(patience, client.read_to_end(&mut rest)).await.is_ok()
    }));
    assert!(cut_off.await.into_iter().all(|cut_off| cut_off), "a client may stay for ever");
}

/// Connections with slow heads and bodies, and clients whose heads and bodies are too large, one after the other.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make faults"]
async fn long_five_thousand_connections_and_giants_at_most_double_the_p99_of_users() {
    open_files::raise_limit().expect("the system lets us");
    let app = TestApp::start().await;
    // All clients have one address, which may have half of the connections.
    let service = Process::serve(&app, &["--roles", "api", "--connections-max", "20000"]);
    let url = service.url().await;
    let claims = async || {
        let coupon = app.create_flash(100_000).await;
        accepted_claims(&url, coupon, 2_000).await.p99
    };
    let alone = claims().await;

    let half_a_body = "POST /v1/coupons HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    let beginnings = ["", "P", "GET /livez HTTP/1.1\r\nhost: x\r\nx-a", half_a_body];
    let mut slow = Vec::new();
    for n in 0..5_000 {
        slow.push(send(&url, beginnings[n % beginnings.len()]).await);
    }
    let head = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx-a: {}", "a".repeat(GIANT));
    let body = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: x\r\ncontent-length: {GIANT}\r\n\r\n{}",
        "a".repeat(GIANT)
    );
    let mut giants = JoinSet::new();
    for giant in [head, body] {
        let url = url.clone();
        giants.spawn(async move {
            loop {
                let address = url.strip_prefix("http://").expect("a URL");
                let mut client = TcpStream::connect(address).await.expect("the service listens");
                // The service may refuse the rest.
                let _ = client.write_all(giant.as_bytes()).await;
                let _ = timeout(Duration::from_secs(1), client.read(&mut [0; 1_024])).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let beside = claims().await;
    println!(
        "p99 of 2,000 claims: {alone:?} alone, {beside:?} beside 5,000 connections and giants"
    );
    assert!(beside <= alone * 2 + CLOCK_TICK, "{beside:?}, and {alone:?} alone");
    giants.shutdown().await;
}

/// Two hundred claims or more.
async fn slowest_claim(url: &str, coupon: CouponId) -> Duration {
    accepted_claims(url, coupon, 200).await.slowest
}

/// As many claims or more, all accepted at the first try.
async fn accepted_claims(url: &str, coupon: CouponId, claims: usize) -> History {
    let load = Load::start(url, coupon, 8);
    load.accepts(claims).await;
    let history = load.finish().await;
    assert_eq!(history.unknown, 0);
    assert_eq!(history.accepted, history.promised.len());
    history
}

fn claim_and_wait(user: i64, coupon: CouponId) -> String {
    format!(
        "POST /v1/coupons/{coupon}/claims HTTP/1.1\r\nhost: x\r\nprefer: wait=10\r\n\
         authorization: Bearer {}\r\ncontent-length: 0\r\n\r\n",
        token(user)
    )
}

fn get(path: &str, user: i64) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", token(user))
}

/// A connection of its own on which these bytes have been sent.
async fn send(url: &str, bytes: &str) -> TcpStream {
    let address = url.strip_prefix("http://").expect("a URL");
    let mut client = TcpStream::connect(address).await.expect("the service listens");
    client.write_all(bytes.as_bytes()).await.expect("the service is there");
    client
}

/// The beginning of a reply.
async fn head(client: &mut TcpStream) -> String {
    let mut bytes = vec![0; 1_024];
    let read = bounded("the reply begins", client.read(&mut bytes)).await;
    let read = read.expect("the service answers");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}
