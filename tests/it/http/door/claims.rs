//! Claims on sales that confirm nothing before Postgres has its row or its dead letter; and claims that are measured.

use std::sync::Arc;

use chrono::TimeDelta;
use flash_sale::http::{self, Door};
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::trace::Traces;
use flash_sale::sale::trace::outbox::{Answered, Note, Outbox};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

use super::{door, request, told, with_header};
use crate::support::{Reply, TestApp, eventually, http_state, lane, now, patience, token};

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

/// The script has accepted the claim, and a stop ends the wait for its row: nothing is told of an order.
#[tokio::test]
async fn an_accepted_claim_is_traced_only_if_its_reply_is_a_success() {
    let app = TestApp::start().await;
    let coupon = sale(&app).await;
    let other = app.another_instance().await;
    let door = http::api(&http_state(other.clone(), &app.config), true);
    let stops = async {
        eventually("the claim waits for its row", async || other.order_waiters.count() == 1).await;
        other.shutdown.stop(patience()).await
    };
    let (unknown, stopped) = tokio::join!(claim(&door, 1, coupon), stops);
    assert!(stopped, "a task hangs");
    assert_eq!(unknown.refusal(), (503, "unavailable"));
    assert!(unknown.header("server-timing").starts_with("queue;dur="), "{unknown:?}");
    let order = app.buyers(coupon).await[&1];
    let trace = told(&door, request("GET", &format!("/v1/orders/{order}/trace"), &token(1))).await;
    assert_eq!(trace.refusal(), (404, "not_traced"));
}

/// A door to another process of the same service, whose notes of claims leave it; and these notes.
async fn door_with_collector(app: &TestApp) -> (Door, Receiver<Note>) {
    let mut other = app.another_instance().await;
    let (outbox, notes) = Outbox::new(1, other.metrics.clone());
    let traces = Traces::new(other.stores.pool.clone(), Some(outbox));
    Arc::get_mut(&mut other).expect("its only holder").traces = Arc::new(traces);
    (http::api(&http_state(other, &app.config), true), notes)
}

/// The collector gets each accepted claim and no other; the client is told the times of those that it asks for.
#[tokio::test]
async fn a_measured_claim_is_noted_for_its_collector_and_for_a_client_that_asks() {
    let app = TestApp::start().await;
    let (door, mut notes) = door_with_collector(&app).await;
    let (flash, regular) = (app.create_flash(2).await, app.create_regular().await);
    for (user, coupon, x_trace, status, is_noted) in [
        (1, flash, "", 202, true),
        (1, flash, "", 409, false),
        (2, flash, "1", 202, true),
        (3, flash, "1", 410, false),
        (3, flash, "", 410, false),
        (1, regular, "", 201, false),
        (2, regular, "1", 201, false),
    ] {
        let row = format!("{user} {coupon} {x_trace:?}");
        let claim = request("POST", &format!("/v1/coupons/{coupon}/claims"), &token(user));
        let claim = if x_trace.is_empty() { claim } else { with_header(claim, "x-trace", x_trace) };
        let began = Instant::now();
        let reply = told(&door, claim).await;
        assert_eq!(reply.status, status, "{row}: {reply:?}");
        let is_told = reply.header("server-timing").starts_with("queue;dur=");
        assert_eq!(is_told, x_trace == "1", "{row}: {reply:?}");
        let note = notes.try_recv().ok();
        assert_eq!(note.is_some(), is_noted, "{row}: {note:?}");
        if let Some(note) = note {
            let Note::Answered(Answered { claim, method, route, arrived_at, status: told }) = note
            else {
                panic!("{row}: {note:?}");
            };
            let of = (claim.order.get(), claim.user.get(), claim.coupon);
            assert_eq!(of, (reply.order_id(), user, coupon), "{row}");
            let of = (method, route, told);
            assert_eq!(of, ("POST", "/v1/coupons/{id}/claims", 202), "{row}");
            assert!(began <= arrived_at && arrived_at <= claim.call.queued_at, "{row}");
            assert!(claim.call.answered_at <= claim.told_at, "{row}");
        }
        // The steps of a claim are for its client alone, and only if it has asked for them.
        if reply.body["order_id"].is_string() {
            let path = format!("/v1/orders/{}/trace", reply.order_id());
            let followed = told(&door, request("GET", &path, &token(user))).await;
            let can_be = is_noted && is_told;
            assert_eq!(followed.status, if can_be { 200 } else { 404 }, "{row}: {followed:?}");
        }
    }
}
