//! Settings under which statements about orders run: the time that they may take, and the plans that they have.

use flash_sale::base::limits::RECOUNT_TIMEOUT;
use flash_sale::kit::postgres;
use flash_sale::sale::order::give_back::stock_returns;
use flash_sale::sale::order::past::export;

use crate::support::{TestApp, lane, user};

/// The whole table is read, however long that takes: a lane must not stay closed for it.
#[tokio::test]
async fn run_again_has_more_time_than_other_statements() {
    let app = TestApp::configured(&["--database-timeout-ms", "9000"]).await;
    app.note_timeout_of("UPDATE", "stock_returns").await;
    let since = "2024-01-01T00:00:00Z".parse().expect("a time");
    let run = stock_returns::run_again(&app.app.stores.pool, lane(), since).await;
    assert_eq!(run.expect("Postgres answers"), 0);
    assert_eq!(app.timeout_noted().await, RECOUNT_TIMEOUT);
}

/// The history has many months: a plan that knows the user reads few of them.
#[tokio::test]
async fn the_export_of_a_user_is_planned_for_the_user() {
    let app = TestApp::start().await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let rows = export::rows(&mut tx, user(1)).await.expect("Postgres answers");
    assert!(rows.orders.is_empty() && rows.dead_letters.is_empty(), "{rows:?}");
    let mode: String = sqlx::query_scalar("SHOW plan_cache_mode")
        .fetch_one(&mut *tx)
        .await
        .expect("Postgres answers");
    assert_eq!(mode, "force_custom_plan");
}
