//! Dead letters, discarded and tried again by an operator.

use flash_sale::log::LoggedClaim;
use flash_sale::order::write::Origin;
use flash_sale::store::ids::{CouponId, OrderId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::{Bounded, Reply, TestApp, lane, user};

async fn letters(app: &TestApp) -> Vec<Value> {
    let mut letters = Vec::new();
    for waits in app.waiting("dead_letter").await {
        let path = format!("/v1/dead-letters/{}", waits["id"].as_str().expect("an id"));
        letters.push(app.get(&path, &app.admin_token()).await.body);
    }
    letters
}

async fn discard(app: &TestApp, letter: &str) -> Reply {
    let path = format!("/v1/dead-letters/{letter}/discard");
    let request = app.client().post(app.url.clone() + &path).bearer_auth(app.admin_token());
    app.send(request, "POST", &path).await
}

/// An app with one sale whose only unit Redis has sold, while Postgres has none to sell: user 1's promise is a
/// dead letter.
async fn a_promise_in_review() -> (TestApp, CouponId, i64) {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(1).await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    let order = app.claim(1, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute("UPDATE flash_sales SET sold = 0").await;
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "in_review");
    (app, coupon, order)
}

#[tokio::test]
async fn a_discarded_promise_ends_as_a_cancelled_order_and_its_unit_comes_back() {
    let (app, coupon, order) = a_promise_in_review().await;
    let open = letters(&app).await;
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!(
        (open[0]["reason"].as_str(), open[0]["user_id"].as_str()),
        (Some("oversold"), Some("1"))
    );
    assert_eq!(open[0]["order_id"], order.to_string());
    let (coupon_text, order_text) = (coupon.to_string(), order.to_string());
    let claim = ["coupon", &coupon_text, "user", "1", "order", &order_text, "revision", "1"];
    assert_eq!(open[0]["entry"], serde_json::json!(claim));

    let letter = open[0]["id"].as_str().expect("an id");
    for _ in 0..2 {
        assert_eq!(discard(&app, letter).await.status, 204);
        assert_eq!(app.status(1, order).await, "cancelled");
        assert_eq!(app.my_claim(1, coupon).await.text("status"), "cancelled");
    }
    assert_eq!(letters(&app).await, [] as [Value; 0]);
    assert_eq!((app.release().await, app.stock(coupon).await, app.sold(coupon).await), (1, 1, 0));
    assert_ne!(app.order(1, coupon).await, order, "they may claim anew");
}

#[tokio::test]
async fn a_letter_whose_retry_died_behind_its_order_changes_nothing() {
    let (app, coupon, order) = a_promise_in_review().await;
    let claim = LoggedClaim::without_entry(coupon, user(1), OrderId::new(order).unwrap());
    let (held, never) = ((lane(), 1), CancellationToken::new());
    app.app.orders.write(held, Origin::Letter, &[claim], &never).await.expect("Postgres answers");
    let letter = letters(&app).await[0]["id"].clone();
    assert_eq!(discard(&app, letter.as_str().unwrap()).await.status, 204);
    assert_eq!((app.status(1, order).await, app.release().await), ("unpaid".into(), 0));
}

#[tokio::test]
async fn what_cannot_be_read_is_only_put_away() {
    let app = TestApp::start().await;
    app.append(lane(), &["coupon", "none"]).await;
    app.append(lane(), &["coupon", "7171", "user", "1", "order", "5"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 2);
    for letter in letters(&app).await {
        assert_eq!(discard(&app, letter["id"].as_str().unwrap()).await.status, 204);
    }
    assert_eq!(letters(&app).await.len(), 0);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0, "there is no such coupon");
}

#[tokio::test]
async fn an_order_id_of_somebody_else_is_not_touched() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.order(1, coupon).await;
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "2", "order", &order.to_string()])
        .await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    let letter = letters(&app).await[0]["id"].clone();
    let refused = discard(&app, letter.as_str().unwrap()).await;
    assert_eq!(refused.refusal(), (409, "order_id_taken"));
    assert_eq!((letters(&app).await.len(), app.status(1, order).await), (1, "unpaid".into()));
}

async fn retry(app: &TestApp, letter: &str) -> Reply {
    let path = format!("/v1/dead-letters/{letter}/retry");
    let request = app.client().post(app.url.clone() + &path).bearer_auth(app.admin_token());
    app.send(request, "POST", &path).await
}

async fn the_letter(app: &TestApp) -> String {
    letters(app).await[0]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_retried_promise_is_its_order_once_nothing_speaks_against_it() {
    let (app, coupon, order) = a_promise_in_review().await;
    let letter = the_letter(&app).await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    let refused = retry(&app, &letter).await;
    assert_eq!(refused.refusal(), (409, "order_refused"));
    assert_eq!(the_letter(&app).await, letter, "it stays");
    app.execute("UPDATE flash_sales SET sold = 0").await;
    for _ in 0..2 {
        let retried = retry(&app, &letter).await;
        assert_eq!((retried.status, retried.text("order_id")), (200, &*order.to_string()));
    }
    assert_eq!(app.status(1, order).await, "unpaid");
    assert_eq!((app.stock(coupon).await, app.sold(coupon).await), (0, 1));
    assert_eq!(letters(&app).await, [] as [Value; 0]);
}

/// A letter whose unit was sold again, as after a recovery that had none left.
#[tokio::test]
async fn a_promise_without_a_unit_takes_one_or_stays() {
    let (app, coupon, order) = a_promise_in_review().await;
    let letter = the_letter(&app).await;
    let shard = app.shard_of(coupon, 1).await;
    let _: i64 = app.redis(&["HDEL", &shard, "1"]).await;
    assert_eq!(retry(&app, &letter).await.refusal(), (409, "no_unit"));
    let restock = serde_json::json!({"key": "k", "units": 1});
    let path = format!("/v1/coupons/{coupon}/restock");
    assert_eq!(app.post(&path, &app.admin_token(), &restock).await.status, 200);
    assert_eq!(retry(&app, &letter).await.status, 200);
    assert_eq!(app.status(1, order).await, "unpaid");
    assert_eq!((app.stock(coupon).await, app.buyers_count(coupon).await), (0, 1));
    // The first unit was taken away by hand.
    app.expect_disagreements();
}

#[tokio::test]
async fn a_user_who_claimed_again_keeps_the_newer_order() {
    let (app, coupon, order) = a_promise_in_review().await;
    let letter = the_letter(&app).await;
    let shard = app.shard_of(coupon, 1).await;
    let _: i64 = app.redis(&["HDEL", &shard, "1"]).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    let newer = app.claim(1, coupon).await.order_id();
    assert!(newer > order);
    // Before it is a row, and afterwards.
    assert_eq!(retry(&app, &letter).await.refusal(), (409, "superseded"));
    app.write_orders().await;
    assert_eq!(retry(&app, &letter).await.refusal(), (409, "superseded"));
    assert_eq!(app.buyers_count(coupon).await, 1);
    assert_eq!(discard(&app, &letter).await.status, 204);
    app.release().await;
    assert_eq!(app.status(1, newer).await, "unpaid");
    // Redis sold the unit of the letter once more, by hand.
    app.expect_disagreements();
}

#[tokio::test]
async fn a_retry_of_a_reason_goes_past_those_that_stay() {
    let (app, _, order) = a_promise_in_review().await;
    app.append(lane(), &["coupon", "none"]).await;
    app.append(lane(), &["coupon", "7171", "user", "1", "order", "5"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 2);
    let all = async |body: Value| {
        let reply = app.post("/v1/dead-letters/retry", &app.admin_token(), &body).await;
        (reply.status, reply.body)
    };
    let none = serde_json::json!({"orders": 0, "kept": {"letter_unreadable": 1}});
    assert_eq!(all(serde_json::json!({"reason": "undecodable"})).await, (200, none));
    let rest =
        serde_json::json!({"orders": 1, "kept": {"letter_unreadable": 1, "sale_not_loaded": 1}});
    assert_eq!(all(serde_json::json!({})).await, (200, rest));
    assert_eq!(app.status(1, order).await, "unpaid");
    for bad in [serde_json::json!({"reason": "other"}), serde_json::json!({"why": "oversold"})] {
        assert_eq!(all(bad).await.0, 422);
    }
}

#[tokio::test]
async fn a_closed_lane_takes_no_retry() {
    let (app, coupon, _) = a_promise_in_review().await;
    let letter = the_letter(&app).await;
    app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    let _: i64 = app.redis(&["HSET", &app.keys().lane(coupon.lane()), "state", "recovering"]).await;
    assert_eq!(retry(&app, &letter).await.refusal(), (503, "recovering"));
    app.recover().await;
    assert_eq!(retry(&app, &letter).await.status, 200);
}

#[tokio::test]
async fn all_letters_of_a_reason_are_discarded_and_one_that_stays_holds_up_no_other() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.order(1, coupon).await;
    let taken = ["coupon", &coupon.to_string(), "user", "2", "order", &order.to_string()];
    app.append(lane(), &taken).await;
    for user in 1..=101 {
        let (user, order) = (user.to_string(), (order + user).to_string());
        app.append(lane(), &["coupon", "7171", "user", &user, "order", &order]).await;
    }
    app.append(lane(), &["nothing", "here"]).await;
    app.write_orders().await;
    let discard_all = async |body: Value| {
        let reply = app.post("/v1/dead-letters/discard", &app.admin_token(), &body).await;
        (reply.status, reply.body)
    };
    let all = serde_json::json!({"discarded": 101, "kept": {}});
    assert_eq!(discard_all(serde_json::json!({"reason": "invalid"})).await, (200, all));
    let stays = serde_json::json!({"discarded": 0, "kept": {"order_id_taken": 1}});
    assert_eq!(discard_all(serde_json::json!({"reason": "conflict"})).await, (200, stays));
    assert_eq!(letters(&app).await.len(), 2, "that one, and that of another reason");
    let entries = "SELECT count(*) FROM audit WHERE action = 'discard_dead_letter'";
    assert_eq!(app.number(entries).await, 101, "each is in the book of changes");
    for bad in [
        serde_json::json!({}),
        serde_json::json!({"reason": "other"}),
        serde_json::json!({"reason": null}),
        serde_json::json!({"reason": "invalid", "coupon": "1"}),
    ] {
        assert_eq!(discard_all(bad.clone()).await.0, 422, "{bad}");
    }
    app.expect_disagreements();
}
