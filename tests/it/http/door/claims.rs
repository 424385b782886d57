//! Claims on sales that confirm nothing before Postgres has its row or its dead letter.

use chrono::TimeDelta;
use flash_sale::http::Door;
use flash_sale::sale::ids::CouponId;
use serde_json::json;

use super::{door, request, told, with_header};
use crate::support::{Reply, TestApp, eventually, lane, now, token};

/// A sale whose claims are confirmed by Postgres.
async fn sale(app: &TestApp) -> CouponId {
    let opens_at = now() - TimeDelta::seconds(1);
    let closes_at = now() + TimeDelta::hours(1);
    let sale =
        json!({"total": 5, "opens_at": opens_at, "closes_at": closes_at, "durability": "postgres"});
    let new =
        json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
    let created = app.post("/v1/coupons", &app.admin_token(), &new).await;
    created.text("id").parse().expect("a coupon id")
}

async fn claim(door: &Door, user: i64, coupon: CouponId) -> Reply {
    let claim = request("POST", &format!("/v1/coupons/{coupon}/claims"), &token(user));
    told(door, with_header(claim, "x-trace", "1")).await
}

/// Writes once the claim is in the log.
async fn write(app: &TestApp) {
    let log = app.log(lane());
    eventually("the claim is in the log", async || app.redis::<i64>(&["XLEN", &log]).await > 0)
        .await;
    app.write_orders().await;
}

#[tokio::test]
async fn a_claim_that_waits_for_its_row_is_told_its_order() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let coupon = sale(&app).await;
    let (first, ()) = tokio::join!(claim(&door, 1, coupon), write(&app));
    assert_eq!((first.status, first.text("status")), (201, "unpaid"), "{first:?}");
    let order = first.order_id();
    assert_eq!(first.header("location"), format!("/v1/orders/{order}"));
    // A repeat is told of the same order, and is no new one.
    let repeat = claim(&door, 1, coupon).await;
    assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), order));
    // Where memory is enough, a claim waits for nothing.
    let other = claim(&door, 1, app.create_flash(1).await).await;
    assert_eq!((other.status, other.text("status")), (202, "pending"));
}

/// A client that prefers to wait gets the order, if it is written in time.
#[tokio::test]
async fn a_claim_that_prefers_to_wait_is_told_its_order() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let coupon = app.create_flash(2).await;
    let path = format!("/v1/coupons/{coupon}/claims");
    let waits = with_header(request("POST", &path, &token(1)), "prefer", "wait=10");
    let (created, ()) = tokio::join!(told(&door, waits), write(&app));
    assert_eq!((created.status, created.text("status")), (201, "unpaid"), "{created:?}");
    assert!(created.header("retry-after").is_empty());
    let accepted = told(&door, request("POST", &path, &token(2))).await;
    assert_eq!((accepted.status, accepted.header("retry-after")), (202, "1"));
    assert_eq!(accepted.header("location"), format!("{path}/me"));
}

/// Within the time of a request there is neither a row nor an order: it is confirmed only once it is known not to be lost.
#[tokio::test]
async fn a_claim_without_its_row_is_accepted_only_as_a_dead_letter() {
    let (reviewed, waiting) = tokio::join!(TestApp::start(), TestApp::start());
    let (of_reviewed, of_waiting) = (door(&reviewed, |_| {}), door(&waiting, |_| {}));
    let (in_review, unwritten) = tokio::join!(sale(&reviewed), sale(&waiting));
    let sold =
        |sold: &str| format!("UPDATE flash_sales SET sold = {sold} WHERE coupon_id = {in_review}");
    reviewed.execute(&sold("total")).await;
    let (accepted, unknown, ()) = tokio::join!(
        claim(&of_reviewed, 1, in_review),
        claim(&of_waiting, 1, unwritten),
        write(&reviewed),
    );
    reviewed.execute(&sold("0")).await;
    assert_eq!((accepted.status, accepted.text("status")), (202, "pending"), "{accepted:?}");
    assert_eq!(unknown.refusal(), (503, "unavailable"));
    // Nothing was told of its order, so there is nothing to be followed.
    let order = waiting.buyers(unwritten).await[&1];
    let trace = waiting.get(&format!("/v1/orders/{order}/trace"), &token(1)).await;
    assert_eq!(trace.refusal(), (404, "not_traced"));
    let trace = reviewed.get(&format!("/v1/orders/{}/trace", accepted.order_id()), &token(1)).await;
    assert_eq!(trace.status, 200, "{trace:?}");
}
