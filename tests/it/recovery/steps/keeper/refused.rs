//! Looks of which Postgres refuses a write: for a reason that concerns all writes, or for the data of one lane.

use crate::faults::recovery::keep;
use crate::recovery::steps::{fate, sold_to_two};
use crate::support::{Bounded, TestApp};

/// Postgres refuses the beat of one lane, for a reason that concerns all writes or this one, and the other is closed.
#[tokio::test]
async fn look_and_recover_recovers_a_lane_beside_one_whose_beat_is_refused_for_its_data() {
    const CLOSE: &str =
        "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1
                         WHERE lane = 1";
    let app = TestApp::with_lanes(2).await;
    sold_to_two::<2>(&app).await;
    for (state, open) in [("40001", &[0][..]), ("23514", &[0, 1])] {
        app.execute(CLOSE).await;
        app.refuse("UPDATE", "lane_beats", "NEW.lane = 0", state).await;
        let failed = app.app.keeper.pass().bounded().await;
        app.accept("lane_beats").await;
        assert!(failed.is_err_and(|failure| failure.to_string().contains("refused")), "{state}");
        let of_rows = "SELECT lane::bigint FROM lanes WHERE state = 'open' ORDER BY lane";
        assert_eq!(app.numbers(of_rows).await, open, "{state}");
    }
    keep(&app).await;
}

/// Postgres refuses to close one lane, for a reason that concerns all writes or this one. Another is to be closed, too.
#[tokio::test]
async fn try_to_close_holds_up_no_other_lane_where_one_takes_no_change() {
    let app = TestApp::with_lanes(2).await;
    sold_to_two::<2>(&app).await;
    app.execute("UPDATE lanes SET run_id = 'x'").await;
    for (state, epochs) in [("40001", [1, 1]), ("23514", [1, 3])] {
        app.refuse("UPDATE", "lanes", "NEW.lane = 0", state).await;
        let failed = app.app.keeper.pass().bounded().await;
        app.accept("lanes").await;
        assert!(failed.is_err_and(|failure| failure.to_string().contains("refused")), "{state}");
        assert_eq!(app.numbers("SELECT epoch FROM lanes ORDER BY lane").await, epochs, "{state}");
    }
    keep(&app).await;
    assert_eq!(app.numbers("SELECT epoch FROM lanes ORDER BY lane").await, [3, 3]);
}

#[tokio::test]
async fn look_at_sales_postpones_a_lost_sale_whose_lane_cannot_be_closed_for_its_data() {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    app.lose_sale(sale).await;
    for (state, waits) in [("40001", false), ("23514", true)] {
        app.app.lanes.suspect_sale(sale);
        app.refuse("UPDATE", "lanes", "true", state).await;
        let ended = app.app.keeper.pass().bounded().await;
        app.accept("lanes").await;
        assert_eq!(ended.is_ok(), waits, "{state}: {ended:?}");
        let waiting = waits.then(|| format!("rebuild {sale} 1"));
        assert_eq!(app.postponed().await, Vec::from_iter(waiting), "{state}");
    }
    app.let_postponed_be_due().await;
    keep(&app).await;
    assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
    keep(&app).await;
    assert_eq!(app.postponed().await, [""; 0]);
}
