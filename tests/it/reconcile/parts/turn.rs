//! `turn`: one holder at a time, and the next one can take the turn as soon as it has been ended.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::sale::reconcile::turn::Turn;
use tokio::time::Instant;

use super::HOLDERS;
use crate::support::lines::Lines;
use crate::support::played::{Still, soon};
use crate::support::{Bounded, TestApp, eventually, later, tries};

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
    tokio::join!(next.bounded(), ends);
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

/// The clock stands still until the turn is free.
#[tokio::test]
async fn take_pauses_between_two_questions_for_the_turn_of_another_one() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let held = Turn::take(pool, Duration::ZERO).await.expect("Postgres answers");
    let held = held.expect("it is free");
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let asked = || lines.count("pg_try_advisory_xact_lock");
    let clock = Still::begin();
    let waits = async {
        soon("the turn is asked for", || asked() >= 1).await;
        app.some_replies().await;
        assert_eq!(asked(), 1);
        held.end().await.expect("Postgres answers");
        drop(clock);
    };
    let both = async { tokio::join!(Turn::take(pool, Duration::from_hours(1)), waits).0 };
    let taken = both.bounded().await.expect("Postgres answers");
    assert_eq!((taken.is_some(), asked()), (true, 2));
}

/// Time of the last answer to the session that holds the turn.
const ANSWERED: &str = "
    SELECT (extract(epoch FROM state_change) * 1000000)::bigint
    FROM pg_stat_activity JOIN pg_locks USING (pid)
    WHERE locktype = 'advisory' AND granted AND datname = current_database()";

/// Beats that were missed, because the work left no time for them, are not made up for.
#[tokio::test]
async fn hold_beats_once_in_a_period() {
    let app = TestApp::start().await;
    let turn = Turn::take(&app.app.stores.pool, Duration::ZERO).await;
    let mut turn = turn.expect("Postgres answers").expect("it is free");
    let work = async {
        for _ in tries() {
            let before = app.number(ANSWERED).await;
            later(100_000 * limits::TURN_BEAT).await;
            let began = Instant::now();
            eventually("a beat", async || app.number(ANSWERED).await > before).await;
            let answered = [app.number(ANSWERED).await, app.number(ANSWERED).await];
            if began.elapsed() < limits::TURN_BEAT {
                assert_eq!(answered[0], answered[1]);
                break;
            }
        }
        Ok(())
    };
    turn.hold(work).bounded().await.expect("the turn is held");
    turn.end().await.expect("Postgres answers");
}
