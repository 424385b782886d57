//! Ends of connections with time in the test's hand: requests that come late, replies that take too long, and clients that
//! never read.

use std::pin::pin;
use std::time::Duration;

use flash_sale::base::limits;
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use super::{head, held_list, metric, send, to_the_end};
use crate::http::pages::by_hand::{pass, redis_settles, still};
use crate::support::{PATIENCE, TestApp, eventually};

const ALIVE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

fn open(app: &TestApp) -> usize {
    metric(&app.app.metrics.page(), "connections")
}

fn closed(app: &TestApp, reason: &str) -> usize {
    let name = format!("connections_closed_total{{reason=\"{reason}\"}}");
    metric(&app.app.metrics.page(), &name)
}

/// Time passes, and connections are read and written.
async fn later(app: &TestApp, time: Duration) {
    pass(time).await;
    redis_settles(app).await;
}

/// A client with hardly any room for a reply, which sends this and never reads.
async fn silent(app: &TestApp, request: &str) -> TcpStream {
    let address = app.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("the system lets us");
    let mut client = socket.connect(address).await.expect("the service listens");
    client.write_all(request.as_bytes()).await.expect("the service is there");
    client
}

/// Many large replies in a row.
fn many() -> String {
    "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(300)
}

#[tokio::test]
async fn a_request_that_comes_right_after_a_stop_is_answered_and_a_later_one_is_not() {
    let app = TestApp::start().await;
    let mut clients = [send(&app, ALIVE).await, send(&app, ALIVE).await];
    for client in &mut clients {
        assert!(head(client).await.starts_with("HTTP/1.1 200 "));
    }
    let [mut late, mut idle] = clients;
    tokio::time::pause();
    let mut stopped = pin!(app.app.shutdown.stop(PATIENCE));
    assert!(stopped.as_mut().now_or_never().is_none());
    later(&app, Duration::ZERO).await;
    later(&app, limits::LATE_REQUEST_MAX / 2).await;
    assert_eq!(open(&app), 2, "a request may come");
    still(late.write_all(ALIVE)).await.expect("it is open");
    let reply = String::from_utf8(still(to_the_end(&mut late)).await).expect("text");
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("ok\n"), "{reply}");
    assert!(reply.contains("connection: close"), "{reply}");
    assert!(idle.read_u8().now_or_never().is_none(), "it is open");
    later(&app, limits::LATE_REQUEST_MAX / 2).await;
    assert_eq!(still(to_the_end(&mut idle)).await, b"", "it is closed without a word");
    assert!(still(stopped).await, "a task hangs");
    assert_eq!(open(&app), 0);
}

/// A stop waits for the reply to a request under way for four seconds, and then closes the connection without it.
#[tokio::test]
async fn a_stop_waits_four_seconds_for_a_reply() {
    let app = TestApp::start().await;
    let (lock, mut held) = held_list(&app).await;
    tokio::time::pause();
    let mut stopped = pin!(app.app.shutdown.stop(PATIENCE));
    assert!(stopped.as_mut().now_or_never().is_none());
    later(&app, Duration::ZERO).await;
    later(&app, limits::LATE_REQUEST_MAX).await;
    later(&app, limits::DOOR_DRAIN_MAX - Duration::from_millis(100)).await;
    assert_eq!((open(&app), held.read_u8().now_or_never().is_none()), (1, true));
    later(&app, Duration::from_millis(100)).await;
    assert_eq!(open(&app), 0);
    assert_eq!(still(to_the_end(&mut held)).await, b"");
    assert!(still(stopped).await, "a task hangs");
    still(lock.rollback()).await.expect("Postgres answers");
}

/// A reply of known length is waited for, unlike a stream, though nothing of it is taken.
#[tokio::test]
async fn a_stop_waits_for_a_client_that_does_not_read_a_whole_reply() {
    let app = TestApp::start().await;
    let _client = silent(&app, &many()).await;
    let answered = || app.app.metrics.tally.requests.get();
    eventually("the kernel takes no more", async || {
        let before = answered();
        sleep(Duration::from_millis(300)).await;
        before > 0 && answered() == before
    })
    .await;
    tokio::time::pause();
    let mut stopped = pin!(app.app.shutdown.stop(PATIENCE));
    assert!(stopped.as_mut().now_or_never().is_none());
    later(&app, Duration::ZERO).await;
    for time in [limits::LATE_REQUEST_MAX, limits::STREAM_STOP_MAX * 3, limits::STREAM_STOP_MAX] {
        later(&app, time).await;
        assert_eq!((open(&app), closed(&app, "unread")), (1, 0));
    }
    later(&app, limits::DOOR_DRAIN_MAX).await;
    assert_eq!((open(&app), closed(&app, "unread")), (0, 0));
    assert!(still(stopped).await, "a task hangs");
}

/// The stop looks at the connection itself: the table, which watches over streams before, looks no more.
#[tokio::test]
async fn a_stop_closes_a_stream_that_is_left_unread() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let long = "UPDATE coupons SET rules = repeat('long', 1000000)";
    app.execute(&format!("{long} WHERE id = {coupon}")).await;
    let answered = app.app.metrics.tally.requests.get();
    let live = format!("GET /v1/coupons/{coupon}/live HTTP/1.1\r\nhost: x\r\n\r\n");
    let _client = silent(&app, &live).await;
    let requests = || app.app.metrics.tally.requests.get();
    eventually("its first event fills all room", async || requests() > answered).await;
    tokio::time::pause();
    let mut stopped = pin!(app.app.shutdown.stop(PATIENCE));
    assert!(stopped.as_mut().now_or_never().is_none());
    later(&app, Duration::ZERO).await;
    later(&app, limits::LATE_REQUEST_MAX).await;
    assert_eq!((open(&app), closed(&app, "unread")), (1, 0), "it has a moment");
    later(&app, limits::STREAM_STOP_MAX).await;
    assert_eq!((open(&app), closed(&app, "unread")), (0, 1));
    assert!(still(stopped).await, "a task hangs");
}

/// A connection that is overdue has a second for its last bytes.
#[tokio::test]
async fn a_client_that_takes_nothing_is_closed_after_its_time_and_a_second() {
    let app = TestApp::configured(&["--keep-alive-s", "3600"]).await;
    let _client = silent(&app, &many()).await;
    tokio::time::pause();
    // When the service has noticed that the client takes nothing depends on the room that the kernel has.
    let mut passed = Duration::ZERO;
    while closed(&app, "unread") == 0 {
        assert!(passed <= limits::WRITE_TIMEOUT * 4, "it is never noticed");
        later(&app, Duration::from_secs(5)).await;
        passed += Duration::from_secs(5);
    }
    assert!(passed >= limits::WRITE_TIMEOUT, "too early: {passed:?}");
    assert_eq!(open(&app), 1, "it has a second");
    later(&app, limits::OVERDUE_CLOSE_MAX).await;
    assert_eq!(open(&app), 0);
}

/// A stream lasts for longer than an idle connection, as long as its client reads.
#[tokio::test]
async fn a_stream_that_is_read_is_no_idle_connection() {
    let app = TestApp::configured(&["--keep-alive-s", "10"]).await;
    let coupon = app.create_flash(1).await;
    let request = format!("GET /v1/coupons/{coupon}/live HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut client = send(&app, request.as_bytes()).await;
    assert!(head(&mut client).await.starts_with("HTTP/1.1 200 "));
    tokio::time::pause();
    let mut bytes = [0; 8_192];
    for second in 1..=25 {
        later(&app, limits::LIVE_PERIOD).await;
        while let Some(read) = client.read(&mut bytes).now_or_never() {
            assert_ne!(read.expect("it goes on"), 0, "closed in second {second}");
        }
    }
    assert_eq!(open(&app), 1, "that of the client which has made the coupon is closed");
    drop(client);
    later(&app, limits::LIVE_PERIOD * 6).await;
    assert_eq!(open(&app), 0);
}

/// A request has its time. Its client is at fault where the body has not come, and else the service.
#[tokio::test]
async fn a_reply_that_takes_too_long_says_whether_the_body_was_awaited() {
    let app = TestApp::configured(&["--database-connections", "2"]).await;
    let pool = &app.app.stores.pool;
    let taken = [
        pool.acquire().await.expect("Postgres answers"),
        pool.acquire().await.expect("Postgres answers"),
    ];
    let wait = app.config.stores.database_timeout() * limits::POSTGRES_ACQUIRE_TIMEOUTS;
    assert!(wait > limits::REQUEST_TIMEOUT, "the pool gives up later");
    let body = r#"{"kind":"regular","title":"t","pay_cents":1,"value_cents":2}"#;
    let create = |length: usize| {
        format!(
            "POST /v1/coupons HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            app.admin_token()
        )
    };
    tokio::time::pause();
    let mut whole = still(send(&app, create(body.len()).as_bytes())).await;
    let mut half = still(send(&app, create(body.len() + 1).as_bytes())).await;
    later(&app, Duration::ZERO).await;
    later(&app, limits::REQUEST_TIMEOUT - Duration::from_millis(100)).await;
    for client in [&mut whole, &mut half] {
        assert!(client.read_u8().now_or_never().is_none(), "it has its time");
    }
    later(&app, Duration::from_millis(100)).await;
    let (whole, half) = (still(head(&mut whole)).await, still(head(&mut half)).await);
    assert!(whole.starts_with("HTTP/1.1 503 "), "the service was too slow: {whole}");
    assert!(half.starts_with("HTTP/1.1 408 "), "the client was too slow: {half}");
    drop(taken);
}
