//! Reading a log: its state and its group, newer entries, what waits in it, and what a lost entry held.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::keys::{LogId, LogLayout};
use flash_sale::sale::log::backlog::Backlog;
use flash_sale::sale::log::layout::begin_calls;
use flash_sale::sale::log::numbers::{LogNumbers, Oldest};
use flash_sale::sale::log::{
    self, EntryId, GroupState, LogState, OrderLog, Progress, groups, newer, progress,
};
use private_servers::testing::RedisServer;

use crate::support::played::{Play, Played};
use crate::support::servers::Addresses;
use crate::support::{
    Bounded, TestApp, bounded, calls, command_calls, done, lane, patience, shared,
};

fn id(ms: u64, sequence: u64) -> EntryId {
    EntryId { ms, sequence }
}

async fn app() -> TestApp {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    app
}

fn log_of(app: &TestApp, log: LogId, consumer: &str) -> OrderLog {
    OrderLog::new(app.app.stores.redis.clone(), app.keys(), log, consumer.to_owned())
}

/// Appends a call with claims on orders of these numbers, as this entry.
async fn append(app: &TestApp, entry: &str, first: u64, claims: &str) {
    let first = first.to_string();
    let fields = ["coupon", "1024", "first", &first, "claims", claims];
    app.append_as(lane(), entry, &fields).await;
}

#[tokio::test]
async fn progress_is_told_up_to_the_first_entry_that_is_not_acknowledged() {
    let app = app().await;
    let (redis, key) = (&app.app.stores.redis, app.log(lane()));
    let found = async || progress(redis, &key).await.expect("Redis answers");
    let state = async || groups(redis, std::slice::from_ref(&key)).await.expect("Redis answers")[0];
    assert_eq!((found().await, state().await), (None, None));
    for entry in ["5-1", "5-2", "7-0"] {
        app.append_as(lane(), entry, &["x", "y"]).await;
    }
    let last = id(7, 0);
    assert_eq!(found().await, Some(Progress { last, acknowledged: EntryId::default() }));
    assert_eq!(state().await, None);
    let _: String = app.redis(&["XGROUP", "CREATE", &key, "relay", "$"]).await;
    assert_eq!((found().await.map(|it| it.acknowledged), state().await), (Some(id(0, 0)), None));
    let ours = log_of(&app, calls(lane()), "a");
    ours.ensure_group().bounded().await.expect("Redis answers");
    let entries = ours.read_new(2).await.expect("Redis answers");
    for (acknowledged, pending) in [(id(5, 0), 2), (id(5, 1), 1), (id(5, 2), 0)] {
        assert_eq!(found().await, Some(Progress { last, acknowledged }));
        assert_eq!(state().await, Some(GroupState { pending, delivered: id(5, 2) }));
        if let Some(entry) = entries.get(2 - pending as usize) {
            ours.acknowledge(&done(std::slice::from_ref(entry)), None)
                .await
                .expect("Redis answers");
        }
    }
    let _: String = app.redis(&["SET", &key, "no log"]).await;
    assert!(progress(redis, &key).await.is_err());
    assert!(groups(redis, &[key]).await.is_err());
}

#[tokio::test]
async fn the_groups_of_many_logs_are_told_in_their_order() {
    let app = app().await;
    let key = |n: usize| format!("{}:{n}", app.log(lane()));
    let keys: Vec<String> = (0..300).map(key).collect();
    for n in [0, 127, 128, 299] {
        let _: String =
            app.redis(&["XGROUP", "CREATE", &keys[n], "order-writers", "5-1", "MKSTREAM"]).await;
    }
    let found = groups(&app.app.stores.redis, &keys).await.expect("Redis answers");
    let there: Vec<usize> = (0..300).filter(|n| found[*n].is_some()).collect();
    assert_eq!((found.len(), there), (300, vec![0, 127, 128, 299]));
    assert_eq!(found[128], Some(GroupState { pending: 0, delivered: id(5, 1) }));
    assert_eq!(groups(&app.app.stores.redis, &[]).await.expect("nothing is asked"), []);
}

#[tokio::test]
async fn logs_with_newer_entries_are_found_at_once_or_within_the_patience() {
    let app = app().await;
    let redis = &app.app.stores.redis;
    let [one, two] = ["a", "b"].map(|name| format!("{}:{name}", app.log(lane())));
    let _: String = app.redis(&["XADD", &one, "5-1", "x", "y"]).await;
    let _: String = app.redis(&["XADD", &one, "5-2", "x", "y"]).await;
    let found = async |logs: &[(&String, EntryId)], patience| {
        let logs: Vec<(String, EntryId)> =
            logs.iter().map(|(key, id)| ((*key).clone(), *id)).collect();
        newer(redis, &logs, patience).await
    };
    let (at_once, short) = (Duration::ZERO, Duration::from_millis(20));
    for (logs, names) in [
        (&[][..], &[][..]),
        (&[(&one, id(5, 2))], &[]),
        (&[(&one, id(5, 1))], &[&one]),
        (&[(&one, id(0, 0)), (&two, id(0, 0))], &[&one]),
        (&[(&two, id(0, 0)), (&one, id(5, 2))], &[]),
    ] {
        for patience in [at_once, short] {
            let keys = found(logs, patience).await.expect("Redis answers");
            assert_eq!(keys.iter().collect::<Vec<_>>(), names, "{logs:?}");
        }
    }
    let both = [(&one, id(5, 2)), (&two, id(0, 0))];
    let waits = found(&both, Duration::from_secs(5));
    let mut other = crate::support::servers::connection(app.redis_url()).await;
    let appends = async {
        tokio::task::yield_now().await;
        let mut command = redis::cmd("XADD");
        command.arg(&two).arg(&["*", "x", "y"]);
        command.query_async::<String>(&mut other).await.expect("Redis answers");
    };
    let (keys, ()) = bounded("the entry is found", async { tokio::join!(waits, appends) }).await;
    assert_eq!(keys.expect("Redis answers"), [&*two]);
    let _: String = app.redis(&["SET", &two, "no log"]).await;
    assert!(found(&[(&one, id(0, 0)), (&two, id(0, 0))], at_once).await.is_err());
}

/// However many wait, and whatever they hold.
#[tokio::test]
async fn newer_reads_at_most_one_entry_of_each_log() {
    let app = app().await;
    let played = Played::before(app.redis_url(), |command| match &*command[0] {
        "XREAD" => Play::Reply("_\r\n".to_owned()),
        _ => Play::Real,
    })
    .await;
    let (redis, logs) = (played.redis(patience()), [("a".to_owned(), id(5, 1))]);
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        let found = bounded("the answer", newer(&redis, &logs, wait)).await;
        assert_eq!(found.expect("it is played"), [""; 0]);
    }
    let at_once = ["XREAD", "COUNT", "1", "STREAMS", "a", "5-1"];
    let waits = ["XREAD", "COUNT", "1", "BLOCK", "20", "STREAMS", "a", "5-1"];
    assert_eq!(played.asked(), [&at_once[..], &waits]);
}

#[tokio::test]
async fn a_lost_entry_is_told_by_the_numbers_of_its_neighbours() {
    let app = app().await;
    let log = log_of(&app, calls(lane()), "a");
    let told = async |entry| log.numbers_lost(entry).await.expect("Redis answers");
    let unknown = "its neighbours don't tell its orders";
    assert_eq!(told(id(5, 0)).await, unknown, "nothing was promised");
    let of_lane = app.keys().lane(lane());
    let _: i64 = app.redis(&["HSET", &of_lane, "promised", "20"]).await;
    assert_eq!(told(id(5, 0)).await, "its orders are among the numbers below 21 of the lane");
    append(&app, "5-0", 4, "1 1 2 2").await;
    append(&app, "7-0", 9, "3 3").await;
    append(&app, "8-0", 10, "4 4").await;
    app.append_as(lane(), "9-0", &["junk", "junk"]).await;
    for (entry, words) in [
        (id(4, 0), "its orders are among the numbers below 4 of the lane"),
        (id(6, 0), "its orders are among the numbers 6 to 8 of the lane"),
        (id(7, 5), unknown),
        (id(8, 5), "its orders are among the numbers 11 to 20 of the lane"),
        (id(9, 5), "its orders are among the numbers below 21 of the lane"),
    ] {
        assert_eq!(told(entry).await, words, "{entry}");
    }
    let _: i64 = app.redis(&["HSET", &of_lane, "promised", "10"]).await;
    assert_eq!(told(id(8, 5)).await, unknown, "all are there");
}

#[tokio::test]
async fn orders_that_wait_are_counted_by_the_lane_or_by_entries_and_the_oldest_has_its_age() {
    let app = app().await;
    let (redis, keys) = (&app.app.stores.redis, app.keys());
    let now_ms = async || {
        let (seconds, micros): (u64, u64) = app.redis(&["TIME"]).await;
        seconds * 1_000 + micros / 1_000
    };
    let older = LogId { lane: lane(), layout: LogLayout::Claims };
    for layout in [calls(lane()), older] {
        let (log, oldest) = (log_of(&app, layout, "a"), Oldest::default());
        let look = async || {
            let state = LogState::of(redis, keys, layout).await.expect("Redis answers");
            LogNumbers::look(redis, keys, layout, &state, &oldest).await.expect("Redis answers")
        };
        let none = look().await;
        assert_eq!((none.pending, none.unread, none.oldest_entry_ms), (0, 0, 0));
        for n in 1..=3 {
            let (entry, number) = (format!("{n}000-0"), n.to_string());
            match layout.layout {
                LogLayout::Calls => {
                    let user = ["coupon", "1024", "user", &number, "order", &number];
                    app.append_as(lane(), &entry, &user).await;
                }
                LogLayout::Claims => {
                    let key = keys.log(layout);
                    let _: String = app.redis(&["XADD", &key, &entry, "coupon", "1024"]).await;
                }
            }
        }
        log.ensure_group().bounded().await.expect("Redis answers");
        for (read, pending, unread, oldest_ms) in
            [(0, 0, 3, 1_000), (1, 1, 2, 1_000), (2, 2, 1, 1_000)]
        {
            if read > 0 {
                assert_eq!(log.read_new(1).await.expect("Redis answers").len(), 1);
            }
            let before = now_ms().await;
            let found = look().await;
            let ages = before - oldest_ms..=now_ms().await - oldest_ms;
            assert_eq!((found.pending, found.unread), (pending, unread), "{layout:?}");
            assert!(ages.contains(&found.oldest_entry_ms), "{found:?} {ages:?}");
        }
        let held = log.read_pending(9, EntryId::default()).await.expect("Redis answers");
        log.acknowledge(&done(&held), None).await.expect("Redis answers");
        let before = now_ms().await;
        let found = look().await;
        assert_eq!((found.pending, found.unread), (0, 1), "{layout:?}");
        assert!((before - 3_000..=now_ms().await - 3_000).contains(&found.oldest_entry_ms));
    }
}

#[tokio::test]
async fn entries_of_other_consumers_are_told_with_the_first_of_each() {
    let app = app().await;
    let [ours, dead, idle] = ["ours", "dead", "idle"].map(|name| log_of(&app, calls(lane()), name));
    assert!(ours.ensure_group().bounded().await.expect("Redis answers").is_some());
    assert_eq!(ours.held_by_others().await.expect("Redis answers"), []);
    for entry in ["5-1", "5-2", "5-3", "5-4"] {
        app.append_as(lane(), entry, &["x", "y"]).await;
    }
    for (log, count) in [(&ours, 1), (&dead, 2)] {
        assert_eq!(log.read_new(count).await.expect("Redis answers").len(), count);
    }
    assert_eq!(idle.read_pending(9, EntryId::default()).await.expect("Redis answers"), []);
    let held = |deliveries| log::Held {
        consumer: "dead".to_owned(),
        entries: 2,
        first: "5-2".to_owned(),
        deliveries,
    };
    assert_eq!(ours.held_by_others().await.expect("Redis answers"), [held(1)]);
    dead.read_pending(9, EntryId::default()).await.expect("Redis answers");
    assert_eq!(ours.held_by_others().await.expect("Redis answers"), [held(2)], "it has moved");
    assert_eq!(ours.consumer(), "ours");
    assert_eq!((ours.key(), ours.lane()), (app.log(lane()).as_str(), lane()));
}

#[tokio::test]
async fn a_backlog_is_that_of_all_known_lanes_and_an_unchanged_log_is_not_looked_at() {
    let server = RedisServer::start(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    let app = TestApp::on(&at, &["--lanes", "3"], Clock::System).await;
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
        let log = log_of(&app, calls(*lane), "a");
        log.ensure_group().bounded().await.expect("Redis answers");
        let entries = log.read_new(9).await.expect("Redis answers");
        log.acknowledge(&done(&entries), None).await.expect("Redis answers");
    }
    assert_eq!((look().await, backlog.has_room()), (0, true));
    let states = backlog.states().await.expect("Redis answers");
    assert_eq!((states.len(), states[1].0, states[1].1.written), (6, calls(lanes[0]), 2));
    let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(look().await, 0);
    assert_eq!(command_calls(&app, "xinfo|stream").await, 0, "nothing has changed");
    app.append(lanes[1], &claim).await;
    assert_eq!(look().await, 1);
    assert_eq!(command_calls(&app, "xinfo|stream").await, 1, "one log has");
}

#[tokio::test]
async fn the_log_of_calls_is_begun_once_in_each_lane() {
    let app = app().await;
    let begin = async |lanes| {
        let (redis, keys) = (&app.app.stores.redis, app.keys());
        begin_calls(redis, keys, Lane::all(lanes)).await.expect("Redis answers")
    };
    assert_eq!([begin(1).await, begin(2).await, begin(2).await], [1, 1, 0]);
    let promised: String = app.redis(&["HGET", &app.keys().lane(lane()), "promised"]).await;
    assert_eq!(promised, "0");
}
