//! Unwritten claims of a process: which looks at the logs of a lane prove them to be committed, and after which a
//! process doubts.

use std::time::Duration;

use flash_sale::base::limits::UNWRITTEN_CHECK_PERIOD;

use crate::support::{TestApp, lane, later};

async fn tick(app: &TestApp) {
    app.app.hand_in.tick().await.expect("Postgres answers");
    app.app.hand_in.check().await.expect("Redis answers");
}

/// Ticks after this time. Returns the number of unwritten claims then.
async fn unwritten_after(app: &TestApp, time: Duration) -> usize {
    later(time).await;
    tick(app).await;
    app.app.unwritten.of(lane()).len()
}

/// A process with one unwritten claim, whose claim waits in the log; a check of the logs is due.
async fn promised() -> TestApp {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    tick(&app).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    app
}

/// The same. The claim is a row by now, which the next check proves.
async fn written() -> TestApp {
    let app = promised().await;
    assert_eq!(unwritten_after(&app, UNWRITTEN_CHECK_PERIOD).await, 1);
    app.write_orders().await;
    app
}

#[tokio::test]
async fn a_check_of_the_hand_in_proves_what_was_acknowledged_since_the_check_before() {
    let app = promised().await;
    for _ in 0..3 {
        assert_eq!(unwritten_after(&app, UNWRITTEN_CHECK_PERIOD).await, 1, "it is no row");
    }
    app.write_orders().await;
    assert_eq!(unwritten_after(&app, UNWRITTEN_CHECK_PERIOD).await, 0);
    assert_eq!(app.app.unwritten.lanes(), []);
}

/// A log of one entry by hand, which has been acknowledged.
async fn write_log(app: &TestApp, key: &str) {
    let _: String = app.redis(&["XADD", key, "1-1", "a", "b"]).await;
    let _: String = app.redis(&["XGROUP", "CREATE", key, "order-writers", "1-1"]).await;
}

/// A disturbance after which what was proved is doubted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Disturbance {
    Nothing,
    LogIsMissing,
    LogGoesBack,
    EpochDiffersInRedis,
    ServerIsAnother,
    LaneWasRecovered,
}

/// Disturbs the lane, or ends that.
async fn disturb(app: &TestApp, disturbance: Disturbance, ends: bool) {
    let (log, of_lane) = (app.log(lane()), app.keys().lane(lane()));
    let aside = format!("{log}:aside");
    let epoch = if ends { "1" } else { "2" };
    match disturbance {
        Disturbance::Nothing => {}
        Disturbance::LogIsMissing | Disturbance::LogGoesBack if ends => {
            let _: i64 = app.redis(&["DEL", &log]).await;
            let _: String = app.redis(&["RENAME", &aside, &log]).await;
        }
        Disturbance::LogIsMissing => {
            let _: String = app.redis(&["RENAME", &log, &aside]).await;
        }
        Disturbance::LogGoesBack => {
            let _: String = app.redis(&["RENAME", &log, &aside]).await;
            write_log(app, &log).await;
        }
        Disturbance::EpochDiffersInRedis => {
            let _: i64 = app.redis(&["HSET", &of_lane, "epoch", epoch]).await;
        }
        Disturbance::ServerIsAnother => {
            let field = if ends { ["x", "replid"] } else { ["replid", "x"] };
            let id: String = app.redis(&["HGET", &of_lane, field[0]]).await;
            let _: i64 = app.redis(&["HSET", &of_lane, field[1], &id]).await;
            let _: i64 = app.redis(&["HDEL", &of_lane, field[0]]).await;
        }
        // In both stores, and for good.
        Disturbance::LaneWasRecovered => {
            app.execute("UPDATE lanes SET epoch = 2").await;
            let _: i64 = app.redis(&["HSET", &of_lane, "epoch", "2"]).await;
        }
    }
    app.app.lanes.read_now().await.expect("Postgres answers");
}

/// A proof of before a disturbance has to be made anew: by the checks before where the log alone was lost, and else
/// by looks of afterwards.
#[tokio::test]
async fn a_check_of_the_hand_in_doubts_what_was_proved_before_a_disturbance() {
    for (disturbance, unwritten) in [
        (Disturbance::Nothing, [0, 0, 0, 0]),
        (Disturbance::LogIsMissing, [1, 0, 0, 0]),
        (Disturbance::LogGoesBack, [1, 0, 0, 0]),
        (Disturbance::EpochDiffersInRedis, [1, 1, 0, 0]),
        (Disturbance::ServerIsAnother, [1, 1, 0, 0]),
        (Disturbance::LaneWasRecovered, [1, 0, 0, 0]),
    ] {
        let app = written().await;
        disturb(&app, disturbance, false).await;
        let mut left = [unwritten_after(&app, UNWRITTEN_CHECK_PERIOD).await, 0, 0, 0];
        disturb(&app, disturbance, true).await;
        for left in &mut left[1..] {
            *left = unwritten_after(&app, UNWRITTEN_CHECK_PERIOD).await;
        }
        assert_eq!(left, unwritten, "{disturbance:?}");
    }
}

/// A lane with a new epoch is handed in for once, and its unwritten claims stay in the book until they are proved.
#[tokio::test]
async fn the_hand_in_of_a_lane_is_complete_once_for_each_epoch() {
    let app = promised().await;
    let unwritten = "SELECT count(*) FROM unwritten_claims";
    tick(&app).await;
    assert_eq!(app.number(unwritten).await, 0, "the lane is open");
    disturb(&app, Disturbance::LaneWasRecovered, false).await;
    for expected in [1, 0] {
        tick(&app).await;
        assert_eq!(app.number(unwritten).await, expected);
        app.execute("DELETE FROM unwritten_claims").await;
        let handed_in = "SELECT epoch FROM hand_ins WHERE lane = 0";
        assert_eq!(app.numbers(handed_in).await, [2]);
    }
    assert_eq!(app.app.unwritten.of(lane()).len(), 1);
}
