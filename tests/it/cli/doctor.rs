//! `flash-sale doctor`: each risk is named with its cost, and decides the exit code. Settings are really changed, on
//! servers of the test's own or on its own database.

use std::path::PathBuf;

use flash_sale::base::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing::DataFolder;
use uuid::Uuid;

use crate::support::process::{Finished, Process, flash_sale, run, try_claim};
use crate::support::{OwnServers, SECRET, TestApp, eventually};

/// Port 1, where no server listens.
const NO_REDIS: &str = "redis://user:hunter2@127.0.0.1:1/3";
const NO_POSTGRES: &str = "postgres://user:hunter2@127.0.0.1:1/x?password=hunter2";

#[tokio::test]
async fn a_durable_pair_is_healthy_until_one_of_them_dies() {
    let servers = OwnServers::durable();
    let own = doctor(&own(&servers.at.redis_url, &servers.at.database_url), &["--strict"]).await;
    assert_eq!(own.code, Some(0), "{own:?}");
    assert_eq!(not_good(&own), [""; 0]);
    assert!(own.stdout.ends_with("\n0 warnings, 0 failures"), "{own:?}");
    for found in [
        "Token secret: given",
        "redis.sock, database 0: Redis ",
        "Redis persistence: a 202 is on disk (appendfsync always)",
        "database flash_sale: PostgreSQL ",
        "Postgres durability: a commit is on disk",
        "Postgres schema: up to date; lanes: 1",
        "Clock of Redis: agrees",
        "Clock of Postgres: agrees",
    ] {
        assert!(own.stdout.contains(found), "{found}: {own:?}");
    }

    let folder = servers.folder().text().to_owned();
    let private = ["--data-dir".into(), folder];
    let joined = doctor(&private, &[]).await;
    assert_eq!((joined.code, not_good(&joined).len()), (Some(0), 0), "{joined:?}");
    assert!(joined.stdout.contains("in use by a live process"), "{joined:?}");
    assert!(joined.stdout.contains("Token secret: the one kept in "), "{joined:?}");

    kill(Pid::from_raw(servers.at.redis_pid), Signal::SIGKILL).expect("the keeper's child");
    let half = doctor(&private, &[]).await;
    assert_eq!(half.code, Some(5), "{half:?}");
    assert_found(&half, &[("FAIL", "no claim can be taken")]);
    assert!(half.stdout.contains("Postgres schema: up to date"), "{half:?}");
}

#[tokio::test]
async fn servers_for_tests_are_good_for_nothing_else() {
    let app = TestApp::start().await;
    let found = doctor(&app.store_arguments(), &[]).await;
    assert_eq!(found.code, Some(5), "{found:?}");
    assert_found(
        &found,
        &[
            ("warn", "Redis memory: no bound (maxmemory 0)"),
            ("warn", "on disk when the operating system pleases (appendfsync no)"),
            ("FAIL", "Postgres fsync is off: a power cut or a crash of the machine can damage"),
            ("FAIL", "Postgres synchronous_commit is off for us: a crash of Postgres loses"),
            ("warn", "Postgres full_page_writes is off: a power cut can leave half-written pages"),
        ],
    );
    assert!(found.stdout.ends_with("\n3 warnings, 2 failures"), "{found:?}");
    assert!(found.last_words().contains("2 of the findings above"), "{found:?}");
}

#[tokio::test]
async fn unsafe_settings_of_redis_are_named_with_their_cost() {
    let servers = OwnServers::durable();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let stores = app.store_arguments();
    let memory = ("warn", "Redis memory: no bound (maxmemory 0)");
    for (settings, code, expected) in [
        (&["maxmemory", "100mb"][..], 0, &[][..]),
        (&["maxmemory-policy", "allkeys-lru"], 5, &[("FAIL", "it would drop data")]),
        (&["maxmemory-policy", "noeviction"], 0, &[]),
        (&["no-appendfsync-on-rewrite", "yes"], 0, &[("warn", "appendfsync always is as good")]),
        (
            &["no-appendfsync-on-rewrite", "no", "min-replicas-to-write", "2"],
            5,
            &[("FAIL", "Redis has fewer replicas than min-replicas-to-write")],
        ),
        (
            &["min-replicas-to-write", "0", "appendfsync", "everysec"],
            0,
            &[(
                "warn",
                "lose the confirmed claims of the last second or two; set appendfsync always",
            )],
        ),
        (
            &["maxmemory", "0", "appendfsync", "no"],
            0,
            &[memory, ("warn", "a power cut loses what has not been written")],
        ),
        (
            &["appendonly", "no", "save", "60 1"],
            5,
            &[
                memory,
                ("FAIL", "every claim since the last snapshot that isn't in Postgres is lost"),
            ],
        ),
        (&["save", ""], 5, &[memory, ("FAIL", "a restart of Redis loses every claim")]),
    ] {
        let _: String = app.redis(&[&["CONFIG", "SET"], settings].concat()).await;
        let found = doctor(&stores, &[]).await;
        assert_eq!(found.code, Some(code), "{settings:?}: {found:?}");
        assert_found(&found, expected);
        if !expected.is_empty() {
            assert_eq!(doctor(&stores, &["--strict"]).await.code, Some(5), "{settings:?}");
        }
    }
    // A replica of no server, so it keeps its data.
    let _: String = app.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let found = doctor(&stores, &[]).await;
    assert!(not_good(&found)[0].starts_with("FAIL  Redis is a replica"), "{found:?}");
    let _: String = app.redis(&["REPLICAOF", "NO", "ONE"]).await;
}

#[tokio::test]
async fn replicas_that_are_asked_for_and_missing_are_a_failure() {
    let app = TestApp::start().await;
    let found = doctor(&app.store_arguments(), &["--redis-replicas-min", "1"]).await;
    assert_eq!(found.code, Some(5), "{found:?}");
    let missing = "FAIL  Redis replicas: 0 connected, --redis-replicas-min asks for 1";
    assert!(not_good(&found).iter().any(|line| line.starts_with(missing)), "{found:?}");
}

#[tokio::test]
async fn settings_of_postgres_count_as_our_sessions_have_them() {
    let servers = OwnServers::durable();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let stores = app.store_arguments();
    let name: String = sqlx::query_scalar("SELECT current_database()::text")
        .fetch_one(&app.app.stores.pool)
        .await
        .expect("Postgres answers");
    for (setting, expected) in [
        ("synchronous_commit = off", "Postgres synchronous_commit is off for us"),
        ("default_transaction_read_only = on", "default_transaction_read_only is on for us"),
    ] {
        app.execute(&format!("ALTER DATABASE {name} SET {setting}")).await;
        let found = doctor(&stores, &[]).await;
        assert_eq!(found.code, Some(5), "{found:?}");
        assert_found(&found, &[("FAIL", expected)]);
        app.execute(&format!("ALTER DATABASE {name} RESET ALL")).await;
    }
    let greedy = doctor(&stores, &["--database-connections", "1000"]).await;
    assert_eq!(greedy.code, Some(0), "{greedy:?}");
    assert_found(&greedy, &[("warn", "each process of ours opens up to 1000: under load")]);

    app.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (999999, 'all on the moon', true, '', 0)",
    )
    .await;
    let newer = doctor(&stores, &[]).await;
    assert_eq!(newer.code, Some(5), "{newer:?}");
    assert_found(&newer, &[("FAIL", "999999 all on the moon); run the newer one")]);

    app.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    let empty = doctor(&stores, &[]).await;
    assert_eq!(empty.code, Some(5), "{empty:?}");
    assert_found(&empty, &[("FAIL", "run `flash-sale migrate`")]);
    app.expect_disagreements();
}

#[tokio::test]
async fn a_store_that_is_away_hides_nothing_of_the_other_and_no_password_is_printed() {
    let app = TestApp::start().await;
    let stores = app.store_arguments();
    let redis = "Redis persistence: ";
    let postgres = "Postgres schema: up to date";
    for (flag, url, place, there) in [
        ("--redis-url", NO_REDIS, "Redis at 127.0.0.1:1, database 3 can't be used", postgres),
        ("--database-url", NO_POSTGRES, "Postgres at 127.0.0.1:1, database x can't be used", redis),
    ] {
        let found = doctor(&replaced(&stores, flag, url), &[]).await;
        assert_eq!(found.code, Some(5), "{found:?}");
        assert!(found.stdout.contains(&format!("\nFAIL  {place}")), "{found:?}");
        assert!(found.stdout.contains(there), "{found:?}");
        assert_secretive(&found);
    }
    let found = doctor(&own(NO_REDIS, NO_POSTGRES), &[]).await;
    assert_found(&found, &[("FAIL", "no claim can be taken"), ("FAIL", "claims pile up in Redis")]);
    assert_secretive(&found);
}

#[tokio::test]
async fn where_config_is_forbidden_nothing_is_made_up() {
    let servers = OwnServers::durable();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let rights = ["ACL", "SETUSER", "guest", "on", ">hunter2", "~*", "&*", "+@all", "-config"];
    let _: String = app.redis(&rights).await;
    let url = format!("{}?user=guest&pass=hunter2", servers.at.redis_url);
    let stores = replaced(&app.store_arguments(), "--redis-url", &url);
    let found = doctor(&stores, &[]).await;
    assert_eq!(found.code, Some(0), "{found:?}");
    assert_found(
        &found,
        &[
            ("warn", "Redis memory: no bound"),
            ("warn", "how soon that is on disk can't be told"),
            ("warn", "Redis CONFIG is forbidden"),
        ],
    );
    assert_secretive(&found);

    // Whoever runs the server may know what can't be read.
    let declared = ["--durability", "fsync:declared"];
    let found = doctor(&stores, &declared).await;
    assert_found(&found, &[("warn", "Redis CONFIG is forbidden")]);
    assert!(found.stdout.contains("declared, not proven"), "{found:?}");
    let coupon = app.create_flash(1).await;
    let mut serve = flash_sale(&["serve", "--listen", "127.0.0.1:0", "--roles", "api"]);
    serve.args(declared).args(&stores);
    let mut service = Process::spawn(serve);
    let claim = try_claim(&app, &service.url().await, 1, coupon).await;
    assert_eq!(claim.expect("it answers").0, 202);
    service.kill();
}

#[tokio::test]
async fn without_a_service_the_programs_are_named_and_nothing_is_made() {
    let folder: PathBuf = std::env::temp_dir().join(format!("fs-it-{}", Uuid::new_v4().simple()));
    let arguments = ["--data-dir".into(), folder.display().to_string()];
    let found = doctor(&arguments, &[]).await;
    assert_eq!((found.code, not_good(&found).len()), (Some(0), 0), "{found:?}");
    for part in ["no service runs", "`flash-sale serve` would start them", "PostgreSQL"] {
        assert!(found.stdout.contains(part), "{found:?}");
    }
    assert!(!folder.exists(), "doctor made a folder");
}

#[tokio::test]
async fn the_secret_is_missed_by_those_who_need_it_and_bad_settings_are_refused() {
    let app = TestApp::start().await;
    let stores = app.store_arguments();
    let at = stores.iter().position(|word| word == "--token-secret").expect("it is given");
    let without = [&stores[..at], &stores[at + 2..]].concat();
    let missing = "FAIL  Token secret: --token-secret (FLASH_SALE_TOKEN_SECRET) is missing";
    let found = doctor(&without, &[]).await;
    assert!(not_good(&found)[0].starts_with(missing), "{found:?}");
    let worker = doctor(&without, &["--roles", "worker"]).await;
    assert!(worker.stdout.contains("without the role api none is needed"), "{worker:?}");

    for flag in ["--payment-callback-secret-before", "--token-secret"] {
        let refused = doctor(&[], &[flag, "hunter2"]).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
        assert!(refused.last_words().contains(flag), "{refused:?}");
        assert_secretive(&refused);
    }
    let half = doctor(&["--redis-url".into(), NO_REDIS.into()], &[]).await;
    assert_eq!(half.code, Some(2), "{half:?}");
}

#[tokio::test]
async fn payments_that_move_no_money_are_a_failure_and_no_gateway_is_a_warning() {
    let folder = DataFolder::new();
    let private = ["--data-dir".to_owned(), folder.text().to_owned()];
    let elsewhere = ["--payment-callback-secret", SECRET];
    let gateway = [&elsewhere[..], &["--gateway-url", "http://127.0.0.1:1"]].concat();
    let given_away = "whatever is on sale is given away";
    for (arguments, code, expected) in [
        (&[][..], 0, Some(("warn", "no order can be paid, and each expires"))),
        (&elsewhere, 0, Some(("warn", "is asked for no refund"))),
        (&gateway, 0, None),
        (&["--in-process-gateway"], 5, Some(("FAIL", given_away))),
        (&[&["--in-process-gateway"][..], &gateway].concat(), 5, Some(("FAIL", given_away))),
        (&["--in-process-gateway", "--roles", "worker"], 0, None),
    ] {
        let found = examine(&private, arguments).await;
        assert_eq!(found.code, Some(code), "{arguments:?}: {found:?}");
        assert_found(&found, expected.as_slice());
        assert!(found.stdout.contains("\nok    Payments: ") == expected.is_none(), "{found:?}");
        assert_secretive(&found);
    }
}

/// The settings of the processes that run decide, and not those of the command.
#[tokio::test]
async fn the_processes_that_run_are_judged() {
    let app = TestApp::start().await;
    let stores = app.store_arguments();
    let gateway = ["--payment-callback-secret", SECRET, "--gateway-url", "http://127.0.0.1:1"];
    let mut process = Process::serve(&app, &["--in-process-gateway", "--roles", "api"]);
    let url = process.url().await;
    // By these the alarm NoWorker goes, whatever the stores do.
    let metrics = app.client().get(format!("{url}/metrics")).send().await.expect("it answers");
    let metrics = metrics.text().await.expect("a page");
    let has = |role: &str| metrics.contains(&format!("flash_sale_role{{role=\"{role}\"}} 1"));
    assert_eq!(["api", "worker"].map(has), [true, false], "{metrics}");
    eventually("the process tells of itself", async || {
        let found = examine(&stores, &gateway).await;
        ["ok    Running: ", "whatever is on sale is given away", "no process has the role worker"]
            .iter()
            .all(|words| found.stdout.contains(words))
    })
    .await;
    process.assert_stops().await;
    let found = examine(&stores, &gateway).await;
    assert!(!found.stdout.contains("given away"), "{found:?}");
}

#[tokio::test]
async fn a_level_that_waits_for_every_replica_has_no_spare_one() {
    let app = TestApp::start().await;
    let found = examine(&app.store_arguments(), &["--durability", "replica:2"]).await;
    assert!(found.stdout.contains("waits for 2, and 0 are connected"), "{found:?}");
    let found = examine(&app.store_arguments(), &["--durability", "memory"]).await;
    assert!(!found.stdout.contains("are connected: once"), "{found:?}");
}

// ---- steps of these tests ----

/// Checks a service whose payments are in order.
async fn doctor(stores: &[String], more: &[&str]) -> Finished {
    let gateway = ["--payment-callback-secret", SECRET, "--gateway-url", "http://127.0.0.1:1"];
    examine(stores, &[&gateway, more].concat()).await
}

async fn examine(stores: &[String], more: &[&str]) -> Finished {
    let mut command = flash_sale(&["doctor"]);
    command.args(stores).args(more);
    run(command).await
}

fn own(redis_url: &str, database_url: &str) -> Vec<String> {
    let arguments =
        [("--redis-url", redis_url), ("--database-url", database_url), ("--token-secret", SECRET)];
    arguments.iter().flat_map(|(flag, value)| [*flag, *value].map(str::to_owned)).collect()
}

/// The same arguments with another value for one of the flags.
fn replaced(arguments: &[String], flag: &str, value: &str) -> Vec<String> {
    let at = arguments.iter().position(|word| word == flag).expect("it is given") + 1;
    let mut arguments = arguments.to_vec();
    value.clone_into(&mut arguments[at]);
    arguments
}

/// The lines of warnings and failures.
fn not_good(found: &Finished) -> Vec<&str> {
    found
        .stdout
        .lines()
        .filter(|line| ["warn  ", "FAIL  "].iter().any(|level| line.starts_with(level)))
        .collect()
}

/// Exactly these warnings and failures, each told by its level and some of its words.
#[track_caller]
fn assert_found(found: &Finished, expected: &[(&str, &str)]) {
    let lines = not_good(found);
    let fits = lines
        .iter()
        .zip(expected)
        .all(|(line, (level, words))| line.starts_with(level) && line.contains(words));
    assert!(fits && lines.len() == expected.len(), "expected {expected:#?}, got {lines:#?}");
}

#[track_caller]
fn assert_secretive(found: &Finished) {
    for secret in ["hunter2", SECRET] {
        assert!(!found.stdout.contains(secret), "{found:?}");
        assert!(!found.stderr.contains(secret), "{found:?}");
    }
}
