//! Live states of sales: the first one at once, the newest one soon, no question without a watcher, and an end.

use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::coupon::live::{SaleEvent, Watch, Watching};
use flash_sale::store::ids::CouponId;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::process::Process;
use crate::support::{
    Events, OwnServers, TestApp, bounded, command_calls, eventually, proxy_before,
};

#[tokio::test]
async fn the_whole_state_comes_at_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    let shown = app.get(&format!("/v1/coupons/{coupon}"), "").await.body;
    let before = redis_ms(&app).await;
    let mut event = app.watch(coupon).await.sale().await;
    let now = event["now"].as_i64().expect("Redis tells the time");
    assert!(before <= now && now <= redis_ms(&app).await, "{before} {event}");
    event.as_object_mut().expect("an object").remove("now");
    let ms = |name: &str| {
        let time: chrono::DateTime<chrono::Utc> =
            serde_json::from_value(shown["sale"][name].clone()).expect("a time");
        time.timestamp_millis()
    };
    let expected = json!({
        "coupon_id": coupon, "title": "t", "sub_title": "", "rules": "", "pay_cents": 1, "value_cents": 2, "currency": "CNY",
        "state": "active", "total": 5, "left": 4, "opens_ms": ms("opens_at"), "closes_ms": ms("closes_at"),
        "pay_within_s": app.config.payment_window_s, "revision": 1,
    });
    assert_eq!(event, expected);
}

#[tokio::test]
async fn each_change_is_told() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut events = app.watch(coupon).await;
    app.claim(1, coupon).await;
    until(&mut events, "/left", &json!(4)).await;
    assert_eq!(app.r#move(coupon, "pause").await.status, 200);
    until(&mut events, "/state", &json!("paused")).await;
    assert_eq!(app.edit(coupon, &json!({"title": "another title"})).await.status, 200);
    until(&mut events, "/title", &json!("another title")).await;
    assert_eq!(app.restock(coupon, 3, "k").await.status, 200);
    let event = until(&mut events, "/total", &json!(8)).await;
    assert_eq!((&event["left"], &event["revision"]), (&json!(7), &json!(4)), "{event}");
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    until(&mut events, "/state", &json!("ended")).await;
}

#[tokio::test]
async fn changes_of_a_moment_are_one_event() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(100).await;
    let mut events = app.watch(coupon).await;
    events.sale().await;
    let began = Instant::now();
    for user in 1..=100 {
        app.claim(user, coupon).await;
    }
    let mut told: usize = 0;
    while events.sale().await["left"] != 0 {
        told += 1;
    }
    // The producer looks once a second, however many claims there are.
    let checks = began.elapsed().div_duration_f64(limits::LIVE_PERIOD) + 2.0;
    assert!((told as f64) < checks, "{told} events in {:?}", began.elapsed());
}

#[tokio::test]
async fn a_quiet_stream_is_not_silent() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let began = Instant::now();
    let mut events = app.watch(coupon).await;
    let first = events.sale().await;
    let mut second = bounded("the next event", events.sale()).await;
    // A look may be a little early by this clock.
    assert!(began.elapsed() > limits::LIVE_HEARTBEAT - limits::LIVE_PERIOD, "nothing had changed");
    assert!(second["now"].as_i64() > first["now"].as_i64(), "{first} {second}");
    second["now"] = first["now"].clone();
    assert_eq!(second, first);
}

#[tokio::test]
async fn what_has_no_sale_is_not_watched() {
    let app = TestApp::start().await;
    let regular = app.create_regular().await;
    let reply = app.get(&format!("/v1/coupons/{regular}/live"), "").await;
    assert_eq!(reply.refusal(), (409, "no_sale"));
    let reply = app.get("/v1/coupons/1024000/live", "").await;
    assert_eq!(reply.refusal(), (404, "coupon_not_found"));
    eventually("no producer is left", async || app.app.live.watched() == 0).await;
}

#[tokio::test]
async fn there_is_room_for_so_many_watchers() {
    let app = TestApp::configured(&["--connections-max", "5"]).await;
    let coupon = app.create_flash(5).await;
    let path = format!("/v1/coupons/{coupon}/live");
    let (mut first, second) = (app.watch(coupon).await, app.watch(coupon).await);
    let refused = app.get(&path, "").await;
    assert_eq!(refused.refusal(), (503, "too_many_watchers"));
    assert_eq!(refused.header("retry-after"), limits::WATCHERS_RETRY_AFTER.as_secs().to_string());
    // Claims have the other connections.
    assert_eq!(app.claim(1, coupon).await.status, 202);
    drop(second);
    eventually("the place is free again", async || app.get(&path, "").await.status == 200).await;
    assert_eq!(until(&mut first, "/left", &json!(4)).await["left"], 4);
}

#[tokio::test]
async fn a_sale_without_watchers_costs_no_question() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(5).await;
    let _: () = app.redis(&["CONFIG", "RESETSTAT"]).await;
    let began = Instant::now();
    let mut watchers = Vec::new();
    for _ in 0..20 {
        let mut events = app.watch(coupon).await;
        events.sale().await;
        watchers.push(events);
    }
    app.claim(1, coupon).await;
    for events in &mut watchers {
        until(events, "/left", &json!(4)).await;
    }
    // The claim has asked, too: for the sale, the lane and the shard, and perhaps a second time.
    let checks = began.elapsed().div_duration_f64(limits::LIVE_PERIOD) + 10.0;
    let asked = command_calls(&app, "hmget").await;
    assert!(asked > 3 && (asked as f64) < checks, "{asked} looks for 20 watchers of one sale");
    drop(watchers);
    // Nothing else asks.
    eventually("its producer ends", async || app.app.live.watched() == 0).await;
}

#[tokio::test]
async fn without_redis_the_units_left_and_the_time_are_unknown() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let proxy = proxy_before(&app, "HMGET").await;
    let other = app.another_instance_behind(&proxy).await;
    let mut states = watch(&other, coupon).await;
    assert_eq!(left(&next(&mut states).await), json!(5));
    proxy.cut().await;
    let event = next(&mut states).await;
    assert_eq!((event.now, left(&event)), (None, json!(null)));
    proxy.heal();
    let event = next(&mut states).await;
    assert!(event.now.is_some());
    assert_eq!(left(&event), json!(5));
}

/// A watcher that doesn't read meanwhile is told the newest state next, and none of those before.
#[tokio::test]
async fn a_slow_watcher_skips_to_the_newest_state() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut slow = watch(&app.app, coupon).await;
    let mut quick = watch(&app.app, coupon).await;
    assert_eq!(left(&next(&mut slow).await), json!(5));
    for user in 1..=3 {
        app.claim(user, coupon).await;
        while left(&next(&mut quick).await) != json!(5 - user) {}
    }
    assert_eq!(left(&next(&mut slow).await), json!(2), "not an older state");
}

/// Clients that hold their streams open, and read nothing any more, hold no process up: it ends first, and each stream
/// has been ended as it should be, which the end of a connection's time would not do.
#[tokio::test]
async fn a_process_ends_while_clients_hold_their_streams_open() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut process = Process::serve(&app, &["--roles", "api"]);
    let url = process.url().await;
    let address = url.strip_prefix("http://").expect("a URL");
    let mut held = Vec::new();
    let sale = format!("/v1/coupons/{coupon}/live");
    for path in [&*sale, "/v1/board/live"].repeat(5) {
        let mut client = TcpStream::connect(address).await.expect("the process listens");
        let token = app.admin_token();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.expect("it takes requests");
        let mut text = String::new();
        bounded("the first event", async {
            while !text.contains("\ndata:") {
                let mut bytes = [0; 8_192];
                let count = client.read(&mut bytes).await.expect("the stream goes on");
                assert_ne!(count, 0, "{text}");
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        })
        .await;
        held.push((path, client));
    }
    process.assert_stops().await;
    for (path, mut client) in held {
        let mut rest = Vec::new();
        bounded("the end", client.read_to_end(&mut rest)).await.expect("it was ended, and not cut");
        let rest = String::from_utf8_lossy(&rest);
        let end = "event: bye\ndata: {\"reason\":\"stopping\"}\n\n\r\n0\r\n\r\n";
        assert!(rest.ends_with(end), "{path}: {rest}");
    }
}

#[tokio::test]
async fn a_stop_ends_all_streams() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut process = Process::serve(&app, &[]);
    let url = format!("{}/v1/coupons/{coupon}/live", process.url().await);
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut events = Events::of(app.client().get(&url).send().await.expect("it answers"));
        events.sale().await;
        streams.push(events);
    }
    process.signal(Signal::SIGTERM);
    for events in &mut streams {
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        assert_eq!(last, Some(("bye".to_owned(), json!({"reason": "stopping"}))));
    }
    process.assert_stops().await;
}

// ---- steps of these tests ----

/// Reads states until one has this value.
async fn until(events: &mut Events, pointer: &str, value: &Value) -> Value {
    bounded(&format!("a state with {pointer} {value}"), async {
        loop {
            let event = events.sale().await;
            if event.pointer(pointer) == Some(value) {
                return event;
            }
        }
    })
    .await
}

async fn watch(app: &App, coupon: CouponId) -> Watching {
    match app.live.watch(coupon, None).await.expect("the stores answer") {
        Watch::Watching(watching) => watching,
        _ => panic!("the sale is there"),
    }
}

async fn next(states: &mut Watching) -> SaleEvent {
    bounded("the next state", states.next()).await.expect("there is a producer")
}

fn left(event: &SaleEvent) -> Value {
    serde_json::to_value(event).expect("JSON")["left"].clone()
}

/// The time of Redis.
async fn redis_ms(app: &TestApp) -> i64 {
    let time: Vec<i64> = app.redis(&["TIME"]).await;
    time[0] * 1_000 + time[1] / 1_000
}
