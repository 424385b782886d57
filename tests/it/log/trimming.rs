//! The order log: trimming never loses an entry.

use std::time::Duration;

use flash_sale::log::{EntryId, OrderLog, TidiedUp};
use redis::Value;

use crate::support::{Bounded, TestApp, done, lane};

async fn log_of(app: &TestApp) -> OrderLog {
    let stores = &app.app.stores;
    let log = OrderLog::new(stores.fleet.first().clone(), &stores.keys, lane());
    log.ensure_group().bounded().await.unwrap();
    log
}

/// Entries that no worker will ever write; the check of the end of the test leaves them out.
async fn append(app: &TestApp, count: usize) {
    for _ in 0..count {
        app.append(lane(), &["coupon", "1024", "user", "1", "order", "7"]).await;
    }
}

async fn length(app: &TestApp) -> usize {
    app.redis(&["XLEN", &app.log(lane())]).await
}

#[tokio::test]
async fn only_what_every_group_has_finished_with_is_trimmed() {
    let app = TestApp::start().await;
    let log = log_of(&app).await;
    append(&app, 1_000).await;
    assert_eq!(log.trim().await.unwrap().trimmed, 0, "nothing has been delivered");

    let entries = log.read_new(1_000, Duration::ZERO).await.unwrap().entries;
    assert_eq!(log.trim().await.unwrap().trimmed, 0, "everything is pending");

    // All but the 500th are acknowledged: that entry and the following ones have to stay.
    log.acknowledge(1, &done(&[&entries[..500], &entries[501..]].concat()), None).await.unwrap();
    log.trim().await.unwrap();
    let after_trim = length(&app).await;
    assert!(
        (500..=600).contains(&after_trim),
        "{after_trim}: whole nodes of 100 entries go, and no more"
    );
    let pending = log.read_pending(10, EntryId::default()).await.unwrap().entries;
    assert_eq!((pending.len(), &pending[0]), (1, &entries[500]));

    // Another group, like that of a relay, hasn't read any entry yet.
    let key = app.log(lane());
    let _: Value = app.redis(&["XGROUP", "CREATE", &key, "relay", "0"]).await;
    log.acknowledge(1, &done(&pending), None).await.unwrap();
    assert_eq!(log.trim().await.unwrap().trimmed, 0);
    let _: Value = app.redis(&["XGROUP", "DESTROY", &key, "relay"]).await;
    let TidiedUp { trimmed, unaccounted } = log.trim().await.unwrap();
    assert_eq!((trimmed >= 400, unaccounted), (true, 0));
    app.expect_disagreements();
}
