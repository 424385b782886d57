//! Claims on flash coupons: the winners, the answers, and retries, which always find out.

use std::collections::HashSet;

use chrono::TimeDelta;

use crate::support::{Bounded, TestApp, eventually, now, user};

#[tokio::test]
async fn a_claim_becomes_an_order() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_flash(5).await;

        let accepted = app.claim(42, coupon).await;
        assert_eq!((accepted.status, accepted.text("status")), (202, "pending"));
        assert_eq!(accepted.text("coupon_id"), coupon.to_string());
        assert_eq!(accepted.header("location"), format!("/v1/coupons/{coupon}/claims/me"));
        let pending = app.my_claim(42, coupon).await;
        assert_eq!((pending.status, pending.text("status")), (200, "pending"));

        assert_eq!(app.write_orders().await.inserted, 1);
        let written = app.my_claim(42, coupon).await;
        assert_eq!((written.order_id(), written.text("status")), (accepted.order_id(), "unpaid"));
        let order = app.get(&format!("/v1/orders/{}", accepted.order_id()), &app.token(42)).await;
        assert_eq!((order.status, order.text("user_id")), (200, "42"));
        assert!(order.body["paid_at"].is_null() && order.body["pay_method"].is_null());
    }
}

#[tokio::test]
async fn a_repeat_returns_the_first_order_and_takes_no_second_unit() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_flash(5).await;
        let first = app.claim(42, coupon).await;
        for _ in 0..3 {
            let repeat = app.claim(42, coupon).await;
            assert_eq!(repeat.refusal(), (409, "already_claimed"));
            assert_eq!(repeat.order_id(), first.order_id());
        }
        let shown = app.get(&format!("/v1/coupons/{coupon}"), "").await;
        assert_eq!(shown.body["sale"]["left"], 4);
    }
}

#[tokio::test]
async fn a_crowd_gets_exactly_the_stock() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_flash(20).await;
        // 60 users, each of whom claims twice at the same time.
        let claims = (0..120).map(|n| app.claim(1 + n % 60, coupon));
        let replies = futures_of(claims).await;

        let accepted: Vec<_> = replies.iter().filter(|reply| reply.status == 202).collect();
        let orders: HashSet<i64> = accepted.iter().map(|reply| reply.order_id()).collect();
        assert_eq!((accepted.len(), orders.len()), (20, 20));
        let refused = |code| {
            replies.iter().filter(|reply| reply.status >= 400 && reply.text("code") == code).count()
        };
        assert_eq!((refused("already_claimed"), refused("sold_out")), (20, 80));

        assert_eq!(app.write_orders().await.inserted, 20);
        assert_eq!(app.number("SELECT count(DISTINCT user_id) FROM orders").await, 20);
        assert_eq!(app.number("SELECT sold FROM flash_sales").await, 20);
    }
}

#[tokio::test]
async fn the_last_unit_is_one_unit_however_many_ask_at_that_moment() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    // All claims have been sent before the first answer.
    let claims = (2..=101).map(|n| app.app.claims.claim(coupon, user(n)));
    let outcomes = futures_of(claims).await;
    let told = |code| {
        let outcomes = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().status());
        outcomes.filter(|status| status.code == code).count()
    };
    assert_eq!((told("accepted"), told("sold_out")), (1, 99));
}

#[tokio::test]
async fn the_window_is_redis_s_business() {
    let app = TestApp::start().await;
    let past = now() - TimeDelta::hours(1);
    let soon = now() + TimeDelta::seconds(90);

    let early = app.create_sale(1, soon, soon + TimeDelta::hours(1)).await;
    let not_started = app.claim(42, early).await;
    assert_eq!(not_started.refusal(), (409, "sale_not_started"));
    let retry_after: u64 = not_started.header("retry-after").parse().expect("whole seconds");
    assert!((80..=90).contains(&retry_after), "{retry_after}");

    let over = app.create_sale(1, past, soon).await;
    app.let_window_end(over, TimeDelta::seconds(1)).await;
    assert_eq!(app.claim(42, over).await.refusal(), (410, "sale_ended"));
}

#[tokio::test]
async fn a_buyer_stays_a_buyer_when_the_sale_is_paused_ended_or_sold_out() {
    // A process that remembers "sold out" sees the pause a moment later.
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(1).await;
    let order = app.claim(42, coupon).await.order_id();
    let key = app.keys().coupon(coupon);

    for (state, refusal) in [
        ("active", (410, "sold_out")),
        ("paused", (409, "sale_paused")),
        ("ended", (410, "sale_ended")),
    ] {
        let _: i64 = app.redis(&["HSET", &key, "state", state]).await;
        assert_eq!(app.claim(7, coupon).await.refusal(), refusal, "another user, {state}");
        let repeat = app.claim(42, coupon).await;
        assert_eq!(
            (repeat.refusal(), repeat.order_id()),
            ((409, "already_claimed"), order),
            "{state}"
        );
    }
    // As Postgres has it.
    let _: i64 = app.redis(&["HSET", &key, "state", "active"]).await;
}

#[tokio::test]
async fn prefer_wait_answers_with_the_order_or_not_yet() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;

    let mut worker = app.workers().remove(0);
    worker.ensure_group().bounded().await.unwrap();
    let writing = eventually("the order is written", async || {
        worker.write_job().bounded().await.unwrap().inserted > 0
    });
    let (created, ()) = tokio::join!(app.claim_preferring(42, coupon, "wait=10"), writing);
    assert_eq!((created.status, created.text("status")), (201, "unpaid"));
    assert_eq!(created.header("location"), format!("/v1/orders/{}", created.order_id()));

    // No worker writes this one.
    let accepted = app.claim_preferring(43, coupon, "wait=0").await;
    assert_eq!((accepted.status, accepted.text("status")), (202, "pending"));
}

#[tokio::test]
async fn users_who_claim_too_often_are_told_to_wait() {
    let app = TestApp::configured(&["--user-claims-per-second", "2"]).await;
    let coupon = app.create_flash(1).await;
    let replies = futures_of((0..20).map(|_| app.claim(42, coupon))).await;
    let limited: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert!(!limited.is_empty());
    assert!(
        limited
            .iter()
            .all(|reply| reply.refusal().1 == "rate_limited" && reply.header("retry-after") == "1")
    );
    assert_eq!(replies.iter().filter(|reply| reply.status == 202).count(), 1);
}

#[tokio::test]
async fn an_unknown_epoch_is_refused_and_a_new_one_is_learned() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let key = app.keys().coupon(coupon);

    // Redis has been rebuilt under a new epoch, and Postgres doesn't have that epoch yet.
    for key in [key, app.keys().lane(coupon.lane())] {
        let _: i64 = app.redis(&["HSET", &key, "epoch", "2"]).await;
    }
    assert_eq!(app.claim(42, coupon).await.refusal(), (503, "unavailable"));
    // Now it has: claims find out by themselves, within a moment.
    app.execute("UPDATE lanes SET epoch = 2").await;
    eventually("a claim is accepted", async || app.claim(42, coupon).await.status == 202).await;
}

#[tokio::test]
async fn a_key_of_the_wrong_type_or_a_full_log_stops_the_script_before_its_first_write() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let sale = app.keys().coupon(coupon);
    let buyers = app.shard_of(coupon, 2).await;
    for (key, wrong) in [
        (&sale, &["SET", &sale, "x"][..]),
        (&sale, &["RPUSH", &sale, "x"]),
        (&buyers, &["SET", &buyers, "x"]),
        (&buyers, &["ZADD", &buyers, "1", "x"]),
        (&app.log(coupon.lane()), &["SET", &app.log(coupon.lane()), "x"]),
        (&app.log(coupon.lane()), &["HSET", &app.log(coupon.lane()), "x", "y"]),
    ] {
        let aside = format!("{key}.aside");
        let _: String = app.redis(&["RENAME", key, &aside]).await;
        let _: redis::Value = app.redis(wrong).await;
        // In the place of a log, it is a lost log.
        let code = if *key == app.log(coupon.lane()) { "recovering" } else { "unavailable" };
        assert_eq!(app.claim(2, coupon).await.refusal(), (503, code), "{wrong:?}");
        let _: String = app.redis(&["RENAME", &aside, key]).await;

        assert_nothing_was_written(&app).await;
    }
    // A log of the right type, that takes no further entry.
    let log = app.log(coupon.lane());
    let aside = format!("{log}.aside");
    let _: i64 = app.redis(&["COPY", &log, &aside]).await;
    let last = format!("{0}-{0}", u64::MAX);
    let _: String = app.redis(&["XSETID", &log, &last]).await;
    assert_eq!(app.claim(2, coupon).await.refusal(), (503, "unavailable"));
    let _: String = app.redis(&["RENAME", &aside, &log]).await;
    assert_nothing_was_written(&app).await;
    assert_eq!(app.claim(2, coupon).await.status, 202);
}

/// Beside the claim of user 1.
async fn assert_nothing_was_written(app: &TestApp) {
    let report = app.reconcile().await;
    assert!(report.agrees(), "{:?}", report.disagreements);
    assert_eq!((report.sales[0].stock, report.sales[0].buyers), (4, 1));
    assert_eq!(report.in_flight, 1);
}

#[tokio::test]
async fn scripts_are_loaded_again_after_a_flush() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    assert_eq!(app.claim(42, coupon).await.status, 202);
    let _: String = app.redis(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(app.claim(43, coupon).await.status, 202);
}

/// Runs all of them at the same time.
async fn futures_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    futures_util::future::join_all(futures).await
}
