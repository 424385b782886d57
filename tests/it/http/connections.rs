//! Connections, byte by byte: which are kept, which requests are too large, and which are too slow.

use std::time::Duration;

use flash_sale::base::limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{TestApp, eventually, patience};

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let app = TestApp::start().await;
    let mut stream = connect(&app).await;
    let mut reply = String::new();
    for _ in 0..3 {
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        reply.clear();
        while !reply.ends_with("\r\n\r\nok\n") {
            let mut bytes = [0; 1024];
            let read = stream.read(&mut bytes).await.unwrap();
            assert_ne!(read, 0, "closed after {reply:?}");
            reply.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply:?}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_has_a_limit_too() {
    let app = TestApp::start().await;
    let admin = app.admin_token();
    let head = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {admin}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    );
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    for (chunks, refusal) in
        [(16, "malformed_json"), (17, "body_too_large"), (100, "body_too_large")]
    {
        let reply = exchange(&app, &format!("{head}{}0\r\n\r\n", chunk.repeat(chunks))).await;
        assert!(reply.contains(refusal), "{chunks} chunks: {reply:?}");
    }
}

/// The words are ours, and not those of the library that reads the body.
#[tokio::test]
async fn a_body_whose_chunks_are_malformed_is_refused() {
    let app = TestApp::start().await;
    let token = app.admin_token();
    let head = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    );
    for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}0\r\n\r\n", "fffffffffffffffff\r\n{}\r\n"] {
        let reply = exchange(&app, &format!("{head}{chunks}")).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{chunks:?}: {reply:?}");
        assert_is_problem(&reply, "malformed_json");
        assert!(reply.contains("the body breaks off, or its chunks are malformed"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_head_has_a_limit_and_others_are_unharmed() {
    let app = TestApp::start().await;
    let mut other = connect(&app).await;
    other.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n").await.unwrap();
    let many = "x-a: 1\r\n".repeat(200);
    let long = format!("x-a: {}\r\n", "x".repeat(limits::HEADER_BYTES_MAX));
    for (what, headers) in [("many headers", many), ("a long header", long)] {
        let reply =
            exchange(&app, &format!("GET /livez HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        assert!(reply.starts_with("HTTP/1.1 431 "), "{what}: {reply:?}");
    }
    let fits = "x".repeat(limits::HEADER_BYTES_MAX - 100);
    let reply = exchange(
        &app,
        &format!("GET /livez HTTP/1.1\r\nconnection: close\r\nhost: x\r\nx-a: {fits}\r\n\r\n"),
    )
    .await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply:?}");

    other.write_all(b"\r\n").await.unwrap();
    assert!(read_to_end(&mut other).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let app = TestApp::start().await;
    for (what, request) in [
        ("no request line", "hello\r\n\r\n"),
        ("a header without a colon", "GET /livez HTTP/1.1\r\nhost x\r\n\r\n"),
        (
            "two lengths",
            "POST /v1/coupons HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        ),
        ("a negative length", "POST /v1/coupons HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n"),
        (
            "a length beyond 64 bits",
            "POST /v1/coupons HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n",
        ),
    ] {
        let reply = exchange(&app, request).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{what}: {reply:?}");
    }
}

/// A whole reply with a problem body, this code, and the request's name in both places.
fn assert_is_problem(reply: &str, code: &str) {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply:?}"));
    let header = |name: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in {head}"))
    };
    assert_eq!(header("content-type"), "application/problem+json");
    assert_eq!(header("content-length"), body.len().to_string());
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("content-security-policy"), "default-src 'none'; frame-ancestors 'none'");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["code"], code);
    assert_eq!(body["request_id"], header("x-request-id"));
}

#[tokio::test]
async fn who_sends_no_head_is_cut_off() {
    let app = TestApp::start().await;
    let time = limits::HEADER_READ_TIMEOUT + patience();
    let (mut nothing, mut letter, mut half) =
        tokio::join!(connect(&app), connect(&app), connect(&app));
    letter.write_all(b"P").await.unwrap();
    half.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-a").await.unwrap();
    tokio::join!(
        read_within(&mut nothing, time),
        read_within(&mut letter, time),
        read_within(&mut half, time),
    );
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for_long() {
    let app = TestApp::start().await;
    let admin = app.admin_token();
    let mut stream = connect(&app).await;
    let request = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {admin}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let reply = read_within(&mut stream, limits::REQUEST_TIMEOUT + patience()).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply:?}");
    assert_is_problem(&reply, "body_too_slow");
}

/// Otherwise the connections to Postgres would be held for as long as a request may take.
#[tokio::test]
async fn the_request_of_a_client_that_is_gone_is_dropped() {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let app = TestApp::start().await;
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let mut stream = connect(&app).await;
    let request = format!(
        "GET /v1/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        app.admin_token()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    eventually("it waits", async || app.number(WAITING).await == 1).await;
    drop(stream);
    let connections = || {
        let page = app.app.metrics.page();
        let line = page.lines().find(|line| line.starts_with("flash_sale_connections "));
        let count = line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        count.expect("it is on the page")
    };
    let gone = async || {
        let all = connections();
        assert_eq!(app.number(WAITING).await, 1, "the request is over");
        all == 0
    };
    eventually("its request is dropped while Postgres holds it up", gone).await;
    lock.rollback().await.expect("Postgres answers");
}

async fn connect(app: &TestApp) -> TcpStream {
    let address = app.url.strip_prefix("http://").expect("a URL");
    TcpStream::connect(address).await.expect("the service listens")
}

/// Sends these bytes on a connection of their own, and reads until the service closes it.
async fn exchange(app: &TestApp, request: &str) -> String {
    let mut stream = connect(app).await;
    // A refusal may come, and the connection close, before all has been sent.
    let _: Result<_, _> = stream.write_all(request.as_bytes()).await;
    read_to_end(&mut stream).await
}

/// Reads until the service closes the connection.
async fn read_to_end(stream: &mut TcpStream) -> String {
    read_within(stream, patience()).await
}

/// The same; the service has to close it within this time.
async fn read_within(stream: &mut TcpStream, time: Duration) -> String {
    let mut bytes = Vec::new();
    let closed = timeout(time, stream.read_to_end(&mut bytes)).await;
    let reply = String::from_utf8_lossy(&bytes).into_owned();
    // A reset after the reply is a way to close, too, because the client was still sending.
    let _: Result<_, _> = closed.unwrap_or_else(|_| panic!("not closed after {reply:?}"));
    reply
}
