//! `installation` and `schema`: the facts that all processes share only grow, and migrations are told by their numbers.

use std::fs;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::kit::postgres;
use flash_sale::sale::installation::{
    UnfitKey, decide_public_ids, hold_orders_moved_to, orders_moved_to, payments_kept_from,
    raise_lanes,
};
use flash_sale::sale::schema::{Fitness, fitness, migrate};
use secrecy::SecretString;
use uuid::Uuid;

use crate::support::lines::Lines;
use crate::support::played::{Still, soon};
use crate::support::{TestApp, bounded, patience, shared};

/// True if a statement has changed the row since [`TestApp::let_rows_age`], and at no later time than now.
const CHANGED: &str =
    "SELECT (updated_at BETWEEN now() - interval '1 hour' AND now())::text FROM settings";

async fn is_changed(app: &TestApp) -> bool {
    app.texts(CHANGED).await == ["true"]
}

#[tokio::test]
async fn raise_lanes_raises_their_number_and_never_lowers_it() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    for (asked, lanes, changes) in [(3, 3, true), (3, 3, false), (2, 3, false), (4, 4, true)] {
        app.let_rows_age("settings").await;
        let told = raise_lanes(&app.app.stores.pool, asked).await.expect("Postgres answers");
        let stored = app.number("SELECT lanes::bigint FROM settings").await;
        assert_eq!((told, stored), (lanes, i64::from(lanes)), "{asked}");
        assert_eq!(is_changed(&app).await, changes, "{asked}");
    }
}

#[tokio::test]
async fn payments_kept_from_and_orders_moved_to_only_grow() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let first: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().expect("a time");
    let marks = "SELECT concat_ws(' ', to_char(payments_kept_from AT TIME ZONE 'UTC', 'MM-DD'), orders_moved_to) FROM settings";
    for (days, order, expected, changes) in [
        (2, 50, "03-03 50", true),
        (2, 50, "03-03 50", false),
        (1, 49, "03-03 50", false),
        (3, 51, "03-04 51", true),
    ] {
        let time = first + TimeDelta::days(days);
        app.let_rows_age("settings").await;
        let mut tx = postgres::begin(pool).await.expect("Postgres answers");
        payments_kept_from(&mut tx, time).await.expect("Postgres answers");
        tx.commit().await.expect("Postgres answers");
        assert_eq!(is_changed(&app).await, changes, "{time}");
        app.let_rows_age("settings").await;
        let mut tx = postgres::begin(pool).await.expect("Postgres answers");
        orders_moved_to(&mut tx, order).await.expect("Postgres answers");
        tx.commit().await.expect("Postgres answers");
        assert_eq!(is_changed(&app).await, changes, "{order}");
        assert_eq!(app.texts(marks).await, [expected]);
    }
}

#[tokio::test]
async fn hold_orders_moved_to_keeps_the_mark_until_the_end_of_its_transaction() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let begin = async || postgres::begin(pool).await.expect("Postgres answers");
    let raise = async || {
        let mut tx = begin().await;
        sqlx::query("SET LOCAL lock_timeout = '50ms'").execute(&mut *tx).await.expect("it is set");
        orders_moved_to(&mut tx, 60).await?;
        tx.commit().await
    };
    let (mut one, mut two) = (begin().await, begin().await);
    assert_eq!(hold_orders_moved_to(&mut one).await.expect("Postgres answers"), 0);
    assert_eq!(hold_orders_moved_to(&mut two).await.expect("beside the other"), 0);
    one.rollback().await.expect("Postgres answers");
    assert!(raise().await.is_err(), "the second one holds it still");
    two.rollback().await.expect("Postgres answers");
    raise().await.expect("nothing holds it");
    let mut three = begin().await;
    assert_eq!(hold_orders_moved_to(&mut three).await.expect("Postgres answers"), 60);
    three.rollback().await.expect("Postgres answers");
}

#[tokio::test]
async fn decide_public_ids_decides_once_by_the_key_that_is_given() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let key = SecretString::from("a key that is only good for tests");
    let form = "SELECT concat_ws(' ', order_ids, length(order_id_check)) FROM settings";
    for (given, decided) in [(None, "plain"), (Some(&key), "keyed 32")] {
        app.execute("UPDATE settings SET order_ids = NULL, order_id_check = NULL").await;
        app.let_rows_age("settings").await;
        let ids = decide_public_ids(pool, given).await.expect("it is the first start");
        assert_eq!(ids.are_keyed(), given.is_some());
        assert_eq!((app.texts(form).await, is_changed(&app).await), (vec![decided.into()], true));
        app.let_rows_age("settings").await;
        let other = if given.is_some() { None } else { Some(&key) };
        let refused = decide_public_ids(pool, other).await;
        assert!(matches!(refused, Err(UnfitKey::Missing | UnfitKey::Plain)));
        assert_eq!((app.texts(form).await, is_changed(&app).await), (vec![decided.into()], false));
    }
    app.execute("UPDATE settings SET order_ids = 'plain', order_id_check = NULL").await;
}

#[tokio::test]
async fn applied_migrations_are_those_that_have_succeeded_in_the_order_of_their_numbers() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let fit = async || fitness(pool).await.expect("Postgres answers");
    assert_eq!(fit().await, Fitness::UpToDate);
    app.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES
             (9002, 'second', true, '', 0), (9003, 'broken', false, '', 0), (9001, 'first', true, '', 0)",
    )
    .await;
    let newer = ["9001 first", "9002 second"].map(str::to_owned).to_vec();
    assert_eq!(fit().await, Fitness::Newer(newer));
    app.execute("DELETE FROM _sqlx_migrations WHERE version > 9000").await;
    let two = "SELECT description FROM _sqlx_migrations ORDER BY version DESC LIMIT 2";
    let [last, before] = &app.texts(two).await[..] else { panic!("there are many") };
    let fails = |success: bool| {
        format!(
            "UPDATE _sqlx_migrations SET success = {success} WHERE description IN ('{last}', '{before}')"
        )
    };
    app.execute(&fails(false)).await;
    assert_eq!(fit().await, Fitness::Older(vec![before.clone(), last.clone()]));
    app.execute(&fails(true)).await;
    assert_eq!(fit().await, Fitness::UpToDate);
}

/// The advisory lock of the process that migrates.
const MIGRATES: i64 = 0x006d_6967_7261_7465;

/// The clock stands still until another process has migrated.
#[tokio::test]
async fn migrate_pauses_between_two_questions_for_the_lock_of_another_process() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let mut other = pool.acquire().await.expect("Postgres answers");
    let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(MIGRATES);
    lock.execute(&mut *other).await.expect("it is free");
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let asked = || lines.count("pg_try_advisory_lock");
    let clock = Still::begin();
    let waits = async {
        soon("the lock is asked for", || asked() >= 1).await;
        for _ in 0..20 {
            app.number("SELECT 1::bigint").await;
        }
        assert_eq!(asked(), 1);
        let unlock = sqlx::query("SELECT pg_advisory_unlock($1)").bind(MIGRATES);
        unlock.execute(&mut *other).await.expect("it is held");
        drop(clock);
    };
    let both = async { tokio::join!(migrate(pool), waits).0 };
    bounded("the end of the migration", both).await.expect("the database is up to date");
    assert_eq!(asked(), 2);
}

/// Of an index that is built concurrently, a part is left if its process has died.
#[tokio::test]
async fn migrate_drops_what_is_left_of_indexes_that_are_built_concurrently_and_nothing_else() {
    let name = format!("t{}", Uuid::new_v4().simple());
    shared().create_empty_database(&name).await;
    let pool = postgres::pool(&shared().database(&name), 1, patience()).expect("a valid URL");
    let lines = Lines::down_to(tracing::Level::DEBUG);
    bounded("the end of the migration", migrate(&pool)).await.expect("the migrations fit");
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).expect("a folder");
    let mut indexes = Vec::new();
    for path in files.map(|file| file.expect("a file").path()) {
        if fs::read_to_string(&path).expect("a text").starts_with("-- no-transaction") {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            indexes.push(stem.split_once('_').expect("a number and a name").1.to_owned());
        }
    }
    assert!(!indexes.is_empty());
    let dropped = lines.with("DROP INDEX CONCURRENTLY");
    assert_eq!(dropped.len(), indexes.len());
    for index in indexes {
        let names = |line: &&String| {
            let mut words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
            words.any(|word| word == index)
        };
        assert_eq!(dropped.iter().filter(names).count(), 1, "{index}");
    }
    pool.close().await;
    shared().drop_database(&name).await;
}

/// A migration may take any time, and later statements of the pool may not.
#[tokio::test]
async fn migrate_ends_its_session_and_drops_no_index_of_a_database_that_is_up_to_date() {
    let app = TestApp::start().await;
    let pool = postgres::pool(&app.database_url(), 1, patience()).expect("a valid URL");
    let lines = Lines::down_to(tracing::Level::DEBUG);
    bounded("the end of the migration", migrate(&pool)).await.expect("it is up to date");
    assert_eq!(lines.count("SET statement_timeout"), 1);
    assert_eq!(lines.count("SET lock_timeout"), 1);
    let timeout = sqlx::query_scalar("SELECT current_setting('statement_timeout')");
    let timeout: String = timeout.fetch_one(&pool).await.expect("Postgres answers");
    assert_ne!(timeout, "0");
    assert_eq!(lines.count("DROP INDEX"), 0);
    pool.close().await;
}
