//! Callers that are dropped in the middle of a transaction leave the next ones outside of it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use flash_sale::store::postgres::{self, Unfinished};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgPool};

use crate::support::TestApp;

/// Most polls before a drop: a transaction of one statement is over by then.
const POLLS_MAX: usize = 40;

/// Polls the future so many times, and drops it if it is not done by then.
async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| match left.checked_sub(1) {
        None => Poll::Ready(None),
        Some(rest) => {
            left = rest;
            future.as_mut().poll(context).map(Some)
        }
    })
    .await
}

/// A pool of one connection to the database of this app: each caller gets the connection of the one before.
fn narrow(app: &TestApp) -> PgPool {
    let options = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    options.connect_lazy_with((*app.app.stores.pool.connect_options()).clone())
}

/// Whether a row that is inserted through this pool is there for others.
async fn keeps_what_it_confirms(pool: &PgPool, app: &TestApp, number: i64) -> bool {
    sqlx::query("INSERT INTO kept (number) VALUES ($1)").bind(number).execute(pool).await.unwrap();
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM kept WHERE number = $1)")
        .bind(number)
        .fetch_one(&app.app.stores.pool)
        .await
        .unwrap()
}

async fn app_with_a_table() -> TestApp {
    let app = TestApp::start().await;
    sqlx::query("CREATE TABLE kept (number bigint)").execute(&app.app.stores.pool).await.unwrap();
    app
}

#[tokio::test]
async fn a_caller_dropped_while_it_begins_leaves_no_transaction_to_the_next_one() {
    let app = app_with_a_table().await;
    let pool = narrow(&app);
    for (number, polls) in (0..).zip(0..POLLS_MAX) {
        let begun = dropped_after(polls, postgres::begin(&pool)).await;
        drop(begun);
        assert!(keeps_what_it_confirms(&pool, &app, number).await, "dropped after {polls} polls");
        let snapshot = dropped_after(polls, postgres::begin_snapshot(&pool)).await;
        drop(snapshot);
        assert!(keeps_what_it_confirms(&pool, &app, -number).await, "dropped after {polls} polls");
    }
}

#[tokio::test]
async fn a_connection_with_unfinished_work_goes_to_nobody_else() {
    let app = app_with_a_table().await;
    let pool = narrow(&app);
    for (number, polls) in (0..).zip(0..POLLS_MAX) {
        let work = async {
            let mut unfinished = Unfinished::acquire(&pool).await.unwrap();
            let mut tx = unfinished.connection().begin().await.unwrap();
            sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
            unfinished.finished();
        };
        dropped_after(polls, work).await;
        assert!(keeps_what_it_confirms(&pool, &app, number).await, "dropped after {polls} polls");
    }
}
