//! The load of a sale into Redis: the meaning of NOT_LOADED, and the promise that no sale is loaded twice.

use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::store::ids::CouponId;

use crate::support::{Bounded, OwnServers, TestApp, eventually, now, user};

/// A coupon that is in Postgres only, as after a crash at its creation.
pub async fn only_in_postgres(app: &TestApp, stock: i64) -> CouponId {
    let coupon =
        CouponId::compose(app.number("SELECT nextval('coupon_sequence')").await, app.lanes());
    let opens = now() - TimeDelta::hours(1);
    let closes = now() + TimeDelta::hours(1);
    app.execute(&format!(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
             VALUES ({coupon}, 'flash', 't', '', '', 1, 2);
         INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total)
             VALUES ({coupon}, '{opens}', '{closes}', {stock})"
    ))
    .await;
    coupon
}

async fn is_marked(app: &TestApp) -> bool {
    app.number("SELECT count(*) FROM flash_sales WHERE loaded_at IS NOT NULL").await == 1
}

#[tokio::test]
async fn a_created_sale_is_loaded_at_once() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_flash(7).await;
        let key = app.keys().coupon(coupon);
        let fields = ["stock", "total", "state", "revision", "epoch", "shards"];
        let values: Vec<String> = app.redis(&[&["HMGET", &key], &fields[..]].concat()).await;
        assert_eq!(values, ["7", "7", "active", "1", "1", "1"]);
        assert!(is_marked(&app).await);
    }
}

#[tokio::test]
async fn the_first_claim_loads_what_creation_could_not() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = only_in_postgres(&app, 5).await;
        let another = app.another_instance().await;
        // A crowd, at two instances, finds a sale that isn't loaded.
        let here = futures_util::future::join_all((1..=20).map(|user| app.claim(user, coupon)));
        let there = futures_util::future::join_all(
            (21..=40).map(|n| another.claims.claim(coupon, user(n))),
        );
        let (here, there) = tokio::join!(here, there);
        let accepted = here.iter().filter(|reply| reply.status == 202).count()
            + there
                .into_iter()
                .filter(|outcome| outcome.as_ref().unwrap().status().http == 202)
                .count();
        assert_eq!(accepted, 5);
        assert!(is_marked(&app).await);
    }
}

#[tokio::test]
async fn a_crash_between_the_steps_of_loading_does_no_harm() {
    let app = TestApp::start().await;
    let key_of = |coupon| app.keys().coupon(coupon);

    // After step 1: in Redis, in state loading, and Postgres doesn't know.
    let coupon = app.create_flash(3).await;
    let _: i64 = app.redis(&["HSET", &key_of(coupon), "state", "loading"]).await;
    app.execute("UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0")
        .await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert!(is_marked(&app).await);

    // After step 2: Postgres knows, and the sale isn't open yet.
    let coupon = app.create_flash(3).await;
    let _: i64 = app.redis(&["HSET", &key_of(coupon), "state", "loading"]).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
}

#[tokio::test]
async fn a_sale_that_redis_has_lost_is_never_sold_anew() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    for lost in ["the sale", "the buyers", "both", "everything"] {
        let coupon = app.create_flash(3).await;
        assert_eq!(app.claim(1, coupon).await.status, 202);
        let sale = app.keys().coupon(coupon);
        match lost {
            "the sale" => drop(app.redis::<i64>(&["DEL", &sale]).await),
            "the buyers" => app.lose_buyers(coupon).await,
            "both" => app.lose_sale(coupon).await,
            _ => drop(app.redis::<String>(&["FLUSHALL"]).await),
        }
        let left = app.redis::<Option<String>>(&["HGET", &sale, "stock"]).await;
        // The buyer, and another user; also at an instance that has just been started.
        for user in [1, 2] {
            let refused = app.claim(user, coupon).await;
            let told = (refused.refusal(), refused.header("retry-after"));
            let code = if lost == "everything" { "recovering" } else { "unavailable" };
            assert_eq!(told, ((503, code), "1"), "{lost}, user {user}");
        }
        let another = app.another_instance().await;
        assert!(another.claims.claim(coupon, user(2)).await.is_err(), "{lost}");
        let stock = app.redis::<Option<String>>(&["HGET", &sale, "stock"]).await;
        assert_eq!(stock, left, "{lost}: it was loaded again, or sold");
        assert!(!app.reconcile().await.agrees(), "{lost}");
    }
    let page = app.get("/metrics", "").await;
    let quiet = page.body.as_str().unwrap().contains("flash_sale_redis_data_lost_total 0");
    assert!(!quiet, "no alarm");
    app.expect_disagreements();
}

#[tokio::test]
async fn never_claimed_is_only_said_while_redis_can_tell() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    assert_eq!(app.my_claim(2, coupon).await.refusal(), (404, "not_claimed"));
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(coupon)]).await;
    let wait = async || app.my_claim(2, coupon).await.refusal() == (503, "unavailable");
    eventually("what was known has been forgotten", wait).await;
    app.expect_disagreements();
}

#[tokio::test]
async fn an_archived_sale_is_answered_from_postgres() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let order = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    app.lose_sale(coupon).await;

    let repeat = app.claim(1, coupon).await;
    assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), order));
    assert_eq!(app.claim(2, coupon).await.refusal(), (410, "sale_ended"));
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "unpaid");
    assert_eq!(app.my_claim(2, coupon).await.refusal(), (404, "not_claimed"));
    assert_eq!(app.get(&format!("/v1/coupons/{coupon}"), "").await.body["sale"]["left"], 2);
}

#[tokio::test]
async fn an_unknown_coupon_is_unknown_and_may_come_into_being() {
    let app = TestApp::start().await;
    let next = CouponId::compose(app.number("SELECT last_value + 1 FROM coupon_sequence").await, 1);
    assert_eq!(app.claim(1, next).await.refusal(), (404, "coupon_not_found"));
    assert_eq!(app.my_claim(1, next).await.refusal(), (404, "coupon_not_found"));
}

#[tokio::test]
async fn the_job_loads_what_opens_soon_and_nothing_else() {
    let app = TestApp::start().await;
    let ahead = limits::WARM_UP_AHEAD;
    let job = async || app.app.loader.run_once(ahead).bounded().await.expect("both stores answer");
    let exists = async |coupon| app.redis::<bool>(&["EXISTS", &app.keys().coupon(coupon)]).await;
    let live = app.create_flash(3).await;
    assert_eq!(app.claim(1, live).await.status, 202);

    let mut sales = Vec::new();
    for (what, opens, closes, state) in [
        ("soon", "50 minutes", "2 hours", "active"),
        ("open", "-1 hour", "1 hour", "active"),
        ("soon, but paused", "50 minutes", "2 hours", "paused"),
        ("later", "70 minutes", "2 hours", "active"),
        ("over", "-2 hours", "-1 hour", "active"),
        ("ended", "-1 hour", "1 hour", "ended"),
    ] {
        let coupon = only_in_postgres(&app, 5).await;
        app.execute(&format!(
            "UPDATE flash_sales SET opens_at = now() + interval '{opens}',
                    closes_at = now() + interval '{closes}' WHERE coupon_id = {coupon};
             UPDATE coupons SET state = '{state}', ended_at = CASE '{state}' WHEN 'ended' THEN now() END
                    WHERE id = {coupon}"
        ))
        .await;
        sales.push((what, coupon));
    }
    assert_eq!(job().await, 3);
    for (at, (what, coupon)) in sales.iter().enumerate() {
        assert_eq!(exists(*coupon).await, at < 3, "{what}");
    }
    assert_eq!(app.claim(2, sales[0].1).await.refusal(), (409, "sale_not_started"));
    assert_eq!(app.claim(2, sales[1].1).await.status, 202);
    assert_eq!(app.claim(2, sales[2].1).await.refusal(), (409, "sale_paused"));

    // Neither a live sale nor a lost one is loaded.
    assert_eq!(job().await, 0);
    assert_eq!(app.in_redis(live, ["stock"]).await, ["2"]);
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(sales[0].1)]).await;
    assert_eq!(job().await, 0);
    assert!(!exists(sales[0].1).await, "it was put back");
    app.expect_disagreements();
}
