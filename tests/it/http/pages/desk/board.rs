//! The producer of the board: its first event, one a second behind it, the seconds before, and its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::sale::board::presence::{ClaimCounts, Second};
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::{Desk, line, pass, redis_settles, service, settle, still, there, told};
use crate::support::{PATIENCE, TestApp, bounded};

/// Time between two questions of the producer whether a first look has ended.
const PAUSE: Duration = Duration::from_millis(25);

#[tokio::test]
async fn the_first_board_is_sent_once_both_stores_are_looked_at_and_then_one_each_second() {
    let desk = Desk::over(service("1").await).await;
    let mut watching = desk.board.watch().expect("there is room");
    pass(Duration::ZERO).await;
    settle(&desk.app).await;
    assert!(told(&mut watching).is_none(), "Redis isn't looked at yet");
    pass(PAUSE).await;
    settle(&desk.app).await;
    assert!(told(&mut watching).is_none(), "Redis was asked about the sales that Postgres knows");
    pass(PAUSE).await;
    let (past, board) = told(&mut watching).expect("both looks have ended");
    assert_eq!((past, there(&board)), (json!({"points": []}), [true, true]), "{board}");
    assert_eq!(board["now"], desk.at(0));
    for store in board["stores"].as_array().expect("a list") {
        assert_eq!((&store["at"], &store["is_fault"]), (&json!(desk.at(0)), &json!(false)));
        assert_eq!(store["ping_ms"], 0.0, "no time has passed");
    }
    // One connection is held by the test, and the other one is idle.
    assert_eq!(board["stores"][1]["detail"], "1 / 2");
    for none in ["sales", "runs", "findings", "waits", "waiting", "recoveries"] {
        assert_eq!(board[none], json!([]), "{none}");
    }
    assert_eq!(board["backlog"], 0);
    // Redis is looked at each second, and Postgres each other one.
    for (second, redis_at, postgres_at) in [(1, 0, 0), (2, 1, 0), (3, 2, 2), (4, 3, 2), (5, 4, 4)] {
        // In between, no store is asked, and nothing is sent.
        let before = desk.clock.now();
        desk.clock.set(before + chrono::TimeDelta::milliseconds(400));
        settle(&desk.app).await;
        assert!(told(&mut watching).is_none(), "before second {second}");
        desk.clock.set(before);
        let board = desk.next(&mut watching).await;
        assert_eq!(board["now"], desk.at(second));
        let at = [0, 1].map(|store| board["stores"][store]["at"].as_i64().expect("a time"));
        assert_eq!(at, [desk.at(redis_at), desk.at(postgres_at)], "in second {second}");
    }
}

#[tokio::test]
async fn a_later_watcher_is_told_the_newest_board_at_once_and_by_the_same_producer() {
    let desk = Desk::over(service("1").await).await;
    assert!(!desk.board.is_watched());
    let mut first = desk.board.watch().expect("there is room");
    assert!(desk.board.is_watched());
    desk.first_looks().await;
    let (_, board) = first.next().now_or_never().flatten().expect("the first board");
    let mut second = desk.board.watch().expect("there is room");
    let (_, same) = second.next().now_or_never().flatten().expect("at once");
    assert!(Arc::ptr_eq(&board, &same));
    assert!(second.next().now_or_never().is_none(), "each board is told once");
    // There are three places, and a watcher that has gone leaves its own.
    let third = desk.board.watch();
    assert!(third.is_some() && desk.board.watch().is_none());
    drop(third);
    assert!(desk.board.watch().is_some());
    // As long as one of them watches.
    drop(first);
    for _ in 0..3 {
        desk.next(&mut second).await;
    }
    drop(second);
    assert!(desk.board.is_watched(), "until its next second");
    desk.tick().await;
    assert!(!desk.board.is_watched(), "a watcher asks for no longer than it watches");
}

#[tokio::test]
async fn a_stop_ends_the_producer_and_tells_its_watchers() {
    let desk = Desk::over(service("1").await).await;
    let (mut watching, _) = desk.opened().await;
    assert!(still(desk.shutdown.stop(PATIENCE)).await, "a task hangs");
    assert!(!desk.board.is_watched());
    assert!(watching.next().now_or_never().expect("at once").is_none());
    let mut asked = pin!(desk.board.now());
    assert!(still(asked.as_mut()).await.is_none(), "there will be none");
}

/// A client without a place asks each 10 to 20 s: it is told rates, which need two looks, and they go on in between.
#[tokio::test]
async fn a_client_that_asks_is_told_the_second_board_and_keeps_the_looks_going() {
    let desk = Desk::over(service("1").await).await;
    let mut asked = Box::pin(desk.board.now());
    assert!(asked.as_mut().now_or_never().is_none());
    desk.first_looks().await;
    assert!(asked.as_mut().now_or_never().is_none(), "the first board knows no rates");
    desk.tick().await;
    let board = asked.as_mut().now_or_never().flatten().expect("the second board");
    assert_eq!(board.now, desk.at(1));
    drop(asked);
    // So 1 s after the question. A later one is answered at once, and counts from its own time.
    assert_eq!(limits::BOARD_ASKED_MAX, Duration::from_secs(25));
    for again in [true, false] {
        pass(Duration::from_secs(20)).await;
        settle(&desk.app).await;
        desk.tick().await;
        assert!(desk.board.is_watched(), "the next question may come");
        if again {
            assert!(desk.board.now().now_or_never().flatten().is_some());
            desk.tick().await;
        }
    }
    for is_watched in [true, true, false] {
        desk.tick().await;
        assert_eq!(desk.board.is_watched(), is_watched);
    }
}

/// Seconds at which a process counted, as Redis keeps them.
async fn keep_past(desk: &Desk, name: &str, seconds: i64) {
    let (keys, at) = (desk.app.keys(), desk.began.timestamp_millis().to_string());
    let second = |number: i64| {
        let at_ms = 1_000 * number;
        json!(Second(at_ms, ClaimCounts::default(), number.unsigned_abs(), 0)).to_string()
    };
    let seconds: Vec<String> = (0..=seconds).map(second).collect();
    let past = keys.process_past(name);
    let words: Vec<&str> =
        ["RPUSH", &past].into_iter().chain(seconds.iter().map(String::as_str)).collect();
    still(async {
        let _: i64 = desk.app.redis(&words).await;
        let _: i64 = desk.app.redis(&["ZADD", &keys.processes(), &at, name]).await;
    })
    .await;
}

fn times(past: &Value) -> Vec<i64> {
    let points = past["points"].as_array().unwrap_or_else(|| panic!("{past}")).iter();
    points.map(|point| point["t_ms"].as_i64().expect("a time")).collect()
}

#[tokio::test]
async fn the_seconds_before_a_board_go_on_with_each_and_are_three_hundred() {
    const MAX: i64 = 300;
    assert_eq!(limits::BOARD_PAST_POINTS, 300);
    for known in [0, MAX + 2] {
        let desk = Desk::over(service("1").await).await;
        if known > 0 {
            keep_past(&desk, "p", known).await;
        }
        let mut watching = desk.board.watch().expect("there is room");
        desk.first_looks().await;
        let mut expected: Vec<i64> = (1..=known).map(|number| 1_000 * number).collect();
        for second in 0..3 {
            let (past, board) = told(&mut watching).expect("a board");
            expected.drain(..expected.len().saturating_sub(limits::BOARD_PAST_POINTS));
            assert_eq!(times(&past), expected, "in second {second}");
            assert_eq!(board["now"], desk.at(second));
            expected.push(desk.at(second));
            desk.tick().await;
        }
        // However late the producer is, it goes on with one board, and sends none for the seconds that it has missed.
        let (before, _) = told(&mut watching).expect("a board");
        pass(Duration::from_secs(10)).await;
        settle(&desk.app).await;
        desk.tick().await;
        let (past, _) = told(&mut watching).expect("a board");
        let missed = times(&past).len() - times(&before).len();
        let last = times(&past).iter().filter(|at| **at >= desk.at(0)).count();
        assert_eq!((missed, last), if known > 0 { (0, 5) } else { (2, 5) });
        tokio::time::resume();
    }
}

/// Postgres is busy: the board comes without its facts, and asks Redis about no sale meanwhile.
#[tokio::test]
async fn a_store_that_hangs_holds_up_the_first_board_for_half_a_second() {
    let app = service("1").await;
    let coupon = app.create_flash(5).await;
    let desk = Desk::over(app).await;
    assert_eq!(limits::BOARD_FIRST_LOOK_MAX, Duration::from_millis(500));
    let taken = still(desk.app.app.stores.pool.acquire()).await.expect("Postgres answers");
    let mut watching = desk.board.watch().expect("there is room");
    pass(Duration::ZERO).await;
    redis_settles(&desk.app).await;
    // By 260 ms, Redis is looked at all the same.
    for ms in [240, 18, 200] {
        pass(Duration::from_millis(ms)).await;
        redis_settles(&desk.app).await;
        assert!(told(&mut watching).is_none(), "Postgres may answer yet");
    }
    pass(Duration::from_millis(40)).await;
    let (past, board) = told(&mut watching).expect("it waits no longer");
    assert_eq!((past, there(&board)), (json!({"points": []}), [true, false]));
    let postgres = &board["stores"][1];
    assert_eq!((&postgres["at"], &postgres["ping_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(board["waits"], Value::Null);
    assert_eq!((&board["sales"], &board["backlog"]), (&json!([]), &json!(0)));
    drop(taken);
    settle(&desk.app).await;
    desk.tick().await;
    let board = desk.next(&mut watching).await;
    assert_eq!((there(&board), &line(&board, coupon)["left"]), ([true, true], &json!(5)));
}

/// While time passes by itself.
#[tokio::test]
async fn the_time_that_each_store_takes_to_answer_is_told_in_milliseconds() {
    let app = TestApp::start().await;
    let mut watching = app.app.board.watch().expect("there is room");
    let began = std::time::Instant::now();
    let board = bounded("both stores are looked at", async {
        loop {
            let (_, board) = watching.next().await.expect("the producer goes on");
            let board = json!(*board);
            if there(&board) == [true, true] {
                return board;
            }
        }
    });
    let board = board.await;
    for store in board["stores"].as_array().expect("a list") {
        // No question to another process takes less than some microseconds.
        let ping_ms = store["ping_ms"].as_f64().expect("a time");
        let most = began.elapsed().as_secs_f64() * 1_000.0;
        assert!(ping_ms > 0.005 && ping_ms <= most, "{store}");
    }
}
