//! Several servers of Redis, each with its lanes: one that fails concerns its lanes alone.

use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::store::ids::{CouponId, Lane};
use serde_json::json;

use crate::support::process::{Process, rows, try_claim};
use crate::support::{
    Addresses, IMPATIENT_WITH_REDIS, OwnServers, TestApp, eventually, shared, user, worker_of,
    write_all,
};
use crate::worker::owners::owners;

/// An app on the shared servers and on a Redis of its own, with so many lanes.
async fn start(lanes: u32, arguments: &[&str]) -> (OwnServers, TestApp) {
    let own = OwnServers::durable();
    let servers = Addresses {
        redis_url: format!("{},{}", shared().redis_url, own.at.redis_url),
        ..shared().clone()
    };
    let lanes = lanes.to_string();
    let arguments = [&["--lanes", &lanes], arguments].concat();
    let app = TestApp::on(&servers, &arguments, Clock::System).await;
    (own, app)
}

/// A sale in each lane: those on the first server, and those on the second one.
async fn sales(app: &TestApp) -> [Vec<CouponId>; 2] {
    let mut sales = [Vec::new(), Vec::new()];
    for _ in 0..4 {
        let coupon = app.create_flash(100).await;
        sales[app.app.stores.fleet.number(coupon.lane())].push(coupon);
    }
    assert_eq!(sales.each_ref().map(Vec::len), [2, 2]);
    sales
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_concerns_its_lanes_alone() {
    let (mut own, app) = start(4, &IMPATIENT_WITH_REDIS).await;
    let service = Process::serve(&app, &IMPATIENT_WITH_REDIS);
    let url = service.url().await;
    let [first, second] = sales(&app).await;
    let claims = async |user, coupons: &[CouponId]| {
        let mut told = Vec::new();
        for coupon in coupons {
            told.push(try_claim(&app, &url, user, *coupon).await.expect("it runs").0);
        }
        told
    };
    assert_eq!(claims(1, &first).await, [202, 202]);
    assert_eq!(claims(1, &second).await, [202, 202]);
    eventually("rows of both servers", async || rows(&app).await == 4).await;

    own.kill_redis();
    assert_eq!(claims(2, &second).await, [503, 503]);
    assert_eq!(claims(2, &first).await, [202, 202]);
    // Orders are written, sales are changed and units come back beside the dead server.
    eventually("rows of the first server", async || rows(&app).await == 6).await;
    let pause = format!("/v1/coupons/{}/pause", first[0]);
    assert_eq!(app.post(&pause, &app.admin_token(), &json!({})).await.status, 200);
    assert_eq!(claims(3, &first).await, [409, 202]);
    let list = app.get("/v1/coupons", "").await;
    let is_known = |coupon: &CouponId| {
        let coupons = list.body["coupons"].as_array().expect("a list");
        let found = coupons.iter().find(|it| it["id"] == json!(coupon.to_string()));
        !found.expect("it is listed")["sale"]["left"].is_null()
    };
    assert!(first.iter().all(is_known) && !second.iter().any(is_known), "{list:?}");
    let ready = app.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("status")), (200, "degraded"), "{ready:?}");
    assert_eq!(ready.text("redis"), "server 2 of 2: can't be reached");

    own.bring_back();
    eventually("claims on the second server", async || {
        claims(4, &second).await.iter().all(|status| [202, 409].contains(status))
    })
    .await;
    let repeats = claims(1, &second).await;
    assert_eq!(repeats, [409, 409], "its buyers are known");
    eventually("all rows", async || rows(&app).await == 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_share_the_lanes_of_all_servers_also_where_each_has_one() {
    let (_own, app) = start(2, &[]).await;
    let _first = Process::serve(&app, &["--roles", "worker"]);
    eventually("both lanes have an owner", async || owners(&app).await.len() == 2).await;
    let of_first = owners(&app).await;
    let _second = Process::serve(&app, &["--roles", "worker"]);
    eventually("the second one owns a lane", async || {
        let owners = owners(&app).await;
        let of_second = owners.iter().filter(|owner| !of_first.contains(owner)).count();
        (owners.len(), of_second) == (2, 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_everything_is_built_anew_and_the_other_one_goes_on() {
    let (_own, app) = start(4, &[]).await;
    let [first, second] = sales(&app).await;
    for coupon in first.iter().chain(&second) {
        assert_eq!(app.claim(1, *coupon).await.status, 202);
    }
    app.write_orders().await;
    let lost = app.app.stores.redis(second[0].lane());
    lost.query::<()>(&redis::cmd("FLUSHALL")).await.expect("it answers");
    assert_eq!(app.claim(2, second[0]).await.refusal(), (503, "recovering"));
    assert_eq!(app.claim(2, first[0]).await.status, 202);
    app.recover().await;
    let closed = "SELECT count(DISTINCT lane) FROM recoveries";
    assert_eq!(app.number(closed).await, 2, "the lanes of that server, and no other");
    assert_eq!(app.claim(1, second[0]).await.refusal(), (409, "already_claimed"));
    assert_eq!(app.claim(2, second[0]).await.status, 202);
    app.write_orders().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_move_when_a_server_is_added_and_when_it_is_taken_away_again() {
    let (_own, app) = start(4, &[]).await;
    let [first, second] = sales(&app).await;
    let claim_all = async |user| {
        for coupon in first.iter().chain(&second) {
            assert_eq!(app.claim(user, *coupon).await.status, 202);
        }
        app.write_orders().await;
    };
    claim_all(1).await;
    // All lanes on the first server, which knows nothing of two of them.
    app.app.leave().await;
    let alone = app.another_instance_on(&shared().redis_url).await;
    let claim = async |app: &App, id| {
        let outcome = app.claims.claim(second[0], user(id)).await;
        matches!(outcome, Ok(ClaimOutcome::Accepted(_) | ClaimOutcome::AlreadyClaimed(_)))
    };
    eventually("the lanes are open there", async || {
        let _ = alone.leaders.first().run_once().await;
        alone.lanes.recovering().is_empty() && claim(&alone, 2).await
    })
    .await;
    app.app.lanes.refresh().await.expect("Postgres answers");
    assert!(!claim(&app.app, 3).await, "a process with the other list sells nothing");
    for lane in Lane::all(4) {
        let mut worker = worker_of(&alone, &app.config, lane);
        worker.ensure_group().await.expect("Redis answers");
        write_all(&mut worker).await;
    }
    alone.leave().await;
    app.recover().await;
    assert_eq!(app.claim(2, second[0]).await.refusal(), (409, "already_claimed"));
    claim_all(3).await;
}
