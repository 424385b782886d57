//! `lane`: waits for the receipts of processes, and for a log that is written.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use flash_sale::app::App;
use flash_sale::base::limits::{RECEIPT_WAIT_MAX, RECOVERY_LOG_STILL};
use flash_sale::sale::ids::CouponId;

use crate::faults::recovery::{keep, sell};
use crate::recovery::steps::{
    READS_LANES, close_lanes, damage, fate, no_process_keeps, outcomes, sold_to_two,
};
use crate::support::lines::Lines;
use crate::support::played::{Play, Played, Still, soon};
use crate::support::{TestApp, bounded, eventually, lane, later};

/// One process lives and hands nothing in, one has handed in and dropped five receipts, and one has died.
#[tokio::test]
async fn receipts_of_processes_that_are_absent_are_told_with_those_that_were_dropped() {
    let app = TestApp::start().await;
    let sales = sold_to_two::<1>(&app).await;
    app.execute(
        "INSERT INTO processes (process, beat_at) VALUES ('silent-1', now() + interval '1 hour'),
             ('done-1', now() + interval '1 hour'), ('dead-1', now() - interval '2 days');
         INSERT INTO receipt_hand_ins (process, lane, epoch, dropped) VALUES ('done-1', 0, 99, 5)",
    )
    .await;
    close_lanes(&app).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let asked = || lines.count("SELECT process FROM processes");
    let clock = Still::begin();
    let waits = async {
        soon("the absent processes are asked for", || asked() >= 1).await;
        app.some_replies().await;
        assert_eq!(asked(), 1, "with pauses");
        clock.advance(u64::try_from(RECEIPT_WAIT_MAX.as_millis()).expect("it is short")).await;
        drop(clock);
    };
    tokio::join!(keep(&app), waits);
    assert_eq!(asked(), 2);
    assert_eq!(fate(&app, sales[0]).await, "kept 7 [1, 2]");
    let numbers = "absent, absent_processes, receipts_dropped";
    assert_eq!(outcomes(&app, numbers).await, ["1 {silent-1} 5"]);
    assert_eq!(lines.count("absent=\"silent-1\" dropped=5"), 1);
    let processes = "SELECT process FROM processes WHERE process IN ('dead-1', 'done-1', 'silent-1') ORDER BY 1";
    assert_eq!(app.texts(processes).await, ["done-1", "silent-1"]);
}

/// The clock stands still, so that no wait would end.
#[tokio::test]
async fn receipts_are_not_waited_for_where_no_process_is_missing() {
    let app = TestApp::start().await;
    let sales = sold_to_two::<1>(&app).await;
    close_lanes(&app).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let clock = Still::begin();
    keep(&app).await;
    drop(clock);
    // The process knows at once that a lane is closed under a new epoch, and that it is open, whatever the others take.
    assert_eq!(lines.count(READS_LANES), 4);
    assert_eq!(fate(&app, sales[0]).await, "kept 7 [1, 2]");
}

/// A closed lane whose sale is damaged, with an entry in its log that no worker writes; and another process to recover it,
/// whose looks at the log are heard.
async fn with_unwritten_entry() -> (TestApp, CouponId, Played, Arc<App>) {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    sell(&app, sale, 3..=3).await;
    damage(&app, sale).await;
    close_lanes(&app).await;
    let log = app.log(lane());
    let played = Played::before(app.redis_url(), move |command| match command {
        [name, part, key] if name == "XINFO" && part == "STREAM" && *key == log => Play::Heard,
        _ => Play::Real,
    })
    .await;
    let other = played.process(&app).await;
    no_process_keeps(&app).await;
    played.take_asked();
    (app, sale, played, other)
}

/// The clock stands still, so that no pause ends.
#[tokio::test]
async fn wait_for_log_pauses_between_its_looks() {
    let (app, _, played, other) = with_unwritten_entry().await;
    app.expect_disagreements();
    let clock = Still::begin();
    let looks = async {
        soon("the log is looked at", || !played.asked().is_empty()).await;
        app.some_replies().await;
        played.asked().len()
    };
    tokio::select! {
        ended = other.keeper.pass() => panic!("the log isn't written: {ended:?}"),
        looks = looks => assert_eq!(looks, 1),
    }
    drop(clock);
}

/// A worker may be at it for a while.
#[tokio::test]
async fn wait_for_log_gives_up_a_log_in_which_nothing_moves() {
    let (app, sale, played, other) = with_unwritten_entry().await;
    let lines = Lines::heard();
    let began = Instant::now();
    let mut pass = pin!(other.keeper.pass());
    let ended = tokio::select! {
        ended = &mut pass => {
            // On a machine this slow the time is over.
            assert!(began.elapsed() >= RECOVERY_LOG_STILL, "a worker may be at it: {ended:?}");
            ended
        }
        () = eventually("the log is looked at again", async || played.asked().len() >= 2) => {
            later(RECOVERY_LOG_STILL).await;
            bounded("the end of the pass", pass).await
        }
    };
    assert!(ended.is_err());
    assert_eq!(lines.count("the lane can't be recovered before its order log is written"), 1);
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(fate(&app, sale).await, "built 6 [1, 2, 3]");
}
