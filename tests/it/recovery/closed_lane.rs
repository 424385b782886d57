//! One of two lanes is closed: only its claims wait.

use std::sync::LazyLock;

use flash_sale::base::clock::Clock;
use flash_sale::recovery::retry::Retried;
use flash_sale::store::audit::Actor;
use flash_sale::store::ids::{CouponId, DeadLetterId};
use serde_json::json;
use tokio::task::block_in_place;

use crate::faults::recovery::{code, keep, sell};
use crate::support::process::{flash_sale, run};
use crate::support::{Bounded, OwnServers, TestApp, eventually, lane, proxy_before};

/// State of a lane in Redis.
async fn state(app: &TestApp, coupon: CouponId) -> String {
    app.redis(&["HGET", &app.keys().lane(coupon.lane()), "state"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_lane_stops_its_claims_and_nothing_else() {
    let mut servers = block_in_place(OwnServers::durable);
    let app = TestApp::on(&servers.at, &["--lanes", "2"], Clock::System).await;
    let (closed, open) = (app.create_flash(10).await, app.create_flash(10).await);
    assert_ne!(closed.lane(), open.lane());
    sell(&app, closed, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    // Damage, and an entry that no worker writes: the lane can't be recovered.
    sell(&app, closed, 4..=4).await;
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(closed)]).await;
    assert_eq!(code(&app, 5, closed).await.0, 503);
    for _ in 0..2 {
        assert!(
            app.app.leaders.first().run_once().bounded().await.is_err(),
            "the log isn't written"
        );
    }

    let ready = app.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("status")), (200, "degraded"));
    assert_eq!(ready.text("lanes"), format!("recovering: {}", closed.lane()));
    let refused = app.claim(5, closed).await;
    assert_eq!(refused.refusal(), (503, "recovering"));
    assert_eq!(refused.header("retry-after"), "1");
    let first = app.number("SELECT id FROM orders WHERE user_id = 1").await;
    assert_eq!(app.status(1, first).await, "unpaid");
    assert_eq!(app.pay(1, first).await.status, 200);
    let second = app.number("SELECT id FROM orders WHERE user_id = 2").await;
    assert_eq!(app.cancel(2, second).await.status, 200);
    assert_eq!(app.my_claim(3, closed).await.text("status"), "unpaid");
    assert_eq!(app.my_claim(4, closed).await.refusal(), (503, "recovering"));
    assert_eq!(app.claim(5, open).await.status, 202);
    assert_eq!(code(&app, 5, open).await, (409, "already_claimed".to_owned()));

    servers.kill_postgres();
    assert!(app.app.leaders.first().run_once().bounded().await.is_err());
    assert_eq!(code(&app, 6, closed).await.0, 503);
    assert_eq!(app.claim(6, open).await.status, 202, "the open lane needs no Postgres");
    assert_eq!(state(&app, closed).await, "recovering");
    assert_eq!(app.app.lanes.recovering(), [closed.lane()]);
    block_in_place(|| servers.bring_back());
    for _ in 0..app.config.stores.database_connections {
        eventually("a connection works", async || {
            sqlx::query("SELECT").execute(&app.app.stores.pool).await.is_ok()
        })
        .await;
    }
    app.recover().await;
    assert_eq!(app.claim(5, closed).await.status, 202);
    app.write_orders().await;
}

async fn close_lanes(app: &TestApp) {
    app.execute(
        "UPDATE lanes SET epoch = epoch + 1, state = 'recovering', closed_at = now(), reason = 'by hand'",
    )
    .await;
}

/// By hand: no worker will ever be given them.
#[tokio::test]
async fn entries_that_were_deleted_unread_hold_up_no_recovery() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    sell(&app, coupon, 1..=1).await;
    app.write_orders().await;
    sell(&app, coupon, 2..=3).await;
    let log = app.log(coupon.lane());
    let unread: Vec<(String, redis::Value)> =
        app.redis(&["XREVRANGE", &log, "+", "-", "COUNT", "2"]).await;
    for (entry, _) in unread {
        assert_eq!(app.redis::<i64>(&["XDEL", &log, &entry]).await, 1);
    }
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(state(&app, coupon).await, "open");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 3);
}

#[tokio::test]
async fn a_late_unwritten_claim_of_an_archived_sale_becomes_a_letter() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    sell(&app, coupon, 1..=1).await;
    app.write_orders().await;
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = now();
         INSERT INTO unwritten_claims (order_id, coupon_id, user_id) SELECT id + 1, {coupon}, 9 FROM orders"
    ))
    .await;
    close_lanes(&app).await;
    keep(&app).await;
    let letters = "SELECT count(*) FROM dead_letters WHERE user_id = 9 AND reason = 'archived'";
    assert_eq!(app.number(letters).await, 1);
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 0);
}

/// Only an operator can say which of the stores is right.
#[tokio::test]
async fn a_lane_of_which_redis_has_a_newer_epoch_waits_for_an_operator() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    keep(&app).await;
    let key = app.keys().lane(lane());
    let before: String = app.redis(&["HGET", &key, "epoch"]).await;
    let epoch = app.number("SELECT epoch FROM lanes").await;
    assert_eq!(before, epoch.to_string());
    let _: i64 = app.redis(&["HSET", &key, "epoch", "99"]).await;
    app.lose_sale(coupon).await;
    let due = format!(
        "INSERT INTO postponed (job, item, error, next_try_at) VALUES ('rebuild', {coupon}, 'x', now() - interval '1 s')"
    );
    app.execute(&due).await;
    let _ = app.app.leaders.first().run_once().bounded().await;
    let waits = "SELECT count(*) FROM lanes WHERE state = 'recovering'";
    assert_eq!(app.number(waits).await, 1, "an operator decides");
    let mut command = flash_sale(&["recover", "--trust", "postgres"]);
    command.args(app.store_arguments());
    let done = run(command).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    app.recover().await;
    assert_eq!(app.buyers(coupon).await.len(), 1);
}

/// A recovery that has ended, one that was broken off, and one of another lane.
const BROKEN_OFF: &str = "
    INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at) VALUES
        (0, 4, 'x', now(), now()), (0, 5, 'x', now(), NULL), (1, 6, 'x', now(), NULL);
    UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 10";

#[tokio::test]
async fn lists_of_an_attempt_that_was_broken_off_are_removed() {
    let app = TestApp::configured(&["--unpaid-orders-max", "5"]).await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    keep(&app).await;
    let built = |epoch: i64| app.keys().unpaid_built(lane(), epoch);
    for epoch in 4..=6 {
        let _: i64 = app.redis(&["HSET", &built(epoch), "7", "8"]).await;
    }
    app.execute(BROKEN_OFF).await;
    app.recover().await;
    let mut left = Vec::new();
    for epoch in 4..=6 {
        left.push(app.redis::<i64>(&["EXISTS", &built(epoch)]).await);
    }
    assert_eq!(left, [1, 0, 1]);
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE lane = 0").await, 2);
    let lists: Vec<String> = app.redis(&["HKEYS", &app.keys().unpaid(lane())]).await;
    assert_eq!(lists, ["1"]);
}

/// A lane is closed, as by a leader that dies right after it.
async fn close(app: &TestApp, coupon: CouponId) {
    app.execute(&format!(
        "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1 WHERE lane = {}",
        coupon.lane()
    ))
    .await;
}

#[tokio::test]
async fn a_recovery_waits_for_the_log_of_a_sale_that_it_builds_and_not_of_one_that_it_keeps() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    keep(&app).await;
    assert_eq!(app.claim(2, coupon).await.status, 202);
    app.lose_sale(coupon).await;
    close(&app, coupon).await;
    assert!(app.app.leaders.first().run_once().bounded().await.is_err(), "an entry isn't written");
    app.recover().await;
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), [1, 2]);

    keep(&app).await;
    assert_eq!(app.claim(3, coupon).await.status, 202);
    close(&app, coupon).await;
    app.app.leaders.first().run_once().bounded().await.expect("no entry has to be written");
    let kept = "SELECT sales_kept FROM recoveries WHERE opened_at IS NOT NULL ORDER BY id DESC";
    assert_eq!(app.number(kept).await, 1);
    app.write_orders().await;
}

#[tokio::test]
async fn retry_all_counts_letters_of_a_lane_that_is_recovering_and_goes_on() {
    let app = TestApp::with_lanes(2).await;
    let (closed, open) = (app.create_flash(5).await, app.create_flash(5).await);
    app.execute("UPDATE flash_sales SET sold = total").await;
    for coupon in [closed, open] {
        assert_eq!(app.claim(1, coupon).await.status, 202);
    }
    assert_eq!(app.write_orders().await.dead_letters, 2);
    app.execute("UPDATE flash_sales SET sold = 0").await;
    keep(&app).await;
    close(&app, closed).await;
    let retry = async || {
        let body = json!({"reason": "oversold"});
        app.post("/v1/dead-letters/retry", &app.admin_token(), &body).await.body
    };
    app.app.lanes.read_now().await.expect("Postgres answers");
    assert_eq!(retry().await, json!({"orders": 1, "kept": {"recovering": 1}}));
    app.recover().await;
    assert_eq!(retry().await, json!({"orders": 1, "kept": {}}));
}

/// The script that gives the claim of a letter its unit, as a command names it.
static ADMIT: LazyLock<String> = LazyLock::new(|| {
    redis::Script::new(include_str!("../../../lua/admit.lua")).get_hash().to_owned()
});

#[tokio::test]
async fn of_a_retry_and_a_discard_of_a_letter_one_decides() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.execute("UPDATE flash_sales SET sold = total").await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute("UPDATE flash_sales SET sold = 0").await;
    keep(&app).await;
    let proxy = proxy_before(&app, &ADMIT).await;
    let other = app.another_instance_behind(&proxy).await;
    proxy.hold();
    let letter = app.number("SELECT id FROM dead_letters").await;
    let letter = DeadLetterId::new(letter).expect("an id");
    let by = Actor::command_line();
    let discarding = async {
        eventually("the retry is under way", async || proxy.held() == 1).await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND query LIKE 'UPDATE dead_letters%'";
        tokio::join!(app.app.dead_letters.discard(letter, &by), async {
            eventually("the discard waits", async || app.number(waits).await == 1).await;
            proxy.release();
        })
        .0
    };
    let (retried, discarded) = tokio::join!(other.retries.retry(letter, &by), discarding);
    assert!(matches!(retried, Ok(Retried::Order(_))), "{retried:?}");
    assert!(discarded.is_ok(), "{discarded:?}");
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "unpaid");
    assert_eq!((app.stock(coupon).await, app.buyers(coupon).await.len()), (4, 1));
}

/// The next tick tries again, and not only after a period.
#[tokio::test]
async fn a_tick_that_fails_is_followed_by_a_check_at_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    keep(&app).await;
    close(&app, coupon).await;
    app.execute("ALTER TABLE settings RENAME TO aside").await;
    app.app.leaders.first().tick().bounded().await;
    app.execute("ALTER TABLE aside RENAME TO settings").await;
    let open = "SELECT count(*) FROM lanes WHERE state = 'open'";
    assert_eq!(app.number(open).await, 0);
    app.app.leaders.first().tick().bounded().await;
    assert_eq!(app.number(open).await, 1);
}

#[tokio::test]
async fn look_keeps_sales_that_are_whole_and_has_others_built_again() {
    let app = TestApp::start().await;
    let mut coupons = Vec::new();
    for user in 1..=4 {
        let coupon = app.create_flash(5).await;
        app.order(user, coupon).await;
        coupons.push(coupon);
    }
    let [whole, not_conserved, behind, older] = coupons[..] else { panic!("{coupons:?}") };
    keep(&app).await;
    for coupon in [not_conserved, behind] {
        let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    }
    // Its numbers are right, and the buyer of a recent order isn't there.
    app.forget_buyer(behind, 3).await;
    app.execute(&format!("UPDATE coupons SET revision = revision + 1 WHERE id = {older}")).await;
    close(&app, whole).await;
    app.recover().await;
    let last = "FROM recoveries WHERE opened_at IS NOT NULL ORDER BY id DESC LIMIT 1";
    let numbers = (
        app.number(&format!("SELECT sales_kept {last}")).await,
        app.number(&format!("SELECT sales_built {last}")).await,
    );
    assert_eq!(numbers, (1, 3));
    for (user, coupon) in (1..).zip(coupons) {
        assert_eq!(
            (app.stock(coupon).await, app.buyers(coupon).await.contains_key(&user)),
            (4, true),
            "{user}"
        );
    }
}
