//! `turn`: one holder at a time, and the next one can take the turn as soon as it has been ended.

use std::time::Duration;

use flash_sale::sale::reconcile::turn::Turn;

use super::HOLDERS;
use crate::support::lines::Lines;
use crate::support::{Bounded, TestApp, eventually};

#[tokio::test]
async fn take_waits_for_the_turn_of_another_one_as_long_as_it_may() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let take = async |wait| Turn::take(pool, wait).await.expect("Postgres answers");
    let held = take(Duration::ZERO).await.expect("it is free");
    assert!(take(Duration::ZERO).await.is_none());
    let from = app.texts("SELECT clock_timestamp()::text").await.remove(0);
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND query = 'ROLLBACK' AND backend_start > '{from}'"
    );
    let next = async {
        let turn = take(Duration::from_hours(1)).await.expect("it waits");
        assert_eq!(app.number(HOLDERS).await, 1);
        turn.end().await.expect("Postgres answers");
    };
    let ends = async {
        eventually("the next one has asked in vain", async || app.number(&sessions).await > 0)
            .await;
        held.end().await.expect("Postgres answers");
    };
    tokio::join!(next, ends);
    assert!(take(Duration::ZERO).await.is_some());
}

/// Postgres has answered the statement by which a turn ends. A session that only closes ends some time later.
#[tokio::test]
async fn end_of_a_turn_frees_it_before_it_returns() {
    let app = TestApp::start().await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let ends = || lines.count("summary=\"ROLLBACK\"");
    let turn = Turn::take(&app.app.stores.pool, Duration::ZERO).await;
    let turn = turn.expect("Postgres answers").expect("it is free");
    assert_eq!((app.number(HOLDERS).await, ends()), (1, 0));
    turn.end().await.expect("Postgres answers");
    assert_eq!((app.number(HOLDERS).await, ends()), (0, 1));
    // Without a sale, no other transaction is rolled back.
    let compared = app.app.reconciler.compare().bounded().await.expect("both stores answer");
    assert!(compared.is_some());
    assert_eq!((app.number(HOLDERS).await, ends()), (0, 2));
}
