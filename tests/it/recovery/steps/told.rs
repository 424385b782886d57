//! Log lines and metrics for an operator while lanes are recovered, and of keys that stood in the place of a log.

use tokio::task::JoinSet;

use super::{SWITCH, close_lanes, damage, fate, no_process_keeps, sold_to_two};
use crate::faults::recovery::keep;
use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, proxy_before};

const CLOSED: &str = "flash_sale_lanes_recovering";

/// The lane is open when the pass begins, and closed by it.
#[tokio::test]
async fn recover_closed_shows_the_lanes_that_the_same_pass_has_closed() {
    let app = TestApp::with_lanes(2).await;
    let sales = sold_to_two::<2>(&app).await;
    damage(&app, sales[1]).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    let other = app.another_instance_behind(&proxy).await;
    other.lanes.suspect_sale(sales[1]);
    no_process_keeps(&app).await;
    assert_eq!(number(&other, CLOSED), 0.0);
    proxy.hold();
    let keeper = other.clone();
    let mut pass = JoinSet::new();
    pass.spawn(async move { keeper.keeper.pass().bounded().await });
    eventually("the sale is about to be switched", async || proxy.held() == 1).await;
    assert_eq!(number(&other, CLOSED), 1.0);
    // Raised by the closure, and by the recovery.
    let known = other.lanes.of(sales[1].lane()).expect("there is such a lane");
    assert_eq!((known.epoch, known.is_open), (3, false));
    proxy.release();
    let ended = bounded("the end of the pass", pass.join_next()).await;
    ended.expect("it was begun").expect("it ends").expect("both stores answer");
    assert_eq!(number(&other, CLOSED), 0.0);
    assert_eq!(number(&other, "flash_sale_lanes_closed_total"), 1.0);
    assert_eq!(number(&other, "flash_sale_lane_closed_seconds_count"), 1.0);
    assert_eq!(fate(&app, sales[1]).await, "built 7 [1, 2]");
}

#[tokio::test]
async fn fence_tells_the_name_of_a_key_that_stood_in_the_place_of_the_log() {
    const ALARM: &str = "ALARM: a key of another type stood in the place of the order log";
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    let lines = Lines::heard();
    close_lanes(&app).await;
    keep(&app).await;
    assert_eq!(lines.count(ALARM), 0);
    let log = app.log(lane());
    let _: i64 = app.redis(&["DEL", &log]).await;
    let _: String = app.redis(&["SET", &log, "of another program"]).await;
    close_lanes(&app).await;
    keep(&app).await;
    let told = lines.with(ALARM);
    let moved = format!("lane=0 epoch=5 moved=\"{log}:5\"");
    assert!(told.len() == 1 && told[0].contains(&moved), "{told:?}");
    assert_eq!(app.redis::<String>(&["GET", &format!("{log}:5")]).await, "of another program");
    assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
}
