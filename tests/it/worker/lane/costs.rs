//! Commands that the turns of a lane cost, on a Redis that counts them.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::sale::log::LogState;
use flash_sale::worker;
use flash_sale::worker::watch::LaneWatch;
use private_servers::testing::RedisServer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{app_on, append, due_in, rows, worker_of, worker_with};
use crate::support::{Bounded, TestApp, bounded, command_calls, eventually, lane, patience};

/// Clients of Redis whose last command was this one, each with the seconds since.
async fn clients(app: &TestApp, command: &str) -> Vec<u64> {
    let list: String = app.redis(&["CLIENT", "LIST"]).await;
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned))
    };
    let of_command = |line: &&str| field(line, "cmd=").as_deref() == Some(command);
    let idle = |line: &str| field(line, "idle=").and_then(|seconds| seconds.parse().ok());
    list.lines().filter(of_command).filter_map(idle).collect()
}

#[tokio::test]
async fn a_turn_reads_new_entries_once_and_own_ones_only_when_there_may_be_any() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let mut worker = worker_of(app.app.clone(), (&app.config).into());
    let reads = async || command_calls(&app, "xreadgroup").await;
    // The first turn finds out that the consumer has no entries of its own.
    for (user, expected) in (1..).zip([2, 1, 1]) {
        append(&app, coupon, user..=user).await;
        let before = reads().await;
        let mut due = due_in(Duration::ZERO, Duration::ZERO);
        bounded("the turn", worker.turn(&mut due)).await.expect("both stores answer");
        assert_eq!(reads().await - before, expected, "turn {user}");
    }
    assert_eq!(rows(&app).await, 3);
    // Own entries are read together, and each once.
    append(&app, coupon, 4..=7).await;
    assert_eq!(worker.log().read_new(4).await.expect("Redis answers").len(), 4);
    worker.ensure_group().bounded().await.expect("Redis answers");
    let before = reads().await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 4);
    assert_eq!(reads().await - before, 3, "the own ones, their end, and new ones");
}

#[tokio::test]
async fn no_more_entries_are_read_than_a_batch_takes() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let mut worker = worker_with(&app, |with| with.batch_orders_max = 4).await;
    append(&app, coupon, 1..=12).await;
    assert_eq!(worker.log().read_new(2).await.expect("Redis answers").len(), 2);
    for unread in [8, 4, 0] {
        assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 4);
        assert_eq!(crate::support::process::pending(&app).await, 0, "nothing is held");
        let state = worker.log().state().await.expect("Redis answers");
        assert_eq!(state.unwritten, unread);
    }
}

/// One connection for each of several lanes to read over, whatever the number of lanes.
#[tokio::test]
async fn the_lanes_of_a_process_read_over_eight_connections() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    app.execute("UPDATE settings SET lanes = 20").await;
    app.app.keeper.pass().bounded().await.expect("both stores answer");
    worker::start(&app.app, &app.config);
    let groups = async || {
        let logs: Vec<String> = app.redis(&["KEYS", "*:calls"]).await;
        logs.len()
    };
    eventually("the lanes have groups", async || groups().await == 20).await;
    eventually("each connection has been read over", async || {
        clients(&app, "xreadgroup").await.len() >= limits::LOG_READERS
    })
    .await;
    assert_eq!(clients(&app, "xreadgroup").await.len(), limits::LOG_READERS);
    assert!(app.app.shutdown.stop(patience()).await);
}

/// A lane that looks for itself does so every 10 ms, and no more once the watch looks for it.
#[tokio::test]
async fn a_lane_at_rest_stops_to_look_for_itself_and_a_watch_without_lanes_looks_at_nothing() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    let key = app.log(lane());
    let redis = app.app.stores.redis.another();
    let (watch, stop) = (LaneWatch::new(&redis), CancellationToken::new());
    let state = LogState::default();
    // The watch doesn't look yet.
    let (began, before) = (Instant::now(), command_calls(&app, "xread").await);
    let looked = async || command_calls(&app, "xread").await >= before + 3;
    tokio::select! {
        () = watch.rest(&key, &state) => panic!("there is no entry"),
        () = eventually("the lane looks for itself", looked) => {}
    }
    let looks = command_calls(&app, "xread").await - before;
    let pauses = began.elapsed().as_millis() / limits::WRITE_PAUSE.as_millis();
    assert!(u128::from(looks.unsigned_abs()) <= pauses + 1, "{looks} in {pauses} pauses");

    let is_idle = async || clients(&app, "xread").await.iter().any(|seconds| *seconds >= 1);
    let are_idle = async || clients(&app, "xread").await.iter().all(|seconds| *seconds >= 1);
    let rests = async {
        tokio::select! {
            () = watch.rest(&key, &state) => panic!("there is no entry"),
            () = eventually("the lane looks no more", is_idle) => {}
        }
        eventually("the watch looks no more", are_idle).await;
        stop.cancel();
    };
    bounded("the watch ends", async { tokio::join!(watch.run(&stop), rests) }).await;
}
