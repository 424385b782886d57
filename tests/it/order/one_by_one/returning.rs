//! Units on their way back while their lane can't take them: which wait, and which are postponed.

use flash_sale::sale::pass::Ran;

use crate::support::{Bounded, TestApp, lane};

#[tokio::test]
async fn units_of_a_lane_that_is_stale_are_postponed_and_those_of_one_that_recovers_wait() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(3).await;
    let order = app.order(1, coupon).await;
    app.cancel(1, order).await;
    let of_lane = app.keys().lane(lane());
    let set = async |field: &str, value: &str| {
        let _: i64 = app.redis(&["HSET", &of_lane, field, value]).await;
    };
    let epoch: String = app.redis(&["HGET", &of_lane, "epoch"]).await;
    let pass = async || app.app.stock_returns.pass().bounded().await.expect("both stores answer");
    let nothing = Ran { items: 0, goes_on: false };

    set("state", "recovering").await;
    app.app.lanes.take_suspicion();
    assert_eq!((pass().await, app.postponed().await.len()), (nothing, 0));
    assert!(app.app.lanes.take_suspicion(), "the lane is looked at");
    set("state", "open").await;

    // Postgres, asked anew, knows of no such epoch.
    set("epoch", "77").await;
    assert_eq!(pass().await, nothing);
    let postponed = [format!("stock_returns {coupon} 1")];
    assert_eq!(app.postponed().await, postponed);
    set("epoch", &epoch).await;
    assert_eq!((pass().await, app.postponed().await), (nothing, postponed.to_vec()));
    app.let_postponed_be_due().await;
    let ran = Ran { items: 1, goes_on: false };
    assert_eq!((pass().await, app.postponed().await.len()), (ran, 0));
    assert_eq!((pass().await, app.stock(coupon).await), (nothing, 3));
}
