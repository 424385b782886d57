//! Recoveries that take long: the keeper stays the keeper, and looks at the other lanes. Of many lanes, some are recovered
//! at a time.

use std::sync::Arc;

use flash_sale::app::App;
use flash_sale::base::limits::{BEAT_PERIOD, BEAT_WITNESSES, KEEPER_TIME, RECOVERIES_AT_A_TIME};
use flash_sale::sale::ids::Lane;
use tokio::task::{AbortHandle, JoinSet};

use crate::recovery::steps::{Pass, close_lanes, no_process_keeps, sold_to_two};
use crate::support::lines::{Lines, number};
use crate::support::played::{Play, Played, Still, soon, text};
use crate::support::{Bounded, TestApp, bounded, later};

/// Lane 0 is closed, and its recovery waits for the receipts of a process that hands none in.
const WAITED_FOR: &str = "
    UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane = 0;
    INSERT INTO processes (process, beat_at) VALUES ('silent-1', now() + interval '1 hour')";

/// Another process has closed two lanes, and has opened the one that is recovered.
const CHANGED: &str = "
    UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = 2 WHERE lane IN (2, 3);
    UPDATE lanes SET state = 'open' WHERE lane = 0";

/// One of them is recovered, and one may have its turn.
const LANES_AT_REST: i32 = BEAT_WITNESSES as i32 + 4;

const KEEPS: &str = "UPDATE lane_keeper SET process = $1";
const ASKS_FOR_RECEIPTS: &str = "SELECT process FROM processes";
const NOTES_BEATS: &str = "UPDATE lane_beats SET beat = confirmed.beat";

/// A pass of this process.
fn pass_of(process: Arc<App>) -> (Pass, AbortHandle) {
    let mut pass = JoinSet::new();
    let handle = pass.spawn(async move { process.keeper.pass().bounded().await });
    (pass, handle)
}

/// The time of one pause goes by. Timers wait for a whole millisecond.
async fn pause_ends(clock: &Still) {
    let ms = u64::try_from((KEEPER_TIME / 3).as_millis()).expect("a small number");
    clock.advance(ms + 1).await;
}

/// Six lanes: one is recovered for long, one loses its data, two are closed, one holds no sale, and one is as it was.
#[tokio::test]
async fn lanes_that_are_not_recovered_are_looked_at_while_a_recovery_takes_long() {
    let app = TestApp::with_lanes(6).await;
    app.expect_disagreements();
    let sales = sold_to_two::<6>(&app).await;
    app.execute("UPDATE flash_sales SET archived_at = now() WHERE (coupon_id & 1023) = 4").await;
    app.execute(WAITED_FOR).await;
    let other = app.another_instance().await;
    no_process_keeps(&app).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let clock = Still::begin();
    let (mut pass, _) = pass_of(other.clone());
    soon("the recovery waits", || lines.count(ASKS_FOR_RECEIPTS) > 0).await;
    assert_eq!((lines.count(NOTES_BEATS), lines.count(KEEPS)), (1, 1));
    assert_eq!(number(&other, "flash_sale_lanes_recovering"), 1.0);

    let _: i64 = app.redis(&["DEL", &app.keys().lane(sales[1].lane())]).await;
    app.execute(CHANGED).await;
    pause_ends(&clock).await;
    soon("the other lanes have been looked at", || lines.count(NOTES_BEATS) > 1).await;
    let closed = lines.with("a lane is closed until Redis has been compared with Postgres");
    let told = "lane=1 epoch=2 reason=\"Redis has lost its data\"";
    assert!(closed.len() == 1 && closed[0].contains(told), "{closed:?}");
    // Beats of lanes without a sale cost commands.
    let beats = "SELECT beat FROM lane_beats WHERE lane IN (4, 5) ORDER BY lane";
    assert_eq!(app.numbers(beats).await, [2, 3]);
    assert_eq!(number(&other, "flash_sale_lanes_recovering"), 2.0);
    assert_eq!((lines.count(NOTES_BEATS), lines.count(KEEPS)), (2, 2), "once in a pause");

    app.execute("DELETE FROM processes").await;
    drop(clock);
    let ended = bounded("the end of the pass", pass.join_next()).await;
    ended.expect("it was begun").expect("it ends").expect("both stores answer");
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 6);
}

/// More lanes than are compared as witnesses. All have been at rest since the looks before.
#[tokio::test]
async fn judge_notes_lanes_at_rest_and_look_at_others_leaves_them_out_as_each_look_does() {
    let app = TestApp::with_lanes(LANES_AT_REST).await;
    app.load_sales_of_lanes(LANES_AT_REST.try_into().expect("a small number")).await;
    for _ in 0..3 {
        later(BEAT_PERIOD).await;
        app.app.keeper.tick().bounded().await;
    }
    let beats =
        async || app.numbers("SELECT beat FROM lane_beats WHERE lane > 0 ORDER BY lane").await;
    let some_rest =
        |before: &[i64], now: &[i64]| before.iter().zip(now).any(|(before, now)| before == now);
    let before = beats().await;
    app.execute(WAITED_FOR).await;
    later(BEAT_PERIOD).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let clock = Still::begin();
    let (keeper, mut tick) = (app.app.clone(), JoinSet::new());
    tick.spawn(async move { keeper.keeper.tick().bounded().await });
    soon("the recovery waits", || lines.count(ASKS_FOR_RECEIPTS) > 0).await;
    let of_look = beats().await;
    assert!(some_rest(&before, &of_look), "{before:?} {of_look:?}");
    pause_ends(&clock).await;
    soon("the other lanes have been looked at", || lines.count(NOTES_BEATS) > 1).await;
    let of_others = beats().await;
    assert!(some_rest(&of_look, &of_others), "{of_look:?} {of_others:?}");

    app.execute("DELETE FROM processes").await;
    drop(clock);
    bounded("the end of the tick", tick.join_next()).await.expect("it was begun").expect("it ends");
    app.recover().await;
}

/// Postgres refuses to note the beat of the other lane.
#[tokio::test]
async fn a_pass_ends_with_a_look_at_other_lanes_that_fails() {
    let app = TestApp::with_lanes(2).await;
    sold_to_two::<2>(&app).await;
    app.execute(WAITED_FOR).await;
    let other = app.another_instance().await;
    no_process_keeps(&app).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let clock = Still::begin();
    let (mut pass, handle) = pass_of(other);
    soon("the recovery waits", || lines.count(ASKS_FOR_RECEIPTS) > 0).await;
    app.refuse("UPDATE", "lane_beats", "true", "XX000").await;
    assert!(!handle.is_finished());
    pause_ends(&clock).await;
    soon("the pass ends", || handle.is_finished()).await;
    let ended = pass.join_next().await.expect("it was begun").expect("it ends");
    assert!(ended.is_err_and(|failure| failure.to_string().contains("refused")));
    assert_eq!(lines.count(KEEPS), 2);

    drop(clock);
    app.accept("lane_beats").await;
    app.execute("DELETE FROM processes").await;
    no_process_keeps(&app).await;
    app.recover().await;
}

/// Each recovery begins with a look at the epoch that Redis has of its lane.
#[tokio::test]
async fn only_some_of_many_closed_lanes_are_recovered_at_a_time() {
    let count = RECOVERIES_AT_A_TIME + 2;
    let app = TestApp::with_lanes(count.try_into().expect("a small number")).await;
    let lanes: Vec<String> = Lane::all(app.lanes()).map(|lane| app.keys().lane(lane)).collect();
    let played = Played::before(app.redis_url(), move |command| match command {
        [name, key, field] if name == "HGET" && field == "epoch" && lanes.contains(key) => {
            Play::Later
        }
        [name, ..] if name == "ECHO" => Play::Heard,
        _ => Play::Real,
    })
    .await;
    let other = played.process(&app).await;
    close_lanes(&app).await;
    no_process_keeps(&app).await;
    let asked = |name: &str| played.asked().iter().filter(|command| command[0] == name).count();
    let clock = Still::begin();
    let (mut pass, _) = pass_of(other.clone());
    soon("some recoveries begin", || asked("HGET") >= RECOVERIES_AT_A_TIME).await;
    // All commands before this one have been sent then.
    let mut behind = JoinSet::new();
    behind.spawn(async move {
        let mut command = redis::cmd("ECHO");
        other.stores.redis.query::<String>(command.arg("x")).bounded().await
    });
    soon("a command behind those is sent", || asked("ECHO") > 0).await;
    assert_eq!(asked("HGET"), RECOVERIES_AT_A_TIME);
    for _ in 0..count {
        played.answer(text("1"));
    }
    drop(clock);
    let ended = bounded("the end of the pass", pass.join_next()).await;
    ended.expect("it was begun").expect("it ends").expect("both stores answer");
    assert_eq!(asked("HGET"), count);
    let open = app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await;
    assert_eq!(usize::try_from(open), Ok(count));
}
