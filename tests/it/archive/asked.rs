//! Archiving by an operator: at once if the sale is settled, and with the loss accepted whatever its faults; never a
//! sale that may still be claimed, or with claims on their way.

use flash_sale::coupon::model::CouponState;
use flash_sale::store::ids::CouponId;
use serde_json::{Value, json};

use crate::coupon::load::only_in_postgres;
use crate::support::{Bounded, Reply, TestApp, lane};

async fn archive(app: &TestApp, coupon: CouponId, accept_loss: bool) -> Reply {
    let path = format!("/v1/coupons/{coupon}/archive");
    app.post(&path, &app.admin_token(), &json!({ "accept_loss": accept_loss })).await
}

/// A sale of five that has ended, with paid orders of users 1 and 2.
async fn ended_sale(app: &TestApp) -> CouponId {
    let coupon = app.create_flash(5).await;
    for user in 1..=2 {
        app.paid_order(user, coupon).await;
    }
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    coupon
}

async fn assert_archived(app: &TestApp, coupon: CouponId) {
    let keys = [vec![app.keys().coupon(coupon)], app.shard_keys(coupon).await].concat();
    for key in keys {
        assert_eq!(app.redis::<i64>(&["EXISTS", &key]).await, 0, "{key}");
    }
    let noted =
        "SELECT count(*) FROM flash_sales WHERE archived_at IS NOT NULL AND removed_at IS NOT NULL
                 AND coupon_id";
    assert_eq!(app.number(&format!("{noted} = {coupon}")).await, 1);
    assert_eq!(app.claim(99, coupon).await.refusal(), (410, "sale_ended"));
}

/// Checks that the jobs have nothing left to do about the sale, and that the comparison agrees.
async fn assert_nothing_is_left(app: &TestApp) {
    app.let_postponed_be_due().await;
    app.release().await;
    app.changes_job().await;
    app.app.archive.run_once().bounded().await.expect("both stores answer");
    assert_eq!(app.postponed().await, [] as [String; 0]);
    assert_eq!(app.number("SELECT count(*) FROM stock_returns WHERE done_at IS NULL").await, 0);
    let found = app.reconcile().await.disagreements;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_settled_sale_is_archived_at_once_and_nothing_is_given_up() {
    let app = TestApp::start().await;
    let coupon = ended_sale(&app).await;
    let archived = archive(&app, coupon, false).await;
    let told = json!({"coupon_id": coupon.to_string(), "dead_letters_closed": 0, "stock_returns_closed": 0,
                      "buyers_dropped": 2, "live_orders": 2});
    assert_eq!((archived.status, &archived.body), (200, &told));
    assert_archived(&app, coupon).await;
    assert_eq!(app.claim(1, coupon).await.refusal(), (409, "already_claimed"));
    for accept_loss in [false, true] {
        let again = archive(&app, coupon, accept_loss).await;
        assert_eq!((again.status, &again.body["buyers_dropped"]), (200, &Value::Null));
    }
    assert_nothing_is_left(&app).await;
}

#[tokio::test]
async fn what_may_be_claimed_or_is_on_its_way_is_refused_whatever_is_accepted() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let regular = app.create_regular().await;
    let unloaded = only_in_postgres(&app, 3).await;
    app.decide_on(unloaded, CouponState::Ended).await;
    let unknown = CouponId::compose(1_000, 1);
    assert_eq!(app.claim(1, coupon).await.status, 202);
    for accept_loss in [false, true] {
        for (of, refusal) in [
            (unknown, (404, "coupon_not_found")),
            (regular, (409, "no_sale")),
            (unloaded, (409, "sale_not_loaded")),
            (coupon, (409, "sale_not_ended")),
        ] {
            assert_eq!(archive(&app, of, accept_loss).await.refusal(), refusal);
        }
    }
    // Also before Redis has been told of its end.
    app.decide_on(coupon, CouponState::Ended).await;
    for accept_loss in [false, true] {
        let refused = archive(&app, coupon, accept_loss).await;
        assert_eq!(refused.refusal(), (409, "sale_in_flight"));
        assert!(refused.text("detail").contains("1 claims of the sale are on their way"));
    }
    app.write_orders().await;
    let refused = archive(&app, coupon, false).await;
    assert_eq!(refused.refusal(), (409, "sale_not_settled"));
    assert!(refused.text("detail").contains("1 orders are unpaid"), "{refused:?}");
    assert_eq!(archive(&app, coupon, true).await.status, 200);
    assert_archived(&app, coupon).await;
    // The order lives on, and expires as ever.
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "unpaid");
    app.let_time_pass().await;
    assert_eq!((app.expire().await, app.sold(coupon).await), (1, 0));
    assert_nothing_is_left(&app).await;
}

#[tokio::test]
async fn a_sale_that_redis_has_lost_is_archived_when_the_loss_is_accepted() {
    for loses in ["sale", "hash", "shards"] {
        let app = TestApp::configured(&["--archive-after-ms", "0"]).await;
        let coupon = ended_sale(&app).await;
        let cancelled = app.claim(3, coupon).await;
        assert_eq!(cancelled.refusal(), (410, "sale_ended"));
        match loses {
            "sale" => app.lose_sale(coupon).await,
            "hash" => {
                let _: i64 = app.redis(&["DEL", &app.keys().coupon(coupon)]).await;
            }
            _ => app.lose_buyers(coupon).await,
        }
        assert_eq!(app.app.archive.run_once().bounded().await.expect("both stores answer"), 0);
        assert_eq!(app.postponed().await, [format!("archive {coupon} 1")], "{loses}");
        let refused = archive(&app, coupon, false).await;
        assert_eq!(refused.refusal(), (409, "sale_not_settled"), "{loses}");
        assert!(refused.text("detail").contains("Redis has lost data"), "{refused:?}");

        let archived = archive(&app, coupon, true).await;
        assert_eq!(archived.status, 200, "{archived:?}");
        assert_archived(&app, coupon).await;
        assert_eq!(app.claim(1, coupon).await.refusal(), (409, "already_claimed"));
        assert_eq!(app.my_claim(3, coupon).await.refusal(), (404, "not_claimed"));
        assert_nothing_is_left(&app).await;
    }
}

#[tokio::test]
async fn dead_letters_are_discarded_and_their_buyers_are_told() {
    let app = TestApp::configured(&["--unpaid-orders-max", "5", "--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(3).await;
    let taken = app.paid_order(1, coupon).await;
    // Users 2 and 3 were promised units that Postgres doesn't have; user 4's entry has another user's order id.
    app.execute("UPDATE flash_sales SET sold = 3").await;
    let promised = [app.claim(2, coupon).await.order_id(), app.claim(3, coupon).await.order_id()];
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "4", "order", &taken.to_string()])
        .await;
    assert_eq!(app.write_orders().await.dead_letters, 3);
    app.execute("UPDATE flash_sales SET sold = 1").await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    let refused = archive(&app, coupon, false).await;
    assert_eq!(refused.refusal(), (409, "sale_not_settled"));
    assert!(refused.text("detail").contains("3 dead letters are open"), "{refused:?}");
    assert_eq!(app.my_claim(2, coupon).await.text("status"), "in_review");

    let archived = archive(&app, coupon, true).await;
    assert_eq!((archived.status, &archived.body["dead_letters_closed"]), (200, &3.into()));
    assert_archived(&app, coupon).await;
    let closed = "SELECT count(*) FROM dead_letters WHERE resolved_at IS NOT NULL";
    assert_eq!(app.number(closed).await, 3);
    for (user, order) in [(2, promised[0]), (3, promised[1])] {
        let mine = app.my_claim(user, coupon).await;
        assert_eq!((mine.order_id(), mine.text("status")), (order, "cancelled"));
    }
    assert_eq!(app.status(1, taken).await, "paid", "another order is another order");
    assert_eq!(app.my_claim(4, coupon).await.refusal(), (404, "not_claimed"));
    assert_eq!(app.release().await, 3, "two units, and the place of the paid order");
    let places: i64 = app.redis(&["EXISTS", &app.keys().unpaid(lane())]).await;
    assert_eq!((places, app.sold(coupon).await), (0, 1), "no user is counted as holding one");
    assert_nothing_is_left(&app).await;
}

#[tokio::test]
async fn an_archiving_that_was_cut_off_is_finished() {
    for by_the_job in [false, true] {
        let app = TestApp::start().await;
        let coupon = ended_sale(&app).await;
        app.set_buyer(coupon, 3, 77).await;
        assert_eq!(archive(&app, coupon, false).await.refusal(), (409, "sale_not_settled"));
        // The process died after its commit, or when it had removed the sale itself.
        app.execute("UPDATE flash_sales SET archived_at = now()").await;
        let _: i64 = app.redis(&["DEL", &app.keys().coupon(coupon)]).await;
        match by_the_job {
            true => drop(app.app.archive.run_once().bounded().await.expect("both stores answer")),
            false => assert_eq!(archive(&app, coupon, false).await.status, 200),
        }
        assert_archived(&app, coupon).await;
        assert_nothing_is_left(&app).await;
    }
}

#[tokio::test]
async fn a_lost_sale_with_units_on_their_way_waits_no_longer() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.order(1, coupon).await;
    app.paid_order(2, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    app.lose_sale(coupon).await;
    assert_eq!(app.release().await, 0);
    app.decide_on(coupon, CouponState::Ended).await;
    app.changes_job().await;
    let waiting = ["changes", "stock_returns"].map(|job| format!("{job} {coupon} 1"));
    assert_eq!(app.postponed().await, waiting);
    let archived = archive(&app, coupon, true).await;
    assert_eq!((archived.status, &archived.body["stock_returns_closed"]), (200, &1.into()));
    assert_archived(&app, coupon).await;
    assert_nothing_is_left(&app).await;
}
