//! Stopping and starting under load: behind a balancer that asks `/readyz` no claim fails, and each request that has
//! reached the kernel is answered.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::faults::processes::assert_sold_exactly;
use crate::support::load::Load;
use crate::support::process::{Process, rows, written};
use crate::support::{TestApp, eventually};

const ARGUMENTS: [&str; 4] = ["--roles", "api", "--stop-delay-ms", "3000"];

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_fails_no_claim() {
    roll(2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make faults"]
async fn long_twenty_rolling_restarts_under_load_fail_no_claim() {
    roll(20).await;
}

#[tokio::test]
async fn what_waits_in_the_kernel_s_queue_when_the_stop_comes_is_answered() {
    let app = TestApp::start().await;
    // Chance decides whether the process sees the queue or the signal first when it wakes up.
    for _ in 0..5 {
        stop_with_a_full_queue(&app).await;
    }
}

async fn stop_with_a_full_queue(app: &TestApp) {
    let mut api = Process::serve(app, &["--roles", "api"]);
    let url = api.url().await;
    let address = url.strip_prefix("http://").expect("a URL");
    // The process sleeps while clients connect and ask; when it wakes up, it is told to stop at the same moment.
    api.signal(Signal::SIGSTOP);
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = TcpStream::connect(address).await.expect("the kernel takes it");
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("and keeps it");
        clients.push(client);
    }
    api.signal(Signal::SIGTERM);
    api.signal(Signal::SIGCONT);
    let replies = clients.iter_mut().map(async |client| {
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.map(|_| reply)
    });
    for reply in join_all(replies).await {
        let reply = reply.expect("no reset");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply:?}");
    }
    assert_eq!(api.ended().await.code(), Some(0));
}

/// Two APIs and two workers; each round replaces one of each.
async fn roll(rounds: usize) {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10_000_000).await;
    let api = || Process::serve(&app, &ARGUMENTS);
    let worker = || Process::serve(&app, &["--roles", "worker"]);
    let mut apis = vec![api(), api()];
    let mut workers = vec![worker(), worker()];
    let load = Load::start(&apis[0].url().await, coupon, 8);
    for _ in 0..rounds {
        load.send_to(ready(&app, &urls(&apis).await).await);
        load.accepts(100).await;

        apis.push(api());
        workers.push(worker());
        let urls = urls(&apis).await;
        load.send_to(ready(&app, &urls).await);
        load.accepts(100).await;
        let mut old = apis.remove(0);
        let mut old_worker = workers.remove(0);
        let ended = AtomicBool::new(false);
        let stopping = async {
            tokio::join!(old.assert_stops(), old_worker.assert_stops());
            ended.store(true, Ordering::SeqCst);
        };
        // The balancer knows only the answers of `/readyz`.
        let balancing = eventually("the old ones end", async || {
            load.send_to(ready(&app, &urls).await);
            ended.load(Ordering::SeqCst)
        });
        tokio::join!(stopping, balancing);
        load.accepts(100).await;
    }
    let history = load.finish().await;
    assert_eq!(history.unknown, 0, "claims failed");
    assert_eq!(history.accepted, history.promised.len(), "a claim was told twice");
    println!("{} claims, none failed; the slowest took {:?}", history.accepted, history.slowest);
    let promised = i64::try_from(history.promised.len()).expect("some");
    eventually("everything is written", async || rows(&app).await >= promised).await;
    assert_eq!(written(&app).await, history.promised);
    assert_sold_exactly(&app, promised).await;
}

async fn urls(apis: &[Process]) -> Vec<String> {
    join_all(apis.iter().map(Process::url)).await
}

/// The APIs that say that they are ready; waits until one does.
async fn ready(app: &TestApp, urls: &[String]) -> Vec<String> {
    let mut ready = Vec::new();
    eventually("an API is ready", async || {
        ready.clear();
        for url in urls {
            let reply = app.client().get(format!("{url}/readyz")).send().await;
            if reply.is_ok_and(|reply| reply.status() == 200) {
                ready.push(url.clone());
            }
        }
        !ready.is_empty()
    })
    .await;
    ready
}
