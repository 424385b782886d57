//! The feed: each move is told once its transaction has ended, and none is passed by.

use flash_sale::base::clock::Clock;
use flash_sale::base::gauges::Gauge;
use flash_sale::events;
use flash_sale::kit::jwt::Scope;
use serde_json::{Value, json};

use super::id;
use crate::support::{Bounded, OwnServers, TestApp, eventually, lane, scoped_token};

/// Type and subject of each event.
fn told(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), event["subject"].as_str().unwrap_or("")))
        .collect()
}

async fn run_once(app: &TestApp) {
    app.app.retention.run_once().bounded().await.expect("Postgres answers");
}

async fn stalled(app: &TestApp) -> Gauge {
    events::stalled(&app.app.stores.pool).bounded().await.expect("Postgres answers")
}

/// Notes an event by hand, as the trigger of an order does.
fn note(name: &str) -> String {
    format!("INSERT INTO events (type, data) VALUES ('{name}', '{{}}')")
}

#[tokio::test]
async fn each_move_of_orders_and_coupons_is_told_in_its_order() {
    let app = TestApp::with_events().await;
    let coupon = app.create_flash(3).await;
    for user in 1..=3 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    let orders: Vec<i64> = app.numbers("SELECT id FROM orders ORDER BY user_id").await;
    assert_eq!(app.pay(1, orders[0]).await.status, 200);
    assert_eq!(app.redeem(orders[0]).await.status, 200);
    assert_eq!(app.pay(2, orders[1]).await.status, 200);
    assert_eq!(app.act(2, orders[1], "refund").await.status, 200);
    app.app.payments.refund_job().bounded().await.expect("Postgres answers");
    assert_eq!(app.cancel(3, orders[2]).await.status, 200);
    assert_eq!(app.restock(coupon, 5, "k").await.status, 200);
    for action in ["pause", "resume", "end"] {
        assert_eq!(app.r#move(coupon, action).await.status, 200);
    }
    let events = app.events(None, 13).await;
    let (of_coupon, order) =
        (format!("coupons/{coupon}"), |at: usize| format!("orders/{}", orders[at]));
    let [first, second, third] = [order(0), order(1), order(2)];
    let expected = [
        ("coupon.created", &*of_coupon),
        ("order.claimed", ""),
        ("coupon.sold_out", &of_coupon),
        ("order.paid", &first),
        ("order.redeemed", &first),
        ("order.paid", &second),
        ("order.refunding", &second),
        ("order.refunded", &second),
        ("order.cancelled", &third),
        ("coupon.restocked", &of_coupon),
        ("coupon.paused", &of_coupon),
        ("coupon.resumed", &of_coupon),
        ("coupon.ended", &of_coupon),
    ];
    assert_eq!(told(&events), expected);
    let claimed = events[1]["data"]["orders"].as_array().expect("a list");
    let one = json!({"order_id": orders[0].to_string(), "coupon_id": coupon, "user_id": "1", "pay_cents": 1, "move": 1});
    assert!(claimed.len() == 3 && claimed.contains(&one), "{claimed:?}");
    let moves: Vec<i64> =
        [3, 4, 6, 7].map(|at| events[at]["data"]["move"].as_i64().unwrap()).into();
    assert_eq!(moves, [2, 3, 3, 4]);
    // Each page begins behind the one before.
    let mut after = id(&events[0]).to_owned();
    for expected in &events[1..] {
        let page = app.integrate(&format!("/v1/events?limit=1&after={after}")).await;
        assert_eq!(page.header("content-type"), "application/cloudevents-batch+json");
        assert_eq!(page.body, json!([expected]));
        id(expected).clone_into(&mut after);
    }
    app.events(Some(&after), 0).await;
}

/// The writer pays an order that costs nothing; its claim tells that.
#[tokio::test]
async fn an_expired_order_a_regular_and_a_free_one_are_told_too() {
    let app = TestApp::configured(&["--events", "--payment-window-s", "1"]).await;
    let coupon = app.create_regular().await;
    let order = app.claim(1, coupon).await.order_id();
    eventually("it has expired", async || {
        app.app.expiry.run_once().bounded().await.expect("Postgres answers").items > 0
    })
    .await;
    app.execute(&format!("UPDATE coupons SET pay_cents = 0, revision = 2 WHERE id = {coupon}"))
        .await;
    assert_eq!(app.claim(2, coupon).await.status, 201);
    let sale = app.create_flash(1).await;
    app.execute(&format!("UPDATE coupon_prices SET pay_cents = 0 WHERE coupon_id = {sale}")).await;
    assert_eq!(app.claim(3, sale).await.status, 202);
    app.write_orders().await;
    let events = app.events(None, 7).await;
    let names: Vec<&str> = told(&events).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "coupon.created",
            "order.claimed",
            "order.expired",
            "order.claimed",
            "coupon.created",
            "order.claimed",
            "coupon.sold_out"
        ]
    );
    assert_eq!(events[1]["data"]["orders"][0]["order_id"], order.to_string());
    for free in [3, 5] {
        assert_eq!(events[free]["data"]["orders"][0]["pay_cents"], 0, "{}", events[free]);
    }
    assert_eq!(app.number("SELECT count(*) FROM orders WHERE status = 'paid'").await, 2);
}

#[tokio::test]
async fn matters_of_the_service_are_told() {
    let app = TestApp::with_events().await;
    app.expect_disagreements();
    app.append(lane(), &["nonsense", "x"]).await;
    app.write_orders().await;
    app.execute(
        "INSERT INTO reconcile_runs (asked_by) VALUES ('period');
         UPDATE reconcile_runs SET finished_at = now(), at_rest = true, sales = 1, in_flight = 0, disagreements = 2;
         INSERT INTO recoveries (lane, epoch, reason, closed_at) VALUES (0, 1, 'x', now());
         UPDATE recoveries SET opened_at = now(), lost = '[{\"order_id\": \"7\"}]', unknown = 1",
    )
    .await;
    let events = app.events(None, 3).await;
    let names: Vec<&str> = told(&events).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["dead_letter.created", "comparison.disagreed", "lane.recovered"]);
    assert_eq!(events[0]["data"]["reason"], "undecodable");
    assert_eq!(events[1]["data"]["disagreements"], 2);
    assert_eq!(events[2]["data"]["lost"], json!([{"order_id": "7"}]));
}

/// With a cursor by plain id, the reader is at `second` when `first` is committed, and never hears of it.
#[tokio::test]
async fn a_commit_that_comes_late_is_not_passed_by() {
    let app = TestApp::with_events().await;
    app.execute(&note("before")).await;
    let before = app.events(None, 1).await;
    let before = id(&before[0]);
    let mut late = app.holding(&note("first")).await;
    app.execute(&note("second")).await;
    app.events(Some(before), 0).await;
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()::text").fetch_one(&mut *late).await;
    let pid: String = pid.expect("Postgres answers");
    eventually("the session is named", async || {
        let gauge = stalled(&app).await;
        gauge.labels == [("session", pid.clone())] && gauge.value > 0.0
    })
    .await;
    late.commit().await.expect("it commits");
    let events = app.events(Some(before), 2).await;
    assert_eq!(told(&events), [("first", ""), ("second", "")]);
    eventually("nothing waits", async || stalled(&app).await.value == 0.0).await;
}

#[tokio::test]
async fn a_reader_waits_for_the_next_event() {
    // Transactions of other tests would hold it up.
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &["--events"], Clock::System).await;
    let request = app.client().get(app.url.clone() + "/v1/events").header("prefer", "wait=10");
    let request = request.bearer_auth(scoped_token(9, Scope::Integrator));
    let (reply, coupon) =
        tokio::join!(app.send(request, "GET", "/v1/events"), app.create_regular());
    let events = reply.body.as_array().expect("a list");
    assert_eq!(told(events), [("coupon.created", &*format!("coupons/{coupon}"))]);
}

/// A reader that Postgres no longer knows is told so, whether Postgres went back or the reader was away.
#[tokio::test]
async fn a_reader_whose_event_is_not_there_is_told() {
    let app = TestApp::with_events().await;
    let coupon = app.create_regular().await;
    for action in ["pause", "resume", "end"] {
        assert_eq!(app.r#move(coupon, action).await.status, 200);
    }
    let events = app.events(None, 4).await;
    let unknown = async |after: &str| {
        let reply = app.integrate(&format!("/v1/events?after={after}")).await;
        assert_eq!(reply.refusal(), (410, "cursor_unknown"), "{after}");
    };
    // Of the future; and of another life, in which the place has another event.
    unknown("999999999999-1-1").await;
    let (place, _) = id(&events[1]).rsplit_once('-').unwrap();
    unknown(&format!("{place}-1")).await;

    // An event goes eight days after the one behind it: a reader that was here since then finds its place.
    let age = |event: &Value, days: i64| {
        let id = id(event).split('-').nth(1).unwrap();
        format!(
            "UPDATE events SET created_at = created_at - interval '{days} days' WHERE id = {id};"
        )
    };
    app.execute(&(age(&events[0], 30) + &age(&events[1], 8) + &age(&events[2], 6))).await;
    run_once(&app).await;
    let kept = app.events(None, 3).await;
    assert_eq!(told(&kept), told(&events[1..]));
    assert_eq!(told(&app.events(Some(id(&kept[0])), 2).await), told(&events[2..]));
    unknown(id(&events[0])).await;

    // Rows of another cluster, with transaction ids that are still to come here.
    app.execute("INSERT INTO events (xid, type, data) VALUES ('999999999999', 'x', '{}')").await;
    unknown(id(&kept[1])).await;
    run_once(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM events").await, 0);
}

#[tokio::test]
async fn without_the_flag_nothing_is_written_and_readers_are_told() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.paid_order(1, coupon).await;
    assert_eq!(app.redeem(order).await.status, 200);
    assert_eq!(app.claim(2, app.create_regular().await).await.status, 201);
    assert_eq!(app.number("SELECT count(*) FROM events").await, 0);
    assert_eq!(app.integrate("/v1/events").await.refusal(), (404, "events_off"));
}

#[tokio::test]
async fn places_and_limits_that_are_none_are_refused() {
    let app = TestApp::with_events().await;
    for query in [
        "after=7",
        "after=1-2-x",
        "after=1--2",
        "after=1-2-3-4",
        "limit=0",
        "limit=101",
        "cursor=1",
    ] {
        let reply = app.integrate(&format!("/v1/events?{query}")).await;
        assert_eq!(reply.refusal(), (400, "invalid_query"), "{query}");
    }
    assert_eq!(app.integrate("/v1/events?limit=100").await.body, json!([]));
}
