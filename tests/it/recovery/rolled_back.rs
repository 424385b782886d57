//! Recoveries that are broken off: the next one compares what they have left. And the memory of Redis, which a test can
//! put back with the run, the replication ID and the connections of the server, as that of a machine that is set back
//! to a snapshot.

use std::sync::LazyLock;

use flash_sale::store::ids::CouponId;
use tokio::task::JoinSet;

use crate::faults::recovery::{code, command, keep, sell, start};
use crate::support::{Bounded, TestApp, eventually, proxy_before};

/// The script that makes Redis use a sale that has been built, as a command names it.
static SWITCH: LazyLock<String> = LazyLock::new(|| {
    redis::Script::new(include_str!("../../../lua/switch_sale.lua")).get_hash().to_owned()
});

const LETTERS: &str = "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL";

/// Begins the name of each key of the snapshot.
const KEPT: &str = "kept:";

/// Keeps all keys as they are now.
pub async fn keep_memory(app: &TestApp) {
    for key in app.redis::<Vec<String>>(&["KEYS", "*"]).await {
        let copied: i64 = app.redis(&["COPY", &key, &format!("{KEPT}{key}")]).await;
        assert_eq!(copied, 1);
    }
}

/// Redis has the keys that were kept, and no others.
pub async fn put_memory_back(app: &TestApp) {
    let (kept, now): (Vec<String>, Vec<String>) = app
        .redis::<Vec<String>>(&["KEYS", "*"])
        .await
        .into_iter()
        .partition(|key| key.starts_with(KEPT));
    for key in now {
        let _: i64 = app.redis(&["DEL", &key]).await;
    }
    for key in kept {
        let _: String = app.redis(&["RENAME", &key, &key[KEPT.len()..]]).await;
    }
}

/// A user whose order Redis has forgotten has claimed again, which became a dead letter; and the lane is closed.
/// Returns the coupon and that order.
async fn closed_after_a_second_claim(app: &TestApp) -> (CouponId, i64) {
    let coupon = app.create_flash(10).await;
    sell(app, coupon, 1..=6).await;
    app.write_orders().await;
    let forgotten = app.number("SELECT id FROM orders WHERE user_id = 6").await;
    let shard = app.shard_of(coupon, 6).await;
    let _: i64 = app.redis(&["HDEL", &shard, "6"]).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    sell(app, coupon, 6..=6).await;
    app.write_orders().await;
    assert_eq!(app.number(LETTERS).await, 1);
    keep(app).await;
    command(app, &["recover", "--lane", "0"]).await;
    app.app.leaders.first().give_up().await;
    (coupon, forgotten)
}

/// The process that was cut off keeps the lanes no more, and the order that was forgotten is cancelled.
async fn go_on(app: &TestApp, forgotten: i64) {
    assert_eq!(app.cancel(6, forgotten).await.status, 200);
}

/// Of the ten units six are sold, one of them to user 6.
async fn assert_four_are_left(app: &TestApp, coupon: CouponId) {
    app.release().await;
    assert_eq!(code(app, 6, coupon).await, (409, "already_claimed".to_owned()));
    sell(app, coupon, 7..=10).await;
    assert_eq!(code(app, 11, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
}

#[tokio::test]
async fn a_recovery_that_dies_before_the_switch_leaves_units_to_the_letters_that_redis_knows() {
    let (_server, app) = start(&[]).await;
    let (coupon, forgotten) = closed_after_a_second_claim(&app).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    let other = app.another_instance_behind(&proxy).await;
    proxy.hold();
    let mut job = JoinSet::new();
    job.spawn(async move { other.leaders.first().run_once().bounded().await.is_ok() });
    eventually("the sale is about to be switched", async || proxy.held() == 1).await;
    job.shutdown().await;
    drop(proxy);

    go_on(&app, forgotten).await;
    app.recover().await;
    assert_eq!(app.number("SELECT sum(sales_kept)::bigint FROM recoveries").await, 1);
    assert_four_are_left(&app, coupon).await;
}
