//! Reading a log: its state and its group, and what waits in it.

use std::time::Duration;

use crate::support::{Bounded, TestApp, done, lane};
use flash_sale::sale::ids::Lane;
use flash_sale::sale::log::backlog::Backlog;
use flash_sale::sale::log::numbers::{LogNumbers, Oldest};
use flash_sale::sale::log::{EntryId, LogState, OrderLog, Progress, progress};

fn id(ms: u64, sequence: u64) -> EntryId {
    EntryId { ms, sequence }
}

async fn app() -> TestApp {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    app
}

fn log_of(app: &TestApp, lane: Lane) -> OrderLog {
    OrderLog::new(app.app.stores.redis.clone(), app.keys(), lane)
}

#[tokio::test]
async fn progress_is_told_up_to_the_first_entry_that_is_not_acknowledged() {
    let app = app().await;
    let (redis, key) = (&app.app.stores.redis, app.log(lane()));
    let found = async || progress(redis, &key).await.expect("Redis answers");
    assert_eq!(found().await, None);
    for entry in ["5-1", "5-2", "7-0"] {
        app.append_as(lane(), entry, &["x", "y"]).await;
    }
    let last = id(7, 0);
    assert_eq!(found().await, Some(Progress { last, acknowledged: EntryId::default() }));
    let _: String = app.redis(&["XGROUP", "CREATE", &key, "relay", "$"]).await;
    assert_eq!(found().await.map(|it| it.acknowledged), Some(id(0, 0)));
    let ours = log_of(&app, lane());
    ours.ensure_group().bounded().await.expect("Redis answers");
    let entries = ours.read_new(2, Duration::ZERO).await.expect("Redis answers");
    for (acknowledged, pending) in [(id(5, 0), 2), (id(5, 1), 1), (id(5, 2), 0)] {
        assert_eq!(found().await, Some(Progress { last, acknowledged }));
        if let Some(entry) = entries.get(2 - pending) {
            ours.acknowledge(1, &done(std::slice::from_ref(entry)), None)
                .await
                .expect("Redis answers");
        }
    }
    let _: String = app.redis(&["SET", &key, "no log"]).await;
    assert!(progress(redis, &key).await.is_err());
}

#[tokio::test]
async fn orders_that_wait_are_counted_by_the_lane_and_the_oldest_has_its_age() {
    let app = app().await;
    let (redis, keys) = (&app.app.stores.redis, app.keys());
    let now_ms = async || {
        let (seconds, micros): (u64, u64) = app.redis(&["TIME"]).await;
        seconds * 1_000 + micros / 1_000
    };
    let (log, oldest) = (log_of(&app, lane()), Oldest::default());
    let look = async || {
        let state = LogState::of(redis, keys, lane()).await.expect("Redis answers");
        LogNumbers::look(redis, keys, lane(), &state, &oldest).await.expect("Redis answers")
    };
    let none = look().await;
    assert_eq!((none.pending, none.unread, none.oldest_entry_ms), (0, 0, 0));
    for n in 1..=3 {
        let (entry, number) = (format!("{n}000-0"), n.to_string());
        let claim = ["coupon", "1024", "user", &number, "order", &number];
        app.append_as(lane(), &entry, &claim).await;
    }
    log.ensure_group().bounded().await.expect("Redis answers");
    for (read, pending, unread, oldest_ms) in [(0, 0, 3, 1_000), (1, 1, 2, 1_000), (2, 2, 1, 1_000)]
    {
        if read > 0 {
            assert_eq!(log.read_new(1, Duration::ZERO).await.expect("Redis answers").len(), 1);
        }
        let before = now_ms().await;
        let found = look().await;
        let ages = before - oldest_ms..=now_ms().await - oldest_ms;
        assert_eq!((found.pending, found.unread), (pending, unread));
        assert!(ages.contains(&found.oldest_entry_ms), "{found:?} {ages:?}");
    }
    let held = log.read_pending(9, EntryId::default()).await.expect("Redis answers");
    log.acknowledge(1, &done(&held), None).await.expect("Redis answers");
    let before = now_ms().await;
    let found = look().await;
    assert_eq!((found.pending, found.unread), (0, 1));
    assert!((before - 3_000..=now_ms().await - 3_000).contains(&found.oldest_entry_ms));
}

#[tokio::test]
async fn a_backlog_is_that_of_all_known_lanes() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let backlog = Backlog::new(app.app.stores.redis.clone(), app.keys().clone(), 2, 5);
    let look = async || backlog.look().bounded().await.expect("Redis answers");
    let lanes: Vec<Lane> = Lane::all(3).collect();
    let claim = ["coupon", "1024", "user", "1", "order", "1"];
    assert_eq!((look().await, backlog.has_room()), (0, true));
    for (of, expected) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        app.append(lanes[of], &claim).await;
        assert_eq!((look().await, backlog.orders()), (expected, expected), "lane {of}");
    }
    backlog.learn_lanes(3);
    assert_eq!(look().await, 4);
    app.append(lanes[2], &claim).await;
    assert_eq!((look().await, backlog.has_room(), backlog.orders_max()), (5, false, 5));
    for lane in &lanes {
        let log = log_of(&app, *lane);
        log.ensure_group().bounded().await.expect("Redis answers");
        let entries = log.read_new(9, Duration::ZERO).await.expect("Redis answers");
        log.acknowledge(1, &done(&entries), None).await.expect("Redis answers");
    }
    assert_eq!((look().await, backlog.has_room()), (0, true));
    let states = backlog.states().await.expect("Redis answers");
    assert_eq!((states.len(), states[1].0, states[1].1.written), (3, lanes[1], 1));
}
