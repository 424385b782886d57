//! The order log: trimming and removing consumers never loses an entry.

use std::collections::BTreeMap;
use std::time::Duration;

use flash_sale::sale::log::{EntryId, LogState, OrderLog, TidiedUp};
use redis::Value;

use crate::support::played::{Play, Played, text};
use crate::support::{Bounded, TestApp, bounded, calls, done, lane, patience};

async fn log_of(app: &TestApp, consumer: &str) -> OrderLog {
    let stores = &app.app.stores;
    let log = OrderLog::new(stores.redis.clone(), &stores.keys, calls(lane()), consumer.into());
    log.ensure_group().bounded().await.unwrap();
    log
}

/// Entries that no worker will ever write; the check at the end of the test leaves them out.
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
    let log = log_of(&app, "a").await;
    append(&app, 1_000).await;
    assert_eq!(log.trim().await.unwrap().trimmed, 0, "nothing has been delivered");

    let entries = log.read_new(1_000).await.unwrap();
    assert_eq!(log.trim().await.unwrap().trimmed, 0, "everything is pending");

    // All but the 500th are acknowledged: that entry and the following ones have to stay.
    log.acknowledge(&done(&[&entries[..500], &entries[501..]].concat()), None).await.unwrap();
    log.trim().await.unwrap();
    let after_trim = length(&app).await;
    assert!(
        (500..=600).contains(&after_trim),
        "{after_trim}: whole nodes of 100 entries go, and no more"
    );
    let pending = log.read_pending(10, EntryId::default()).await.unwrap();
    assert_eq!((pending.len(), &pending[0]), (1, &entries[500]));

    // Another group, like that of a relay, hasn't read any entry yet.
    let key = app.log(lane());
    let _: Value = app.redis(&["XGROUP", "CREATE", &key, "relay", "0"]).await;
    log.acknowledge(&done(&pending), None).await.unwrap();
    assert_eq!(log.trim().await.unwrap().trimmed, 0);
    let _: Value = app.redis(&["XGROUP", "DESTROY", &key, "relay"]).await;
    let TidiedUp { trimmed, unaccounted } = log.trim().await.unwrap();
    assert_eq!((trimmed >= 400, unaccounted), (true, 0));
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
        holder.read_pending(1, EntryId::default()).await.unwrap().len(),
        1,
        "the consumer is still there, and so is the entry"
    );

    holder.acknowledge(&done(&held), None).await.unwrap();
    holder.leave().await.unwrap();
    let consumers: Vec<Value> =
        app.redis(&["XINFO", "CONSUMERS", &app.log(lane()), "order-writers"]).await;
    assert_eq!(consumers, []);
    app.expect_disagreements();
}

/// Names of the group's consumers.
async fn consumers(app: &TestApp) -> Vec<String> {
    let key = app.log(lane());
    let facts: Vec<BTreeMap<String, Value>> =
        app.redis(&["XINFO", "CONSUMERS", &key, "order-writers"]).await;
    let name = |facts: &BTreeMap<String, Value>| redis::from_redis_value_ref(&facts["name"]);
    facts.iter().map(|facts| name(facts).expect("a name")).collect()
}

#[tokio::test]
async fn consumers_that_were_idle_for_long_are_removed_and_no_others() {
    let app = TestApp::start().await;
    let ours = log_of(&app, "ours").await;
    let dead = log_of(&app, "dead").await;
    append(&app, 2).await;
    for log in [&ours, &dead] {
        let entries = log.read_new(1).await.unwrap();
        log.acknowledge(&done(&entries), None).await.unwrap();
    }
    ours.remove_idle_consumers(Duration::from_hours(1)).await.unwrap();
    assert_eq!(consumers(&app).await, ["dead", "ours"]);
    // Redis counts in ms.
    tokio::time::sleep(Duration::from_millis(20)).await;
    ours.remove_idle_consumers(Duration::ZERO).await.unwrap();
    assert_eq!(consumers(&app).await, ["ours"], "idle as well, and at work");
    app.expect_disagreements();
}

#[tokio::test]
async fn remove_idle_consumers_keeps_one_that_has_been_idle_for_just_as_long() {
    let app = TestApp::start().await;
    log_of(&app, "ours").await;
    for name in ["just as long", "longer"] {
        let create = ["XGROUP", "CREATECONSUMER", &app.log(lane()), "order-writers", name];
        assert_eq!(app.redis::<i64>(&create).await, 1);
    }
    let facts = |name: &str, idle_ms: u64| {
        format!("*4\r\n{}{}{}:{idle_ms}\r\n", text("name"), text(name), text("idle"))
    };
    let told = format!("*2\r\n{}{}", facts("just as long", 1_000), facts("longer", 1_001));
    let played = Played::before(app.redis_url(), move |command| match &*command[0] {
        "XINFO" => Play::Reply(told.clone()),
        _ => Play::Real,
    })
    .await;
    let redis = played.redis(patience());
    let ours = OrderLog::new(redis, app.keys(), calls(lane()), "ours".into());
    let removed = ours.remove_idle_consumers(Duration::from_secs(1));
    bounded("the longer one is removed", removed).await.unwrap();
    assert_eq!(consumers(&app).await, ["just as long"]);
}

#[tokio::test]
async fn entries_are_taken_over_step_by_step_and_lost_ones_are_named() {
    let app = TestApp::start().await;
    let ours = log_of(&app, "ours").await;
    let dead = log_of(&app, "dead").await;
    append(&app, 5).await;
    let held = dead.read_new(5).await.unwrap();
    let step = ours.take_over(Duration::from_hours(1), 2, "0-0").await.unwrap();
    assert_eq!((step.entries.len(), step.lost.len()), (0, 0), "they aren't idle for so long");
    let deleted: i64 = app.redis(&["XDEL", &app.log(lane()), &held[1].id.to_string()]).await;
    assert_eq!(deleted, 1);

    // By name, however short a time the consumer has held them.
    let step = ours.take_over_from("dead", 3).await.unwrap();
    let [first, deleted, third] = [0, 1, 2].map(|place| held[place].id);
    assert_eq!((step.entries, step.lost), (vec![first, third], vec![deleted]));
    assert_eq!(ours.take_over_from("unknown", 3).await.unwrap().entries, []);
    // Step by step, each from the end of the last one.
    let mut taken = 0;
    let mut from = Some("0-0".to_owned());
    let mut steps = 0;
    bounded("the last step", async {
        while let Some(start) = from {
            let step = ours.take_over(Duration::ZERO, 1, &start).await.unwrap();
            assert!(step.entries.len() <= 1);
            (taken, from, steps) = (taken + step.entries.len(), step.next, steps + 1);
        }
    })
    .await;
    assert_eq!((taken, steps >= 4), (4, true), "those of the dead, and our own");
    assert_eq!(ours.read_pending(9, EntryId::default()).await.unwrap().len(), 4);
    app.expect_disagreements();
}

#[tokio::test]
async fn what_is_created_is_told() {
    let app = TestApp::start().await;
    let redis = &app.app.stores.redis;
    let keys = app.keys();
    let log = OrderLog::new(redis.clone(), keys, calls(lane()), "a".into());
    let created = async || {
        let created = log.ensure_group().bounded().await.unwrap().expect("no order was promised");
        (created.group, created.log)
    };
    assert_eq!(created().await, (true, true));
    assert_eq!(created().await, (false, false));
    let key = app.log(lane());
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
    assert_eq!((gone, created().await), (1, (true, false)));
}

#[tokio::test]
async fn the_backlog_is_what_is_not_acknowledged() {
    let app = TestApp::start().await;
    let redis = &app.app.stores.redis;
    let backlog = async || {
        let state = LogState::of(redis, app.keys(), calls(lane())).await.unwrap();
        (state.unwritten, state.pending, state.written)
    };
    assert_eq!(backlog().await, (0, 0, 0), "there is no log yet");
    append(&app, 5).await;
    assert_eq!(backlog().await, (5, 0, 0), "there is no group yet");
    let log = log_of(&app, "a").await;
    assert_eq!(backlog().await, (5, 0, 0));
    let entries = log.read_new(3).await.unwrap();
    assert_eq!(backlog().await, (5, 3, 0));
    log.acknowledge(&done(&entries), None).await.unwrap();
    assert_eq!(backlog().await, (2, 0, 3));
    log.acknowledge(&done(&entries), None).await.unwrap();
    assert_eq!(backlog().await, (2, 0, 3), "an entry counts once");
    log.trim().await.unwrap();
    assert_eq!(backlog().await, (2, 0, 3));
    app.expect_disagreements();
}
