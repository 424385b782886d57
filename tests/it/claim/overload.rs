//! More claims than can be carried out: those that would only wait are refused, with a time to come back.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{OwnServers, TestApp, eventually};

/// Claims that are sent while Redis is stopped, one each few milliseconds: together they take far longer than the
/// first of them may wait, and than a call may take.
const CLAIMS: i64 = 300;
const PAUSE: Duration = Duration::from_millis(10);
/// Time-outs that leave a busy machine some time.
const TIMEOUTS: [&str; 4] = ["--redis-timeout-ms", "2000", "--claim-wait-ms", "500"];

#[tokio::test]
async fn who_would_only_wait_is_refused_and_comes_back() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &TIMEOUTS, Clock::System).await;
    let coupon = app.create_flash(1_000).await;
    eventually("a claim", async || app.claim(CLAIMS + 1, coupon).await.status == 202).await;

    let redis = Pid::from_raw(servers.at.redis_pid);
    kill(redis, Signal::SIGSTOP).expect("it runs");
    let claims = join_all((1..=CLAIMS).map(async |user| {
        tokio::time::sleep(PAUSE * u32::try_from(user).unwrap()).await;
        app.claim(user, coupon).await
    }));
    let operations = async {
        tokio::time::sleep(PAUSE * 100).await;
        (app.get("/livez", "").await.status, app.get("/metrics", "").await.status)
    };
    let (replies, operations) = tokio::join!(claims, operations);
    kill(redis, Signal::SIGCONT).expect("it is only stopped");

    assert_eq!(operations, (200, 200), "these are never refused");
    let mut refused = 0;
    for reply in &replies {
        let (status, code) = reply.refusal();
        assert!(status == 503 && ["overloaded", "unavailable"].contains(&code), "{reply:?}");
        assert!(reply.header("retry-after").parse::<u32>().is_ok_and(|wait| wait > 0), "{reply:?}");
        refused += i32::from(code == "overloaded");
    }
    assert!(refused > 0, "no claim was refused");
    for (user, reply) in (1..).zip(&replies).filter(|(_, reply)| reply.text("code") == "overloaded")
    {
        // Redis has caught up, and the refused user has no unit yet.
        eventually("the claim is taken in", async || app.claim(user, coupon).await.status == 202)
            .await;
        assert_eq!(app.claim(user, coupon).await.refusal(), (409, "already_claimed"), "{reply:?}");
    }
    app.write_orders().await;
}
