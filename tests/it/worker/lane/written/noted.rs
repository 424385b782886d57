//! The note of a batch in the trace of a claim that is followed.

use std::time::Duration;

use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::worker::LaneWorker;

use super::written;
use crate::support::{Bounded, TestApp, lane, later, user};
use crate::worker::lane::worker_with;

/// The order of user 1, which was claimed 20 min ago and is followed.
async fn followed(app: &TestApp, coupon: CouponId) -> OrderId {
    let order = app.claim_traced(1, coupon, "1").await.order_id();
    later(Duration::from_mins(20)).await;
    OrderId::new(app.inner(order)).expect("a positive number")
}

/// Has the worker write while the lock of user 1 is held, which makes rows of so many others, and 7 min later. The batch
/// of this order begins when its entry was read.
async fn assert_noted_from_read(
    app: &TestApp,
    worker: &mut LaneWorker,
    order: OrderId,
    others: usize,
) {
    let key = app.keys().order_lock(lane(), user(1));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    let report = worker.write_pass().bounded().await.expect("both stores answer");
    assert_eq!((report.inserted, report.contended), (others, 1));
    held.release().await;
    later(Duration::from_mins(7)).await;
    assert_eq!(written(worker).await, (1, 0));
    let trace = app.app.traces.follow(order, None).await.expect("Postgres answers");
    let trace = serde_json::to_value(trace.expect("it is followed")).expect("JSON");
    assert_eq!(
        (&trace["worker"], &trace["batch_claims"]),
        (&worker.log().consumer().into(), &1.into())
    );
    let steps = trace["steps"].as_array().expect("a list");
    let took = |name: &str| {
        let step = steps.iter().find(|step| step["name"] == name).expect("a step");
        step["took_us"].as_u64().unwrap_or_else(|| panic!("{name} has no time: {trace}"))
    };
    // On no machine do the steps take as long as the waits before them: that exceeds the time of a test.
    let took_min = |name: &str| took(name) / 60_000_000;
    assert!((7..20).contains(&took_min("batch")), "{trace}");
    assert!(took_min("locks") < 7 && took_min("acknowledgement") < 7, "{trace}");
}

/// However long a claim waits for its lock.
#[tokio::test]
async fn a_batch_is_noted_from_the_read_of_its_entries_to_their_acknowledgement() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let order = followed(&app, coupon).await;
    assert_noted_from_read(&app, &mut worker, order, 0).await;
}

/// A later look for more of them, which finds none, is no read.
#[tokio::test]
async fn a_batch_of_own_pending_entries_is_noted_from_their_read() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    // The first batch is full, so the end of the pending entries is found by the second one.
    let mut worker = worker_with(&app, |with| with.batch_orders_max = 2).await;
    assert_eq!(app.claim(2, coupon).await.status, 202);
    let order = followed(&app, coupon).await;
    assert_eq!(worker.log().read_new(2).await.expect("Redis answers").len(), 2);
    assert_noted_from_read(&app, &mut worker, order, 1).await;
}

#[tokio::test]
async fn an_acknowledgement_that_fails_is_none_in_the_note_of_a_batch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let order = app.claim_traced(1, coupon, "1").await.order_id();
    let order = OrderId::new(app.inner(order)).expect("a positive number");
    // No count of written orders can be raised.
    let of_lane = app.keys().lane(lane());
    let _: i64 = app.redis(&["HSET", &of_lane, "written", "no number"]).await;
    assert!(worker.write_pass().bounded().await.is_err());
    let trace = app.app.traces.follow(order, None).await.expect("Postgres answers");
    let trace = serde_json::to_value(trace.expect("it is followed")).expect("JSON");
    let steps = trace["steps"].as_array().expect("a list");
    let is_known = |name: &str| {
        let step = steps.iter().find(|step| step["name"] == name).expect("a step");
        step["took_us"].is_u64()
    };
    assert_eq!((is_known("row"), is_known("acknowledgement")), (true, false), "{trace}");
}
