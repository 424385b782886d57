//! The order log: trimming and removing consumers never loses an entry.

use std::time::Duration;

use flash_sale::sale::order_log::{LogState, OrderLog};
use redis::Value;

use crate::support::{TestApp, lane};

async fn log_of(app: &TestApp, consumer: &str) -> OrderLog {
    let stores = &app.app.stores;
    let log = OrderLog::new(stores.redis.clone(), &stores.keys, lane(), consumer.into());
    log.ensure_group().await.unwrap();
    log
}

/// Entries that nobody will ever write; the end of the test has nothing to say about them.
async fn append(app: &TestApp, count: usize) {
    for _ in 0..count {
        app.append(lane(), &["x", "y"]).await;
    }
}

async fn length(app: &TestApp) -> usize {
    app.redis(&["XLEN", &app.keys().log(lane())]).await
}

#[tokio::test]
async fn only_what_every_group_has_finished_with_is_trimmed() {
    let app = TestApp::start().await;
    let log = log_of(&app, "a").await;
    append(&app, 1_000).await;
    assert_eq!(log.trim().await.unwrap(), 0, "nothing has been delivered");

    let entries = log.read_new(1_000).await.unwrap();
    assert_eq!(log.trim().await.unwrap(), 0, "everything is pending");

    // All but the 500th are acknowledged: it and what follows has to stay.
    let acknowledged = entries.iter().enumerate().filter(|(n, _)| *n != 500);
    log.acknowledge(acknowledged.map(|(_, entry)| entry.id.as_str())).await.unwrap();
    log.trim().await.unwrap();
    let after_trim = length(&app).await;
    assert!(
        (500..=600).contains(&after_trim),
        "{after_trim}: whole nodes of 100 entries go, and no more"
    );
    let pending = log.read_pending(10, "0").await.unwrap();
    assert_eq!(pending.len(), 1);
    assert!(!pending[0].is_lost());

    // Another group, as a relay would have, hasn't read anything yet.
    let key = app.keys().log(lane());
    let _: Value = app.redis(&["XGROUP", "CREATE", &key, "relay", "0"]).await;
    log.acknowledge(pending.iter().map(|entry| entry.id.as_str())).await.unwrap();
    assert_eq!(log.trim().await.unwrap(), 0);
    let _: Value = app.redis(&["XGROUP", "DESTROY", &key, "relay"]).await;
    assert!(log.trim().await.unwrap() >= 400);
    app.expect_disagreements();
}

#[tokio::test]
async fn a_consumer_that_holds_entries_is_not_removed() {
    let app = TestApp::start().await;
    let holder = log_of(&app, "holder").await;
    let other = log_of(&app, "other").await;
    append(&app, 1).await;
    let held = holder.read_new(1).await.unwrap();

    holder.leave().await.unwrap();
    other.remove_idle_consumers(Duration::ZERO).await.unwrap();
    assert_eq!(
        holder.read_pending(1, "0").await.unwrap().len(),
        1,
        "it is still there, and so is the entry"
    );

    holder.acknowledge(held.iter().map(|entry| entry.id.as_str())).await.unwrap();
    holder.leave().await.unwrap();
    let consumers: Vec<Value> =
        app.redis(&["XINFO", "CONSUMERS", &app.keys().log(lane()), "order-writers"]).await;
    assert_eq!(consumers, []);
    app.expect_disagreements();
}

#[tokio::test]
async fn the_backlog_is_what_is_not_acknowledged() {
    let app = TestApp::start().await;
    let key = app.keys().log(lane());
    let redis = &app.app.stores.redis;
    let backlog = async || {
        let backlog = LogState::of(redis, &key).await.unwrap();
        (backlog.appended, backlog.pending, backlog.unread)
    };
    assert_eq!(backlog().await, (0, 0, 0), "there is no log yet");
    append(&app, 5).await;
    assert_eq!(backlog().await, (5, 0, 5), "there is no group yet");
    let log = log_of(&app, "a").await;
    assert_eq!(backlog().await, (5, 0, 5));
    let entries = log.read_new(3).await.unwrap();
    assert_eq!(backlog().await, (5, 3, 2));
    log.acknowledge(entries.iter().map(|entry| entry.id.as_str())).await.unwrap();
    assert_eq!(backlog().await, (5, 0, 2));
    log.trim().await.unwrap();
    assert_eq!(backlog().await, (5, 0, 2));
    app.expect_disagreements();
}
