//! Stores that hang or die under the service: requests that still work, the answers to the others, and the recovery.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::store::ids::CouponId;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::time::Instant;

use crate::support::process::in_flight;
use crate::support::{
    IMPATIENT_WITH_POSTGRES, IMPATIENT_WITH_REDIS, OwnServers, Reply, TestApp, eventually,
};

/// Bound of an answer that doesn't wait for the store that hangs. Such an answer comes within a second; the bound
/// only tells it from one that is cut off by the request's own time limit, on a machine however busy.
const AT_ONCE: Duration = Duration::from_secs(limits::REQUEST_TIMEOUT.as_secs() - 2);
/// Bound of an answer by the request's own time limit.
const REQUEST_MAX: Duration = Duration::from_secs(limits::REQUEST_TIMEOUT.as_secs() + 30);

/// Processes that are stopped until this is dropped.
struct Frozen(Vec<i32>);

#[tokio::test]
async fn claims_are_unknown_while_redis_hangs_and_found_out_later() {
    let (servers, app) = start(&IMPATIENT_WITH_REDIS).await;
    let coupon = app.create_flash(100).await;
    let order = answered(&app, 1, coupon).await.order_id();
    app.write_orders().await;

    let frozen = Frozen::stop(vec![servers.at.redis_pid]);
    // The first wave hangs on the existing connection, the second one gets none.
    for _ in 0..2 {
        let claims = (100..140).map(|user| within(AT_ONCE, app.claim(user, coupon)));
        for reply in join_all(claims).await {
            // A claim that came too late for the first calls, on a slow machine, was certainly not carried out.
            if reply.refusal() != (503, "overloaded") {
                assert_unavailable(&reply);
            }
        }
    }
    assert_unavailable(&within(AT_ONCE, app.my_claim(100, coupon)).await);
    assert_reads_work_without_redis(&app, order).await;
    let page = app.get("/metrics", "").await;
    let text = page.body.as_str().expect("a text");
    let of = |outcome: &str| -> u64 {
        let start = format!("flash_sale_claims_total{{outcome=\"{outcome}\"}} ");
        let number = text.lines().find_map(|line| line.strip_prefix(&start));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    assert_eq!(of("unavailable") + of("overloaded"), 80, "{text}");
    assert!(of("unavailable") >= 2, "{text}");
    drop(frozen);

    eventually("claims", async || app.claim(1, coupon).await.status == 409).await;
    for user in 100..140 {
        let found_out = answered(&app, user, coupon).await;
        assert!([202, 409].contains(&found_out.status), "{found_out:?}");
        let repeat = answered(&app, user, coupon).await;
        assert_eq!(repeat.refusal(), (409, "already_claimed"));
        assert_eq!(repeat.order_id(), found_out.order_id(), "user {user}");
    }
    app.write_orders().await;
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 41);
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 41);
}

#[tokio::test]
async fn claims_are_unknown_without_redis() {
    let (servers, app) = start(&IMPATIENT_WITH_REDIS).await;
    let coupon = app.create_flash(100).await;
    let order = answered(&app, 1, coupon).await.order_id();
    app.write_orders().await;

    // Redis doesn't come back, so the stores can't be compared at the end.
    app.expect_disagreements();
    signal(servers.at.redis_pid, Signal::SIGKILL);
    for _ in 0..2 {
        let claims = (100..140).map(|user| within(AT_ONCE, app.claim(user, coupon)));
        for reply in join_all(claims).await {
            assert_unavailable(&reply);
        }
    }
    assert_reads_work_without_redis(&app, order).await;
}

async fn assert_reads_work_without_redis(app: &TestApp, order: i64) {
    for path in [format!("/v1/orders/{order}"), "/v1/orders".to_owned()] {
        let reply = within(AT_ONCE, app.get(&path, &app.token(1))).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }
    let coupons = within(AT_ONCE, app.get("/v1/coupons", "")).await;
    assert_eq!(coupons.status, 200, "{coupons:?}");
    assert!(coupons.body["coupons"][0]["sale"]["left"].is_null());
    let ready = within(AT_ONCE, app.get("/readyz", "")).await;
    let expected = json!({
        "status": "unavailable", "redis": "can't be reached", "postgres": "ok", "backlog": "unknown",
        "lanes": "ok", "durability": "ok", "clock": "ok", "process": "ok",
    });
    assert_eq!((ready.status, ready.body), (503, expected));
    assert_eq!(app.get("/livez", "").await.status, 200);
}

#[tokio::test]
async fn claims_go_on_without_postgres() {
    let (servers, app) = start(&IMPATIENT_WITH_POSTGRES).await;
    let coupon = app.create_flash(100).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);

    // Redis doesn't come back, so the stores can't be compared at the end.
    app.expect_disagreements();
    signal(servers.at.postgres_pid, Signal::SIGKILL);
    // Its processes notice the end of the first one a moment later, each for itself, and answer until then.
    eventually("Postgres is gone", async || {
        let on_all_connections = join_all((0..20).map(|_| app.get("/v1/coupons", "")));
        on_all_connections.await.iter().all(|reply| reply.status == 503)
            && app.get("/readyz", "").await.text("status") == "degraded"
    })
    .await;
    let accepted = assert_degraded(&app, coupon).await;
    let logged = in_flight(&app).await;
    assert_eq!(logged, 1 + accepted, "each 202 is in the order log");
}

#[tokio::test]
async fn claims_go_on_while_postgres_hangs() {
    let (servers, app) = start(&IMPATIENT_WITH_POSTGRES).await;
    let coupon = app.create_flash(100).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);

    let frozen = Frozen::postgres(&app, &servers).await;
    let accepted = assert_degraded(&app, coupon).await;
    drop(frozen);

    eventually("Postgres", async || app.get("/v1/orders", &app.token(1)).await.status == 200).await;
    let ready = app.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("status")), (200, "ready"));
    app.create_flash(1).await;
    app.write_orders().await;
    let orders = app.number("SELECT count(*) FROM orders").await;
    assert_eq!(orders, 1 + accepted);
}

/// Claims are taken, and requests that need Postgres are told that it is away. Returns the number of claims taken.
async fn assert_degraded(app: &TestApp, coupon: CouponId) -> i64 {
    let claims = join_all((100..120).map(|user| within(AT_ONCE, app.claim(user, coupon))));
    assert!(claims.await.iter().all(|reply| reply.status == 202));

    let coupon_path = format!("/v1/coupons/{coupon}");
    let token = app.token(1);
    let admin = app.admin_token();
    let regular = json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2});
    let (ready, more_claims, orders, order, mine, coupons, shown, created, unknown) = tokio::join!(
        within(REQUEST_MAX, app.get("/readyz", "")),
        join_all((120..140).map(|user| within(AT_ONCE, app.claim(user, coupon)))),
        within(REQUEST_MAX, app.get("/v1/orders", &token)),
        within(REQUEST_MAX, app.get("/v1/orders/1", &token)),
        within(REQUEST_MAX, app.my_claim(1, coupon)),
        within(REQUEST_MAX, app.get("/v1/coupons", "")),
        within(REQUEST_MAX, app.get(&coupon_path, "")),
        within(REQUEST_MAX, app.post("/v1/coupons", &admin, &regular)),
        // Whether there is such a coupon can't be told now.
        within(REQUEST_MAX, app.claim(1, "1048576".parse().unwrap())),
    );
    let expected = json!({
        "status": "degraded", "redis": "ok", "postgres": "can't be reached", "backlog": "ok",
        "lanes": "ok", "durability": "ok", "clock": "ok", "process": "ok",
    });
    assert_eq!((ready.status, ready.body), (200, expected));
    assert!(more_claims.iter().all(|reply| reply.status == 202));
    for reply in [orders, order, mine, coupons, shown, created, unknown] {
        assert_unavailable(&reply);
    }
    40
}

#[tokio::test]
async fn requests_that_are_given_up_leave_nothing_behind() {
    let (servers, app) = start(&[]).await;
    let coupon = app.create_flash(201).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);

    let redis = Frozen::stop(vec![servers.at.redis_pid]);
    let postgres = Frozen::postgres(&app, &servers).await;
    let claims_path = format!("{}/v1/coupons/{coupon}/claims", app.url);
    let claims =
        (100..300).map(|user| app.client().post(&claims_path).bearer_auth(app.token(user)));
    let reads =
        (0..50).map(|_| app.client().get(app.url.clone() + "/v1/orders").bearer_auth(app.token(1)));
    // Clients hang up before the service gives up.
    let impatient =
        claims.chain(reads).map(|request| request.timeout(limits::REDIS_TIMEOUT / 2).send());
    let given_up = join_all(impatient).await.iter().filter(|sent| sent.is_err()).count();
    assert!(given_up >= 200, "{given_up} of 250");
    drop((redis, postgres));

    eventually("both stores", async || {
        let orders = app.get("/v1/orders", &app.token(1)).await;
        (app.claim(1, coupon).await.status, orders.status) == (409, 200)
    })
    .await;
    for user in 100..300 {
        let found_out = app.claim(user, coupon).await;
        assert!([202, 409].contains(&found_out.status), "{found_out:?}");
    }
    assert_eq!(app.claim(2, coupon).await.refusal(), (410, "sold_out"));
    app.write_orders().await;
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 201);
}

/// A service that is impatient with the store that a test is about, and patient with the other one.
async fn start(settings: &[&str]) -> (OwnServers, TestApp) {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, settings, Clock::System).await;
    (servers, app)
}

/// The reply to a user who asks again when told 503, as buyers do.
async fn answered(app: &TestApp, user: i64, coupon: CouponId) -> Reply {
    let mut answer = None;
    eventually("an answer", async || {
        let reply = app.claim(user, coupon).await;
        answer = Some(reply).filter(|reply| reply.status != 503);
        answer.is_some()
    })
    .await;
    answer.expect("it has come")
}

fn assert_unavailable(reply: &Reply) {
    assert_eq!(reply.refusal(), (503, "unavailable"));
    assert_eq!(reply.header("retry-after"), "1");
}

/// The reply, which has to come in this time.
async fn within(max: Duration, reply: impl Future<Output = Reply>) -> Reply {
    let started = Instant::now();
    let reply = reply.await;
    let took = started.elapsed();
    assert!(took <= max, "{took:?} is more than {max:?}: {reply:?}");
    reply
}

impl Frozen {
    fn stop(pids: Vec<i32>) -> Self {
        for pid in &pids {
            signal(*pid, Signal::SIGSTOP);
        }
        Self(pids)
    }

    /// Postgres with all its processes, since each works on its own.
    async fn postgres(app: &TestApp, servers: &OwnServers) -> Self {
        // All connections that the service may have are open and idle: each will hang in mid-statement.
        let reads = (0..20).map(|_| app.get("/v1/coupons", ""));
        assert!(join_all(reads).await.iter().all(|reply| reply.status == 200));
        let backends = sqlx::query_scalar("SELECT pid FROM pg_stat_activity");
        let backends: Vec<i32> =
            backends.fetch_all(&app.app.stores.pool).await.expect("Postgres answers");
        Self::stop([vec![servers.at.postgres_pid], backends].concat())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            signal(*pid, Signal::SIGCONT);
        }
    }
}

fn signal(pid: i32, signal: Signal) {
    match kill(Pid::from_raw(pid), signal) {
        // A backend may end, but the servers themselves are there.
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => panic!("{signal} for {pid}: {error}"),
    }
}
