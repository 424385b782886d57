//! A change of a coupon lives in two stores. Interrupted anywhere, and in any order of arrival, both end with the
//! newest revision, and no unit is sold that isn't there.

use std::sync::atomic::{AtomicI64, Ordering};

use flash_sale::base::clock::Clock;
use flash_sale::coupon::input::{CouponEdit, Restock, SaleEdit};
use flash_sale::coupon::model::CouponState;
use flash_sale::coupon::rules::Change;
use flash_sale::store::ids::CouponId;
use futures_util::StreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::process::{Process, flash_sale};
use crate::support::{
    Bounded, IMPATIENT_WITH_REDIS, OwnServers, TestApp, bounded, eventually, proxy_before,
    store_arguments_behind,
};

/// Values that the claim script reads, and their revision.
async fn sale(app: &TestApp, coupon: CouponId) -> [String; 4] {
    app.in_redis(coupon, ["state", "total", "stock", "revision"]).await
}

fn stock_of(total: i64) -> Change {
    let sale = SaleEdit { total: Some(total), ..SaleEdit::default() };
    Change::Edit(CouponEdit { sale: Some(sale), ..CouponEdit::default() })
}

fn restock(units: i64, key: &str) -> Change {
    Change::Restock(Restock { units, key: key.into() })
}

#[tokio::test]
async fn whoever_dies_between_the_stores_leaves_it_to_the_job() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert_eq!(app.changes_job().await, 1, "what was loaded is looked at once");
    assert_eq!(app.changes_job().await, 0);
    for (change, now_in_redis) in [
        (Change::Move(CouponState::Paused, None), ["paused", "3", "2", "2"]),
        (Change::Move(CouponState::Active, None), ["active", "3", "2", "3"]),
        (restock(4, "k"), ["active", "7", "6", "4"]),
        (stock_of(8), ["active", "8", "7", "5"]),
        (
            Change::Edit(CouponEdit { title: Some("x".into()), ..CouponEdit::default() }),
            ["active", "8", "7", "6"],
        ),
        (Change::Move(CouponState::Ended, None), ["ended", "8", "7", "7"]),
    ] {
        let before = sale(&app, coupon).await;
        app.decide(coupon, change.clone()).await.expect("it may");
        assert_eq!(sale(&app, coupon).await, before, "{change:?}");
        assert_eq!(app.changes_job().await, 1, "{change:?}");
        assert_eq!(sale(&app, coupon).await, now_in_redis, "{change:?}");
        assert_eq!(app.changes_job().await, 0, "{change:?}");
    }
}

#[tokio::test]
async fn a_process_that_is_killed_between_the_stores_does_no_harm() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let script = redis::Script::new(include_str!("../../../lua/apply_coupon.lua"));
    let hash: &str = Box::leak(script.get_hash().to_owned().into_boxed_str());
    let proxy = proxy_before(&app, hash).await;
    let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0", "--roles", "api"]);
    command.args(store_arguments_behind(&app, &proxy));
    let mut process = Process::spawn(command);
    let url = process.url().await;
    proxy.hold();
    let pause = app.client().post(format!("{url}/v1/coupons/{coupon}/pause"));
    let pausing = async { pause.bearer_auth(app.admin_token()).send().await };
    let killing = async {
        eventually("it is about to tell Redis", async || proxy.held() > 0).await;
        process.kill();
    };
    let (told, ()) = tokio::join!(pausing, killing);
    assert!(told.is_err(), "a dead process has answered: {told:?}");

    assert_eq!(sale(&app, coupon).await[0], "active");
    assert_eq!(app.changes_job().await, 1);
    assert_eq!(sale(&app, coupon).await, ["paused", "3", "3", "2"]);
}

#[tokio::test]
async fn an_older_revision_never_wins() {
    let app = TestApp::start().await;
    let changes = &app.app.coupon_changes;
    let orders =
        [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2], [0, 3, 0, 3], [3, 3, 1, 2]];
    for order in orders {
        let coupon = app.create_flash(3).await;
        assert_eq!(app.claim(1, coupon).await.status, 202);
        // Four instances have read these values before they fell asleep.
        let mut read = Vec::new();
        for change in [
            Change::Move(CouponState::Paused, None),
            restock(5, "k"),
            stock_of(9),
            Change::Move(CouponState::Active, None),
        ] {
            app.decide(coupon, change).await.expect("it may");
            read.push(app.stored_sale(coupon).await);
        }
        for at in order {
            assert!(changes.apply_values(coupon, &read[at]).await.expect("both answer"));
        }
        let told = sale(&app, coupon).await;
        assert_eq!(told, ["active", "9", "8", "5"], "applied in the order {order:?}");
    }
    app.changes_job().await;
    assert_eq!(app.changes_job().await, 0);
}

#[tokio::test]
async fn without_redis_it_is_decided_and_happens_later() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &IMPATIENT_WITH_REDIS, Clock::System).await;
    let coupon = app.create_flash(3).await;
    let redis = Pid::from_raw(servers.at.redis_pid);
    kill(redis, Signal::SIGSTOP).expect("it runs");
    let paused = app.r#move(coupon, "pause").await;
    let again = app.r#move(coupon, "pause").await;
    let restocked = app.restock(coupon, 2, "k").await;
    let repeated = app.restock(coupon, 2, "k").await;
    kill(redis, Signal::SIGCONT).expect("it runs");
    for (reply, revision) in [(paused, 2), (again, 2), (restocked, 3), (repeated, 3)] {
        assert_eq!((reply.status, reply.text("state")), (202, "paused"));
        assert_eq!(reply.body["revision"], revision);
    }
    eventually("Redis is back", async || app.app.coupon_changes.run_once().bounded().await.is_ok())
        .await;
    assert_eq!(sale(&app, coupon).await, ["paused", "5", "5", "3"]);
    let is_told = async || app.r#move(coupon, "pause").await.status == 200;
    eventually("Redis is told at once", is_told).await;
}

#[tokio::test]
async fn a_change_never_puts_back_a_sale_that_redis_has_lost() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let well = app.create_flash(3).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let key = app.keys().coupon(coupon);
    app.lose_sale(coupon).await;
    for reply in [
        app.r#move(coupon, "pause").await,
        app.r#move(coupon, "resume").await,
        app.restock(coupon, 3, "k").await,
        app.edit(coupon, &serde_json::json!({"sale": {"total": 9}})).await,
    ] {
        assert_eq!(reply.refusal(), (503, "unavailable"));
    }
    // The job changes nothing either, and is not held up.
    app.decide_on(well, CouponState::Paused).await;
    assert_eq!(app.changes_job().await, 1);
    assert_eq!(sale(&app, well).await[0], "paused");
    assert!(!app.redis::<bool>(&["EXISTS", &key]).await);
    let page = app.get("/metrics", "").await;
    let quiet = page.body.as_str().unwrap().contains("flash_sale_redis_data_lost_total 0");
    assert!(!quiet, "no alarm");

    // A load other than the one that Postgres has noted counts as missing.
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(well), "load", "another"]).await;
    assert_eq!(app.r#move(well, "end").await.refusal(), (503, "unavailable"));
    assert_eq!(sale(&app, well).await[0], "paused");
    app.expect_disagreements();
}

#[tokio::test]
async fn nobody_gets_a_unit_after_a_pause_or_the_end_was_answered() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1_000_000).await;
    let next = AtomicI64::new(1);
    for (verb, refusal) in [("pause", (409, "sale_paused")), ("end", (410, "sale_ended"))] {
        let claiming = futures_util::stream::iter(0..400)
            .map(|_| async {
                let user = next.fetch_add(1, Ordering::SeqCst);
                app.claim(user, coupon).await.status
            })
            .buffer_unordered(16)
            .collect::<Vec<u16>>();
        let changing = async {
            eventually("some are in", async || sale(&app, coupon).await[2] != "1000000").await;
            assert_eq!(app.r#move(coupon, verb).await.status, 200);
            sale(&app, coupon).await[2].clone()
        };
        let (_, left) = tokio::join!(claiming, changing);
        assert_eq!(sale(&app, coupon).await[2], left, "a user got a unit after {verb}");
        let late = next.fetch_add(1, Ordering::SeqCst);
        assert_eq!(app.claim(late, coupon).await.refusal(), refusal);
        if verb == "pause" {
            assert_eq!(app.r#move(coupon, "resume").await.status, 200);
            assert_eq!(app.claim(late, coupon).await.status, 202);
        }
    }
}

#[tokio::test]
async fn a_restock_while_claims_run_sells_exactly_what_there_is() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(50).await;
    let claims = futures_util::stream::iter(1..=400)
        .map(|user| app.claim(user, coupon))
        .buffer_unordered(16)
        .filter(|reply| std::future::ready(reply.status == 202))
        .count();
    let restocks = async {
        for round in 0..10 {
            // Each change twice, as by a client that got no answer.
            let key = round.to_string();
            let (one, two) =
                tokio::join!(app.restock(coupon, 5, &key), app.restock(coupon, 5, &key));
            assert_eq!((one.status, two.status), (200, 200));
        }
    };
    let (mut accepted, ()) = tokio::join!(claims, restocks);
    // Units that are left after the crowd are sold to latecomers.
    let mut latecomer = 10_000;
    eventually("it is sold out", async || {
        latecomer += 1;
        accepted += usize::from(app.claim(latecomer, coupon).await.status == 202);
        accepted == 100
    })
    .await;
    assert_eq!(sale(&app, coupon).await[1..3], ["100", "0"]);
    assert_eq!(app.claim(1_000_000, coupon).await.refusal(), (410, "sold_out"));
    assert_eq!(app.write_orders().await.inserted, 100);
}

#[tokio::test]
async fn a_sold_out_sale_that_is_restocked_sells_again_and_says_so() {
    let app = TestApp::start().await;
    flash_sale::app::start_housekeeping(&app.app);
    let coupon = app.create_flash(2).await;
    for user in 1..=2 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    eventually("it is remembered as sold out", async || {
        assert_eq!(app.claim(100, coupon).await.refusal(), (410, "sold_out"));
        app.app.memories.first().sold_out.refuses(coupon, crate::support::user(100))
    })
    .await;
    let url = app.store_arguments();
    let at = url.iter().position(|word| word == "--redis-url").expect("it is given") + 1;
    let client = redis::Client::open(url[at].as_str()).expect("a valid URL");
    let mut listening = client.get_async_pubsub().await.expect("Redis answers");
    listening.subscribe(app.keys().restocks_channel()).await.expect("Redis answers");

    assert_eq!(app.restock(coupon, 1, "k").await.status, 200);
    let told = bounded("a message", listening.on_message().next()).await.expect("it is told");
    assert_eq!(told.get_payload::<String>().unwrap(), coupon.to_string());
    assert_eq!(app.in_redis(coupon, ["restocks"]).await, ["1"]);
    let mut latecomer = 100;
    eventually("the unit is sold", async || {
        latecomer += 1;
        app.claim(latecomer, coupon).await.status == 202
    })
    .await;
    assert_eq!(app.claim(1_000, coupon).await.refusal(), (410, "sold_out"));
    // A change without further units sends no message.
    assert_eq!(app.r#move(coupon, "pause").await.status, 200);
    assert_eq!(app.in_redis(coupon, ["restocks"]).await, ["1"]);
}

#[tokio::test]
async fn a_full_redis_can_still_be_told_to_stop_selling() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(5).await;
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let paused = app.r#move(coupon, "pause").await;
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(paused.status, 200);
    assert_eq!(sale(&app, coupon).await[0], "paused");
}

#[tokio::test]
async fn a_move_may_name_the_revision_that_it_is_for() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let path = |verb: &str| format!("/v1/coupons/{coupon}/{verb}");
    let admin = app.admin_token();
    let ask = async |verb: &str, body: Value| app.post(&path(verb), &admin, &body).await;
    for (verb, body, status) in [
        ("pause", json!({"revision": 2}), 409),
        ("pause", json!({"revision": 1}), 200),
        // A repeat: it has the revision that the first one made.
        ("pause", json!({"revision": 1}), 200),
        ("resume", json!({"revision": 1}), 409),
        ("resume", json!({"revision": 2}), 200),
        ("pause", json!({}), 200),
        ("resume", Value::Null, 200),
        ("end", json!({"revision": 4}), 409),
        ("end", json!({"revision": 5}), 200),
        ("end", json!({"revision": 5}), 200),
    ] {
        let reply = ask(verb, body.clone()).await;
        assert_eq!(reply.status, status, "{verb} {body}: {reply:?}");
        if status == 409 {
            assert_eq!(reply.text("code"), "revision_conflict");
        }
    }
    for wrong in
        [json!({"revision": 0}), json!({"revision": null}), json!({"reason": "x"}), json!([])]
    {
        let refused = ask("pause", wrong.clone()).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{wrong}");
    }
}
