//! Listeners: how connections of each version of HTTP end, and what a stop waits for.

// The same with time in the test's hand: late requests, and clients that never read.
mod late;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Instant;

use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::http::{self, server};
use nix::sys::socket;
use sqlx::{Postgres, Transaction};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::hoarders::{head, http2, metric, proxied, send, to_the_end, while_busy};
use crate::support::lines::Lines;
use crate::support::{TestApp, bounded, eventually, http_state, patience, token};

/// Types of frames (RFC 9113, section 6).
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// The setting that says how many bytes of headers are read.
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Frames of HTTP/2: the type and the payload of each.
fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        let (payload, next) = rest.split_at(length.min(rest.len()));
        frames.push((*kind, payload));
        bytes = next;
    }
    frames
}

/// True if the client was told that the connection ends, and that nothing was wrong.
fn was_told_the_end(bytes: &[u8]) -> bool {
    // The last stream, and then the error.
    frames(bytes).iter().any(|(kind, payload)| *kind == GOAWAY && payload[4..8] == [0; 4])
}

/// A client whose request waits for Postgres, and the lock that holds it up.
async fn held_list(app: &TestApp) -> (Transaction<'static, Postgres>, TcpStream) {
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let list =
        format!("GET /v1/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", token(1));
    let held = send(app, list.as_bytes()).await;
    app.a_session_waits_for_a_row().await;
    (lock, held)
}

#[tokio::test]
async fn an_idle_client_of_http2_is_told_that_its_connection_ends() {
    let app = TestApp::configured(&["--keep-alive-s", "1"]).await;
    for window in [None, Some(0)] {
        let mut client = send(&app, &http2("/livez", window)).await;
        let bytes = to_the_end(&mut client).await;
        assert!(was_told_the_end(&bytes), "{window:?}: {bytes:?}");
        let settings = frames(&bytes).into_iter().find(|(kind, _)| *kind == SETTINGS);
        let (_, settings) = settings.expect("each side begins with its settings");
        let size = settings.chunks(6).find(|it| it[..2] == MAX_HEADER_LIST_SIZE.to_be_bytes());
        let size = size.expect("it says how much it reads")[2..].try_into().expect("four bytes");
        assert_eq!(u32::from_be_bytes(size) as usize, limits::HTTP2_HEADER_BYTES_READ);
    }
}

/// A reserved place is there for one request, and free for the next one at once.
#[tokio::test]
async fn a_reserved_connection_ends_with_its_first_reply() {
    let app = TestApp::configured(&["--connections-max", "2"]).await;
    while_busy(&app, 2, async || {
        for _ in 0..limits::CONNECTIONS_RESERVED + 1 {
            let mut client = send(&app, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
            let reply = String::from_utf8(to_the_end(&mut client).await).expect("text");
            assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("ok\n"), "{reply}");
            assert!(reply.contains("\r\nconnection: close\r\n"), "{reply}");
        }
        let mut client = send(&app, &http2("/livez", None)).await;
        let bytes = to_the_end(&mut client).await;
        assert!(was_told_the_end(&bytes), "{bytes:?}");
        let is_answered = bytes.windows(3).any(|part| part == b"ok\n");
        assert!(is_answered, "{bytes:?}");
    })
    .await;
}

/// Until a proxy has named the client of a connection, it counts for no address: that of the proxy is the same for all.
#[tokio::test]
async fn connections_of_a_trusted_proxy_do_not_count_for_its_own_address() {
    let proxy = ["--trusted-proxies", "127.0.0.0/8", "--proxy-protocol"];
    let app =
        TestApp::configured(&[&proxy[..], &["--address-connections-max", "1"]].concat()).await;
    let mut unnamed = Vec::new();
    for number in 1..=5 {
        unnamed.push(send(&app, b"").await);
        let client = proxied(&format!("192.0.2.{number}"));
        let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
        let mut named = send(&app, &[client, request].concat()).await;
        assert!(head(&mut named).await.starts_with("HTTP/1.1 200 "), "client {number}");
    }
    let page = app.app.metrics.page();
    assert_eq!(metric(&page, "connections_refused_total{reason=\"address\"}"), 0);
}

/// A request that has begun before a stop is finished, and an idle client of HTTP/2 is told.
#[tokio::test]
async fn a_stop_waits_for_a_request_under_way_and_tells_idle_clients() {
    let app = TestApp::start().await;
    let mut idle = send(&app, &http2("/livez", None)).await;
    let mut idle_http1 = send(&app, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(head(&mut idle_http1).await.starts_with("HTTP/1.1 200 "));
    let (lock, mut held) = held_list(&app).await;
    let released = async {
        // Longer than the time for late requests, and than that of connections that are overdue.
        sleep(limits::OVERDUE_CLOSE_MAX + limits::LATE_REQUEST_MAX * 2).await;
        lock.rollback().await.expect("Postgres answers");
    };
    let (stopped, (), reply) =
        tokio::join!(app.app.shutdown.stop(patience()), released, to_the_end(&mut held));
    assert!(stopped, "a task hangs");
    let reply = String::from_utf8(reply).expect("text");
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("connection: close"), "{reply}");
    assert!(was_told_the_end(&to_the_end(&mut idle).await));
    assert_eq!(to_the_end(&mut idle_http1).await, b"", "it is closed without a word");
}

/// Clients that the kernel has connected, and that no process has accepted, are answered before the end.
#[tokio::test]
async fn a_stop_takes_in_the_connections_that_wait_in_the_queue() {
    const CLIENTS: usize = 30;
    let app = TestApp::start().await;
    let door = http::api(&http_state(app.app.clone(), &app.config), true);
    let listener = server::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(address).await.expect("the kernel takes it");
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is connected");
        clients.push(client);
    }
    // The stop comes before the first look at the queue.
    let shutdown = Shutdown::default();
    assert!(shutdown.stop(patience()).await);
    bounded("the end of the listener", server::run(listener, door, (&app.config).into(), shutdown))
        .await;
    for client in &mut clients {
        let reply = String::from_utf8(to_the_end(client).await).expect("text");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply:?}");
    }
    assert!(TcpStream::connect(address).await.is_err(), "no one listens any more");
}

/// Connections that end free what was missing; tries without a pause in between take time from them.
#[tokio::test]
async fn a_listener_that_cannot_accept_pauses_before_each_further_try() {
    let app = TestApp::start().await;
    let door = http::api(&http_state(app.app.clone(), &app.config), true);
    let listener = server::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    // Linux accepts nothing on it from now on, and says so at once.
    socket::shutdown(listener.as_raw_fd(), socket::Shutdown::Both).expect("it is open");
    let (lines, began, shutdown) = (Lines::heard(), Instant::now(), Shutdown::default());
    let tries = || lines.count("a connection could not be accepted");
    let stops = async {
        eventually("it tries again", async || tries() >= 3).await;
        let tries = u32::try_from(tries()).expect("a few");
        let passed = began.elapsed();
        assert!(passed >= limits::ACCEPT_PAUSE * (tries - 1), "{tries} tries in {passed:?}");
        assert!(shutdown.stop(patience()).await, "a task hangs");
    };
    let run = server::run(listener, door, (&app.config).into(), shutdown.clone());
    let both = async {
        tokio::join!(biased; stops, run);
    };
    bounded("the end of the listener", both).await;
}

/// As soon as its room is full: no more of it is waited for.
#[tokio::test]
async fn a_head_that_fills_its_room_is_refused_at_once() {
    let app = TestApp::start().await;
    let begin = "GET /livez HTTP/1.1\r\nhost: x\r\nx-a: ";
    let head_of = |bytes: usize| begin.to_owned() + &"a".repeat(bytes - begin.len());
    let mut full = send(&app, head_of(limits::HEADER_BYTES_MAX).as_bytes()).await;
    let reply = head(&mut full).await;
    assert!(reply.starts_with("HTTP/1.1 431 "), "{reply}");
    // One byte less is waited for, and with the rest it is a request.
    let end = "\r\nconnection: close\r\n\r\n";
    let fits = head_of(limits::HEADER_BYTES_MAX - 1 - end.len()) + end;
    let mut client = send(&app, fits.as_bytes()).await;
    let reply = String::from_utf8(to_the_end(&mut client).await).expect("text");
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

/// An address of this machine that others know it by, if it has one. Nothing is sent.
fn outer_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

/// A proxy on this machine has one address for all clients, so without a setting loopback has no bound.
#[tokio::test]
async fn an_address_of_another_machine_has_half_of_the_places_and_loopback_has_all() {
    let mut app = TestApp::configured(&["--connections-max", "4"]).await;
    let Some(outer) = outer_address() else { return };
    let door = http::api(&http_state(app.app.clone(), &app.config), true);
    let listener = server::bind("0.0.0.0:0".parse().expect("an address")).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let shutdown = app.app.shutdown.clone();
    shutdown.spawn(server::run(listener, door, (&app.config).into(), shutdown.clone()));
    // A machine talks to itself by the address that it asks.
    for (host, is_bounded) in [(outer, true), (IpAddr::from([127, 0, 0, 1]), false)] {
        app.url = format!("http://{}", SocketAddr::from((host, port)));
        while_busy(&app, 2, async || {
            let mut third = send(&app, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
            let reply = head(&mut third).await;
            let expected = if is_bounded { "" } else { "HTTP/1.1 200 OK" };
            assert_eq!(reply.lines().next().unwrap_or_default(), expected, "{host}");
        })
        .await;
    }
}
