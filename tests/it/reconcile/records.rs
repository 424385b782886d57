//! `runs`: the record of comparisons, row by row: the one that is due, ended, failed, named by a key, or forgotten.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::limits::{RECONCILE_ASSUMED, RUN_FINDINGS_MAX};
use flash_sale::kit::postgres;
use flash_sale::sale::ids::{CouponId, RunId};
use flash_sale::sale::reconcile::repair::Repair;
use flash_sale::sale::reconcile::runs::{self, AskedBy, Before, RunKey};
use flash_sale::sale::reconcile::{Disagreement, Earlier, Kind, Report, SaleCount};
use serde_json::Value;
use sqlx::PgPool;

use crate::support::{TestApp, now, user};

/// Longer than any of these tests takes.
const PERIOD: Duration = Duration::from_secs(10_000);

/// A comparison that began some seconds ago, and took some seconds; it has failed, or has no end on record.
struct Row(i64, Option<i64>, bool);

/// Puts these comparisons into the place of the record, the newest last.
async fn record(app: &TestApp, rows: &[Row]) {
    app.execute("DELETE FROM reconcile_runs").await;
    for Row(ago, took, has_failed) in rows {
        let (failure, found) = match (has_failed, took) {
            (true, _) => ("'away'", "NULL"),
            (false, Some(_)) => ("NULL", "0"),
            (false, None) => ("NULL", "NULL"),
        };
        let took = took.map_or("NULL".to_owned(), |took| took.to_string());
        app.execute(&format!(
            "INSERT INTO reconcile_runs (asked_by, started_at, finished_at, failure, disagreements, at_rest, sales, in_flight, orders)
             SELECT 'api', began, began + {took} * interval '1 s', {failure}, found, found = 0, found, found,
                    CASE WHEN found = 0 THEN '{{}}'::jsonb END
             FROM (SELECT clock_timestamp() - {ago} * interval '1 s' AS began, {found}::bigint AS found) AS one"
        ))
        .await;
    }
}

#[tokio::test]
async fn is_due_goes_by_the_last_comparison_its_age_and_its_duration() {
    let app = TestApp::start().await;
    let assumed = i64::try_from(RECONCILE_ASSUMED.as_secs()).expect("it is short");
    let long = 20 * assumed;
    for (period_s, rows, is_due) in [
        (10_000, &[][..], true),
        (10_000, &[Row(9_000, Some(1), false)], false),
        (10_000, &[Row(10_001, Some(1), false)], true),
        // Twenty times as old as it took.
        (10_000, &[Row(15_000, Some(1_000), false)], false),
        (10_000, &[Row(20_001, Some(1_000), false)], true),
        // Without an end on record.
        (60, &[Row(long - 300, None, false)], false),
        (60, &[Row(long + 1, None, false)], true),
        // The last one decides.
        (10_000, &[Row(1, Some(1), false), Row(10_001, Some(1), false)], true),
        (10_000, &[Row(20_000, Some(1), false), Row(9_000, Some(1), false)], false),
        (10_000, &[Row(9_000, Some(1), true)], false),
    ] {
        record(&app, rows).await;
        let period = Duration::from_secs(period_s);
        let told = runs::is_due(&app.app.stores.pool, period).await.expect("Postgres answers");
        let rows: Vec<_> = rows.iter().map(|Row(ago, took, failed)| (ago, took, failed)).collect();
        assert_eq!(told, is_due, "{rows:?}");
    }
}

#[tokio::test]
async fn failed_since_goes_by_the_last_comparison() {
    let app = TestApp::start().await;
    for (rows, has_failed) in [
        (&[][..], false),
        (&[Row(9_000, Some(1), true)], true),
        (&[Row(10_001, Some(1), true)], false),
        (&[Row(9_000, Some(1), false)], false),
        (&[Row(9_000, None, false)], false),
        (&[Row(9_000, Some(1), true), Row(8_000, Some(1), false)], false),
        (&[Row(9_000, Some(1), false), Row(8_000, Some(1), true)], true),
    ] {
        record(&app, rows).await;
        let failed = runs::failed_since(&app.app.stores.pool, PERIOD).await;
        let rows: Vec<_> = rows.iter().map(|Row(ago, took, failed)| (ago, took, failed)).collect();
        assert_eq!(failed.expect("Postgres answers"), has_failed, "{rows:?}");
    }
}

#[tokio::test]
async fn unfinished_and_last_finished_and_list_go_from_the_newest_on() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    for (rows, unfinished, last_finished) in [
        (&[][..], None, None),
        (&[Row(9, None, false)], Some(0), None),
        (&[Row(9, Some(1), false)], None, Some(0)),
        (&[Row(9, Some(1), true)], None, None),
        (&[Row(9, None, false), Row(9, Some(1), false)], None, Some(1)),
        (&[Row(9, Some(1), false), Row(9, None, false)], Some(1), Some(0)),
        (&[Row(9, Some(1), false), Row(9, Some(1), false), Row(9, Some(1), true)], None, Some(1)),
    ] {
        record(&app, rows).await;
        let listed = runs::list(pool, None, 9).await.expect("Postgres answers");
        let newest_first: Vec<i64> = listed.iter().map(|run| run.run_id.get()).collect();
        let mut ids = newest_first.clone();
        ids.sort_unstable();
        assert!(newest_first.iter().rev().eq(&ids) && ids.len() == rows.len(), "{newest_first:?}");
        let at = |found: Option<RunId>| found.map(|run| ids.iter().position(|id| *id == run.get()));
        let is_open = runs::unfinished(pool).await.expect("Postgres answers");
        assert_eq!(at(is_open), unfinished.map(Some));
        let last = runs::last_finished(pool).await.expect("Postgres answers");
        assert_eq!(at(last.map(|run| run.run_id)), last_finished.map(Some));
    }
    let ids: Vec<RunId> = runs::list(pool, None, 9)
        .await
        .expect("Postgres answers")
        .iter()
        .map(|run| run.run_id)
        .collect();
    let behind = runs::list(pool, Some(ids[0]), 1).await.expect("Postgres answers");
    assert_eq!(behind.iter().map(|run| run.run_id).collect::<Vec<_>>(), ids[1..2]);
    let reconciler = &app.app.reconciler;
    assert_eq!(
        reconciler.get(ids[1]).await.expect("Postgres answers").map(|run| run.run_id),
        Some(ids[1])
    );
    app.execute(&format!("DELETE FROM reconcile_runs WHERE id = {}", ids[1])).await;
    assert_eq!(reconciler.get(ids[1]).await.expect("Postgres answers"), None);
}

#[tokio::test]
async fn forget_deletes_the_oldest_of_before_a_time() {
    let app = TestApp::start().await;
    let time = DateTime::from_timestamp(now().timestamp(), 0).expect("a time");
    app.execute(&format!(
        "INSERT INTO reconcile_runs (asked_by, started_at)
         SELECT 'api', to_timestamp({} + n) FROM unnest('{{1, 0, -3, -1, -2}}'::integer[]) AS n",
        time.timestamp()
    ))
    .await;
    for (limit, deleted, left) in [(2, 2, "-1 0 1"), (9, 1, "0 1"), (9, 0, "0 1")] {
        let forgotten = runs::forget(&app.app.stores.pool, time, limit).await;
        assert_eq!(forgotten.expect("Postgres answers"), deleted);
        let query = format!(
            "SELECT string_agg((extract(epoch FROM started_at)::bigint - {})::text, ' ' ORDER BY started_at) FROM reconcile_runs",
            time.timestamp()
        );
        let there: String = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .fetch_one(&app.app.stores.pool)
            .await
            .expect("Postgres answers");
        assert_eq!(there, left);
    }
}

/// Words of findings and repairs: of user 7 in two comparisons, of other users in a third.
const NAMING: &str = r#"
    INSERT INTO reconcile_runs (asked_by, findings, repairs) VALUES
        ('api', '[{"code": "a", "coupon_id": "1", "detail": "coupon 1: user 7 has order 5, and user 77 none"},
                  {"code": "a", "coupon_id": "7", "detail": "coupon 7: order 7 of user 8"}]', '[]'),
        ('api', '[{"code": "b", "coupon_id": "1", "detail": "of user 7. It is"}]',
                '[{"code": "b", "coupon_id": "1", "done": true, "detail": "order 5 of user 7 is written"}]'),
        ('api', '[{"code": "c", "coupon_id": "1", "detail": "user 70 and superuser 7b"}]', '[]')"#;

#[tokio::test]
async fn naming_finds_the_words_about_a_user_and_erase_takes_the_number_out_of_them() {
    let app = TestApp::start().await;
    app.execute(NAMING).await;
    let pool = &app.app.stores.pool;
    let named = async |id: i64| {
        let named = runs::naming(pool, user(id)).await.expect("Postgres answers");
        let words =
            named.iter().map(|one| one["finding"]["detail"].as_str().expect("words").to_owned());
        words.collect::<Vec<_>>()
    };
    let of_seven = [
        "coupon 1: user 7 has order 5, and user 77 none",
        "of user 7. It is",
        "order 5 of user 7 is written",
    ];
    assert_eq!(named(7).await, of_seven);
    let with_runs = runs::naming(pool, user(8)).await.expect("Postgres answers");
    assert_eq!(with_runs.len(), 1);
    let first = "SELECT min(id) FROM reconcile_runs";
    assert_eq!(with_runs[0]["run_id"], app.number(first).await);
    assert!(with_runs[0]["at"].is_string(), "{with_runs:?}");

    let mut tx = postgres::begin(pool).await.expect("Postgres answers");
    assert_eq!(runs::erase(&mut tx, user(7)).await.expect("Postgres answers"), 2);
    tx.commit().await.expect("Postgres answers");
    assert_eq!(named(7).await, [""; 0]);
    assert_eq!(named(77).await, ["coupon 1: an erased user has order 5, and user 77 none"]);
    assert_eq!(named(70).await, ["user 70 and superuser 7b"]);
    let erased = r#"SELECT count(*) FROM reconcile_runs
        WHERE findings->0->>'detail' = 'of an erased user. It is' AND repairs->0->>'detail' = 'order 5 of an erased user is written'"#;
    assert_eq!(app.number(erased).await, 1);
}

#[tokio::test]
async fn begun_under_a_key_is_one_comparison_of_one_asker() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let key = |asker: i64, name: &str, body: &[u8]| RunKey::new(user(asker), name.into(), body);
    let run = runs::begin(pool, AskedBy::Api, Kind::Full, Some(&key(1, "k", b"a"))).await;
    let run = run.expect("Postgres answers");
    runs::begin(pool, AskedBy::Api, Kind::Full, None).await.expect("Postgres answers");
    for (asker, name, body, before) in [
        (1, "k", b"a", Some(Before::Same(run))),
        (1, "k", b"b", Some(Before::KeyReused)),
        (2, "k", b"a", None),
        (1, "l", b"a", None),
    ] {
        let found = runs::begun_under(pool, &key(asker, name, body)).await;
        assert_eq!(found.expect("Postgres answers"), before, "{asker} {name}");
    }
}

fn report(disagreements: usize) -> Report {
    let coupon = CouponId::compose(1, 1);
    let sale = SaleCount {
        coupon,
        total: 1,
        stock: 1,
        buyers: 0,
        live_orders: 0,
        in_review: 0,
        identical: true,
    };
    Report {
        sales: vec![sale.clone(), sale.clone(), sale],
        in_flight: 4,
        at_rest: true,
        orders: [("paid".to_owned(), 5)].into(),
        disagreements: (0..disagreements).map(|_| Disagreement::SaleMissing { coupon }).collect(),
        earlier: vec![Earlier { coupon, code: "order_lost".into() }],
        unchanged: 6,
        waiting: 7,
        readings: Vec::new(),
    }
}

async fn begin(pool: &PgPool, asked_by: AskedBy, kind: Kind) -> RunId {
    runs::begin(pool, asked_by, kind, None).await.expect("Postgres answers")
}

#[tokio::test]
async fn finish_and_fail_note_the_end_of_one_comparison() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let first = begin(pool, AskedBy::CommandLine, Kind::Changed).await;
    let second = begin(pool, AskedBy::Period, Kind::Full).await;
    let third = begin(pool, AskedBy::Api, Kind::Full).await;
    let began = now() - TimeDelta::seconds(1);
    let repairs: Vec<Repair> = (0..=RUN_FINDINGS_MAX)
        .map(|n| Repair {
            code: "order_lost".into(),
            coupon_id: CouponId::compose(1, 1),
            done: true,
            detail: format!("{n}"),
        })
        .collect();
    runs::finish(pool, first, &report(RUN_FINDINGS_MAX), &repairs).await.expect("Postgres answers");
    runs::fail(pool, second, "a\0b").await.expect("Postgres answers");
    let list = runs::list(pool, None, 9).await.expect("Postgres answers");
    let [open, failed, done] = &list[..] else { panic!("{list:?}") };
    assert_eq!((open.run_id, open.asked_by, open.finished_at), (third, AskedBy::Api, None));
    assert_eq!((open.failure.as_deref(), open.disagreements), (None, None));
    assert_eq!(
        (failed.asked_by, failed.kind, failed.disagreements),
        (AskedBy::Period, Kind::Full, None)
    );
    assert!(failed.failure.as_ref().is_some_and(|words| words.starts_with('a')), "{failed:?}");
    let ended = |at: Option<DateTime<Utc>>| at.is_some_and(|at| began <= at && at <= now());
    assert!(ended(failed.finished_at) && ended(done.finished_at), "{failed:?} {done:?}");
    assert_eq!(
        (done.asked_by, done.kind, done.failure.as_deref()),
        (AskedBy::CommandLine, Kind::Changed, None)
    );
    assert_eq!((done.at_rest, done.sales, done.in_flight), (Some(true), Some(3), Some(4)));
    assert_eq!((done.unchanged, done.waiting), (6, 7));
    let orders = done.orders.as_ref().expect("they are counted");
    assert_eq!((orders.len(), orders["paid"]), (1, 5));
    let all = i64::try_from(RUN_FINDINGS_MAX).expect("it is small") + 1;
    assert_eq!(done.disagreements, Some(all), "those of earlier readings, too");
    assert_eq!((done.findings.len(), done.repairs.len()), (RUN_FINDINGS_MAX, RUN_FINDINGS_MAX));
    assert_eq!(done.findings[0].code, "sale_missing");
    assert_eq!((&*done.repairs[0].detail, done.repairs[0].done), ("0", true));
    assert!(ended(done.oldest_reading_at), "there is no sale: {done:?}");

    runs::finish(pool, third, &report(0), &[]).await.expect("Postgres answers");
    let last = runs::list(pool, None, 1).await.expect("Postgres answers").remove(0);
    assert_eq!((last.disagreements, last.findings.len(), last.repairs.len()), (Some(1), 1, 0));
    let finding = serde_json::to_value(&last.findings[0]).expect("it is JSON");
    assert_eq!(
        (&finding["code"], finding["coupon_id"].is_string()),
        (&Value::from("order_lost"), true)
    );
}

#[tokio::test]
async fn finish_notes_the_oldest_reading_of_the_sales_that_redis_has_to_hold() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let mut coupons = Vec::new();
    for _ in 0..4 {
        coupons.push(app.create_flash(1).await);
    }
    let [a, b, archived, never_loaded] = coupons[..] else { panic!("{coupons:?}") };
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {archived};
         UPDATE flash_sales SET loaded_at = NULL, load_id = NULL WHERE coupon_id = {never_loaded};
         INSERT INTO sale_readings (coupon_id, read_at, in_redis, in_postgres, is_good) VALUES
             ({a}, '2026-02-01', '', '', true), ({b}, '2026-03-01', '', '', true)"
    ))
    .await;
    let oldest = async || {
        let run = begin(pool, AskedBy::Api, Kind::Full).await;
        runs::finish(pool, run, &report(0), &[]).await.expect("Postgres answers");
        let run = runs::list(pool, None, 1).await.expect("Postgres answers").remove(0);
        run.oldest_reading_at.map(|at| at.date_naive().to_string())
    };
    assert_eq!(oldest().await.as_deref(), Some("2026-02-01"));
    app.execute(&format!("DELETE FROM sale_readings WHERE coupon_id = {b}")).await;
    assert_eq!(oldest().await, None, "one has never been read");
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = NULL WHERE coupon_id = {archived}; DELETE FROM sale_readings"
    ))
    .await;
    app.expect_disagreements();
}
