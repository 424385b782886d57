//! The command line: output, refusals with their reasons, and exit codes of each sub-command. No secret is ever
//! printed.

use std::net::TcpListener;

use flash_sale::base::clock::Clock;
use nix::sys::signal::Signal;
use private_servers::testing::RedisServer;
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::support::process::{Finished, Process, flash_sale, flash_sale_by_default, run};
use crate::support::{OwnServers, SECRET, TestApp, lane};

/// Port 1, where no server listens; a message with the URL would hold the password.
const NO_REDIS: &str = "redis://:hunter2@127.0.0.1:1/";
const NO_POSTGRES: &str = "postgres://user:hunter2@127.0.0.1:1/x";

const SUB_COMMANDS: [&[&str]; 11] = [
    &["serve"],
    &["demo"],
    &["migrate"],
    &["coupon"],
    &["coupon", "create"],
    &["token"],
    &["reconcile"],
    &["recover"],
    &["doctor"],
    &["storm"],
    &["private-servers"],
];

#[tokio::test]
async fn help_lists_the_roles_and_what_each_takes() {
    let help = said(&["--help"]).await;
    assert_eq!(help.code, Some(0));
    for name in SUB_COMMANDS.iter().map(|words| words[0]) {
        assert!(help.stdout.contains(&format!("\n  {name}")), "{name}");
    }
    let nothing = said(&[]).await;
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("Usage: flash-sale <COMMAND>"));
}

#[tokio::test]
async fn help_shows_settings_from_the_environment_but_no_secret() {
    for words in SUB_COMMANDS {
        let mut command = flash_sale_by_default(&[words, &["--help"]].concat());
        command.env("FLASH_SALE_TOKEN_SECRET", SECRET);
        command.env("FLASH_SALE_REDIS_URL", NO_REDIS);
        command.env("FLASH_SALE_DATABASE_URL", NO_POSTGRES);
        command.env("FLASH_SALE_KEY_PREFIX", "a-prefix-of-our-own");
        let help = run(command).await;
        assert_eq!(help.code, Some(0), "{words:?}");
        assert!(help.stdout.contains(&format!("Usage: flash-sale {}", words.join(" "))));
        if words != ["coupon"] {
            assert!(help.stdout.contains("FLASH_SALE_TOKEN_SECRET"), "{words:?}");
            assert!(help.stdout.contains("a-prefix-of-our-own"), "{words:?}");
        }
        assert!(!help.stdout.contains(SECRET), "{words:?}");
        assert!(!help.stdout.contains("hunter2"), "{words:?}");
    }
}

const WATCHED: [&str; 2] = ["--redis-sentinels", "127.0.0.1:1"];

/// The arguments of a service behind sentinels.
fn watched(url: &str) -> Vec<&str> {
    let stores = ["--redis-url", url, "--database-url", NO_POSTGRES, "--token-secret", SECRET];
    [&WATCHED[..], &stores, &["--listen", "127.0.0.1:0"]].concat()
}

#[tokio::test]
async fn settings_that_cannot_be_right_are_refused_before_anything_is_started() {
    let own = ["--redis-url", NO_REDIS, "--database-url", NO_POSTGRES];
    for (arguments, names) in [
        (&own[..], &["--token-secret", "FLASH_SALE_TOKEN_SECRET"][..]),
        (&["--token-secret", "hunter2"], &["--token-secret", "32"]),
        (&own[..2], &["--redis-url", "--database-url"]),
        (&own[2..], &["--redis-url", "--database-url"]),
        (&["--roles", "cook"], &["--roles", "api, worker"]),
        (&["--key-prefix", "{fs}"], &["--key-prefix"]),
        (
            &["--gateway-url", "pay.example.com"],
            &["--gateway-url", "as in https://pay.example.com"],
        ),
        (&["--gateway-url", "http://127.0.0.1:1"], &["--gateway-url", "--payment-callback-secret"]),
        (&["--gateway-timeout-ms", "10"], &["--gateway-timeout-ms", "50..=30000"]),
        (&["--payment-callback-secret-before", "hunter2"], &["--payment-callback-secret-before"]),
        (&["--lanes", "64"], &["--lanes", "1..=63"]),
        (&["--further-token-secrets", "hunter2"], &["--further-token-secrets", "32"]),
        (&["--cors-origins", "shop.example"], &["--cors-origins", "https://shop.example"]),
        (&["--access-log-one-in", "some"], &["--access-log-one-in"]),
        (&["--user-requests-per-second", "many"], &["--user-requests-per-second"]),
        (&["--anonymous-requests-per-second", "many"], &["--anonymous-requests-per-second"]),
        (&["--trusted-proxies", "proxy.example"], &["--trusted-proxies", "10.0.0.0/8"]),
        (&["--durability", "disk"], &["--durability", "give memory, fsync, fsync:declared"]),
        (&["--durability", "replica:0"], &["--durability", "replica:N with N up to 9"]),
        (&["--redis-timeout-ms", "10"], &["--redis-timeout-ms", "50..=10000"]),
        (&["--database-timeout-ms", "60000"], &["--database-timeout-ms", "50..=10000"]),
        (&["--closed-orders-max", "1001"], &["--closed-orders-max", "1000"]),
        (&["--closed-orders-max", "many"], &["--closed-orders-max"]),
        (&["--claim-wait-ms", "500"], &["--claim-wait-ms", "--redis-timeout-ms 500"]),
        (&["--claim-wait-ms", "0"], &["--claim-wait-ms"]),
        (&["--pages", "kitchen"], &["--pages", "shop"]),
        (&["--listen", "8080"], &["--listen", "give an IP address and a port: 127.0.0.1:8080"]),
        (&["--listen", ":0"], &["--listen", "127.0.0.1:0 for any port that is free"]),
        (&["--listen", "localhost:8080"], &["--listen", "give an IP address"]),
        (&["--admin-listen", "127.0.0.1"], &["--admin-listen", "give an IP address and a port"]),
        (&["--redis-sentinels", ""], &["--redis-sentinels", "give host:port"]),
        (&["--redis-sentinels", "a:1,,b:2"], &["--redis-sentinels", "give host:port"]),
        (&["--redis-sentinels", "a:1,b:65536"], &["--redis-sentinels", "give host:port"]),
        (&["--redis-sentinels", "a"], &["--redis-sentinels", "give host:port"]),
        (&WATCHED, &["--redis-sentinels", "--redis-url", "redis://mymaster/0"]),
        (&watched("redis://:hunter2@127.0.0.1:1/"), &["--redis-url", "@mymaster/0"]),
        (&watched("redis://:hunter2@mymaster:6380/"), &["--redis-url", "@mymaster/0"]),
        (&watched("redis+unix:///redis.sock?pass=hunter2"), &["--redis-url", "no Unix socket"]),
        (&watched("mymaster"), &["--redis-url", "@mymaster/0"]),
    ] {
        refused_by_name(arguments, names).await;
    }
}

#[tokio::test]
async fn times_for_which_records_are_kept_that_cannot_be_right_are_refused() {
    for (arguments, names) in [
        (&["--orders-days", "36501"][..], &["--orders-days", "36500"][..]),
        (&["--orders-days", "never"], &["--orders-days"]),
        (&["--records-days", "0"], &["--records-days", "1..=36500"]),
        (&["--records-days", "never"], &["--records-days"]),
    ] {
        refused_by_name(arguments, names).await;
    }
}

#[tokio::test]
async fn a_url_with_a_password_is_refused_and_not_repeated() {
    for (flag, example) in [
        ("--gateway-url", "as in https://pay.example.com/v1"),
        ("--token-jwks-url", "as in https://issuer.example/.well-known/jwks.json"),
    ] {
        refused_by_name(&[flag, "http://user:hunter2@127.0.0.1/"], &[flag, example]).await;
    }
}

async fn refused_by_name(arguments: &[&str], names: &[&str]) {
    let folder = std::env::temp_dir().join(format!("fs-it-{}", uuid::Uuid::new_v4().simple()));
    let mut command = flash_sale_by_default(&[&["serve"], arguments].concat());
    command.env("FLASH_SALE_DATA_DIR", &folder);
    let refused = run(command).await;
    assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.stderr);
    for name in names {
        assert!(refused.stderr.contains(name), "{arguments:?}: {}", refused.stderr);
    }
    assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    assert!(!folder.exists(), "{arguments:?} made its folder");
}

#[tokio::test]
async fn recoveries_and_retries_that_cannot_be_asked_for_are_refused_by_name() {
    for (arguments, names) in [
        (&["recover", "--trust", "me"][..], &["--trust", "redis", "postgres"][..]),
        (&["recover", "--trust"], &["--trust"]),
        (&["recover", "--lane", "first"], &["--lane"]),
        (&["recover", "--dry-run=no"], &["--dry-run"]),
        (&["recover", "0"], &["unexpected argument"]),
    ] {
        let refused = said(arguments).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?}: {refused:?}");
        for name in names {
            assert!(refused.stderr.contains(name), "{arguments:?}: {refused:?}");
        }
    }
    let app = TestApp::start().await;
    let refused = said(&words(&with(&app, &["recover", "--lane", "7"], &[]))).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("there is no such lane"), "{refused:?}");
}

#[tokio::test]
async fn a_durability_that_redis_is_not_set_up_for_is_refused_at_the_start() {
    let app = TestApp::start().await;
    let refused = said(&words(&with(
        &app,
        &["serve", "--listen", "127.0.0.1:0", "--durability", "fsync"],
        &[],
    )))
    .await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in
        ["--durability fsync can't be kept", "set appendfsync always", "--durability memory"]
    {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
}

#[tokio::test]
async fn public_keys_that_cannot_be_read_are_refused_at_the_start() {
    let app = TestApp::start().await;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--token-keys", "/nowhere/keys.json"];
    let refused = said(&words(&with(&app, &serve, &[]))).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["--token-keys can't be used", "/nowhere/keys.json can't be read"] {
        assert!(refused.last_words().contains(words), "{words}: {refused:?}");
    }
}

#[tokio::test]
async fn a_switch_in_the_environment_is_true_or_false_and_nothing_else() {
    for value in ["maybe", "1"] {
        let mut command = flash_sale_by_default(&["doctor", "--data-dir", "/nowhere"]);
        command.env("FLASH_SALE_IN_PROCESS_GATEWAY", value);
        let refused = run(command).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{value:?}: {refused:?}");
        assert!(refused.stderr.contains("--in-process-gateway"), "{value:?}: {refused:?}");
    }
}

#[tokio::test]
async fn servers_that_are_not_there_are_named_without_their_password() {
    let app = TestApp::start().await;
    for (flag, url) in [("--redis-url", NO_REDIS), ("--database-url", NO_POSTGRES)] {
        let arguments = with(&app, &["serve", "--listen", "127.0.0.1:0"], &[(flag, url)]);
        let refused = said(&words(&arguments)).await;
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.last_words().contains(flag), "{}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn an_address_in_use_is_refused() {
    let app = TestApp::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    for (flag, role) in [("--listen", "api"), ("--admin-listen", "worker")] {
        let flags = [("--roles", role), (flag, &*address)];
        let refused = said(&words(&with(&app, &["serve"], &flags))).await;
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        let why = refused.last_words();
        assert!(why.contains(&format!("give another {flag}")) && why.contains(&address), "{why}");
    }
}

#[tokio::test]
async fn an_empty_database_is_refused_until_it_has_been_migrated() {
    let app = TestApp::start().await;
    app.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    let arguments = with(&app, &["serve", "--listen", "127.0.0.1:0"], &[]);
    let refused = said(&words(&arguments)).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.last_words().contains("`flash-sale migrate`"), "{}", refused.stderr);

    for _ in 0..2 {
        let migrated = said(&words(&with(&app, &["migrate"], &[]))).await;
        assert_eq!((migrated.code, &*migrated.stdout), (Some(0), "The database is up to date."));
    }
    // Redis belongs to the installation that the database was.
    let _: i64 = app.redis(&["DEL", &app.keys().lane(lane())]).await;
    let mut process = Process::serve(&app, &[]);
    process.url().await;
    process.signal(Signal::SIGINT);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_database_that_a_newer_binary_has_upgraded_is_refused() {
    let app = TestApp::start().await;
    app.execute(LATER_MIGRATION).await;
    for command in [&["reconcile"][..], &["serve", "--listen", "127.0.0.1:0"], &["migrate"]] {
        assert_newer(&said(&words(&with(&app, command, &[]))).await);
    }
    assert_eq!(app.number("SELECT count(*) FROM reconcile_runs").await, 0, "nothing was written");
}

/// Its first migration was another one.
#[tokio::test]
async fn a_database_of_before_1_0_is_refused() {
    let app = TestApp::start().await;
    app.execute("UPDATE _sqlx_migrations SET description = 'coupons' WHERE version = 1").await;
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"]] {
        let refused = said(&words(&with(&app, command, &[]))).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{}", refused.stderr);
        let why = refused.last_words();
        assert!(why.contains("before-redesign") && why.contains("1.0 begins anew"), "{why}");
    }
}

#[tokio::test]
async fn private_servers_that_a_newer_binary_has_upgraded_are_refused() {
    let servers = OwnServers::durable();
    let mut database = PgConnection::connect(&servers.at.database_url).await.expect("it answers");
    sqlx::raw_sql(LATER_MIGRATION).execute(&mut database).await.expect("Postgres does it");
    database.close().await.expect("Postgres answers");
    let folder = servers.folder().text();
    for command in [&["migrate"][..], &["reconcile"]] {
        assert_newer(&said(&[command, &["--data-dir", folder]].concat()).await);
    }
}

/// A migration that this binary doesn't know.
const LATER_MIGRATION: &str =
    "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
    VALUES (999999, 'all on the moon', true, '', 0)";

fn assert_newer(refused: &Finished) {
    assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{}", refused.stderr);
    let why = refused.last_words();
    assert!(why.contains("999999 all on the moon") && why.contains("run the newer one"), "{why}");
}

#[tokio::test]
async fn a_redis_that_would_evict_is_refused() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let policy = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    let _: String = app.redis(&policy).await;
    let arguments = with(&app, &["serve", "--listen", "127.0.0.1:0"], &[]);
    let refused = said(&words(&arguments)).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let why = refused.last_words();
    assert!(why.contains("maxmemory-policy") && why.contains("set it to noeviction"), "{why}");
}

#[tokio::test]
async fn a_redis_that_takes_no_writes_is_refused() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let _: String = app.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let arguments = with(&app, &["serve", "--listen", "127.0.0.1:0"], &[]);
    let refused = said(&words(&arguments)).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let why = refused.last_words();
    assert!(why.contains("is a replica") && why.contains("--redis-url"), "{why}");
    app.expect_disagreements();
}

#[tokio::test]
async fn tokens_are_good_for_the_users_they_name() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let made = said(&["token", "--token-secret", SECRET, "--user", "5", "--count", "3"]).await;
    assert_eq!((made.code, made.stdout.lines().count()), (Some(0), 3));
    for (token, user) in made.stdout.lines().zip(["5", "6", "7"]) {
        let path = format!("/v1/coupons/{coupon}/claims");
        assert_eq!(app.post(&path, token, &Value::Null).await.status, 202);
        app.write_orders().await;
        let orders = app.get("/v1/orders", token).await;
        assert_eq!(orders.body["orders"][0]["user_id"], user, "{orders:?}");
        let new =
            serde_json::json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2});
        assert_eq!(app.post("/v1/coupons", token, &new).await.status, 403);
    }
    let new =
        serde_json::json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2});
    for (scope, create, list, check) in [
        (&["--admin"][..], 201, 200, 404),
        (&["--scope", "administrator"], 201, 200, 404),
        (&["--scope", "operator"], 403, 200, 404),
        (&["--scope", "clerk"], 403, 403, 404),
        (&[], 403, 403, 403),
    ] {
        let token = [&["token", "--token-secret", SECRET, "--user", "5"], scope].concat();
        let token = said(&token).await.stdout;
        assert_eq!(app.post("/v1/coupons", token.trim(), &new).await.status, create, "{scope:?}");
        assert_eq!(app.get("/v1/operations", token.trim()).await.status, list, "{scope:?}");
        let checked = app.get("/v1/redemptions/7K3M-Q9TX-2B8D-HV4N", token.trim()).await;
        assert_eq!(checked.status, check, "{scope:?}");
    }
}

#[tokio::test]
async fn tokens_for_nobody_are_refused() {
    for (arguments, names) in [
        (&["--user", "0"][..], "--user"),
        (&["--user=-1"], "--user"),
        (&["--user", "9223372036854775808"], "--user"),
        (&["--user", "5", "--count", "0"], "--count"),
        (&["--user", "9223372036854775807", "--count", "2"], "--user + --count"),
        (&["--user", "5", "--hours", "0"], "--hours"),
        (&["--user", "5", "--scope", "admin"], "--scope"),
        (&["--user", "5", "--scope", ""], "--scope"),
        (&["--user", "5", "--scope", "clerk", "--admin"], "--admin"),
        (&[], "--user"),
    ] {
        let refused = said(&[&["token", "--token-secret", SECRET], arguments].concat()).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?}");
        assert!(refused.stderr.contains(names), "{}", refused.stderr);
    }
    // The largest user id.
    let last = ["token", "--token-secret", SECRET, "--user", "9223372036854775806", "--count", "2"];
    assert_eq!(said(&last).await.stdout.lines().count(), 2);
}

#[tokio::test]
async fn a_crowd_is_judged_by_what_the_stores_have() {
    let app = TestApp::start().await;
    let worker = Process::serve(&app, &["--roles", "worker"]);
    let crowd = [("--url", &*app.url), ("--shoppers", "20"), ("--stock", "5"), ("--over", "0")];
    let done = said(&words(&with(&app, &["storm"], &crowd))).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [first, .., last] = &lines[..] else { panic!("{done:?}") };
    assert_eq!((&first["stage"], &last["stage"]), (&"arming".into(), &"done".into()), "{done:?}");
    assert_eq!((&last["answered"], &last["verdict"]["word"]), (&20.into(), &"kept".into()));
    assert_eq!((&last["verdict"]["sold"], &last["rows"]), (&5.into(), &5.into()), "{last}");
    drop(worker);
}

#[tokio::test]
async fn a_crowd_is_bounded_and_stays_on_this_machine() {
    let here = ["--url", "http://127.0.0.1:1"];
    for (arguments, names) in [
        (&[][..], "--url"),
        (&["--url", "a b"], "--url"),
        (&["--url", "http://192.0.2.1:8080"], "this machine alone"),
        (&["--url", "https://localhost"], "this machine alone"),
        (&["--url", "localhost:8080"], "this machine alone"),
        (&[&here[..], &["--shoppers", "0"]].concat(), "--shoppers"),
        (&[&here[..], &["--shoppers", "100001"]].concat(), "1..=100000"),
        (&[&here[..], &["--stock", "0"]].concat(), "--stock"),
        (&[&here[..], &["--over", "61"]].concat(), "--over"),
        (&[&here[..], &["--twice", "101"]].concat(), "--twice"),
    ] {
        let refused = said(&[&["storm", "--token-secret", SECRET], arguments].concat()).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?} {refused:?}");
        assert!(refused.stderr.contains(names), "{}", refused.stderr);
    }
    let app = TestApp::start().await;
    let unheard = said(&words(&with(&app, &["storm"], &[("--url", here[1])]))).await;
    assert_eq!(unheard.code, Some(1), "{unheard:?}");
    assert!(unheard.stderr.contains("no service answers at http://127.0.0.1:1"), "{unheard:?}");
    let secret = "another secret of thirty-two bytes";
    let foreign = [("--url", &*app.url), ("--token-secret", secret)];
    let stranger = said(&words(&with(&app, &["storm"], &foreign))).await;
    assert_eq!(stranger.code, Some(1), "{stranger:?}");
    assert!(stranger.stderr.contains("the sale could not be made: 401"), "{stranger:?}");
}

#[tokio::test]
async fn coupons_that_cannot_be_are_refused_by_the_name_of_their_field() {
    let app = TestApp::start().await;
    let sale = [("--opens-at", "2026-01-02T00:00:00Z"), ("--closes-at", "2026-01-01T00:00:00Z")];
    let regular = ("--kind", "regular");
    for (values, names) in [
        (&[("--pay-cents", "-5"), regular][..], "pay_cents"),
        (&[("--title", ""), regular], "title"),
        (&[("--kind", "other")], "--kind"),
        (&[], "sale"),
        (&[("--total", "1")], "--opens-at"),
        (&[("--total", "0"), sale[0], ("--closes-at", "2026-01-03T00:00:00Z")], "sale.total"),
        (&[("--total", "1"), sale[0], sale[1]], "sale.closes_at"),
        (&[("--total", "1"), sale[0], ("--closes-at", "tomorrow")], "--closes-at"),
        (
            &[("--total", "1"), ("--stock", "1"), sale[0], ("--closes-at", "2026-01-03T00:00:00Z")],
            "--total",
        ),
    ] {
        let good = [("--title", "t"), ("--pay-cents", "1"), ("--value-cents", "2")];
        let rest = good.iter().filter(|(flag, _)| values.iter().all(|(given, _)| given != flag));
        let values: Vec<_> = values.iter().chain(rest).copied().collect();
        let refused = said(&words(&with(&app, &["coupon", "create"], &values))).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{values:?}");
        assert!(refused.stderr.contains(names), "{values:?}: {}", refused.stderr);
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 0);
}

#[tokio::test]
async fn reconcile_says_whether_the_stores_agree() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    app.claim(42, coupon).await;
    let reconcile = with(&app, &["reconcile"], &[]);
    let agreed = said(&words(&reconcile)).await;
    assert_eq!(agreed.code, Some(0), "{agreed:?}");
    let counts = format!("coupon {coupon}: total 3 = stock 2 + buyers 1; live orders 0");
    assert!(agreed.stdout.contains(&counts), "{agreed:?}");

    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HINCRBY", &key, "stock", "1"]).await;
    let disagreed = said(&words(&reconcile)).await;
    assert_eq!(disagreed.code, Some(4), "{disagreed:?}");
    let line =
        format!("DISAGREE not_conserved: coupon {coupon}: total 3 is not stock 3 + buyers 1");
    assert!(disagreed.stdout.contains(&line), "{disagreed:?}");
    assert!(disagreed.last_words().contains("disagree in 1 places"), "{disagreed:?}");

    let _: i64 = app.redis(&["HINCRBY", &key, "stock", "-1"]).await;
    assert_eq!(said(&words(&reconcile)).await.code, Some(0));

    app.write_orders().await;
    assert_eq!(said(&words(&reconcile)).await.code, Some(0));
}

// ---- steps of these tests ----

/// Runs `flash-sale` with these arguments.
pub(super) async fn said(arguments: &[&str]) -> Finished {
    run(flash_sale(arguments)).await
}

/// A sub-command on the data of `app`; flags given here stand in for the app's own.
pub(super) fn with(app: &TestApp, command: &[&str], flags: &[(&str, &str)]) -> Vec<String> {
    let own = app.store_arguments();
    let own = own.chunks(2).filter(|pair| flags.iter().all(|(flag, _)| pair[0] != *flag));
    let given = flags.iter().map(|(flag, value)| format!("{flag}={value}"));
    let command = command.iter().map(|word| (*word).to_owned());
    command.chain(given).chain(own.flatten().cloned()).collect()
}

pub(super) fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The words of others reach a terminal as they show, and move nothing there.
#[tokio::test]
async fn a_terminal_is_not_moved_by_the_words_of_others() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let acts = |text: &str| text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}');
    let refused = said(&["coupon", "create", "--kind", "7\u{1b}[2J\u{9b}\u{202e}"]).await;
    assert!(!acts(&refused.stderr), "{refused:?}");

    // And nobody of the staff puts them in.
    let order = app.paid_order(1, coupon).await;
    for evil in ["a\u{1b}[2J", "\u{9b}31m", "\u{202e}b", "a\u{0}b", "a\u{7f}"] {
        let path = format!("/v1/orders/{order}/refund-for-buyer");
        let body = serde_json::json!({ "reason": evil });
        let refused = app.post(&path, &app.admin_token(), &body).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{evil:?}");
    }
}

/// A cluster moves keys between its servers, and the service speaks to one.
#[tokio::test]
async fn a_node_of_a_cluster_is_refused() {
    let app = TestApp::start().await;
    let (_node, port) = RedisServer::on_tcp(&["--cluster-enabled", "yes"]);
    let url = format!("redis://127.0.0.1:{port}/");
    let arguments = with(&app, &["serve", "--listen", "127.0.0.1:0"], &[("--redis-url", &url)]);
    let refused = said(&words(&arguments)).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.last_words().contains("node of a cluster"), "{refused:?}");
}
