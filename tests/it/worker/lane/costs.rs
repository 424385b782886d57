//! Commands that the turns of a lane cost, on a Redis that counts them.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::log::LogState;
use flash_sale::worker;
use flash_sale::worker::watch::LaneWatch;
use private_servers::testing::RedisServer;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{app_on, append, due_in, rows, worker_of, worker_with};
use crate::support::played::Played;
use crate::support::{Bounded, TestApp, bounded, command_calls, eventually, lane, patience};

/// Number of clients of Redis whose last command was this one.
async fn clients(app: &TestApp, command: &str) -> usize {
    let list: String = app.redis(&["CLIENT", "LIST"]).await;
    let word = format!("cmd={command}");
    list.lines().filter(|line| line.split(' ').any(|of| of == word)).count()
}

/// The milliseconds for which each look at logs so far was to wait for an entry; none for a look of a lane by itself.
fn waits(played: &Played) -> Vec<Option<String>> {
    let wait = |look: &Vec<String>| {
        let at = look.iter().position(|word| word == "BLOCK")?;
        look.get(at + 1).cloned()
    };
    played.asked().iter().map(wait).collect()
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
async fn the_lanes_of_a_new_process_read_over_eight_log_readers() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    // One more than there are connections.
    app.execute("UPDATE settings SET lanes = 9").await;
    app.app.keeper.pass().bounded().await.expect("both stores answer");
    for lane in Lane::all(9) {
        app.append(lane, &["x", "y"]).await;
    }
    worker::start(&app.app, &app.config);
    let letters = "SELECT count(*) FROM dead_letters WHERE reason = 'undecodable'";
    eventually("each lane has been read", async || app.number(letters).await == 9).await;
    assert_eq!(clients(&app, "xreadgroup").await, limits::LOG_READERS);
    assert!(app.app.shutdown.stop(patience()).await);
}

/// A lane that looks for itself does so every 10 ms, and no more once the watch looks for it, whose looks block for half of
/// the time in which Redis has to answer.
#[tokio::test]
async fn a_lane_at_rest_stops_to_look_for_itself_and_a_watch_without_lanes_looks_at_nothing() {
    let app = TestApp::start().await;
    let key = app.log(lane());
    let played = Played::hearing(app.redis_url(), "XREAD").await;
    let block = Duration::from_millis(50);
    let watch = LaneWatch::new(&played.redis(2 * block));
    let (stop, state) = (CancellationToken::new(), LogState::default());
    let looks =
        |of_watch: bool| waits(&played).iter().filter(|wait| wait.is_some() == of_watch).count();
    // The watch doesn't look yet.
    let began = Instant::now();
    tokio::select! {
        () = watch.rest(&key, &state) => panic!("there is no entry"),
        () = eventually("the lane looks for itself", async || looks(false) >= 3) => {}
    }
    let pauses = began.elapsed().as_millis() / limits::WRITE_PAUSE.as_millis();
    let own = looks(false);
    assert!(own as u128 <= pauses + 1, "{own} in {pauses} pauses");

    let is_watched = async {
        eventually("the watch looks", async || looks(true) >= 2).await;
        let own = looks(false);
        eventually("the watch looks again", async || looks(true) >= 5).await;
        assert!(looks(false) <= own + 1, "one may have been about to begin");
    };
    let rests = async {
        tokio::select! {
            () = watch.rest(&key, &state) => panic!("there is no entry"),
            () = is_watched => {}
        }
        eventually("the watch looks no more", async || {
            let before = looks(true);
            sleep(4 * block).await;
            looks(true) == before
        })
        .await;
        stop.cancel();
    };
    bounded("the watch ends", async { tokio::join!(watch.run(&stop), rests) }).await;
    assert!(waits(&played).iter().flatten().all(|wait| wait == "50"), "{:?}", waits(&played));
}

/// Without it, each lane would go on looking for itself.
#[tokio::test]
async fn the_watch_starts_with_the_workers_of_a_process() {
    let app = TestApp::start().await;
    let played = Played::hearing(app.redis_url(), "XREAD").await;
    let process = played.process(&app).await;
    worker::start(&process, &app.config);
    eventually("the watch looks", async || waits(&played).iter().any(Option::is_some)).await;
    assert!(process.shutdown.stop(patience()).await);
}
