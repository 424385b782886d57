//! Postgres as the kit sees it: connections, plans and locks.

use std::time::Duration;

use flash_sale::store::postgres;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};

use crate::support::{Bounded, TestApp, eventually};

/// A pool of one connection to the database of this app.
fn narrow(app: &TestApp) -> PgPool {
    let options = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    options.connect_lazy_with((*app.app.stores.pool.connect_options()).clone())
}

#[tokio::test]
async fn a_connection_whose_work_is_finished_goes_back_to_its_pool_and_an_unfinished_one_is_closed()
{
    let app = TestApp::start().await;
    let pool = narrow(&app);
    let process = async || {
        let process =
            sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()").fetch_one(&pool).await;
        process.expect("Postgres answers")
    };
    let first = process().await;
    let finished = postgres::Unfinished::acquire(&pool).await.expect("Postgres answers");
    finished.finished();
    assert_eq!(process().await, first);
    assert!(postgres::answers(&pool).await);
    assert_eq!(process().await, first, "a ping that is answered keeps its connection");
    drop(postgres::Unfinished::acquire(&pool).await.expect("Postgres answers"));
    assert_ne!(process().await, first);
    pool.close().await;
    assert!(!postgres::answers(&pool).await);
}

#[tokio::test]
async fn statements_of_a_transaction_are_planned_for_their_values_and_by_index_until_its_end() {
    let app = TestApp::start().await;
    let pool = narrow(&app);
    let settings = async |connection: &mut PgConnection| -> (String, String) {
        let query = "SELECT current_setting('plan_cache_mode'), current_setting('enable_sort')";
        sqlx::query_as(query).fetch_one(connection).await.expect("Postgres has both")
    };
    for (way, mode, sort) in [
        ("begin", "auto", "on"),
        ("begin_planning", "force_custom_plan", "on"),
        ("begin_by_index", "force_custom_plan", "off"),
        ("begin_snapshot", "force_custom_plan", "on"),
        ("plan_for_values", "force_custom_plan", "on"),
        ("begin", "auto", "on"),
    ] {
        let mut tx = match way {
            "begin_planning" => postgres::begin_planning(&pool).await,
            "begin_by_index" => postgres::begin_by_index(&pool).await,
            "begin_snapshot" => postgres::begin_snapshot(&pool).await,
            _ => postgres::begin(&pool).await,
        }
        .expect("Postgres answers");
        if way == "plan_for_values" {
            postgres::plan_for_values(&mut tx).await.expect("Postgres answers");
        }
        let found = settings(&mut tx).await;
        assert_eq!((found.0.as_str(), found.1.as_str()), (mode, sort), "{way}");
        tx.commit().await.expect("Postgres answers");
    }
}

#[tokio::test]
async fn one_attempt_to_connect_tells_whether_the_server_can_be_used() {
    let app = TestApp::start().await;
    let options = (*app.app.stores.pool.connect_options()).clone();
    postgres::check_connection(&app.app.stores.pool).await.expect("it is there");
    let elsewhere = PgPoolOptions::new().connect_lazy_with(options.database("nowhere"));
    let refused =
        postgres::check_connection(&elsewhere).await.expect_err("there is no such database");
    assert!(refused.to_string().contains("nowhere"), "{refused}");
}

/// A row that another session keeps is told from a server that is slow.
#[tokio::test]
async fn a_statement_waits_half_of_its_time_for_a_lock() {
    let app = TestApp::with_sales(1).await;
    let timeout = Duration::from_secs(1);
    let pool = postgres::pool(&app.database_url(), 1, timeout, false).expect("a valid URL");
    let settings = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')";
    eventually("both settings are read", async || {
        let found: Result<(String, String), _> = sqlx::query_as(settings).fetch_one(&pool).await;
        found.is_ok_and(|found| found == ("500ms".to_owned(), "1s".to_owned()))
    })
    .await;
    let other = app.holding("SELECT FROM flash_sales FOR UPDATE").await;
    let write = "UPDATE flash_sales SET sold = 1, updated_at = now()";
    eventually("the lock is waited for in vain", async || {
        let error = sqlx::query(write).execute(&pool).await.expect_err("the row is locked");
        // On a busy machine, the statement may take all of its time before it waits.
        postgres::is_lock_timeout(&error)
    })
    .await;
    other.rollback().await.expect("Postgres answers");
}

/// Locks of tables that writers wait for, held by another session of this database.
#[tokio::test]
async fn a_table_is_locked_if_writers_wait_for_it() {
    let app = TestApp::with_sales(1).await;
    for (lock, is_locked) in [
        ("SELECT FROM flash_sales FOR UPDATE", false),
        ("SELECT pg_advisory_xact_lock(1)", false),
        ("LOCK TABLE flash_sales IN ACCESS SHARE MODE", false),
        ("LOCK TABLE flash_sales IN ROW SHARE MODE", false),
        ("LOCK TABLE flash_sales IN ROW EXCLUSIVE MODE", false),
        ("LOCK TABLE flash_sales IN SHARE UPDATE EXCLUSIVE MODE", false),
        ("LOCK TABLE flash_sales IN SHARE MODE", true),
        ("LOCK TABLE flash_sales IN SHARE ROW EXCLUSIVE MODE", true),
        ("LOCK TABLE flash_sales IN EXCLUSIVE MODE", true),
        ("LOCK TABLE flash_sales IN ACCESS EXCLUSIVE MODE", true),
    ] {
        let other = app.holding(lock).await;
        let found = postgres::has_locked_table(&app.app.stores.pool).bounded().await;
        assert_eq!(found.expect("Postgres answers"), is_locked, "{lock}");
        other.rollback().await.expect("Postgres answers");
    }
    let row = app.holding("SELECT FROM flash_sales FOR UPDATE").await;
    let waits = app.holding("LOCK TABLE flash_sales IN EXCLUSIVE MODE");
    let check = async {
        app.a_session_waits_for_a_row().await;
        let found = postgres::has_locked_table(&app.app.stores.pool).bounded().await;
        row.rollback().await.expect("Postgres answers");
        found.expect("Postgres answers")
    };
    let (other, is_locked) = tokio::join!(waits, check);
    assert!(is_locked, "writers queue behind the one that waits");
    other.rollback().await.expect("Postgres answers");

    let elsewhere = TestApp::with_sales(1).await;
    let other = elsewhere.holding("LOCK TABLE flash_sales").await;
    let found = postgres::has_locked_table(&app.app.stores.pool).bounded().await;
    assert!(!found.expect("Postgres answers"), "it is of another database");
    drop(other);
}
