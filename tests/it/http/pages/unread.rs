//! Watchers that never read: each is cut off after a while, keeps little of the machine until then, and holds up neither
//! other watchers nor a stop.

use flash_sale::base::limits;
use flash_sale::store::ids::CouponId;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::http::hoarders::{http2, metric, to_the_end};
use crate::support::{Events, TestApp, bounded, patience};

/// Units of the sale; each is a claim, so an event.
const UNITS: i64 = 1_000;

/// Most bytes that a client which doesn't read may find waiting for it: what the kernels on both sides and the connection
/// itself hold. Without a bound the kernel takes some millions.
const WAITING_BYTES_MAX: usize = 512 * 1024;

#[tokio::test]
async fn who_never_reads_is_cut_off_and_holds_up_no_other_watcher() {
    let app = TestApp::start().await;
    let (coupon, mut events) = wordy_sale(&app).await;
    let mut silent = [
        silent(&app, &http1(&live(coupon), "")).await,
        silent(&app, &http1("/v1/board/live", &app.admin_token())).await,
        // Of HTTP/2, which reads what comes and allows no more of it.
        silent(&app, &http2(&live(coupon), Some(100))).await,
    ];
    let mut left = UNITS;
    while unread(&app) < silent.len() {
        left = next_claim(&app, coupon, left, &mut events).await;
    }
    for client in &mut silent[..2] {
        let waiting = to_the_end(client).await.len();
        assert!((1..WAITING_BYTES_MAX).contains(&waiting), "{waiting} bytes were kept for it");
    }
    next_claim(&app, coupon, left, &mut events).await;
    let taken = app.app.live.places().taken();
    assert_eq!(taken, 1, "a place is kept by a watcher that is gone");
}

#[tokio::test]
async fn a_stop_ends_beside_watchers_that_never_read() {
    let app = TestApp::start().await;
    let (coupon, mut events) = wordy_sale(&app).await;
    let _silent = [
        silent(&app, &http1(&live(coupon), "")).await,
        silent(&app, &http2(&live(coupon), Some(100))).await,
    ];
    // By then there is no room for a further event, not even for the last one.
    let (mut left, mut told) = (UNITS, 0);
    while told < limits::SEND_BUFFER as usize * 6 {
        left = next_claim(&app, coupon, left, &mut events).await;
        told += EVENT_BYTES;
    }
    assert_eq!(unread(&app), 0, "this machine is too slow: they are cut off already");
    let last = async {
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        last
    };
    let (stopped, last) = tokio::join!(app.app.shutdown.stop(patience()), bounded("the end", last));
    assert!(stopped);
    assert_eq!(last, Some(("bye".to_owned(), json!({"reason": "stopping"}))));
}

// ---- steps of these tests ----

/// Bytes of an event of the sale below, at least.
const EVENT_BYTES: usize = 12_000;

/// A sale whose events are long, and one that watches it.
async fn wordy_sale(app: &TestApp) -> (CouponId, Events) {
    let coupon = app.create_flash(UNITS).await;
    let rules = "规".repeat(EVENT_BYTES / "规".len());
    assert_eq!(app.edit(coupon, &json!({"rules": rules})).await.status, 200);
    // Longer than a request of the tests may take.
    let request = app.client().get(app.url.clone() + &live(coupon)).timeout(patience() * 6);
    let events = Events::of(request.send().await.expect("the service answers"));
    (coupon, events)
}

/// The next user claims a unit, which the watcher that reads is told. Returns the units left.
async fn next_claim(app: &TestApp, coupon: CouponId, left: i64, events: &mut Events) -> i64 {
    assert_eq!(app.claim(left, coupon).await.status, 202);
    let told = async { while events.sale().await["left"] != left - 1 {} };
    bounded("the claim is told", told).await;
    left - 1
}

fn live(coupon: CouponId) -> String {
    format!("/v1/coupons/{coupon}/live")
}

/// A request of HTTP/1.1, with a token or none.
fn http1(path: &str, token: &str) -> Vec<u8> {
    let token = match token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n{token}\r\n").into()
}

/// A connection of a client that sends these bytes and has hardly any room for an answer.
async fn silent(app: &TestApp, bytes: &[u8]) -> TcpStream {
    let address = app.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("the system lets us");
    let mut client = socket.connect(address).await.expect("the service listens");
    client.write_all(bytes).await.expect("the service is there");
    client
}

/// Connections that were closed because their clients didn't read.
fn unread(app: &TestApp) -> usize {
    metric(&app.app.metrics.page(), "connections_closed_total{reason=\"unread\"}")
}
