//! Batches of claims: the fate of those that other processes write meanwhile, and the steps that a batch takes.

use flash_sale::kit::postgres;
use flash_sale::sale::ids::OrderId;
use flash_sale::sale::log::LoggedClaim;
use flash_sale::sale::order::dead_letter::Reason;
use flash_sale::sale::order::insert::{NotWritten, Written};
use flash_sale::sale::retention::months::{self, Month};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Transaction, raw_sql};
use tokio_util::sync::CancellationToken;

use crate::support::servers::on_a_runtime_of_its_own;
use crate::support::{TestApp, lane, sale, user};

/// The claim of an order by a user.
fn claim(coupon: i64, (order, buyer): (i64, i64)) -> LoggedClaim {
    let order = OrderId::new(order).expect("an id");
    LoggedClaim::without_entry(sale(coupon), user(buyer), order)
}

fn claims<const N: usize>(coupon: i64, pairs: [(i64, i64); N]) -> [LoggedClaim; N] {
    pairs.map(|pair| claim(coupon, pair))
}

async fn write(app: &TestApp, claims: &[LoggedClaim]) -> Result<Written, NotWritten> {
    app.app.orders.write((lane(), 1), claims, &CancellationToken::new()).await
}

async fn write_what_fits(app: &TestApp, claims: &[LoggedClaim]) -> Result<Written, NotWritten> {
    app.app.orders.write_what_fits((lane(), 1), claims, &CancellationToken::new()).await
}

/// A transaction of another process that has inserted an unpaid order, and waits for no lock for longer than two seconds.
async fn inserting(
    app: &TestApp,
    coupon: i64,
    (order, buyer): (i64, i64),
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let mut tx = postgres::begin(&app.app.stores.pool).await?;
    let row = format!(
        "SET LOCAL lock_timeout = '2s';
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({order}, {}, 'flash', {buyer}, now())",
        sale(coupon)
    );
    raw_sql(AssertSqlSafe(row)).execute(&mut *tx).await?;
    Ok(tx)
}

/// Orders with their users.
async fn rows(app: &TestApp) -> Vec<String> {
    app.texts("SELECT concat_ws(' ', id, user_id) FROM orders ORDER BY id").await
}

/// Another process has inserted a row, and ends while the batch waits for it.
#[tokio::test]
async fn overflow_sorts_the_refused_claims_of_a_batch_by_the_rows_that_have_come_meanwhile() {
    let app = TestApp::with_sales(5).await;
    let written = |inserted, repeated, conflicts| Written {
        inserted,
        repeated,
        conflicts,
        ..Written::default()
    };
    for (coupon, row, commits, pairs, expected) in [
        (1, (11, 11), true, [(11, 11), (12, 12)], written(1, 1, 0)),
        (2, (21, 29), true, [(21, 21), (22, 22)], written(1, 0, 1)),
        (3, (39, 31), true, [(31, 31), (32, 32)], written(1, 0, 1)),
        (4, (41, 41), false, [(41, 41), (42, 42)], written(2, 0, 0)),
    ] {
        let other = inserting(&app, coupon, row).await.expect("it is the first");
        let ending = async {
            app.a_session_waits_for_a_row().await;
            let ended = if commits { other.commit().await } else { other.rollback().await };
            ended.expect("Postgres answers");
        };
        let batch = claims(coupon, pairs);
        let (found, ()) = tokio::join!(write_what_fits(&app, &batch), ending);
        assert_eq!(found.expect("it is written"), expected, "{row:?}");
    }
    let expected = ["11 11", "12 12", "21 29", "22 22", "32 32", "39 31", "41 41", "42 42"];
    assert_eq!(rows(&app).await, expected);
    let letters = "SELECT order_id FROM dead_letters WHERE reason = 'conflict' ORDER BY order_id";
    assert_eq!(app.numbers(letters).await, [21, 31]);
}

/// The units of a sale change while a batch waits for another process.
#[tokio::test]
async fn overflow_writes_nothing_if_the_units_of_the_sale_have_changed_meanwhile() {
    let app = TestApp::with_sales(3).await;
    app.execute("UPDATE flash_sales SET total = 1, sold = 0").await;
    for (coupon, change, is_written) in [
        (1, "UPDATE flash_sales SET total = 3 WHERE coupon_id = 1024", false),
        (2, "UPDATE flash_sales SET sold = 1 WHERE coupon_id = 2048", false),
        (3, "UPDATE flash_sales SET total = 3 WHERE coupon_id = 1024", true),
    ] {
        let first = 10 * coupon + 1;
        let other = inserting(&app, coupon, (first, first)).await.expect("it is the first");
        let changing = async {
            app.a_session_waits_for_a_row().await;
            app.execute(change).await;
            other.rollback().await.expect("Postgres answers");
        };
        let batch = claims(coupon, [(first, first), (first + 1, first + 1)]);
        let (found, ()) = tokio::join!(write_what_fits(&app, &batch), changing);
        match found {
            Ok(written) => {
                let expected = Written { inserted: 1, oversold: 1, ..Written::default() };
                assert_eq!((written, is_written), (expected, true));
            }
            Err(NotWritten::Poison(reason, detail)) => {
                let changed =
                    format!("the units of coupon {} have changed meanwhile", sale(coupon));
                assert_eq!((reason, detail, is_written), (Reason::Oversold, changed, false));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(rows(&app).await, ["31 31"]);
}

/// Two workers with overlapping batches insert rows in one order.
#[tokio::test]
async fn insert_new_waits_for_the_first_row_and_has_not_come_to_the_second() {
    let app = TestApp::with_sales(1).await;
    let other = inserting(&app, 1, (11, 11)).await.expect("it is the first");
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let second = inserting(&app, 1, (12, 12)).await;
        let is_free = second.is_ok();
        if let Ok(second) = second {
            second.rollback().await.expect("Postgres answers");
        }
        other.rollback().await.expect("Postgres answers");
        is_free
    };
    let batch = claims(1, [(12, 12), (11, 11)]);
    let (written, is_free) = tokio::join!(write(&app, &batch), looking);
    assert!(is_free, "it has not come to the second");
    assert_eq!(written.expect("Postgres answers").inserted, 2);
}

/// Of claims with one order id the first in the log wins, however large the batch is.
#[tokio::test]
async fn insert_missing_prefers_the_earlier_of_many_claims_with_the_same_ids() {
    let app = TestApp::with_sales(1).await;
    let first = (1..=40).rev().map(|id| (id, 100 + id));
    let second = (0..40).map(|n| 1 + 7 * n % 40).map(|id| (id, 200 + id));
    let batch: Vec<LoggedClaim> = first.chain(second).map(|pair| claim(1, pair)).collect();
    let written = write(&app, &batch).await.expect("it is written");
    assert_eq!(written, Written { inserted: 40, conflicts: 40, ..Written::default() });
    let expected: Vec<String> = (1..=40).map(|id| format!("{id} {}", 100 + id)).collect();
    assert_eq!(rows(&app).await, expected);
}

/// Two orders have moved, and the month of others may have been dropped.
#[tokio::test]
async fn set_aside_counts_repeats_conflicts_and_claims_before_the_mark_of_one_batch() {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[(11, 1, "flash", 1, "cancelled"), (12, 1, "flash", 2, "cancelled")]).await;
    months::make(&app.app.stores.pool, Month::of_order(11)).await.expect("Postgres does it");
    app.execute(
        "WITH gone AS (DELETE FROM orders RETURNING *) INSERT INTO order_history SELECT * FROM gone;
         UPDATE settings SET orders_moved_to = 50;
         UPDATE flash_sales SET archived_at = now()",
    )
    .await;
    let batch = claims(1, [(11, 1), (12, 9), (13, 3), (14, 4), (60, 6)]);
    let new = Written { inserted: 1, repeated: 1, conflicts: 1, before_mark: 2, oversold: 0 };
    let again = Written { repeated: 5, ..Written::default() };
    for expected in [new, again] {
        assert_eq!(write(&app, &batch).await.expect("it is written"), expected);
    }
    let batch = claims(1, [(11, 1), (12, 8), (13, 3), (15, 5), (61, 7)]);
    let other = Written { inserted: 1, repeated: 2, conflicts: 1, before_mark: 1, oversold: 0 };
    for expected in [other, again] {
        assert_eq!(write_what_fits(&app, &batch).await.expect("it is written"), expected);
    }
    assert_eq!(rows(&app).await, ["60 6", "61 7"]);
}

/// Nothing else of this process runs between the end of the batch and the look.
#[tokio::test]
async fn the_end_of_a_refused_batch_is_told_when_its_rows_are_gone() {
    let app = TestApp::with_sales(1).await;
    let url = app.database_url();
    let refused = write(&app, &claims(9, [(12, 12)])).await;
    let writers = on_a_runtime_of_its_own(async move || {
        let mut connection = PgConnection::connect(&url).await.expect("Postgres answers");
        let writers = "SELECT count(*) FROM pg_locks
                       WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
                         AND relation = 'orders'::regclass AND mode = 'RowExclusiveLock'";
        sqlx::query_scalar::<_, i64>(writers).fetch_one(&mut connection).await
    });
    assert!(matches!(refused, Err(NotWritten::Poison(Reason::Invalid, _))), "{refused:?}");
    assert_eq!(writers.expect("Postgres answers"), 0);
}

/// Counts the rows that are inserted into the orders, also by transactions that are rolled back. The first of so many
/// statements are refused.
async fn watch_inserts(app: &TestApp, refused: i64) {
    app.execute(&format!(
        "CREATE SEQUENCE inserted; CREATE SEQUENCE tries;
         CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM nextval('inserted'); RETURN NEW; END $$;
         CREATE FUNCTION note_try() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('tries') <= {refused} THEN RAISE EXCEPTION 'refused' USING ERRCODE = '57014'; END IF;
                 RETURN NULL;
             END $$;
         CREATE TRIGGER noted BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note_row();
         CREATE TRIGGER tried BEFORE INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION note_try()"
    ))
    .await;
}

#[tokio::test]
async fn insert_counted_writes_new_rows_at_the_first_try() {
    let app = TestApp::with_sales(1).await;
    watch_inserts(&app, 0).await;
    let batch = claims(1, [(11, 11), (12, 12), (13, 13)]);
    assert_eq!(write(&app, &batch).await.expect("it is written").inserted, 3);
    assert_eq!(app.number("SELECT last_value FROM inserted").await, 3);
    assert_eq!(app.number("SELECT last_value FROM tries").await, 1);
}

/// An error that says nothing about the rows is no sign that they are there.
#[tokio::test]
async fn insert_new_that_is_broken_off_is_not_tried_again_by_itself() {
    let app = TestApp::with_sales(1).await;
    watch_inserts(&app, 1).await;
    let batch = claims(1, [(11, 11), (12, 12)]);
    let broken_off = write(&app, &batch).await;
    assert!(matches!(broken_off, Err(NotWritten::Postgres(_))), "{broken_off:?}");
    assert_eq!((rows(&app).await.len(), app.number("SELECT last_value FROM tries").await), (0, 1));
    assert_eq!(write(&app, &batch).await.expect("it is written").inserted, 2);
}

/// A batch that is there already costs its first try, and one more; nothing is put aside for it.
#[tokio::test]
async fn a_batch_that_is_repeated_inserts_no_letters_and_looks_for_no_contradictions() {
    let app = TestApp::with_sales(1).await;
    let batch = claims(1, [(11, 11), (12, 12), (13, 13)]);
    assert_eq!(write(&app, &batch).await.expect("it is written").inserted, 3);
    watch_inserts(&app, 0).await;
    app.execute(
        "CREATE SEQUENCE letters;
         CREATE FUNCTION note_letters() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM nextval('letters'); RETURN NULL; END $$;
         CREATE TRIGGER noted BEFORE INSERT ON dead_letters FOR EACH STATEMENT EXECUTE FUNCTION note_letters()",
    )
    .await;
    let repeated = Written { repeated: 3, ..Written::default() };
    assert_eq!(write(&app, &batch).await.expect("it is there"), repeated);
    assert_eq!(app.number("SELECT last_value FROM tries").await, 2);
    assert_eq!(write_what_fits(&app, &batch).await.expect("it is there"), repeated);
    assert_eq!(
        app.number("SELECT last_value FROM tries").await,
        2,
        "all of them are sorted out before"
    );
    assert_eq!(app.numbers("SELECT last_value FROM letters WHERE is_called").await, [0; 0]);
}

/// The connection of a batch goes back to its pool, unless the batch is broken off: its work may go on there.
#[tokio::test]
async fn write_amount_gives_its_connection_back_when_it_has_finished() {
    let app = TestApp::configured(&["--database-connections", "2"]).await;
    app.expect_disagreements();
    app.write_sales(1).await;
    // All that follows has the other connection.
    let _one = app.app.stores.pool.acquire().await.expect("Postgres answers");
    let session = async || app.number("SELECT pg_backend_pid()::bigint").await;
    let before = session().await;
    assert_eq!(write(&app, &claims(1, [(11, 11)])).await.expect("it is written").inserted, 1);
    assert_eq!(session().await, before);
    let refused = write(&app, &claims(9, [(12, 12)])).await;
    assert!(matches!(refused, Err(NotWritten::Poison(Reason::Invalid, _))), "{refused:?}");
    assert_eq!(session().await, before);
    let lost = CancellationToken::new();
    lost.cancel();
    let broken_off = app.app.orders.write((lane(), 1), &claims(1, [(13, 13)]), &lost).await;
    assert!(matches!(broken_off, Err(NotWritten::LocksLost)), "{broken_off:?}");
    assert_ne!(session().await, before);
}

/// Rows are looked up by arrays, for whose lengths the statements have to be planned.
#[tokio::test]
async fn existing_rows_are_looked_up_by_a_plan_for_the_values() {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[(11, 1, "flash", 1, "unpaid")]).await;
    app.execute(
        "CREATE SEQUENCE planned_for_values;
         CREATE FUNCTION note_plan() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF current_setting('plan_cache_mode') = 'force_custom_plan' THEN PERFORM nextval('planned_for_values'); END IF;
                 RETURN NULL;
             END $$;
         CREATE TRIGGER planned AFTER INSERT ON dead_letters FOR EACH ROW EXECUTE FUNCTION note_plan()",
    )
    .await;
    let conflicts = Written { conflicts: 1, ..Written::default() };
    assert_eq!(write(&app, &claims(1, [(11, 8)])).await.expect("it is written"), conflicts);
    assert_eq!(
        write_what_fits(&app, &claims(1, [(11, 9)])).await.expect("it is written"),
        conflicts
    );
    assert_eq!(app.number("SELECT last_value FROM planned_for_values").await, 2);
}
