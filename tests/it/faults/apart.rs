//! Stores that don't belong together: a Redis that another installation sells from, a Postgres that was restored while
//! Redis went on, and a Postgres in another run.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use flash_sale::store::ids::CouponId;
use flash_sale::worker::JobError;
use nix::sys::signal::Signal;
use private_servers::testing::DataFolder;
use serde_json::Value;
use uuid::Uuid;

use crate::faults::recovery::start;
use crate::support::process::{
    Finished, Process, flash_sale, order_id, program, run, try_claim, written,
};
use crate::support::{TestApp, bounded, eventually, lane, shared};

const SERVICE: [&str; 2] = ["--roles", "api,worker"];

/// Words of the command line on the data of this app.
async fn say(app: &TestApp, words: &[&str]) -> Finished {
    let mut command = flash_sale(words);
    command.args(app.store_arguments());
    run(command).await
}

/// The status of `/readyz`, and its body.
async fn ready(app: &TestApp, url: &str) -> (u16, Value) {
    let reply = bounded("the reply", app.client().get(format!("{url}/readyz")).send()).await;
    let reply = reply.expect("the service answers");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

async fn becomes_ready(app: &TestApp, url: &str) {
    eventually("the service is ready", async || ready(app, url).await.1["status"] == "ready").await;
}

/// Status and code of a claim.
async fn claim(app: &TestApp, url: &str, user: i64, coupon: CouponId) -> (u16, Value) {
    let (status, body) = try_claim(app, url, user, coupon).await.expect("the service answers");
    (status, body["code"].clone())
}

async fn sell(app: &TestApp, url: &str, users: std::ops::RangeInclusive<i64>, coupon: CouponId) {
    let expected = *users.end();
    for user in users {
        assert_eq!(claim(app, url, user, coupon).await.0, 202, "user {user}");
    }
    let are_written = async || written(app).await.contains_key(&expected);
    eventually("the claims are written", are_written).await;
    let state = "SELECT count(*) FROM dead_letters";
    assert_eq!(app.number(state).await, 0);
}

/// Ends what it was doing first, so that nothing is in flight.
async fn stop(mut service: Process) {
    service.signal(Signal::SIGTERM);
    assert_eq!(service.ended().await.code(), Some(0));
}

/// A program of Postgres on this database.
async fn postgres(program: &str, app: &TestApp, words: &[&str]) {
    let mut command = Command::new(program);
    command.arg(format!("--dbname={}", app.database_url())).args(words);
    let done = run(command).await;
    assert_eq!(done.code, Some(0), "{program}: {}", done.stderr);
}

/// A backup of the database, in a file.
struct Backup(DataFolder);

impl Backup {
    async fn of(app: &TestApp) -> Self {
        let folder = DataFolder::new();
        fs::create_dir_all(folder.text()).expect("a folder");
        let backup = Self(folder);
        let file = format!("--file={}", backup.file());
        postgres("pg_dump", app, &["--format=custom", &file]).await;
        backup
    }

    fn file(&self) -> String {
        format!("{}/backup", self.0.text())
    }

    /// In the place of what the database has now.
    async fn restore(&self, app: &TestApp) {
        let words = ["--clean", "--if-exists", "--single-transaction", &self.file()];
        postgres("pg_restore", app, &words).await;
    }
}

/// Creates a sale by the command line.
async fn create(app: &TestApp, total: i64) -> CouponId {
    let total = total.to_string();
    let words = ["coupon", "create", "--title", "t", "--pay-cents", "1", "--value-cents", "9"];
    let sale = ["--opens-at", "2026-01-01T00:00:00Z", "--closes-at", "2036-01-01T00:00:00Z"];
    let words = [&words[..], &["--total", &total], &sale].concat();
    let created = say(app, &words).await;
    assert_eq!(created.code, Some(0), "{}", created.stderr);
    let coupon: Value = serde_json::from_str(&created.stdout).expect("JSON");
    coupon["id"].as_str().and_then(|id| id.parse().ok()).expect("an id")
}

/// All keys of this app in Redis with their values, but for what the board is told of the processes.
async fn keys(app: &TestApp) -> Vec<(String, Vec<u8>)> {
    let mut names: Vec<String> = app.redis(&["KEYS", "*"]).await;
    names.retain(|name| !name.contains(":process"));
    names.sort();
    let mut all = Vec::new();
    for name in names {
        if name.ends_with(":lane") {
            let fields: BTreeMap<String, String> = app.redis(&["HGETALL", &name]).await;
            all.push((name, format!("{fields:?}").into_bytes()));
            continue;
        }
        let value: Option<Vec<u8>> = app.redis(&["DUMP", &name]).await;
        all.extend(value.map(|value| (name, value)));
    }
    all
}

/// A database with a schema of its own, as another installation has it. Returns its name.
async fn other_installation() -> String {
    let name = format!("o{}", Uuid::new_v4().simple());
    shared().create_empty_database(&name).await;
    let migrated = run(flash_sale(&["migrate", "--database-url", &shared().database(&name)])).await;
    assert_eq!(migrated.code, Some(0), "{}", migrated.stderr);
    name
}

/// Words of the command line on this app's Redis and another database.
async fn say_as_stranger(app: &TestApp, database: &str, words: &[&str]) -> Finished {
    let mut command = flash_sale(words);
    let ours = app.database_url();
    let theirs = shared().database(database);
    let arguments = app.store_arguments().into_iter();
    command.args(arguments.map(|word| if word == ours { theirs.clone() } else { word }));
    run(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_installation_on_the_same_redis_is_refused_and_touches_nothing() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let api = Process::serve(&app, &["--roles", "api"]);
    let url = api.url().await;
    assert_eq!(claim(&app, &url, 1, coupon).await.0, 202);
    becomes_ready(&app, &url).await;
    let other = other_installation().await;
    let before = keys(&app).await;

    let commands = [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["serve", "--roles", "worker"],
        &["reconcile"],
        &["recover"],
    ];
    for words in commands {
        let refused = say_as_stranger(&app, &other, words).await;
        let said = refused.last_words();
        assert_eq!(refused.code, Some(2), "{words:?}: {}", refused.stderr);
        assert!(said.contains("belongs to another installation"), "{said}");
        assert!(said.contains("--key-prefix"), "{said}");
    }
    let found = say_as_stranger(&app, &other, &["doctor"]).await;
    let named = "FAIL  Stores: ALARM: lane 0 in Redis belongs to another installation";
    assert!(found.stdout.contains(named), "{}", found.stdout);
    assert_eq!(keys(&app).await, before);

    assert_eq!(claim(&app, &url, 2, coupon).await.0, 202, "production goes on");
    assert_eq!(ready(&app, &url).await.1["status"], "ready");
    app.write_orders().await;
    shared().drop_database(&other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_process_that_meets_the_redis_of_another_installation_is_not_ready() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let service = Process::serve(&app, &SERVICE);
    let url = service.url().await;
    becomes_ready(&app, &url).await;
    // Redis was emptied, and the other installation was faster.
    let lane = app.keys().lane(coupon.lane());
    let ours: String = app.redis(&["HGET", &lane, "installation"]).await;
    let _: i64 = app.redis(&["HSET", &lane, "installation", "another"]).await;
    let (status, body) = ready(&app, &url).await;
    assert_eq!((status, &body["status"]), (503, &"unavailable".into()), "{body}");
    assert_eq!(body["redis"], "holds the data of another installation");
    assert_eq!(claim(&app, &url, 1, coupon).await.0, 503);
    let _: i64 = app.redis(&["HSET", &lane, "installation", &ours]).await;
    becomes_ready(&app, &url).await;
    sell(&app, &url, 1..=1, coupon).await;
}

/// A sale that was created after the backup, with buyers; then a new one.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_restored_with_redis_ahead_gives_no_id_again_and_waits_for_a_decision() {
    for trust in ["postgres", "redis"] {
        let (_server, app) = start(&[]).await;
        let old = create(&app, 10).await;
        let service = Process::serve(&app, &SERVICE);
        sell(&app, &service.url().await, 1..=3, old).await;
        let backup = Backup::of(&app).await;
        let forgotten = create(&app, 500).await;
        sell(&app, &service.url().await, 11..=30, forgotten).await;
        stop(service).await;
        backup.restore(&app).await;

        let new = create(&app, 50).await;
        assert!(new > forgotten, "{new} is given again");
        let service = Process::serve(&app, &SERVICE);
        let url = service.url().await;
        let (status, body) = ready(&app, &url).await;
        let lanes = body["lanes"].as_str().unwrap_or_default();
        assert!(status == 503 && lanes.contains("Postgres is behind Redis"), "{body}");
        assert_eq!(claim(&app, &url, 4, old).await, (503, "recovering".into()));
        let found = say(&app, &["doctor"]).await;
        assert!(
            found.stdout.contains("FAIL  Stores: ALARM: Postgres is behind Redis"),
            "{found:?}"
        );
        for undecided in [&["recover"][..], &["recover", "--lane", "0", "--trust", trust]] {
            assert_eq!(say(&app, undecided).await.code, Some(2));
        }
        let shown = say(&app, &["recover", "--dry-run"]).await;
        let orphan = format!("coupon {forgotten}: a sale that only Redis has");
        assert!(shown.stdout.contains(&orphan), "{}", shown.stdout);

        assert_eq!(say(&app, &["recover", "--trust", trust]).await.code, Some(0));
        becomes_ready(&app, &url).await;
        let mut sold = 0;
        for user in 101..=180 {
            match claim(&app, &url, user, new).await {
                (202, _) => sold += 1,
                told => assert_eq!(told, (410, "sold_out".into())),
            }
        }
        assert_eq!(sold, 50);
        sell(&app, &url, 4..=5, old).await;
        eventually("all are written", async || written(&app).await.len() == 55).await;
        let compared = say(&app, &["reconcile"]).await;
        if trust == "redis" {
            let named = format!("DISAGREE sale_orphaned: coupon {forgotten}");
            assert!(compared.stdout.contains(&named), "{}", compared.stdout);
            assert_eq!(say(&app, &["recover", "--trust", "postgres"]).await.code, Some(0));
            becomes_ready(&app, &url).await;
        }
        let compared = say(&app, &["reconcile"]).await;
        assert_eq!(compared.code, Some(0), "{}", compared.stdout);
        assert_eq!(claim(&app, &url, 11, forgotten).await, (404, "coupon_not_found".into()));
        stop(service).await;
    }
}

/// No epoch has been raised since the backup: only the orders that were acknowledged tell.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_restored_with_the_epochs_of_redis_waits_for_a_decision() {
    for trust in ["redis", "postgres"] {
        let (_server, app) = start(&[]).await;
        let coupon = create(&app, 10).await;
        let service = Process::serve(&app, &SERVICE);
        let url = service.url().await;
        sell(&app, &url, 1..=3, coupon).await;
        let backup = Backup::of(&app).await;
        sell(&app, &url, 4..=8, coupon).await;
        let promised = written(&app).await;
        stop(service).await;
        backup.restore(&app).await;
        assert_eq!(written(&app).await.len(), 3);

        let service = Process::serve(&app, &SERVICE);
        let url = service.url().await;
        let (status, body) = ready(&app, &url).await;
        assert!(status == 503 && body["lanes"].as_str().is_some_and(|it| it.contains("behind")));
        let asked = try_claim(&app, &url, 8, coupon).await.expect("the service answers");
        assert_eq!(asked.0, 503);
        assert_eq!(say(&app, &["recover", "--trust", trust]).await.code, Some(0));
        becomes_ready(&app, &url).await;
        let (status, body) = try_claim(&app, &url, 8, coupon).await.expect("the service answers");
        match trust {
            "redis" => assert_eq!((status, order_id(&body)), (409, promised[&8])),
            _ => assert_eq!(status, 202),
        }
        let orders = if trust == "redis" { 8 } else { 4 };
        eventually("all are written", async || written(&app).await.len() == orders).await;
        let compared = say(&app, &["reconcile"]).await;
        assert_eq!(compared.code, Some(0), "{}", compared.stdout);
        stop(service).await;
    }
}

/// A service that runs notices within a second: Postgres fails over to a standby that lacks the last order.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_that_goes_back_under_a_running_service_closes_all_lanes() {
    let (_server, app) = start(&[]).await;
    let coupon = create(&app, 10).await;
    let service = Process::serve(&app, &SERVICE);
    let url = service.url().await;
    becomes_ready(&app, &url).await;
    sell(&app, &url, 1..=3, coupon).await;
    app.execute("DELETE FROM orders WHERE user_id = 3; UPDATE flash_sales SET sold = 2").await;
    eventually("it is not ready", async || ready(&app, &url).await.0 == 503).await;
    assert_eq!(claim(&app, &url, 9, coupon).await.0, 503);
    assert_eq!(say(&app, &["recover", "--trust", "redis"]).await.code, Some(0));
    becomes_ready(&app, &url).await;
    // The claim that was refused may have been carried out a moment before the lanes were closed: 503 is no "no".
    let users: Vec<i64> = written(&app).await.into_keys().filter(|user| *user != 9).collect();
    assert_eq!(users, [1, 2, 3]);
    stop(service).await;
}

/// Its acknowledgement would take the place of the mark by which the loss is known.
#[tokio::test]
async fn a_worker_writes_nothing_over_an_order_that_postgres_lacks() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    for user in 1..=2 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    bounded("the job", app.app.leaders.first().run_once()).await.expect("both stores answer");
    app.execute("DELETE FROM orders WHERE user_id = 2; UPDATE flash_sales SET sold = 1").await;
    assert_eq!(app.claim(3, coupon).await.status, 202);
    let mut worker = app.worker(lane());
    let passed = bounded("the job", worker.write_job()).await;
    assert!(matches!(passed, Err(JobError::OrderMissing(_))), "{passed:?}");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 1);
    bounded("the job", app.app.leaders.first().run_once()).await.expect("both stores answer");
    assert_eq!(app.app.lanes.recovering().len(), 1, "an operator decides");
    assert_eq!(say(&app, &["recover", "--trust", "redis"]).await.code, Some(0));
    app.recover().await;
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 3);
}

/// Another run, and nothing missing.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_in_another_life_is_compared_and_goes_on() {
    let (_server, app) = start(&[]).await;
    let coupon = create(&app, 10).await;
    let service = Process::serve(&app, &SERVICE);
    sell(&app, &service.url().await, 1..=3, coupon).await;
    stop(service).await;
    let lane = app.keys().lane(coupon.lane());
    let postgres_run: String = app.redis(&["HGET", &lane, "postgres"]).await;
    let _: i64 = app.redis(&["HSET", &lane, "postgres", "1:1:1"]).await;
    let service = Process::serve(&app, &SERVICE);
    let url = service.url().await;
    let reason = "SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL AND reason = 'another run of Postgres answers'";
    eventually("it was compared", async || app.number(reason).await > 0).await;
    becomes_ready(&app, &url).await;
    assert_eq!(app.redis::<String>(&["HGET", &lane, "postgres"]).await, postgres_run);
    assert_eq!(claim(&app, &url, 3, coupon).await.0, 409);
    sell(&app, &url, 4..=5, coupon).await;
    stop(service).await;
}

/// A sale stands in Redis under the next id, of which Postgres knows nothing.
#[tokio::test]
async fn a_load_over_a_sale_of_another_load_is_refused() {
    let app = TestApp::start().await;
    let next = app.number("SELECT nextval('coupon_sequence') + 1").await;
    let key = app.keys().coupon(CouponId::compose(next, app.lanes()));
    let sale = ["state", "active", "load", "another", "stock", "500", "total", "500", "epoch", "1"];
    let _: i64 = app.redis(&[&["HSET", &key], &sale[..]].concat()).await;
    let before: Vec<u8> = app.redis(&["DUMP", &key]).await;
    let coupon = app.create_flash(50).await;
    assert_eq!(app.keys().coupon(coupon), key);
    assert_eq!(app.number("SELECT count(*) FROM flash_sales WHERE loaded_at IS NOT NULL").await, 0);
    assert_eq!(app.redis::<Vec<u8>>(&["DUMP", &key]).await, before);
    let _: i64 = app.redis(&["DEL", &key]).await;
}

/// The blocks of commands in a section of docs/operate.md.
fn blocks(section: &str) -> Vec<Vec<&'static str>> {
    let page = include_str!("../../../docs/operate.md");
    let from = page.find(section).expect("there is such a section");
    let text = &page[from + section.len()..];
    let text = text.split("\n## ").next().unwrap_or(text);
    let blocks = text.split("```sh\n").skip(1).map(|block| block.split("```").next());
    blocks.map(|block| block.unwrap_or_default().lines().collect()).collect()
}

/// Types the commands of a block, in this folder. Returns what they print.
async fn r#type(app: &TestApp, folder: &DataFolder, block: &[&str]) -> String {
    let binary = env!("CARGO_BIN_EXE_flash-sale");
    let place = binary.rsplit_once('/').map_or(".", |(place, _)| place);
    let path = std::env::var_os("PATH").expect("there is one");
    let path = format!("{place}:{}", path.to_string_lossy());
    let mut printed = String::new();
    for line in block {
        let mut shell = program("sh", &["-c", line]);
        shell.current_dir(folder.text()).env("PATH", &path);
        for pair in app.store_arguments().chunks(2) {
            let name = pair[0].trim_start_matches("--").replace('-', "_").to_uppercase();
            shell.env(format!("FLASH_SALE_{name}"), &pair[1]);
        }
        let done = run(shell).await;
        assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
        printed += &done.stdout;
    }
    printed
}

/// docs/operate.md, command by command.
#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_restores_either_store() {
    let blocks = blocks("## Restoring a store");
    let [dump, restore, decide, postgres_is_back, redis_is_back] = &blocks[..] else {
        panic!("the section has other blocks: {blocks:?}");
    };
    let (mut server, app) = start(&[]).await;
    let folder = DataFolder::new();
    fs::create_dir_all(folder.text()).expect("a folder");
    let coupon = create(&app, 20).await;
    let service = Process::serve(&app, &SERVICE);
    let url = service.url().await;
    sell(&app, &url, 1..=3, coupon).await;
    r#type(&app, &folder, dump).await;
    sell(&app, &url, 4..=6, coupon).await;
    let promised = written(&app).await;

    stop(service).await;
    r#type(&app, &folder, restore).await;
    let service = Process::serve(&app, &SERVICE);
    let url = service.url().await;
    eventually("the lanes are closed", async || ready(&app, &url).await.0 == 503).await;
    let said = r#type(&app, &folder, decide).await;
    assert_eq!(said.matches("was told order").count(), 3, "{said}");
    becomes_ready(&app, &url).await;
    let said = r#type(&app, &folder, postgres_is_back).await;
    assert!(said.contains("agree"), "{said}");
    assert_eq!(written(&app).await, promised);

    // The file that Redis begins with is older than the last claims.
    let _: String = app.redis(&["SAVE"]).await;
    sell(&app, &url, 7..=9, coupon).await;
    stop(service).await;
    server.kill();
    server.start_again();
    let opened = "SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL";
    let before = app.number(opened).await;
    let service = Process::serve(&app, &SERVICE);
    let url = service.url().await;
    eventually("the lane is open again", async || app.number(opened).await > before).await;
    becomes_ready(&app, &url).await;
    let said = r#type(&app, &folder, redis_is_back).await;
    assert!(said.contains("Redis and Postgres agree"), "{said}");
    for user in 1..=9 {
        assert_eq!(claim(&app, &url, user, coupon).await, (409, "already_claimed".into()));
    }
    sell(&app, &url, 10..=11, coupon).await;
    stop(service).await;
}
