//! This service: how fast it shows a hot coupon over HTTP, beside its route that does nothing.
//!
//! The service answers from a process of its own, so that its CPU time can be told from that of the clients.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::Grants;
use futures_util::future::join_all;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Method, Request, header};
use ladders::client::Connection;
use ladders::cpu;
use ladders::essay::{figure, provenance, table};
use ladders::servers::Servers;
use ladders::service::{Service, tokens};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

/// Clients, each with one request at a time.
const CLIENTS: usize = 16;
/// Duration of a phase.
const PHASE: Duration = Duration::from_secs(3);
/// Rounds, each of a phase without and one with the coupon.
const ROUNDS: usize = 3;
/// Least rate of reads, as a part of the rate at which nothing is done.
const GOAL: f64 = 0.9;
/// Longer than any start or end takes.
const HANGS: Duration = Duration::from_secs(120);
/// No bound stops the clients.
const SETTINGS: [&str; 7] = [
    "--no-op-route",
    "--user-claims-per-second",
    "0",
    "--user-requests-per-second",
    "0",
    "--anonymous-requests-per-second",
    "0",
];

/// Shows a coupon from this process: says where, and goes on until its input ends.
pub async fn play(redis_url: &str, database_url: &str) -> anyhow::Result<()> {
    let service = Service::start(redis_url, database_url, &SETTINGS).await?;
    let coupon = service.create_coupon(5).await?;
    println!("{} {coupon}", service.listen()?);
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while input.next_line().await?.is_some() {}
    std::process::exit(0)
}

/// The table of the rounds.
pub async fn measure(servers: &Servers) -> anyhow::Result<String> {
    let (mut process, address, coupon) = start(servers).await?;
    let pid = process.id().context("it lives")?;
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let nothing = phase(pid, &address, Method::POST, "/v1/no-op").await?;
        let reads = phase(pid, &address, Method::GET, &format!("/v1/coupons/{coupon}")).await?;
        let ratio = reads.per_second / nothing.per_second;
        println!("round {round}: {ratio:.2} of the route that does nothing");
        let numbers = [nothing.per_second, reads.per_second].map(figure);
        let cpu = [nothing.cpu_us, reads.cpu_us].map(figure);
        let row = [round.to_string()].into_iter().chain(numbers).chain([format!("{ratio:.2}")]);
        rows.push(row.chain(cpu).collect());
        ratios.push(ratio);
    }
    drop(process.stdin.take());
    timeout(HANGS, process.wait()).await.context("the service doesn't end")??;
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ROUNDS / 2];
    let is_met = if median >= GOAL { "met" } else { "not met" };
    let head = [
        "round",
        "requests/s that do nothing",
        "reads/s of a hot coupon",
        "reads / nothing",
        "CPU of the service, µs: nothing",
        "read",
    ];
    Ok(format!(
        "{}\n{CLIENTS} clients, each with one request at a time, {} s for each figure. Median of the ratio: {median:.2};\ngoal: {GOAL} at least, {is_met}.\n\n{}",
        provenance(),
        PHASE.as_secs(),
        table(&head, &rows)
    ))
}

async fn start(servers: &Servers) -> anyhow::Result<(Child, String, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("play").args([servers.redis_url(), servers.database_url()]).kill_on_drop(true);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut words = BufReader::new(process.stdout.take().context("piped")?).lines();
    let line = timeout(HANGS, words.next_line()).await.context("the service doesn't start")??;
    let line = line.context("the service ended; its error stands above")?;
    let (address, coupon) = line.split_once(' ').context("an address and a coupon")?;
    Ok((process, address.to_owned(), coupon.to_owned()))
}

/// Figures of a phase.
struct Phase {
    per_second: f64,
    /// CPU time of the service for a request, in microseconds.
    cpu_us: f64,
}

async fn phase(pid: u32, address: &str, method: Method, path: &str) -> anyhow::Result<Phase> {
    let expires_at = Clock::System.now() + TimeDelta::hours(1);
    let token = tokens().issue(Grants::user(1), expires_at);
    let request = || -> anyhow::Result<Request<Empty<Bytes>>> {
        let request = Request::builder().method(method.clone()).uri(path);
        let request = request.header(header::HOST, address);
        // Only the route that does nothing asks for it.
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        Ok(request.body(Empty::new())?)
    };
    let (before, began) = (cpu::microseconds(&[pid]), Instant::now());
    let client = async || -> anyhow::Result<u64> {
        let mut connection = Connection::open(address).await?;
        let mut requests = 0;
        while began.elapsed() < PHASE {
            let status = connection.exchange(request()?).await?;
            ensure!(status.is_success(), "{path} is answered {status}");
            requests += 1;
        }
        Ok(requests)
    };
    let requests: anyhow::Result<Vec<u64>> =
        join_all((0..CLIENTS).map(|_| client())).await.into_iter().collect();
    let seconds = began.elapsed().as_secs_f64();
    let requests = requests?.into_iter().sum::<u64>() as f64;
    let used = cpu::microseconds(&[pid]) - before;
    Ok(Phase { per_second: requests / seconds, cpu_us: used / requests })
}
