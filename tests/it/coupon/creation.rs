//! A creation that is asked for again under its key (Idempotency-Key).

use serde_json::{Value, json};

use crate::support::process::Process;
use crate::support::{Reply, TestApp, admin_token_of, eventually};

fn coupon(title: &str) -> Value {
    json!({"kind": "regular", "title": title, "pay_cents": 1, "value_cents": 2})
}

async fn create(app: &TestApp, token: &str, keys: &[&str], body: &Value) -> Reply {
    let mut request = app.client().post(format!("{}/v1/coupons", app.url)).bearer_auth(token);
    for key in keys {
        request = request.header("idempotency-key", *key);
    }
    app.send(request.json(body), "POST", "/v1/coupons").await
}

const COUPONS: &str = "SELECT count(*) FROM coupons";
const KEYS: &str = "SELECT count(*) FROM creation_keys";
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn a_repeat_under_a_key_is_the_same_coupon() {
    let app = TestApp::start().await;
    let admin = app.admin_token();
    let first = create(&app, &admin, &["spring-1"], &coupon("one")).await;
    assert_eq!(first.status, 201);
    let again = create(&app, &admin, &["spring-1"], &coupon("one")).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(app.number(COUPONS).await, 1);
    let other = create(&app, &admin, &["spring-1"], &coupon("two")).await;
    assert_eq!(other.refusal(), (422, "idempotency_key_reused"));
    // What is without a key, or under another, or another administrator's, is another coupon.
    for (token, keys) in
        [(&admin, &[][..]), (&admin, &["spring-2"]), (&admin_token_of(2), &["spring-1"])]
    {
        let reply = create(&app, token, keys, &coupon("one")).await;
        assert_eq!(reply.status, 201);
        assert_ne!(reply.body["id"], first.body["id"]);
    }
    assert_eq!(app.number(COUPONS).await, 4);
}

#[tokio::test]
async fn a_key_that_cannot_be_one_is_refused_and_creates_nothing() {
    let app = TestApp::start().await;
    let longest = "k".repeat(255);
    let too_long = "k".repeat(256);
    for keys in [&[""][..], &["two words"], &["schlüssel"], &[too_long.as_str()], &["a", "a"]] {
        let reply = create(&app, &app.admin_token(), keys, &coupon("one")).await;
        assert_eq!(reply.refusal(), (400, "invalid_idempotency_key"), "{keys:?}");
    }
    assert_eq!(app.number(COUPONS).await, 0);
    assert_eq!(create(&app, &app.admin_token(), &[&longest], &coupon("one")).await.status, 201);
}

#[tokio::test]
async fn twenty_requests_at_once_under_a_key_are_one_coupon() {
    let app = TestApp::start().await;
    let admin = app.admin_token();
    let body = coupon("one");
    let replies = (0..20).map(|_| create(&app, &admin, &["at-once"], &body));
    let replies = futures_util::future::join_all(replies).await;
    for reply in &replies {
        assert_eq!((reply.status, &reply.body), (201, &replies[0].body));
    }
    assert_eq!((app.number(COUPONS).await, app.number(KEYS).await), (1, 1));
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_the_coupon_with_its_key_or_neither() {
    let app = TestApp::start().await;
    let (admin, body) = (app.admin_token(), coupon("one"));
    let lock = app.holding("LOCK TABLE creation_keys IN EXCLUSIVE MODE").await;
    let mut process = Process::serve(&app, &["--roles", "api"]);
    let request = app.client().post(format!("{}/v1/coupons", process.url().await));
    let request = request.bearer_auth(&admin).header("idempotency-key", "killed").json(&body);
    let (answer, ()) = tokio::join!(request.send(), async {
        eventually("it waits for the key", async || app.number(WAITING).await > 0).await;
        process.kill();
    });
    answer.expect_err("the process is gone");
    lock.rollback().await.expect("Postgres answers");
    eventually("its transaction is gone", async || app.number(WAITING).await == 0).await;
    assert_eq!((app.number(COUPONS).await, app.number(KEYS).await), (0, 0));
    let repeat = create(&app, &admin, &["killed"], &body).await;
    assert_eq!(repeat.status, 201);
    assert_eq!((app.number(COUPONS).await, app.number(KEYS).await), (1, 1));
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_coupon_under_the_key() {
    let app = TestApp::start().await;
    let (admin, body) = (app.admin_token(), coupon("one"));
    let lock = app.holding("LOCK TABLE creation_keys IN EXCLUSIVE MODE").await;
    let request = app.client().post(format!("{}/v1/coupons", app.url));
    let request = request.bearer_auth(&admin).header("idempotency-key", "gone").json(&body);
    tokio::select! {
        answer = request.send() => panic!("{answer:?}"),
        () = eventually("it waits for the key", async || app.number(WAITING).await > 0) => {}
    }
    lock.rollback().await.expect("Postgres answers");
    eventually("the coupon is there", async || app.number(COUPONS).await == 1).await;
    let repeat = create(&app, &admin, &["gone"], &body).await;
    assert_eq!(repeat.status, 201);
    assert_eq!((app.number(COUPONS).await, app.number(KEYS).await), (1, 1));
}

#[tokio::test]
async fn a_key_is_forgotten_after_a_day() {
    let app = TestApp::start().await;
    let admin = app.admin_token();
    let first = create(&app, &admin, &["daily"], &coupon("one")).await;
    app.execute("UPDATE creation_keys SET created_at = created_at - interval '23 hours'").await;
    assert_eq!(create(&app, &admin, &["another"], &coupon("one")).await.status, 201);
    let again = create(&app, &admin, &["daily"], &coupon("one")).await;
    assert_eq!(again.body, first.body);
    app.execute("UPDATE creation_keys SET created_at = created_at - interval '25 hours'").await;
    assert_eq!(create(&app, &admin, &["next"], &coupon("one")).await.status, 201);
    let later = create(&app, &admin, &["daily"], &coupon("one")).await;
    assert_eq!(later.status, 201);
    assert_ne!(later.body["id"], first.body["id"]);
}

#[tokio::test]
async fn a_window_that_has_passed_is_refused() {
    let app = TestApp::start().await;
    for (opens_at, closes_at, status) in [
        ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", 422),
        ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z", 201),
    ] {
        let sale = json!({"total": 1, "opens_at": opens_at, "closes_at": closes_at});
        let new =
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
        let reply = app.post("/v1/coupons", &app.admin_token(), &new).await;
        assert_eq!(reply.status, status, "{reply:?}");
        if status == 422 {
            assert_eq!(reply.text("code"), "invalid_body");
            assert_eq!(reply.body["errors"][0]["pointer"], "/sale/closes_at");
        }
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 1);
}
