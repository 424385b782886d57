//! Webhooks: events are sent in order, signed and at least once; what an endpoint does concerns no other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flash_sale::base::shutdown::Shutdown;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::support::{Bounded, Reply, TestApp, eventually};

const ALLOWED: [&str; 3] = ["--events", "--webhooks-allow", "127.0.0.1"];

/// The server of another system.
struct Receiver {
    url: String,
    inner: Arc<Inner>,
}

struct Inner {
    /// Headers and bodies of the requests.
    got: Mutex<Vec<Got>>,
    /// The next replies; 204 when there are none left.
    replies: Mutex<VecDeque<Answer>>,
    /// Requests that may be answered.
    answered: Semaphore,
}

type Got = (HeaderMap, Bytes);

#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    /// To this server's own address.
    Redirect,
    /// 200, and a body without an end.
    Endless,
}

impl Receiver {
    async fn start() -> Self {
        let inner = Arc::new(Inner {
            got: Mutex::default(),
            replies: Mutex::default(),
            answered: Semaphore::new(Semaphore::MAX_PERMITS),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("it is bound"));
        let router = Router::new().route("/hook", post(receive)).with_state(inner.clone());
        Shutdown::default().spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// Answers nothing until [`free`](Self::free).
    fn hold(&self) {
        self.inner.answered.forget_permits(Semaphore::MAX_PERMITS);
    }

    fn free(&self) {
        self.inner.answered.add_permits(1_000);
    }

    fn answer(&self, answers: &[Answer]) {
        self.inner.replies.lock().unwrap().extend(answers);
    }

    fn got(&self) -> Vec<Got> {
        self.inner.got.lock().unwrap().clone()
    }

    fn ids(&self) -> Vec<String> {
        self.got().iter().map(|(headers, _)| text(headers, "webhook-id")).collect()
    }

    fn types(&self) -> Vec<String> {
        self.got()
            .iter()
            .map(|(_, body)| event(body)["type"].as_str().unwrap().to_owned())
            .collect()
    }
}

async fn receive(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    inner.got.lock().unwrap().push((headers, body));
    inner.answered.acquire().await.expect("it stays open").forget();
    let answer = inner.replies.lock().unwrap().pop_front();
    match answer.unwrap_or(Answer::Status(204)) {
        Answer::Status(status) => StatusCode::from_u16(status).expect("a status").into_response(),
        Answer::Redirect => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/hook")]).into_response()
        }
        Answer::Endless => {
            let body =
                stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'a'; 1_000])));
            Body::from_stream(body).into_response()
        }
    }
}

fn event(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("it is JSON")
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers[name].to_str().expect("text").to_owned()
}

/// Whether one of the signatures is by this secret.
fn is_signed((headers, body): &Got, secret: &Value) -> bool {
    let secret = secret.as_str().expect("it is new");
    let secret = STANDARD.decode(secret.strip_prefix("whsec_").expect("a prefix")).expect("base64");
    let (id, at) = (text(headers, "webhook-id"), text(headers, "webhook-timestamp"));
    let message = [format!("{id}.{at}.").as_bytes(), body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let signature = STANDARD.encode(hmac::sign(&key, &message));
    text(headers, "webhook-signature").split(' ').any(|one| one == format!("v1,{signature}"))
}

impl TestApp {
    async fn webhook(&self, body: &Value) -> Reply {
        self.post("/v1/webhooks", &self.admin_token(), body).await
    }

    /// Creates an endpoint. Returns it, with its secret.
    async fn endpoint(&self, receiver: &Receiver) -> Value {
        let created = self.webhook(&json!({"url": receiver.url})).await;
        assert_eq!(created.status, 201, "{created:?}");
        created.body
    }

    async fn change(&self, endpoint: &Value, change: &Value) -> Reply {
        let path = path(endpoint);
        let request = self.client().patch(self.url.clone() + &path);
        self.send(request.bearer_auth(self.admin_token()).json(change), "PATCH", &path).await
    }

    async fn shown(&self, endpoint: &Value) -> Value {
        self.get(&path(endpoint), &self.admin_token()).await.body
    }

    async fn deliveries(&self, endpoint: &Value) -> Vec<Value> {
        let reply = self.get(&format!("{}/deliveries", path(endpoint)), &self.admin_token()).await;
        reply.body["deliveries"].as_array().expect("a list").clone()
    }

    /// Runs the job until this holds.
    async fn send_until(&self, what: &str, holds: impl Fn() -> bool) {
        eventually(what, async || {
            self.app.webhooks.run_once().bounded().await.expect("Postgres answers");
            holds()
        })
        .await;
    }

    /// Waits until this failure is noted, and makes the endpoint due.
    async fn failed(&self, endpoint: &Value, error: &str) -> Value {
        let mut seen = Value::Null;
        eventually("a failure is noted", async || {
            seen = self.shown(endpoint).await;
            seen["error"] == error
        })
        .await;
        self.execute("UPDATE webhooks SET next_try_at = now()").await;
        seen
    }
}

fn path(endpoint: &Value) -> String {
    format!("/v1/webhooks/{}", endpoint["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn an_endpoint_is_sent_what_happens_from_then_on_signed_and_in_order() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    let before = app.create_flash(2).await;
    app.events(None, 1).await;
    let endpoint = app.endpoint(&receiver).await;
    assert_eq!(app.claim(1, before).await.status, 202);
    app.write_orders().await;
    let order = app.number("SELECT id FROM orders").await;
    assert_eq!(app.pay(1, order).await.status, 200);
    assert_eq!(app.redeem(order).await.status, 200);
    let events = app.events(None, 4).await;
    app.send_until("all have come", || receiver.got().len() == 3).await;
    for (got, expected) in receiver.got().iter().zip(&events[1..]) {
        let (headers, body) = got;
        assert_eq!(event(body), *expected);
        assert_eq!(text(headers, "webhook-id"), expected["id"].as_str().unwrap());
        assert_eq!(text(headers, "content-type"), "application/cloudevents+json");
        assert!(is_signed(got, &endpoint["secret"]), "{headers:?}");
    }
    eventually("its place is noted", async || {
        app.shown(&endpoint).await["last_event"] == events[3]["id"]
    })
    .await;
    assert_eq!(app.shown(&endpoint).await.get("secret"), None);
    let told: Vec<Value> = app
        .deliveries(&endpoint)
        .await
        .iter()
        .map(|one| json!([one["event_id"], one["status"], one["error"]]))
        .collect();
    let expected: Vec<Value> =
        events[1..].iter().rev().map(|event| json!([event["id"], 204, null])).collect();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_failure_is_tried_again_under_its_id_and_what_comes_behind_waits() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    let endpoint = app.endpoint(&receiver).await;
    let answers = [Answer::Status(500), Answer::Redirect, Answer::Status(204), Answer::Endless];
    receiver.answer(&answers);
    for _ in 0..2 {
        app.create_flash(1).await;
    }
    app.events(None, 2).await;
    for error in [
        "answered 500 Internal Server Error",
        "answered 307 Temporary Redirect, which isn't followed",
    ] {
        let tries = receiver.got().len() + 1;
        app.send_until("it has been tried", || receiver.got().len() == tries).await;
        let seen = app.failed(&endpoint, error).await;
        assert_eq!(seen["state"], "active");
        assert!(seen["next_try_at"].as_str() > seen["failing_since"].as_str(), "{seen}");
    }
    app.send_until("both have come", || receiver.got().len() == 4).await;
    let ids = receiver.ids();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    eventually("it fails no more", async || app.shown(&endpoint).await["last_event"] == ids[3])
        .await;
    assert_eq!(app.shown(&endpoint).await["error"], Value::Null);
}

/// The pause doubles: 5 s after the first failure, 12 h at most.
#[tokio::test]
async fn the_pause_doubles_and_after_three_days_a_person_has_to_look() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    let endpoint = app.endpoint(&receiver).await;
    app.create_flash(1).await;
    for (tries, pause_s) in [(0, 5), (1, 10), (3, 40), (20, 43_200)] {
        let failing = if tries == 0 { "NULL, error = NULL" } else { "now(), error = 'e'" };
        app.execute(&format!(
            "UPDATE webhooks SET tries = {tries}, failing_since = {failing}, next_try_at = now()"
        ))
        .await;
        receiver.answer(&[Answer::Status(503)]);
        let pause = "SELECT extract(epoch FROM next_try_at - (SELECT max(at) FROM webhook_deliveries))::bigint FROM webhooks";
        eventually("it has failed", async || {
            app.app.webhooks.run_once().bounded().await.expect("Postgres answers");
            app.number(&format!(
                "SELECT count(*) FROM webhooks WHERE tries = {} AND leased_until < now()",
                tries + 1
            ))
            .await
                == 1
        })
        .await;
        let seen = app.number(pause).await;
        assert!((pause_s..2 * pause_s).contains(&seen), "{tries}: {seen}");
    }
    app.execute("UPDATE webhooks SET failing_since = now() - interval '73 h', next_try_at = now()")
        .await;
    receiver.answer(&[Answer::Status(503)]);
    eventually("it is disabled", async || {
        app.app.webhooks.run_once().bounded().await.expect("Postgres answers");
        app.shown(&endpoint).await["state"] == "disabled"
    })
    .await;
    let item = app.waiting("webhook").await[0].clone();
    assert_eq!(item["id"], endpoint["id"]);
    assert!(
        item["detail"].as_str().unwrap().ends_with("answered 503 Service Unavailable"),
        "{item}"
    );
    // Not tried by itself, and at once when it is active again. One that is gone is never tried again.
    let tries = receiver.got().len();
    app.execute("UPDATE webhooks SET next_try_at = now()").await;
    app.app.webhooks.run_once().bounded().await.expect("Postgres answers");
    receiver.answer(&[Answer::Status(410)]);
    assert_eq!(app.change(&endpoint, &json!({"state": "active"})).await.body["state"], "active");
    eventually("it is gone", async || {
        app.app.webhooks.run_once().bounded().await.expect("Postgres answers");
        app.shown(&endpoint).await["state"] == "disabled"
    })
    .await;
    assert_eq!(receiver.got().len(), tries + 1);
    assert_eq!(
        app.change(&endpoint, &json!({"state": "disabled"})).await.refusal(),
        (422, "invalid_body")
    );
}

/// Ten have no server, five don't answer for as long as the test lasts.
#[tokio::test]
async fn of_fifty_endpoints_the_dead_and_the_slow_delay_no_other() {
    let app = TestApp::configured(&ALLOWED).await;
    let mut receivers = Vec::new();
    for number in 0..50 {
        let receiver = Receiver::start().await;
        let url = if number < 10 { "http://127.0.0.1:9/" } else { &receiver.url };
        assert_eq!(app.webhook(&json!({"url": url})).await.status, 201);
        if (10..15).contains(&number) {
            receiver.hold();
        }
        receivers.push(receiver);
    }
    for _ in 0..3 {
        app.create_flash(1).await;
    }
    app.events(None, 3).await;
    let (slow, good) = (&receivers[10..15], &receivers[15..]);
    app.send_until("all that answer have three", || good.iter().all(|it| it.got().len() == 3))
        .await;
    app.send_until("the slow ones have been asked", || slow.iter().all(|it| !it.got().is_empty()))
        .await;
    slow.iter().for_each(Receiver::free);
    app.send_until("the slow ones have three", || slow.iter().all(|it| it.got().len() >= 3)).await;
    eventually("the dead ones have failed", async || {
        app.number("SELECT count(*) FROM webhooks WHERE tries > 0").await == 10
    })
    .await;
}

/// As when the process has died: the next one sends the event again, and the first one notes nothing any more.
#[tokio::test]
async fn whoever_loses_the_lease_notes_nothing_and_the_event_is_sent_again() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    let endpoint = app.endpoint(&receiver).await;
    receiver.hold();
    app.create_flash(1).await;
    app.create_flash(1).await;
    app.events(None, 2).await;
    app.send_until("the first one is under way", || receiver.got().len() == 1).await;
    app.app.webhooks.run_once().bounded().await.expect("Postgres answers");
    app.execute("UPDATE webhooks SET leased_until = 'epoch'").await;
    app.send_until("it is under way again", || receiver.got().len() == 2).await;
    receiver.free();
    app.send_until("both have come", || receiver.got().len() >= 3).await;
    let ids = receiver.ids();
    eventually("all is noted", async || {
        app.shown(&endpoint).await["last_event"] == *ids.last().unwrap()
    })
    .await;
    assert!(ids.len() == 3 && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[tokio::test]
async fn types_pauses_new_secrets_and_a_second_sending_are_a_matter_of_a_change() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    let endpoint = app.endpoint(&receiver).await;
    let coupon = app.create_flash(1).await;
    app.send_until("it has come", || receiver.got().len() == 1).await;
    assert_eq!(
        app.change(
            &endpoint,
            &json!({"state": "paused", "types": ["coupon.ended", "coupon.paused"]})
        )
        .await
        .status,
        200
    );
    for action in ["pause", "resume", "end"] {
        assert_eq!(app.r#move(coupon, action).await.status, 200);
    }
    app.events(None, 4).await;
    app.app.webhooks.run_once().bounded().await.expect("Postgres answers");
    let rotated =
        app.change(&endpoint, &json!({"state": "active", "rotate_secret": true})).await.body;
    app.send_until("both have come", || receiver.got().len() == 3).await;
    assert_eq!(receiver.types()[1..], ["coupon.paused", "coupon.ended"]);
    let got = &receiver.got()[2];
    for of in [&endpoint, &rotated] {
        assert!(is_signed(got, &of["secret"]));
    }
    app.execute("UPDATE webhooks SET old_secret_until = now()").await;
    let again = json!({"resend_from": "2020-01-01T00:00:00Z", "types": []});
    assert_eq!(app.change(&endpoint, &again).await.body["last_event"], Value::Null);
    app.send_until("all four have come", || receiver.got().len() == 7).await;
    let got = &receiver.got()[6];
    assert!(is_signed(got, &rotated["secret"]) && !is_signed(got, &endpoint["secret"]));
    eventually("all is noted", async || {
        app.shown(&endpoint).await["last_event"] == receiver.ids()[6]
    })
    .await;
    // From the third try on: what the second one has delivered is the last that stays.
    let at = app.deliveries(&endpoint).await[4]["at"].clone();
    let resent = app.change(&endpoint, &json!({"resend_from": at})).await.body;
    assert_eq!(resent["last_event"], json!(receiver.ids()[1]));
    let request =
        app.client().delete(app.url.clone() + &path(&endpoint)).bearer_auth(app.admin_token());
    assert_eq!(app.send(request, "DELETE", &path(&endpoint)).await.status, 204);
    assert_eq!(
        app.get(&path(&endpoint), &app.admin_token()).await.refusal(),
        (404, "webhook_not_found")
    );
    app.app.retention.run_once().bounded().await.expect("Postgres answers");
    assert_eq!(app.number("SELECT count(*) FROM webhook_deliveries").await, 0);
}

/// It was paused for longer than events are kept.
#[tokio::test]
async fn an_endpoint_whose_last_event_is_gone_goes_on_with_the_oldest() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    app.endpoint(&receiver).await;
    app.create_flash(1).await;
    app.execute("UPDATE webhooks SET last_event = '1-1-1'").await;
    app.send_until("it has come", || receiver.types() == ["coupon.created"]).await;
}

#[tokio::test]
async fn a_test_tells_what_the_endpoint_says() {
    let (app, receiver) = (TestApp::configured(&ALLOWED).await, Receiver::start().await);
    let endpoint = app.endpoint(&receiver).await;
    receiver.answer(&[Answer::Status(200), Answer::Status(404)]);
    for outcome in [
        json!({"status": 200, "error": null}),
        json!({"status": 404, "error": "answered 404 Not Found"}),
    ] {
        let tested =
            app.post(&format!("{}/test", path(&endpoint)), &app.admin_token(), &Value::Null).await;
        assert_eq!((tested.status, &tested.body), (200, &outcome));
    }
    let got = &receiver.got()[0];
    assert_eq!(event(&got.1)["type"], "webhook.test");
    assert!(is_signed(got, &endpoint["secret"]));
}

#[tokio::test]
async fn hosts_inside_unknown_types_and_one_too_many_are_refused() {
    let app = TestApp::configured(&ALLOWED).await;
    for url in [
        "http://example.com/",
        "https://10.0.0.1/",
        "https://[::1]/",
        "https://a:b@example.com/",
        "hook",
        "",
    ] {
        let refused = app.webhook(&json!({"url": url})).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{url}");
        assert_eq!(refused.body["errors"][0]["pointer"], "/url");
    }
    let url = "https://example.com/hook";
    let unknown = app.webhook(&json!({"url": url, "types": ["order.paid", "order.eaten"]})).await;
    assert_eq!(unknown.body["errors"][0]["pointer"], "/types/1");
    // A name may lead anywhere, and is refused where the connection is made.
    let created = app.webhook(&json!({"url": "https://localhost:1/"})).await;
    let tested =
        app.post(&format!("{}/test", path(&created.body)), &app.admin_token(), &Value::Null).await;
    assert!(tested.text("error").contains("localhost has no public address"), "{tested:?}");
    app.execute("INSERT INTO webhooks (url, types, secret) SELECT 'https://example.com', '{}', '' FROM generate_series(2, 100)").await;
    assert_eq!(app.webhook(&json!({"url": url})).await.refusal(), (409, "too_many_webhooks"));
    let off = TestApp::start().await;
    assert_eq!(off.webhook(&json!({"url": url})).await.refusal(), (404, "events_off"));
}
