//! A tick looks if that is due, and tells a failure. A look reads the lanes no more often than it needs to.

use flash_sale::base::limits::BEAT_PERIOD;

use crate::faults::recovery::keep;
use crate::recovery::steps::{READS_LANES, sold_to_two};
use crate::support::lines::Lines;
use crate::support::played::Still;
use crate::support::{Bounded, TestApp};

const FAILED: &str = "the lanes can't be looked after; trying again";

/// The clock of the keeper stands still, so that no time passes between two looks.
#[tokio::test]
async fn tick_looks_once_in_a_period_and_at_once_after_a_suspicion() {
    let app = TestApp::start().await;
    sold_to_two::<1>(&app).await;
    let keeper = &app.app.keeper;
    let beat = async || app.number("SELECT beat FROM lane_beats").await;
    let clock = Still::begin();
    keeper.tick().bounded().await;
    let first = beat().await;
    keeper.tick().bounded().await;
    assert!(!app.app.lanes.take_suspicion(), "it has not looked in vain either");
    assert_eq!(beat().await, first);
    app.app.lanes.suspect_all();
    keeper.tick().bounded().await;
    assert_eq!(beat().await, first + 1);
    clock.advance(u64::try_from(BEAT_PERIOD.as_millis()).expect("a small number")).await;
    keeper.tick().bounded().await;
    assert_eq!(beat().await, first + 2);
}

/// Redis has newer epochs than Postgres.
#[tokio::test]
async fn tick_tells_that_an_operator_has_to_decide_and_waits() {
    let app = TestApp::with_lanes(2).await;
    let sales = sold_to_two::<2>(&app).await;
    let set_epoch = async |epoch: &str| {
        for sale in sales {
            let key = app.keys().lane(sale.lane());
            let _: i64 = app.redis(&["HSET", &key, "epoch", epoch]).await;
        }
    };
    set_epoch("99").await;
    let lines = Lines::heard();
    app.app.lanes.suspect_all();
    app.app.keeper.tick().bounded().await;
    assert_eq!(lines.count("ALARM: Postgres is behind Redis"), 1);
    assert_eq!(lines.count(FAILED), 0);
    assert!(!app.app.lanes.take_suspicion());

    app.expect_disagreements();
}

/// The lanes will be free in a moment all the same.
#[tokio::test]
async fn give_up_that_fails_is_told() {
    let app = TestApp::start().await;
    let other = app.another_instance().await;
    other.stores.pool.close().await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    other.keeper.give_up().bounded().await;
    assert_eq!(lines.count("the lanes can't be given up; they will be free in a moment"), 1);
}

/// Again after a lane was added, and after it was begun.
#[tokio::test]
async fn look_and_recover_reads_the_lanes_once_while_nothing_changes() {
    let app = TestApp::start().await;
    keep(&app).await;
    for (lanes, reads) in [(1, 1), (2, 3), (2, 1)] {
        app.execute(&format!("UPDATE settings SET lanes = {lanes}")).await;
        let lines = Lines::down_to(tracing::Level::DEBUG);
        keep(&app).await;
        assert_eq!(lines.count(READS_LANES), reads);
    }
    let beats = "SELECT concat_ws(' ', lane, beat) FROM lane_beats ORDER BY lane";
    assert_eq!(app.texts(beats).await, ["0 4", "1 2"], "the new lane is looked at at once");
}
