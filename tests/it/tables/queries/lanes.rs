//! `fence`: the epoch of a lane, which a transaction holds beside others, and which no recovery raises meanwhile.

use flash_sale::kit::postgres;
use flash_sale::sale::fence::table;
use flash_sale::sale::ids::Lane;

use crate::support::TestApp;

/// True if another transaction may change this lane now.
async fn is_free(app: &TestApp, lane: i32) -> bool {
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let changes = format!(
        "SET LOCAL lock_timeout = '50ms'; UPDATE lanes SET epoch = epoch, updated_at = now() WHERE lane = {lane}"
    );
    let changed = sqlx::raw_sql(sqlx::AssertSqlSafe(changes)).execute(&mut *tx).await;
    tx.rollback().await.expect("Postgres answers");
    changed.is_ok()
}

#[tokio::test]
async fn hold_epoch_holds_one_lane_until_the_end_of_its_transaction() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let pool = &app.app.stores.pool;
    app.execute("UPDATE lanes SET epoch = lane + 5").await;
    let one = Lane::numbered(1);
    for (lane, epoch) in [(0, Some(5)), (1, Some(6)), (2, Some(7)), (3, None)] {
        let lane = Lane::numbered(lane);
        assert_eq!(table::epoch(pool, lane).await.expect("Postgres answers"), epoch);
        let mut tx = postgres::begin(pool).await.expect("Postgres answers");
        assert_eq!(table::hold_epoch(&mut tx, lane).await.expect("Postgres answers"), epoch);
        tx.rollback().await.expect("Postgres answers");
    }
    let begin = async |epoch| table::begin_in(pool, one, epoch).await.expect("Postgres answers");
    assert!(begin(5).await.is_none() && begin(7).await.is_none());
    let first = begin(6).await.expect("it has this epoch");
    let second = begin(6).await.expect("beside the first one");
    first.rollback().await.expect("Postgres answers");
    for (lane, free) in [(0, true), (1, false), (2, true)] {
        assert_eq!(is_free(&app, lane).await, free, "lane {lane}");
    }
    second.rollback().await.expect("Postgres answers");
    assert!(is_free(&app, 1).await);
}
