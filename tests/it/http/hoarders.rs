//! Clients that hold connections: idle ones, ones that don't read, and ones that are busy all the time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use flash_sale::base::limits;
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::support::process::{Process, program};
use crate::support::{TestApp, bounded, bounded_by, eventually, patience, tries};

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
            ["room", "unread", "idle"].into_iter().map(closed).sum::<usize>() > 0,
            "{what}: {page}"
        );
        assert!(metric(&page, "connections") <= MAX, "{what}");
    }
}

/// One client may open as many streams as it likes on a few connections of HTTP/2.
#[tokio::test]
async fn no_network_has_more_than_half_of_the_places_of_watchers() {
    let app =
        TestApp::configured(&["--connections-max", "8", "--trusted-proxies", "127.0.0.1"]).await;
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

#[tokio::test]
#[ignore = "long: make faults"]
async fn long_a_client_that_reads_nothing_is_closed() {
    let app = TestApp::start().await;
    let requests = ALIVE.replace("/livez", "/openapi.json").repeat(300);
    let _client = send(&app, requests.as_bytes()).await;
    let closed =
        || metric(&app.app.metrics.page(), "connections_closed_total{reason=\"unread\"}") == 1;
    // After one to two turns of half a minute.
    let end = async {
        while !closed() {
            sleep(limits::CONNECTION_CHECK_PERIOD).await;
        }
    };
    bounded_by(2 * patience(), "the end of the connection", end).await;
}

/// Probes have a listener of their own, whose places these are not.
#[tokio::test]
async fn when_all_connections_are_busy_new_ones_wait_and_the_log_says_so_in_one_line() {
    let mut app = TestApp::start().await;
    let settings = ["--connections-max", "3", "--admin-listen", "127.0.0.1:0"];
    let service = Process::serve(&app, &settings);
    app.url = service.url().await;
    let line = service.logged("/livez and /readyz listen on http://").await;
    let (_, operations) = line.split_once("http://").expect("the line has a URL");
    let operations = format!("http://{}", operations.trim());
    let said = "all connections have requests under way";
    let began = Instant::now();
    while_busy(&app, 3, async || {
        let waiting = ask(&app, "/v1/coupons");
        let waits = timeout(Duration::from_secs(1), waiting).await;
        assert!(waits.is_err(), "there was no place for it: {waits:?}");
        let probe = app.client().get(format!("{operations}/livez")).send();
        assert_eq!(bounded("a probe", probe).await.expect("a reply").status(), 200);
        service.logged(said).await;
    })
    .await;
    let lines = service.said_so_far().matches(said).count();
    let pauses = began.elapsed().as_millis() / limits::LOG_LINE_PAUSE.as_millis();
    assert!(lines as u128 <= 1 + pauses, "{lines} lines");
    eventually("there is a place again", async || alive(&app).await).await;
}

/// A process that may open few files goes on, and says once a second what it lacks.
#[tokio::test]
async fn without_a_free_file_no_line_of_the_log_comes_more_than_once_a_second() {
    let mut app = TestApp::start().await;
    let script = "ulimit -n 256; exec \"$0\" \"$@\"";
    let arguments = ["-c", script, env!("CARGO_BIN_EXE_flash-sale"), "serve"];
    let mut command = program("sh", &arguments);
    command.args(["--listen", "127.0.0.1:0", "--database-connections", "5"]);
    command.args(app.store_arguments());
    let service = Process::spawn(command);
    app.url = service.url().await;
    let before = service.said_so_far().len();
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..400 {
        clients.push(send(&app, ALIVE.as_bytes()).await);
    }
    service.logged("a connection could not be accepted").await;
    sleep(Duration::from_secs(3)).await;
    let said = service.said_so_far().split_off(before);
    let most = 2 + began.elapsed().as_secs();
    let mut times: HashMap<&str, u64> = HashMap::new();
    for (_, words) in said.lines().filter_map(|line| line.split_once(" WARN ")) {
        let count = times.entry(words).or_default();
        *count += 1;
        assert!(*count <= most, "{words:?} stands there {count} times");
    }
    drop(clients);
    eventually("it answers again", async || alive(&app).await).await;
}

/// Does this beside so many connections that have a request under way, and wants all of them to be so until its end.
pub async fn while_busy(app: &TestApp, connections: usize, act: impl AsyncFn()) {
    // Its body never comes, and the service has asked for it.
    let request = format!(
        "POST /v1/orders/1/pay HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n",
        app.token(1)
    );
    for _ in tries() {
        let began = Instant::now();
        let mut busy = Vec::new();
        for _ in 0..connections {
            let mut client = send(app, request.as_bytes()).await;
            let head = head(&mut client).await;
            assert!(head.starts_with("HTTP/1.1 100 "), "{head}");
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
    send_to(&app.url, bytes).await
}

/// The same, to the service at this URL.
pub async fn send_to(url: &str, bytes: &[u8]) -> TcpStream {
    let address = url.strip_prefix("http://").expect("a URL");
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
