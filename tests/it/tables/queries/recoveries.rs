//! `records` and `closures`: recoveries that were broken off, that begin, and that have ended, lane by lane.

use std::time::Duration;

use flash_sale::base::limits::{
    RECOVERIES_REMEMBERED, RECOVERING_RETRY_AFTER, UNFINISHED_RECOVERIES,
};
use flash_sale::sale::ids::{CouponId, Lane};
use flash_sale::sale::recovery::closures::{self, RecoveryFilter, RecoveryState};

use crate::faults::recovery::{keep, sell};
use crate::support::{TestApp, lane};

/// An app with three lanes and so many sales in each, by lane; user 1 has bought in each.
async fn app_with(sales: usize) -> (TestApp, Vec<Vec<CouponId>>) {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let mut by_lane = vec![Vec::new(); 3];
    for _ in 0..3 * sales {
        let coupon = app.create_flash(5).await;
        sell(&app, coupon, 1..=1).await;
        by_lane[usize::try_from(coupon.lane().get()).expect("it is small")].push(coupon);
    }
    app.write_orders().await;
    keep(&app).await;
    (app, by_lane)
}

/// Recoveries by lane, epoch, and whether each has opened the lane, the newest last.
async fn write(app: &TestApp, rows: &[(i32, i64, bool)]) {
    let line = |(lane, epoch, opened): &(i32, i64, bool)| format!("({lane}, {epoch}, {opened})");
    let rows: Vec<String> = rows.iter().map(line).collect();
    app.execute(&format!(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
         SELECT lane, epoch, 'x', now(), CASE WHEN opened THEN now() END
         FROM (VALUES {}) AS row (lane, epoch, opened)",
        rows.join(", ")
    ))
    .await;
}

/// The first two lanes are closed under epoch 50, and recovered: under epoch 51.
async fn recover_two_lanes(app: &TestApp) {
    app.execute(
        "UPDATE lanes SET epoch = 50, state = 'recovering', closed_at = now() - interval '1 hour', reason = 'lane ' || lane
         WHERE lane < 2",
    )
    .await;
    keep(app).await;
}

/// Epochs of which a lane has lists of unpaid orders that are not in use.
async fn built(app: &TestApp, lane: i32) -> Vec<i64> {
    let unpaid = app.keys().unpaid(Lane::numbered(lane));
    let keys: Vec<String> = app.redis(&["KEYS", &format!("{unpaid}:*")]).await;
    let epoch = |key: &String| key.rsplit(':').next().and_then(|epoch| epoch.parse().ok());
    let mut epochs: Vec<i64> = keys.iter().filter_map(epoch).collect();
    epochs.sort_unstable();
    epochs
}

/// The lists of each are removed. Lane 1 has never been opened by a recovery, and one more was broken off there than are
/// looked for.
#[tokio::test]
async fn unfinished_recoveries_of_a_lane_are_those_since_the_last_that_opened_it() {
    let (app, _) = app_with(1).await;
    let mut rows = vec![(0, 1, true), (0, 2, false), (0, 3, true), (0, 4, false), (0, 60, false)];
    let last = 10 + UNFINISHED_RECOVERIES;
    rows.extend((10..=last).map(|epoch| (1, epoch, false)));
    rows.extend([(2, 6, false), (2, 7, true)]);
    write(&app, &rows).await;
    for (lane, epochs) in [(0, &[2, 3, 4, 6, last, 51, 60][..]), (1, &[4, 10, 11, last, 51])] {
        for epoch in epochs {
            let key = app.keys().unpaid_built(Lane::numbered(lane), *epoch);
            let _: i64 = app.redis(&["HSET", &key, "1", "100"]).await;
        }
    }
    recover_two_lanes(&app).await;
    assert_eq!(built(&app, 0).await, [2, 3, 6, last, 51, 60]);
    assert_eq!(built(&app, 1).await, [4, 10, 51]);

    let begun = "SELECT concat_ws(' ', lane, epoch, reason, closed_at < now() - interval '30 min', opened_at > closed_at + interval '30 min')
                 FROM recoveries WHERE epoch = 51 ORDER BY lane";
    assert_eq!(app.texts(begun).await, ["0 51 lane 0 t t", "1 51 lane 1 t t"]);
    let opened =
        "SELECT epoch FROM recoveries WHERE opened_at IS NOT NULL AND epoch <> 51 ORDER BY 1";
    assert_eq!(app.numbers(opened).await, [1, 3, 7], "no other one has ended");
}

#[tokio::test]
async fn unfinished_among_the_builders_of_whole_sales_have_theirs_built_again() {
    let (app, sales) = app_with(4).await;
    let rows = [
        (0, 1, true),
        (0, 2, false),
        (0, 3, true),
        (0, 4, false),
        (1, 5, false),
        (1, 6, false),
        (2, 7, true),
    ];
    write(&app, &rows).await;
    let generations = [[2, 3, 4, 6], [5, 4, 6, 3]];
    for (of_lane, generations) in sales.iter().zip(generations) {
        for (coupon, generation) in of_lane.iter().zip(generations) {
            app.rename_shards(*coupon, generation).await;
        }
    }
    recover_two_lanes(&app).await;
    for (of_lane, expected) in sales.iter().zip([[2, 3, 51, 6], [51, 4, 51, 3]]) {
        let mut after = Vec::new();
        for coupon in of_lane {
            after.push(app.shards(*coupon).await.generation());
        }
        assert_eq!(after, expected);
    }
}

/// Another recovery raises the epoch of the lane before this one is on record.
#[tokio::test]
async fn begin_notes_no_recovery_of_an_epoch_that_is_over() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.create_flash(5).await;
    keep(&app).await;
    app.execute("UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x'").await;
    let held = app.holding("LOCK TABLE recoveries IN SHARE MODE").await;
    let raises = async {
        app.a_session_waits_for_a_row().await;
        app.execute("UPDATE lanes SET epoch = epoch + 1").await;
        held.rollback().await.expect("Postgres answers");
    };
    tokio::join!(keep(&app), raises);
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 0);
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);
}

/// Time after which a closed lane is open again, as claims are told it, after recoveries of so many seconds.
async fn back_in(app: &TestApp, recoveries: &[i64]) -> Duration {
    let taken = recoveries.iter().map(|seconds| format!("({seconds})")).collect::<Vec<_>>();
    app.execute("DELETE FROM recoveries").await;
    if !taken.is_empty() {
        app.execute(&format!(
            "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
             SELECT 0, 1, 'x', now(), CASE WHEN seconds > 0 THEN now() + seconds * interval '1 s' END
             FROM (VALUES {}) AS row (seconds)",
            taken.join(", ")
        ))
        .await;
    }
    keep(app).await;
    app.app.lanes.suspect(lane()).back_in().expect("it is recovering")
}

/// Another process keeps the lanes. A recovery that has not opened its lane is one of 0 seconds here.
#[tokio::test]
async fn median_time_is_that_of_the_last_recoveries_that_have_opened_a_lane() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    keep(&app).await;
    app.execute(
        "UPDATE lane_keeper SET process = 'another', until = now() + interval '1 hour';
         UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x'",
    )
    .await;
    assert_eq!(back_in(&app, &[]).await, RECOVERING_RETRY_AFTER, "there was none");
    let remembered = usize::try_from(RECOVERIES_REMEMBERED).expect("it is small");
    let newest: Vec<i64> = (1..=RECOVERIES_REMEMBERED).collect();
    for (recoveries, seconds) in [
        (vec![10], 10.0),
        (vec![10, 20], 15.0),
        (vec![10, 20, 90], 20.0),
        (vec![90, 0, 10, 0, 20], 20.0),
        ([vec![5], vec![0; remembered]].concat(), 5.0),
        ([vec![1_000; 12], newest].concat(), 11.0),
    ] {
        let told = back_in(&app, &recoveries).await;
        assert_eq!(told, Duration::from_secs_f64(seconds), "{recoveries:?}");
    }
    app.execute("DELETE FROM recoveries").await;
}

/// Its buyers have been told, and one of them has had the claim taken off the record since.
#[tokio::test]
async fn list_of_closures_has_a_settled_one_without_claims_among_the_settled() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost, unknown, settled_at, note) VALUES
             (0, 1, 'x', now(), now(), '[]', NULL, now(), 'told'), (0, 2, 'x', now(), now(), '[]', 0, NULL, NULL)",
    )
    .await;
    for (state, expected) in [
        (RecoveryState::Settled, &[1][..]),
        (RecoveryState::KeptAll, &[2]),
        (RecoveryState::Unsettled, &[]),
        (RecoveryState::Unfinished, &[]),
    ] {
        let filter = RecoveryFilter { state: Some(state), ..RecoveryFilter::default() };
        let list = closures::list(&app.app.stores.pool, &filter, None, 9).await;
        let list = list.expect("Postgres answers");
        let epochs: Vec<i64> = list.iter().map(|recovery| recovery.epoch).collect();
        assert_eq!(epochs, expected, "{state:?}");
        let named = list.iter().all(|recovery| recovery.absent_processes.is_empty());
        assert!(named, "an older version has noted no names: {list:?}");
    }
    app.execute("DELETE FROM recoveries").await;
}
