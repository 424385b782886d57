//! Storms of a demo: one at a time, for administrators, within bounds, and with a verdict that says what the stores say.

use std::time::{Duration, Instant};

use flash_sale::base::limits;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::enter;
use crate::support::{Events, OwnServers, Reply, TestApp, bounded, patience, token};

/// Codes that the routes of storms answer to a request of their page, and that it puts into words. With `no_storm`, after
/// a stop, the page has what it wants; its requests are of this site, and are written as they have to be.
pub(super) const CODES: [&str; 6] =
    ["storm_under_way", "invalid_body", "invalid_token", "forbidden", "wrong_host", "unavailable"];

/// Numbers of a verdict that are 0 unless a promise was broken.
const FAULTS: [&str; 5] = ["lost", "oversold", "twice", "unexplained", "turned_away"];

#[tokio::test]
async fn a_storm_ends_with_a_verdict_of_the_service() {
    let app = TestApp::demo().await;
    let mut events = watch(&app).await;
    assert_eq!(next(&mut events).await, Value::Null, "before the first storm");
    let began = Instant::now();
    start(&app, &plan(200, 50, 100)).await;
    let frames = until_done(&app, &mut events).await;
    // Four a second, and one at the begin of each stage. A slow machine has fewer.
    let most = 4 * (began.elapsed().as_secs() as usize + 1) + 5;
    assert!(frames.len() <= most, "{} frames, {most} at most", frames.len());
    let stages: Vec<&str> =
        frames.iter().map(|frame| frame["stage"].as_str().expect("a word")).collect();
    let order = ["arming", "running", "settling", "checking", "done"];
    let places = stages.iter().map(|stage| order.iter().position(|known| known == stage));
    assert!(places.is_sorted(), "{stages:?}");

    let last = frames.last().expect("there is one");
    let verdict = &last["verdict"];
    assert_eq!(verdict["word"], "kept", "{last}");
    for name in ["sold", "rows", "buyers", "looked_up"] {
        assert_eq!(verdict[name], 50, "{name}: {last}");
    }
    for name in FAULTS {
        assert_eq!(verdict[name], 0, "{name}: {last}");
    }
    assert!(verdict["last_row_ms"].is_i64() && verdict["sold_out_ms"].is_u64(), "{last}");
    assert!(verdict["p50_us"].as_u64() <= verdict["p99_us"].as_u64(), "{last}");
    assert_eq!(last["counts"], json!({"won": 50, "sold_out": 150}));
    assert_eq!(last["repeats"], json!({"same": 200, "other": 0}));
    assert_eq!(
        (&last["answered"], &last["left"], &last["rows"]),
        (&json!(200), &json!(0), &json!(50))
    );
    assert_eq!(of_runs(last["runs"].as_str().expect("a text")), 200);
    // No second has more answers than there are shoppers.
    let [mean, peak] = ["mean", "peak"].map(|name| last[name].as_u64().expect("a number"));
    assert!((1..=peak).contains(&mean) && peak <= 200, "{last}");

    // One of its claims can be followed, and only then.
    let (over, under_way) = frames.split_last().expect("there is one");
    assert!(under_way.iter().all(|frame| frame["followed"].is_null()), "{under_way:?}");
    let followed = over["followed"].as_str().expect("an order");
    let trace = app.get(&format!("/v1/orders/{followed}/trace"), &app.admin_token()).await;
    assert_eq!((trace.status, &trace.body["coupon_id"]), (200, &over["coupon_id"]), "{trace:?}");
    let steps = trace.body["steps"].as_array().expect("a list");
    assert!(steps.iter().all(|step| step["took_us"].is_u64()), "{trace:?}");

    // Its sale is over, and the numbers are those of the stores.
    let coupon = last["coupon_id"].as_str().expect("an id");
    let shown = app.get(&format!("/v1/coupons/{coupon}"), "").await;
    assert_eq!(shown.body["state"], "ended");
    let rows = app.number(&format!("SELECT count(*) FROM orders WHERE coupon_id = {coupon}")).await;
    assert_eq!(rows, 50);
    // A later watcher is shown the last storm.
    assert_eq!(next(&mut watch(&app).await).await["verdict"]["word"], "kept");
}

#[tokio::test]
async fn a_row_that_vanishes_is_called_lost() {
    let app = TestApp::demo().await;
    app.expect_disagreements();
    // But the last one, which the worker would miss.
    let statement =
        "DELETE FROM orders WHERE id = (SELECT min(id) FROM orders HAVING count(*) > 1)";
    app.execute(&at_each_insert(statement)).await;
    start(&app, &plan(40, 10, 0)).await;
    let frames = until_done(&app, &mut watch(&app).await).await;
    let verdict = &frames.last().expect("there is one")["verdict"];
    let lost = verdict["lost"].as_i64().expect("a number");
    assert!(lost >= 1, "{verdict}");
    assert_eq!(
        (&verdict["word"], &verdict["rows"]),
        (&json!("broken"), &json!(10 - lost)),
        "{verdict}"
    );
}

/// Another sale has seven rows that came ten days after their claims. Each batch of the storm also writes a cancelled
/// order whose row is two days late, and the row of the storm's first order is an hour late.
#[tokio::test]
async fn counted_rows_and_last_row_ms_of_a_storm_are_those_of_its_sale() {
    let app = TestApp::demo().await;
    app.expect_disagreements();
    let other = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT n, {other}, 'flash', n, now() - interval '10 days' FROM generate_series(1, 7) AS n;
         UPDATE flash_sales SET sold = 7 WHERE coupon_id = {other}"
    ))
    .await;
    app.execute(&at_each_insert(&format!(
        "UPDATE orders SET created_at = claimed_at + interval '1 hour'
             WHERE id = (SELECT min(id) FROM orders WHERE coupon_id <> {other} AND status = 'unpaid');
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             SELECT 70, coupon_id, 'flash', 70, now() - interval '2 days', 'cancelled', now()
             FROM orders WHERE coupon_id <> {other} LIMIT 1 ON CONFLICT DO NOTHING"
    )))
    .await;
    start(&app, &plan(20, 10, 0)).await;
    let frames = until_done(&app, &mut watch(&app).await).await;
    let last = frames.last().expect("there is one");
    let told = (&last["rows"], &last["verdict"]["rows"], &last["verdict"]["last_row_ms"]);
    assert_eq!(told, (&json!(10), &json!(10), &json!(3_600_000)), "{last}");
}

#[tokio::test]
async fn a_row_beyond_the_stock_is_called_oversold() {
    let app = TestApp::demo().await;
    app.expect_disagreements();
    let statement = "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
        SELECT 7, coupon_id, 'flash', 7, now() FROM orders LIMIT 1 ON CONFLICT DO NOTHING";
    app.execute(&at_each_insert(statement)).await;
    start(&app, &plan(40, 10, 0)).await;
    let frames = until_done(&app, &mut watch(&app).await).await;
    let verdict = &frames.last().expect("there is one")["verdict"];
    let told = ["word", "rows", "oversold", "unexplained", "lost"].map(|name| &verdict[name]);
    let expected = [&json!("broken"), &json!(11), &json!(1), &json!(1), &json!(0)];
    assert_eq!(told, expected, "{verdict}");
}

#[tokio::test]
async fn without_a_store_there_is_no_verdict() {
    let mut servers = OwnServers::durable();
    let app = TestApp::demo_on(&servers.at).await;
    app.expect_disagreements();
    let mut events = watch(&app).await;
    start(&app, &plan(20, 10, 0)).await;
    // No worker writes, so the storm waits.
    until(&mut events, "settling").await;
    servers.kill_redis();
    let last = until(&mut events, "done").await;
    let said = ["verdict", "no_verdict", "left"].map(|name| &last[name]);
    assert_eq!(said, [&Value::Null, &json!("store_away"), &Value::Null], "{last}");
}

#[tokio::test]
async fn one_storm_at_a_time_and_it_can_be_stopped() {
    let app = TestApp::demo().await;
    let mut events = watch(&app).await;
    let long = json!({"shoppers": 50, "stock": 10, "over_s": 60, "twice_percent": 0});
    start(&app, &long).await;
    assert_eq!(post(&app, &long).await.refusal(), (409, "storm_under_way"));
    // Nothing is broken where somebody else runs the servers.
    assert_eq!(until(&mut events, "running").await["troubles"], json!([]));
    let (path, freeze) = ("/demo/storms/current/troubles", json!({"trouble": "freeze_redis"}));
    let refused = app.post(path, &app.admin_token(), &freeze).await;
    assert_eq!(refused.refusal(), (404, "no_storm"));
    assert_eq!(stop(&app).await.status, 202);
    let last = until(&mut events, "done").await;
    assert_eq!((&last["verdict"], &last["no_verdict"]), (&Value::Null, &json!("stopped")));
    assert!(last["answered"].as_u64() < Some(50), "{last}");
    // Nothing is left to be stopped, and the next one may begin.
    bounded("the end of the storm", async {
        while stop(&app).await.refusal() != (404, "no_storm") {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    start(&app, &plan(5, 5, 0)).await;
    let frames = until_done(&app, &mut events).await;
    let last = frames.last().expect("there is one");
    assert_eq!((&last["verdict"]["word"], &last["counts"]), (&json!("kept"), &json!({"won": 5})));
}

#[tokio::test]
async fn a_storm_is_for_administrators_and_within_bounds() {
    let app = TestApp::demo().await;
    let path = format!("{}/demo/storms/current", app.url);
    for (who, status, code) in [("", 401, "invalid_token"), (&*token(5), 403, "forbidden")] {
        let started = app.client().post(format!("{}/demo/storms", app.url)).json(&plan(5, 5, 0));
        let last = app.client().get(format!("{}/demo/storms/last", app.url));
        for request in [started, last, app.client().get(&path), app.client().delete(&path)] {
            let request = if who.is_empty() { request } else { request.bearer_auth(who) };
            let refused = app.send(request, "GET", "/demo/storms").await;
            assert_eq!(refused.refusal(), (status, code));
        }
    }
    for host in ["example.org", "192.0.2.1:8080"] {
        let last = app.client().get(format!("{}/demo/storms/last", app.url));
        for request in [last, app.client().get(&path), app.client().delete(&path)] {
            let request = request.bearer_auth(app.admin_token()).header("host", host);
            let refused = app.send(request, "GET", "/demo/storms/current").await;
            assert_eq!(refused.refusal(), (421, "wrong_host"), "{host}");
        }
    }
    let cross = app.client().delete(&path).bearer_auth(app.admin_token());
    let cross = app.send(cross.header("origin", "http://example.org"), "DELETE", "/demo").await;
    assert_eq!(cross.refusal(), (403, "cross_site"));
    for (name, wrong) in [
        ("shoppers", json!(0)),
        ("shoppers", json!(limits::STORM_SHOPPERS_MAX + 1)),
        ("shoppers", json!(-1)),
        ("shoppers", json!(1.5)),
        ("shoppers", json!("5")),
        ("shoppers", Value::Null),
        ("stock", json!(0)),
        ("stock", json!(limits::STORM_SHOPPERS_MAX + 1)),
        ("over_s", json!(limits::STORM_SECONDS_MAX + 1)),
        ("over_s", json!(-1)),
        ("twice_percent", json!(101)),
        ("url", json!("http://192.0.2.1")),
    ] {
        let mut body = plan(5, 5, 0);
        body[name] = wrong;
        let refused = post(&app, &body).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{body}");
        assert_eq!(refused.body["errors"][0]["pointer"], format!("/{name}"), "{refused:?}");
    }
    assert_eq!(stop(&app).await.refusal(), (404, "no_storm"), "none of these has started one");
}

#[tokio::test]
async fn there_is_room_for_so_many_watchers_and_a_stop_ends_them() {
    let app = TestApp::demo().await;
    let mut watchers = Vec::new();
    for _ in 0..limits::STORM_WATCHERS_MAX {
        watchers.push(watch(&app).await);
    }
    let path = format!("{}/demo/storms/current", app.url);
    let request = app.client().get(path).bearer_auth(app.admin_token());
    let refused = app.send(request, "GET", "/demo/storms/current").await;
    assert_eq!(refused.refusal(), (503, "too_many_watchers"));
    start(&app, &json!({"shoppers": 5, "stock": 5, "over_s": 60, "twice_percent": 0})).await;
    assert!(app.app.shutdown.stop(patience()).await, "a task hangs");
    for events in &mut watchers {
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        assert_eq!(last, Some(("bye".to_owned(), json!({"reason": "stopping"}))));
    }
}

#[tokio::test]
async fn a_quiet_stream_is_not_silent() {
    let app = TestApp::demo().await;
    let began = Instant::now();
    let mut events = watch(&app).await;
    assert_eq!(next(&mut events).await, Value::Null, "there was no storm");
    assert_eq!(next(&mut events).await, Value::Null, "the same once more");
    assert!(began.elapsed() >= limits::LIVE_HEARTBEAT, "nothing had changed");
}

/// A page that doesn't read meanwhile is told the verdict next, and no earlier state.
#[tokio::test]
async fn a_slow_watcher_skips_to_the_newest_state() {
    let app = TestApp::demo().await;
    let mut slow = app.app.storms.watch().expect("there is room");
    assert_eq!(bounded("a state", slow.next()).await, Some(None));
    start(&app, &plan(20, 5, 0)).await;
    let frames = until_done(&app, &mut watch(&app).await).await;
    assert!(frames.len() > 2, "{frames:?}");
    let told = bounded("a state", slow.next()).await.flatten().expect("a storm");
    assert_eq!(serde_json::to_value(&*told).expect("JSON"), frames[frames.len() - 1]);
}

/// A page without a place asks.
#[tokio::test]
async fn the_last_storm_can_be_asked_for_without_a_place() {
    let app = TestApp::demo().await;
    let last = async || app.get("/demo/storms/last", &app.admin_token()).await;
    assert_eq!((last().await.status, last().await.body), (200, Value::Null));
    let mut places = Vec::new();
    for _ in 0..limits::STORM_WATCHERS_MAX {
        places.push(watch(&app).await);
    }
    start(&app, &plan(20, 5, 0)).await;
    let frames = until_done(&app, places.last_mut().expect("one")).await;
    let asked = last().await;
    assert_eq!((asked.status, Some(&asked.body)), (200, frames.last()));
}

#[tokio::test]
async fn only_the_demo_has_storms() {
    let app = TestApp::configured(&["--pages", "shop"]).await;
    for path in ["/storm", "/demo/storms/current", "/demo/storms/last"] {
        assert_eq!(app.get(path, &app.admin_token()).await.refusal(), (404, "not_found"), "{path}");
    }
    assert_eq!(enter(&app, "/demo/storms", &[]).await.refusal(), (404, "not_found"));
}

// ---- steps of these tests ----

/// All arrive at once.
fn plan(shoppers: u32, stock: u32, twice_percent: u32) -> Value {
    json!({"shoppers": shoppers, "stock": stock, "over_s": 0, "twice_percent": twice_percent})
}

async fn post(app: &TestApp, plan: &Value) -> Reply {
    app.post("/demo/storms", &app.admin_token(), plan).await
}

async fn start(app: &TestApp, plan: &Value) {
    let started = post(app, plan).await;
    assert_eq!(started.status, 202, "{started:?}");
}

async fn stop(app: &TestApp) -> Reply {
    let request = app.client().delete(format!("{}/demo/storms/current", app.url));
    app.send(request.bearer_auth(app.admin_token()), "DELETE", "/demo/storms/current").await
}

async fn watch(app: &TestApp) -> Events {
    let request = app.client().get(format!("{}/demo/storms/current", app.url));
    Events::of(request.bearer_auth(app.admin_token()).send().await.expect("it answers"))
}

async fn next(events: &mut Events) -> Value {
    let (name, storm) = bounded("a state", events.next()).await.expect("the stream goes on");
    assert_eq!(name, "storm");
    storm
}

async fn until(events: &mut Events, stage: &str) -> Value {
    bounded(&format!("the stage {stage}"), async {
        loop {
            let frame = next(events).await;
            if frame["stage"] == stage {
                return frame;
            }
        }
    })
    .await
}

/// All states until the storm is over, while a worker writes.
async fn until_done(app: &TestApp, events: &mut Events) -> Vec<Value> {
    let write = async {
        loop {
            app.write_orders().await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    let read = async {
        let mut frames = Vec::new();
        loop {
            let frame = next(events).await;
            let is_over = frame["stage"] == "done";
            frames.push(frame);
            if is_over {
                return frames;
            }
        }
    };
    tokio::select! {
        frames = bounded("the end of the storm", read) => frames,
        () = write => unreachable!("it writes for ever"),
    }
}

/// Shoppers in runs like `w12s3`.
fn of_runs(runs: &str) -> u64 {
    let numbers = runs.split(|letter: char| letter.is_ascii_alphabetic()).skip(1);
    numbers.map(|number| number.parse::<u64>().expect("a number")).sum()
}

/// Has Postgres run a statement behind each INSERT of orders, once.
fn at_each_insert(statement: &str) -> String {
    format!(
        "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF pg_trigger_depth() = 1 THEN {statement}; END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER meddle AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION meddle()"
    )
}
