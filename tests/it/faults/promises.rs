//! A Redis that answers, and can't keep what a claim promises: no claim is confirmed, `/readyz` says no, and the cause is
//! named with its remedy.

use private_servers::testing::RedisServer;
use serde_json::Value;

use super::recovery::on;
use crate::support::process::{Process, flash_sale, run, try_claim};
use crate::support::{TestApp, eventually};

const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The user of the service, beside one named `default` with these rights.
fn with_users(default: &str) -> Vec<String> {
    let users = format!("--user default {default} --user app on >hunter2 ~* &* +@all");
    ALWAYS.into_iter().chain(users.split(' ')).map(str::to_owned).collect()
}

async fn start_with_users(default: &str) -> (RedisServer, TestApp) {
    let settings = with_users(default);
    let server = RedisServer::start(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    let app = on(&format!("{}?user=app&pass=hunter2", server.url()), &[]).await;
    (server, app)
}

async fn readyz(url: &str) -> (u16, Value) {
    let reply = reqwest::get(format!("{url}/readyz")).await.expect("it runs");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

/// Waits until `/readyz` has this status, and returns the field `field`.
async fn told(url: &str, status: u16, field: &str) -> String {
    let mut words = String::new();
    eventually("/readyz says so", async || {
        let (found, body) = readyz(url).await;
        words = body[field].as_str().unwrap_or_default().to_owned();
        found == status && (status == 200) == (words == "ok")
    })
    .await;
    words
}

async fn figure(url: &str, name: &str) -> f64 {
    let page = reqwest::get(format!("{url}/metrics")).await.expect("it runs").text().await;
    let page = page.expect("text");
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.expect("it is on the page").parse().expect("a number")
}

async fn doctor(app: &TestApp) -> String {
    run(flash_sale(&[vec!["doctor".to_owned()], app.store_arguments()].concat())).await.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_the_next_start_of_redis_would_drop_is_not_confirmed() {
    let (mut server, app) = start_with_users("off ~* &* +@all").await;
    let coupon = app.create_flash(10).await;
    let mut service = Process::serve(&app, &["--roles", "api", "--durability", "fsync"]);
    let url = service.url().await;
    for user in 1..=3 {
        assert_eq!(try_claim(&app, &url, user, coupon).await.expect("it runs").0, 202);
    }
    assert!(doctor(&app).await.contains("ok    Redis persistence"));

    let _: String = app.redis(&["ACL", "SETUSER", "default", "resetkeys", "-@all"]).await;
    let why = told(&url, 503, "durability").await;
    assert!(why.contains("user default off ~* &* +@all"), "{why}");
    assert_eq!(try_claim(&app, &url, 4, coupon).await.expect("it runs").0, 503);
    let found = doctor(&app).await;
    assert!(found.contains("FAIL  Redis persistence: Redis replays its append-only"), "{found}");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--durability", "fsync"];
    let arguments = arguments.into_iter().map(str::to_owned).chain(app.store_arguments());
    let refused = run(flash_sale(&arguments.collect::<Vec<_>>())).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.last_words().contains("user default off ~* &* +@all"), "{refused:?}");

    // Claims of a server whose `default` is off and has all rights survive both.
    service.kill();
    server.kill();
    server.start_again();
    eventually("Redis is back", async || app.app.stores.fleet.first().check().await.is_ok()).await;
    for user in 1..=3 {
        let shard = app.shard_of(coupon, user).await;
        let order: Option<i64> = app.redis(&["HGET", &shard, &user.to_string()]).await;
        assert!(order.is_some(), "user {user}");
    }
    app.expect_disagreements();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_life_of_redis_is_examined_like_the_first_and_commands_for_emergencies_run() {
    let mut server = RedisServer::start(&ALWAYS);
    let app = on(&server.url(), &[]).await;
    let coupon = app.create_flash(10).await;
    let service = Process::serve(&app, &[]);
    let url = service.url().await;
    assert_eq!(try_claim(&app, &url, 1, coupon).await.expect("it runs").0, 202);
    server.kill();
    server.start_again_with(&[&ALWAYS[..], &["--maxmemory-policy", "allkeys-lru"]].concat());

    let why = told(&url, 503, "redis").await;
    eventually("it is the policy", async || {
        told(&url, 503, "redis").await.contains("maxmemory-policy")
    })
    .await;
    assert_eq!(try_claim(&app, &url, 2, coupon).await.expect("it runs").0, 503, "{why}");
    assert_eq!(figure(&url, "flash_sale_redis_takes_claims").await, 0.0);
    for command in [&["reconcile"][..], &["recover", "--dry-run"]] {
        let words = command.iter().map(|word| (*word).to_owned());
        let done = run(flash_sale(&words.chain(app.store_arguments()).collect::<Vec<_>>())).await;
        assert_eq!(done.code, Some(0), "{command:?}: {done:?}");
        assert!(done.stderr.contains("set it to noeviction"), "{command:?}: {done:?}");
    }

    let _: String = app.redis(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    told(&url, 200, "redis").await;
    eventually("claims go on", async || {
        try_claim(&app, &url, 2, coupon).await.expect("it runs").0 == 202
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_is_not_ready() {
    let server = RedisServer::start(&[]);
    let app = on(&server.url(), &[]).await;
    let coupon = app.create_flash(10).await;
    let service = Process::serve(&app, &[]);
    let url = service.url().await;
    told(&url, 200, "redis").await;
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let why = told(&url, 503, "redis").await;
    assert!(why.starts_with("Redis is full"), "{why}");
    assert_eq!(try_claim(&app, &url, 1, coupon).await.expect("it runs").0, 503);
    eventually("the gauge says so", async || {
        figure(&url, "flash_sale_redis_takes_claims").await == 0.0
    })
    .await;
    assert!(doctor(&app).await.contains("FAIL  Redis is full"));
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    told(&url, 200, "redis").await;
    assert_eq!(try_claim(&app, &url, 1, coupon).await.expect("it runs").0, 202);
    eventually("the gauge says so", async || {
        figure(&url, "flash_sale_redis_takes_claims").await == 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_an_hour_off_is_not_ready() {
    let server = RedisServer::with_a_clock_to_set(&[]);
    let app = on(&server.url(), &[]).await;
    let service = Process::serve(&app, &[]);
    let url = service.url().await;
    told(&url, 200, "clock").await;
    for (seconds, words) in [(-3_600, "behind this process's"), (3_600, "ahead of this process's")]
    {
        server.set_clock(seconds);
        let why = told(&url, 503, "clock").await;
        assert!(why.contains(words), "{why}");
        eventually("the gauge says so", async || {
            figure(&url, "flash_sale_redis_clock_ahead_seconds").await.abs() > 3_000.0
        })
        .await;
        server.set_clock(0);
        told(&url, 200, "clock").await;
    }
}
