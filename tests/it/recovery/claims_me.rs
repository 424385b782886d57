//! `claims/me` in a closed lane: Postgres alone is believed, and "never claimed" is not said.

use std::sync::Arc;

use flash_sale::app::App;
use flash_sale::claim::status::{ClaimState, ClaimStatus, Inquiry};
use flash_sale::store::ids::{CouponId, OrderId};
use tokio::task::JoinSet;

use crate::faults::recovery::{go_back, keep, sell, start};
use crate::support::{TestApp, bounded, eventually, proxy_before, user};

/// The user cancels the order, and its unit comes back.
async fn cancel(app: &TestApp, user: i64, order: i64) {
    assert_eq!(app.cancel(user, order).await.status, 200);
    app.release().await;
}

/// Order id and status of a claim; the problem's code in place of the status, if it is one.
async fn told(app: &TestApp, user: i64, coupon: CouponId) -> (i64, String) {
    let reply = app.my_claim(user, coupon).await;
    match reply.status {
        200 => (reply.order_id(), reply.text("status").to_owned()),
        status => (i64::from(status), reply.text("code").to_owned()),
    }
}

#[tokio::test]
async fn a_redis_that_went_back_is_not_believed() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    app.execute(&format!("UPDATE flash_sales SET sold = total WHERE coupon_id = {coupon}")).await;
    let in_review = app.claim(1, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = 0 WHERE coupon_id = {coupon}")).await;
    let older = app.order(2, coupon).await;
    let closed = app.order(3, coupon).await;
    cancel(&app, 3, closed).await;
    let closed_before = app.order(4, coupon).await;
    cancel(&app, 4, closed_before).await;
    sell(&app, coupon, 4..=5).await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    cancel(&app, 2, older).await;
    let newer = app.order(2, coupon).await;
    app.execute("DELETE FROM orders WHERE user_id IN (4, 5) AND status = 'unpaid'").await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    sell(&app, coupon, 6..=6).await;

    go_back(&mut server, &app, coupon).await;
    assert_eq!(told(&app, 1, coupon).await, (in_review, "in_review".to_owned()));
    assert_eq!(told(&app, 2, coupon).await, (newer, "unpaid".to_owned()), "the newer order");
    assert_eq!(told(&app, 3, coupon).await, (closed, "cancelled".to_owned()));
    for (user, why) in [
        (4, "a claim of which only Redis knows, behind a closed order"),
        (5, "a claim of which only Redis knows"),
        (6, "a claim that only a process knows"),
        (7, "no claim that any store knows"),
    ] {
        assert_eq!(told(&app, user, coupon).await, (503, "recovering".to_owned()), "{why}");
        let reply = app.my_claim(user, coupon).await;
        assert!(!reply.header("retry-after").is_empty(), "{why}");
    }
    app.recover().await;
    assert_eq!(told(&app, 2, coupon).await, (newer, "unpaid".to_owned()));
    for user in [4, 5, 6] {
        assert_eq!(told(&app, user, coupon).await.1, "unpaid", "user {user}");
    }
    assert_eq!(told(&app, 7, coupon).await, (404, "not_claimed".to_owned()));
}

/// A regular coupon needs no lane, and an unknown one has none.
#[tokio::test]
async fn coupons_without_a_sale_are_answered_in_a_closed_lane() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let regular = app.create_regular().await;
    sell(&app, coupon, 1..=1).await;
    app.write_orders().await;
    keep(&app).await;
    go_back(&mut server, &app, coupon).await;
    assert_eq!(told(&app, 1, regular).await, (404, "not_claimed".to_owned()));
    let unknown = CouponId::compose(regular.sequence() + 1_000, 1);
    assert_eq!(told(&app, 1, unknown).await, (404, "coupon_not_found".to_owned()));
    app.recover().await;
}

/// The lane is closed, and Redis goes back, between the check of the lane and the read of the buyer.
#[tokio::test]
async fn a_lane_that_closes_while_its_buyer_is_read_is_not_believed() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let older = app.order(1, coupon).await;
    cancel(&app, 1, older).await;
    let newer = app.order(1, coupon).await;
    keep(&app).await;
    let proxy = proxy_before(&app, ":buyers:").await;
    let other: Arc<App> = app.another_instance_behind(&proxy).await;
    other.lanes.read_now().await.expect("Postgres answers");
    proxy.hold();
    let asked = other.clone();
    let mut asking = JoinSet::new();
    asking.spawn(async move { asked.claim_statuses.inquire(coupon, user(1)).await });
    eventually("the buyer is about to be read", async || proxy.held() == 1).await;

    let (lane, shard) = (app.keys().lane(coupon.lane()), app.shard_of(coupon, 1).await);
    let _: i64 = app.redis(&["HSET", &shard, "1", &older.to_string()]).await;
    let _: i64 = app.redis(&["HSET", &lane, "epoch", "2", "state", "recovering"]).await;
    proxy.release();
    let told = bounded("the answer", asking.join_next()).await.expect("it was asked");
    let told = told.expect("it ends").expect("both stores answer");
    let order_id = OrderId::new(newer).expect("an id");
    assert_eq!(told, Inquiry::Claimed(ClaimState { order_id, status: ClaimStatus::Unpaid }));
    let _: i64 = app.redis(&["HSET", &shard, "1", &newer.to_string()]).await;
    let _: i64 = app.redis(&["HSET", &lane, "epoch", "1", "state", "open"]).await;
}
