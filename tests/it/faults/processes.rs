//! Processes paused and stopped in the middle of their work; for killed ones see `kills.rs`. An answered 202 always
//! ends as exactly one row, and the counts stay exact.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use flash_sale::base::limits;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::process::{
    HangingPostgres, Process, backlog, flash_sale, lock_sales, order_id, pending, rows,
    small_batches, try_claim, waiting_writers, written,
};
use crate::support::{OwnServers, SECRET, TestApp, eventually};

#[tokio::test]
async fn two_apis_and_two_workers_sell_exactly_the_stock() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(50).await;
    let apis = [(); 2].map(|()| Process::serve(&app, &["--roles", "api"]));
    let _workers = [(); 2].map(|()| Process::serve(&app, &["--roles", "worker"]));
    let urls = [apis[0].url().await, apis[1].url().await];

    // 80 users, each at both APIs at the same time.
    let claims = (0..160).map(|n| try_claim(&app, &urls[n % 2], 1 + n as i64 / 2, coupon));
    let replies = join_all(claims).await;
    let mut promised = BTreeMap::new();
    for (n, reply) in replies.into_iter().enumerate() {
        let (status, body) = reply.expect("no process was killed");
        if status == 202 {
            let first = promised.insert(1 + n as i64 / 2, order_id(&body));
            assert_eq!(first, None, "two units for one user");
        }
    }
    assert_eq!(promised.len(), 50);
    eventually("all orders are written", async || written(&app).await == promised).await;
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 50);
}

#[tokio::test]
async fn a_worker_paused_between_insert_and_commit_holds_up_nobody_and_does_no_harm_when_it_wakes()
{
    let app = TestApp::start().await;
    let promised = backlog(&app, 500).await;
    let lock = lock_sales(&app).await;
    let mut paused = small_batches(&app);
    eventually("its batch is inserted and waits for the lock", async || {
        waiting_writers(&app).await > 0
    })
    .await;
    paused.signal(Signal::SIGSTOP);
    let paused_at = Instant::now();
    lock.rollback().await.expect("Postgres answers");

    // Its transaction is open: it holds the rows that the other worker wants to insert.
    let _other = Process::serve(&app, &["--roles", "worker"]);
    eventually("everything is written", async || rows(&app).await == 500).await;
    print_recovery("a worker paused in its transaction", paused_at);
    eventually("everything is acknowledged", async || pending(&app).await == 0).await;

    paused.signal(Signal::SIGCONT);
    // The woken worker ends by itself only after its batch.
    paused.assert_stops().await;
    assert_eq!(written(&app).await, promised);
    assert_sold_exactly(&app, 500).await;
}

#[tokio::test]
async fn a_worker_that_wakes_after_its_batch_was_taken_over_writes_it_with_no_effect() {
    let app = TestApp::start().await;
    let promised = backlog(&app, 2_000).await;
    let mut paused = small_batches(&app);
    eventually("it is in the middle of it", async || rows(&app).await > 100).await;
    paused.signal(Signal::SIGSTOP);
    let mut other = Process::serve(&app, &["--roles", "worker"]);
    eventually("everything is written", async || rows(&app).await == 2_000).await;
    eventually("everything is acknowledged", async || pending(&app).await == 0).await;

    paused.signal(Signal::SIGCONT);
    other.assert_stops().await;
    // The worker that slept is a good worker again.
    let coupon = app.create_flash(1).await;
    let order = app.claim(42, coupon).await.order_id();
    eventually("the woken one writes", async || rows(&app).await == 2_001).await;
    paused.assert_stops().await;
    let mut rows = written(&app).await;
    // User 42 has an order of the first coupon, too.
    assert_eq!(app.number(&format!("SELECT count(*) FROM orders WHERE id = {order}")).await, 1);
    rows.insert(42, promised[&42]);
    assert_eq!(rows, promised);
    assert_sold_exactly(&app, 2_001).await;
}

#[tokio::test]
async fn sigterm_under_load_loses_no_202() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(100_000).await;
    let mut process = Process::serve(&app, &[]);
    let url = process.url().await;
    // 16 clients, each of which claims for one user after the other until no API answers.
    let client = |n: i64| {
        let app = &app;
        let url = &url;
        async move {
            let mut promised = BTreeMap::new();
            let mut id = n;
            while let Some((status, body)) = try_claim(app, url, id, coupon).await {
                assert_eq!(status, 202, "{body}");
                promised.insert(id, order_id(&body));
                id += 16;
            }
            promised
        }
    };
    let clients = join_all((1..=16).map(client));
    let stopping = async {
        eventually("it is under load", async || {
            app.number("SELECT count(*) FROM orders").await > 100
        })
        .await;
        process.assert_stops().await;
    };
    let (clients, ()) = tokio::join!(clients, stopping);

    app.write_orders().await;
    let rows = written(&app).await;
    for (user, order) in clients.into_iter().flatten() {
        assert_eq!(rows.get(&user), Some(&order));
    }
}

#[tokio::test]
async fn claims_that_wait_for_their_order_are_answered_by_a_stopping_process() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    // No worker writes, so they would wait to the end.
    let mut process = Process::serve(&app, &["--roles", "api"]);
    let url = process.url().await;
    let path = format!("/v1/coupons/{coupon}/claims");
    let waiting = join_all((1..=10).map(|user| {
        let request = app.client().post(format!("{url}{path}"));
        let request = request.bearer_auth(app.token(user)).header("prefer", "wait=10");
        app.send(request, "POST", &path)
    }));
    let stopping = async {
        eventually("all are waiting", async || app.buyers_count(coupon).await == 10).await;
        process.assert_stops().await;
    };
    let (replies, ()) = tokio::join!(waiting, stopping);
    assert!(replies.iter().all(|reply| reply.status == 202));
}

#[tokio::test]
async fn a_stop_request_that_comes_with_the_start_is_obeyed() {
    let app = TestApp::start().await;
    let mut processes = [(); 8].map(|()| Process::serve(&app, &["--roles", "api"]));
    let stopped = processes.iter_mut().map(async |process| {
        process.url().await;
        process.assert_stops().await;
    });
    join_all(stopped).await;
}

#[tokio::test]
async fn operations_have_a_listener_of_their_own() {
    let app = TestApp::start().await;
    let status = async |url: String| {
        app.client().get(url).send().await.expect("it listens").status().as_u16()
    };
    let both = Process::serve(&app, &["--admin-listen", "127.0.0.1:0"]);
    // A worker needs neither the secret that signs tokens nor an API.
    let mut without_secret = app.store_arguments();
    without_secret.retain(|argument| argument != "--token-secret" && argument != SECRET);
    let alone = ["serve", "--roles", "worker", "--admin-listen", "127.0.0.1:0"];
    let arguments = [&alone.map(str::to_owned)[..], &without_secret].concat();
    let worker = Process::spawn(flash_sale(&arguments));
    for process in [&both, &worker] {
        let line = process.logged("/metrics, /livez and /readyz listen on ").await;
        let url = line.split(" listen on ").nth(1).expect("it is in the line").to_owned();
        for path in ["/metrics", "/livez", "/readyz"] {
            assert_eq!(status(url.clone() + path).await, 200, "{path}");
        }
        // A refusal names the page that explains it, and the listener has that page.
        let refusal = app.client().get(url.clone() + "/v1/nothing").send().await.expect("a reply");
        assert_eq!(refusal.status(), 404);
        let refusal: serde_json::Value = refusal.json().await.expect("a problem");
        let page = refusal["type"].as_str().expect("a path");
        assert_eq!(status(url.clone() + page).await, 200, "{page}");
    }
    let api = both.url().await;
    assert_eq!(status(api.clone() + "/v1/coupons").await, 200);
    assert_eq!(status(api + "/metrics").await, 404);
}

#[tokio::test]
async fn connections_that_do_nothing_do_not_hold_up_the_end() {
    let app = TestApp::start().await;
    let mut process = Process::serve(&app, &["--roles", "api"]);
    let url = process.url().await;
    let _silent = connect(&url).await;
    let mut kept_alive = connect(&url).await;
    let request = b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n";
    kept_alive.write_all(request).await.expect("it listens");
    let read = kept_alive.read(&mut [0; 1024]).await.expect("it answers");
    assert!(read > 0);
    process.assert_stops().await;
}

#[tokio::test]
async fn a_second_signal_ends_a_drain_that_hangs() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let mut process = Process::serve(&app, &["--roles", "api"]);
    let url = process.url().await;
    // A request whose body never comes holds up the drain.
    let mut request = connect(&url).await;
    let head = format!(
        "POST /v1/coupons HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        app.admin_token()
    );
    request.write_all(head.as_bytes()).await.expect("it listens");
    // Once this later request is answered, the earlier one has begun.
    try_claim(&app, &url, 1, coupon).await.expect("it runs");
    process.signal(Signal::SIGTERM);
    process.logged("finishing what has begun").await;
    assert!(process.is_running());
    process.signal(Signal::SIGTERM);
    process.logged("stopping at once").await;
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_postgres_that_hangs_does_not_keep_a_process_from_ending() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], flash_sale::base::clock::Clock::System).await;
    let coupon = app.create_flash(10).await;
    let mut process = Process::serve(&app, &["--database-timeout-ms", "1000"]);
    let url = process.url().await;
    assert_eq!(try_claim(&app, &url, 1, coupon).await.expect("it runs").0, 202);
    eventually("it writes", async || written(&app).await.len() == 1).await;

    let hanging = HangingPostgres::of(&app).await;
    let (status, _) = try_claim(&app, &url, 2, coupon).await.expect("it runs");
    assert_eq!(status, 202);
    eventually("the worker has it in hand", async || pending(&app).await == 1).await;
    process.assert_stops().await;

    drop(hanging);
    let _next = Process::serve(&app, &["--roles", "worker"]);
    eventually("it is written", async || rows(&app).await == 2).await;
}

// ---- checks of these tests ----

/// Checks that every row is counted once, that there is no other row, and that no entry was put aside.
pub async fn assert_sold_exactly(app: &TestApp, units: i64) {
    let sold = "SELECT sum(sold)::bigint FROM flash_sales";
    assert_eq!(app.number(sold).await, units);
    assert_eq!(rows(app).await, units);
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
}

/// Prints the duration, to compare machines.
pub fn print_recovery(what: &str, since: Instant) {
    let took = since.elapsed();
    println!(
        "{what}: everything in Postgres after {took:.1?} (promised: {:?})",
        limits::RECOVERY_MAX
    );
}

async fn connect(url: &str) -> TcpStream {
    let address = url.strip_prefix("http://").expect("a URL");
    TcpStream::connect(address).await.expect("it listens")
}

#[tokio::test]
async fn a_service_whose_log_nobody_reads_any_more_stops_in_order() {
    let app = TestApp::start().await;
    let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--database-connections", "5"]).args(app.store_arguments());
    let mut service = command.stderr(Stdio::piped()).spawn().expect("the binary has been built");
    let mut log = BufReader::new(service.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("listens") {
        line.clear();
        assert!(log.read_line(&mut line).expect("it is text") > 0, "it ended before it listened");
    }
    drop(log);
    let pid = i32::try_from(service.id()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it is our child");
    assert_eq!(service.wait().expect("it is our child").code(), Some(0));
}
