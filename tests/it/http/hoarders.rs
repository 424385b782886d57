//! Clients that hold connections: idle ones, ones that don't read, and ones that are busy all the time.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use flash_sale::base::limits;
use futures_util::FutureExt;
use futures_util::future::join;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::support::process::Process;
use crate::support::{TestApp, bounded, eventually, tries};

/// Connections that the service has room for.
const MAX: usize = 20;

const ALIVE: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn connections_that_wait_for_nothing_make_room_for_a_new_client() {
    for (what, bytes) in [
        ("nothing was sent", Vec::new()),
        ("half a head", b"GET /livez HTTP/1.1\r\nhost".to_vec()),
        ("an idle client of HTTP/1", ALIVE.into()),
        ("an idle client of HTTP/2", http2("/livez", None)),
        ("a client of HTTP/2 that takes no reply", http2("/openapi.json", Some(0))),
        (
            "a client that reads nothing",
            ALIVE.replace("/livez", "/openapi.json").repeat(300).into(),
        ),
    ] {
        let app = TestApp::configured(&["--connections-max", &MAX.to_string()]).await;
        let mut hoarded = Vec::new();
        for _ in 0..MAX {
            hoarded.push(send(&app, &bytes).await);
        }
        eventually(what, async || alive(&app).await).await;
        let page = app.app.metrics.page();
        // On a slow machine, one may have been overdue before its place was needed.
        let closed =
            |reason| metric(&page, &format!("connections_closed_total{{reason=\"{reason}\"}}"));
        assert!(
            ["room", "unread", "head"].into_iter().map(closed).sum::<usize>() > 0,
            "{what}: {page}"
        );
        assert!(metric(&page, "connections") <= MAX + limits::CONNECTIONS_RESERVED, "{what}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_kept_as_long_as_the_setting_says() {
    let app = TestApp::configured(&["--keep-alive-s", "2"]).await;
    for (what, bytes) in [
        ("HTTP/1", ALIVE.into()),
        ("HTTP/2", http2("/livez", None)),
        ("HTTP/2, and the reply is not taken", http2("/openapi.json", Some(0))),
    ] {
        let began = Instant::now();
        let mut client = send(&app, &bytes).await;
        assert!(!to_the_end(&mut client).await.is_empty(), "{what}: no reply");
        assert!(began.elapsed() >= Duration::from_secs(2), "{what}: closed too early");
    }
    assert_eq!(metric(&app.app.metrics.page(), "connections_closed_total{reason=\"idle\"}"), 3);
    eventually("no connection is left", async || {
        metric(&app.app.metrics.page(), "connections") == 0
    })
    .await;
}

/// One client may open as many streams as it likes on a few connections of HTTP/2.
#[tokio::test]
async fn no_network_has_more_than_half_of_the_places_of_watchers() {
    let app = TestApp::configured(&["--watchers-max", "4", "--trusted-proxies", "127.0.0.1"]).await;
    let coupon = app.create_flash(1).await;
    let watch = async |client: &str| {
        let request = app.client().get(format!("{}/v1/coupons/{coupon}/live", app.url));
        let reply = bounded("the reply", request.header("x-forwarded-for", client).send()).await;
        reply.expect("the service answers")
    };
    let hoarded = (watch("2001:db8::1").await, watch("2001:db8::2").await);
    assert_eq!((hoarded.0.status().as_u16(), hoarded.1.status().as_u16()), (200, 200));
    assert_eq!(watch("2001:db8::3").await.status(), 503);
    let other = watch("198.51.100.7").await;
    assert_eq!(other.status(), 200);
    drop(hoarded.0);
    eventually("a place is free again", async || {
        let again = watch("2001:db8::3").await;
        again.status() == 200
    })
    .await;
}

/// A ping is no request: clients that only ping lose their connections.
#[tokio::test]
async fn pings_do_not_keep_a_connection() {
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let app = TestApp::configured(&["--keep-alive-s", "2"]).await;
    let mut client = send(&app, &http2("/livez", None)).await;
    let closed = async {
        while client.write_all(&PING).await.is_ok() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    bounded("the connection is closed", closed).await;
}

#[tokio::test]
#[ignore = "long: make faults"]
async fn long_a_client_that_reads_nothing_is_closed() {
    let app = TestApp::configured(&["--keep-alive-s", "3600"]).await;
    let requests = ALIVE.replace("/livez", "/openapi.json").repeat(300);
    let _client = send(&app, requests.as_bytes()).await;
    let closed = async || {
        metric(&app.app.metrics.page(), "connections_closed_total{reason=\"unread\"}") == 1
    };
    eventually("the connection is closed", closed).await;
}

#[tokio::test]
async fn when_all_connections_are_busy_probes_are_answered_and_others_told_so() {
    let app = TestApp::configured(&["--connections-max", "3"]).await;
    while_busy(&app, 3, async || {
        for path in ["/livez", "/readyz"] {
            let reply = ask(&app, path).await;
            assert!(reply.starts_with("HTTP/1.1 200 "), "{path}: {reply}");
            assert!(reply.contains("connection: close"), "{path}: {reply}");
        }
        let reply = ask(&app, "/v1/coupons").await;
        assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
        for part in ["\"overloaded\"", "retry-after: 2", "connection: close", "x-request-id: "] {
            assert!(reply.contains(part), "{part}: {reply}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_full_house_is_said_in_one_line() {
    let mut app = TestApp::start().await;
    let service = Process::serve(&app, &["--connections-max", "3"]);
    app.url = service.url().await;
    let said = "all connections have requests under way";
    while_busy(&app, 3, async || {
        let began = Instant::now();
        let before = service.said_so_far().matches(said).count();
        for _ in 0..20 {
            let reply = ask(&app, "/v1/coupons").await;
            assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
        }
        service.logged(said).await;
        let lines = service.said_so_far().matches(said).count() - before;
        let pauses = began.elapsed().as_millis() / limits::LOG_LINE_PAUSE.as_millis();
        assert!(lines as u128 <= 1 + pauses, "{lines} lines");
    })
    .await;
}

#[tokio::test]
async fn an_address_has_a_bound_of_its_own() {
    let app = TestApp::configured(&["--address-connections-max", "3"]).await;
    while_busy(&app, 3, async || {
        assert_eq!(ask(&app, "/livez").await, "", "closed without a reply");
    })
    .await;
    let page = app.app.metrics.page();
    assert!(metric(&page, "connections_refused_total{reason=\"address\"}") > 0, "{page}");
    // Idle connections of the address make room for its next one.
    eventually("there is room again", async || alive(&app).await).await;
}

#[tokio::test]
async fn a_trusted_proxy_names_its_clients() {
    let of = |client: &str| [proxied(client), ALIVE.into()].concat();
    let settings = ["--address-connections-max", "1", "--trusted-proxies", "127.0.0.0/8"];
    let app = TestApp::configured(&[&settings[..], &["--proxy-protocol"]].concat()).await;
    let began = Instant::now();
    let mut first = send(&app, &of("192.0.2.7")).await;
    assert!(head(&mut first).await.starts_with("HTTP/1.1 200 "));
    // Its only connection is closed for the next one once it is idle.
    let second = async || {
        let mut client = send(&app, &of("192.0.2.7")).await;
        let mut bytes = [0; 1];
        client.read(&mut bytes).await.is_ok_and(|read| read > 0)
    };
    eventually("a second connection of the client", second).await;
    assert!(began.elapsed() >= limits::EVICTED_AFTER);
    let mut other = send(&app, &of("192.0.2.8")).await;
    assert!(head(&mut other).await.starts_with("HTTP/1.1 200 "));
    // A connection without the header.
    assert_eq!(ask(&app, "/livez").await, "");
}

#[tokio::test]
async fn by_default_no_address_takes_all_connections() {
    let settings = ["--connections-max", "4", "--trusted-proxies", "127.0.0.0/8"];
    let app = TestApp::configured(&[&settings[..], &["--proxy-protocol"]].concat()).await;
    while_busy_from(&app, &proxied("192.0.2.7"), 2, async || {
        let last = ALIVE.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        let mut third = send(&app, &[proxied("192.0.2.7"), last.into()].concat()).await;
        assert_eq!(to_the_end(&mut third).await, b"", "closed without a reply");
        let mut other = send(&app, &[proxied("192.0.2.8"), ALIVE.into()].concat()).await;
        assert!(head(&mut other).await.starts_with("HTTP/1.1 200 "));
    })
    .await;
    let page = app.app.metrics.page();
    assert!(metric(&page, "connections_refused_total{reason=\"address\"}") > 0, "{page}");
}

/// They are of no client yet, so no address has too many.
#[tokio::test]
async fn connections_on_which_a_proxy_names_no_client_make_room() {
    let settings = ["--trusted-proxies", "127.0.0.0/8", "--proxy-protocol"];
    let max = MAX.to_string();
    let app =
        TestApp::configured(&[&settings[..], &["--connections-max", max.as_str()]].concat()).await;
    let room = || metric(&app.app.metrics.page(), "connections_closed_total{reason=\"room\"}");
    let mut hoarded = Vec::new();
    for _ in 0..MAX {
        hoarded.push(send(&app, b"").await);
    }
    let request = ALIVE.replace("/livez", "/v1/coupons");
    eventually("one of them is closed for a client that is named", async || {
        // Anew: the others' time for the header may be over before a place is needed, on a slow machine.
        hoarded.push(send(&app, b"").await);
        let mut client = send(&app, &[proxied("192.0.2.7"), request.clone().into()].concat()).await;
        head(&mut client).await.starts_with("HTTP/1.1 200 ") && room() > 0
    })
    .await;
}

#[tokio::test]
async fn only_a_trusted_proxy_may_name_a_client() {
    let app = TestApp::start().await;
    let header =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x7f\0\0\x01\x12\x34\0P".as_slice();
    let mut client = send(&app, &[header, ALIVE.as_bytes()].concat()).await;
    let reply = to_the_end(&mut client).await;
    assert!(!String::from_utf8_lossy(&reply).contains(" 200 "), "{reply:?}");
}

/// Over HTTP/1.1, hyper's buffer bounds a head (`connections.rs`).
#[tokio::test]
async fn an_oversized_head_over_http2_is_a_problem_with_a_request_id() {
    let app = TestApp::start().await;
    let address = app.url.strip_prefix("http://").expect("a URL");
    let stream = TcpStream::connect(address).await.expect("the service listens");
    let client = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = bounded("a connection", client).await.expect("it speaks HTTP/2");
    let long = |bytes: usize| "x".repeat(bytes);
    let max = limits::HEADER_BYTES_MAX;
    let many: Vec<String> = (0..=limits::HEADERS_MAX).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, String)> = many.iter().map(|name| (&**name, long(1))).collect();
    let asks = async move {
        for (what, path, headers, status, code) in [
            ("a head that fits", "/livez".into(), vec![("x-a", long(max - 200))], 200, ""),
            ("a long header", "/livez".into(), vec![("x-a", long(max))], 431, "head_too_large"),
            (
                "two of a half",
                "/livez".into(),
                vec![("x-a", long(max / 2)); 2],
                431,
                "head_too_large",
            ),
            ("many headers", "/livez".into(), many, 431, "head_too_large"),
            ("a long path", format!("/{}", long(max)), vec![], 414, "uri_too_long"),
            ("a head that fits, again", "/livez".into(), vec![], 200, ""),
        ] {
            let mut request = Request::get(format!("http://x{path}"));
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let request = request.body(Body::empty()).expect("a request");
            let reply = bounded("the reply", client.send_request(request)).await.expect("a reply");
            assert_eq!(reply.status(), status, "{what}");
            if status == 200 {
                continue;
            }
            let id = reply.headers()["x-request-id"].to_str().expect("text").to_owned();
            let body = to_bytes(Body::new(reply.into_body()), 10_000);
            let body = bounded("the body", body).await;
            let body: serde_json::Value =
                serde_json::from_slice(&body.expect("the body comes")).expect("JSON");
            assert_eq!((&body["code"], &body["request_id"]), (&code.into(), &id.into()), "{what}");
        }
        drop(client);
    };
    let (ended, ()) = bounded("the connection ends", join(connection, asks)).await;
    ended.expect("it ends in peace");
}

/// The header of a proxy that names this client (IPv4).
pub fn proxied(client: &str) -> Vec<u8> {
    let IpAddr::V4(client) = client.parse().unwrap() else { panic!("IPv4") };
    let begin = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice();
    [begin, &client.octets(), &[127, 0, 0, 1, 0x12, 0x34, 0, 80]].concat()
}

pub async fn while_busy(app: &TestApp, connections: usize, act: impl AsyncFn()) {
    while_busy_from(app, &[], connections, act).await;
}

/// Does this beside so many connections that begin with these bytes and have a request under way, and wants all of them
/// to be so until its end.
async fn while_busy_from(app: &TestApp, begin: &[u8], connections: usize, act: impl AsyncFn()) {
    // Its body never comes, and the service has asked for it.
    let request = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n",
        app.admin_token()
    );
    for _ in tries() {
        let began = Instant::now();
        let mut busy = Vec::new();
        for _ in 0..connections {
            let mut client = send(app, &[begin, request.as_bytes()].concat()).await;
            assert!(head(&mut client).await.starts_with("HTTP/1.1 100 "));
            busy.push(client);
        }
        let acted = AssertUnwindSafe(act()).catch_unwind().await;
        // Otherwise the machine was so busy that they have been answered.
        if began.elapsed() < limits::REQUEST_TIMEOUT {
            return acted.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

/// Whether a new connection gets an answer other than a refusal.
async fn alive(app: &TestApp) -> bool {
    ask(app, "/v1/coupons").await.starts_with("HTTP/1.1 200 ")
}

/// The reply to a request on a connection of its own; "" if the service closes it.
async fn ask(app: &TestApp, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut client = send(app, request.as_bytes()).await;
    String::from_utf8_lossy(&to_the_end(&mut client).await).into_owned()
}

/// A connection of its own on which these bytes have been sent, as far as the service takes them.
pub async fn send(app: &TestApp, bytes: &[u8]) -> TcpStream {
    let address = app.url.strip_prefix("http://").expect("a URL");
    let mut client = TcpStream::connect(address).await.expect("the service listens");
    let _: Result<_, _> = client.write_all(bytes).await;
    client
}

pub async fn head(client: &mut TcpStream) -> String {
    let mut bytes = vec![0; 1_024];
    let read = bounded("the reply begins", client.read(&mut bytes)).await.unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// All bytes until the service closes the connection, however it does so.
pub async fn to_the_end(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _: Result<_, _> = bounded("the connection ends", client.read_to_end(&mut bytes)).await;
    bytes
}

/// A value on the page of metrics.
pub fn metric(page: &str, name: &str) -> usize {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("flash_sale_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
}

/// A connection of HTTP/2 with one GET; replies may take so many bytes until the client allows more.
pub fn http2(path: &str, window: Option<u8>) -> Vec<u8> {
    let settings = window.map_or(vec![], |bytes| vec![0, 4, 0, 0, 0, bytes]);
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).expect("a short text");
    // HPACK: GET, http, the path, and the authority `x`.
    let block =
        [&[0x82, 0x86, 0x04, length(path.as_bytes())], path.as_bytes(), &[0x01, 1, b'x']].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0, 0, length(&settings), 4, 0, 0, 0, 0, 0][..],
        &settings,
        &[0, 0, length(&block), 1, 5, 0, 0, 0, 1],
        &block,
    ]
    .concat()
}
