//! Cost of reading a hot coupon beside the route that does nothing, measured by hand and printed. Only the ratio within
//! one run has a meaning, and none is asserted.
//!
//! `cargo test --release --locked --test it costs::reads -- --ignored --nocapture`

use std::time::Duration;

use flash_sale::base::clock::Clock;
use futures_util::future::join_all;
use reqwest::RequestBuilder;
use tokio::time::Instant;

use super::by_hand::cpu_seconds;
use crate::support::process::{Process, flash_sale};
use crate::support::{OwnServers, TestApp};

/// Clients, each with one request at a time.
const CLIENTS: usize = 16;
/// Duration of each phase.
const PHASE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: it measures"]
async fn long_a_hot_coupon_beside_the_route_that_does_nothing() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(5).await;
    let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0", "--roles", "api"]);
    command.args(["--admin-listen", "127.0.0.1:0", "--no-op-route"]).args(app.store_arguments());
    for bound in ["user-claims", "user-requests", "anonymous-requests"] {
        command.args([&format!("--{bound}-per-second"), "0"]);
    }
    let service = Process::spawn(command);
    let url = service.url().await;
    let no_op = app.client().post(format!("{url}/v1/no-op")).bearer_auth(app.token(1));
    let read = app.client().get(format!("{url}/v1/coupons/{coupon}"));
    for round in 1..=3 {
        let (nothing, cpu_of_nothing) = phase(&service, &no_op).await;
        let (reads, cpu_of_read) = phase(&service, &read).await;
        println!(
            "round {round}: {nothing:.0} requests/s that do nothing, {reads:.0} reads/s: {:.2}; CPU of the service {:.1} and {:.1} us: {:.2}",
            reads / nothing,
            cpu_of_nothing * 1e6,
            cpu_of_read * 1e6,
            cpu_of_nothing / cpu_of_read
        );
    }
}

/// Requests a second in a phase, and seconds of the service's CPU for each.
async fn phase(service: &Process, request: &RequestBuilder) -> (f64, f64) {
    let before = cpu_seconds(service.pid());
    let began = Instant::now();
    let client = async || {
        let mut requests = 0.0;
        while began.elapsed() < PHASE {
            let request = request.try_clone().expect("it has no body that is a stream");
            let reply = request.send().await.expect("the service answers");
            assert!(reply.status().is_success(), "{}", reply.status());
            reply.bytes().await.expect("the body arrives");
            requests += 1.0;
        }
        requests
    };
    let requests: f64 = join_all((0..CLIENTS).map(|_| client())).await.into_iter().sum();
    let took = began.elapsed().as_secs_f64();
    (requests / took, (cpu_seconds(service.pid()) - before) / requests)
}
