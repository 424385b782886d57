//! Keys of creations and restocks, and the prices of a coupon by revision.

use chrono::{DateTime, Utc};
use flash_sale::kit::postgres::{self, Page};
use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::create::Creation;
use flash_sale::sale::coupon::creation_keys::{self, CreationKey, Former};
use flash_sale::sale::coupon::prices::Prices;
use flash_sale::sale::coupon::restocks;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::shelf;
use crate::coupon::new_coupon;
use crate::support::{TestApp, eventually, sale};

async fn with_sales(last: usize) -> TestApp {
    let app = TestApp::start().await;
    shelf(&app, "", &vec![(String::new(), true); last]).await;
    app
}

fn key(administrator: i64, key: &str, body: &str) -> CreationKey {
    CreationKey::new(administrator, key.to_owned(), body.as_bytes())
}

#[tokio::test]
async fn a_former_creation_is_that_of_the_same_administrator_and_key() {
    let app = with_sales(3).await;
    let pool = &app.app.stores.pool;
    let mut tx = postgres::begin(pool).await.expect("Postgres answers");
    for (number, key, noted) in [
        (1, key(1, "a", "x"), true),
        (2, key(1, "b", "y"), true),
        (3, key(2, "a", "z"), true),
        (3, key(1, "a", "x"), false),
    ] {
        let done = creation_keys::note(&mut tx, &key, sale(number)).await;
        assert_eq!(done.expect("Postgres answers"), noted, "note, {key:?}");
    }
    let mode: String = sqlx::query_scalar("SELECT current_setting('plan_cache_mode')")
        .fetch_one(&mut *tx)
        .await
        .expect("Postgres has it");
    assert_eq!(mode, "force_custom_plan", "no plan from before there were keys");
    tx.commit().await.expect("Postgres answers");
    for (key, expected) in [
        (key(1, "a", "x"), Some(Former::Same(sale(1)))),
        (key(1, "b", "y"), Some(Former::Same(sale(2)))),
        (key(2, "a", "z"), Some(Former::Same(sale(3)))),
        (key(1, "a", "z"), Some(Former::Other)),
        (key(2, "b", "y"), None),
        (key(1, "c", "x"), None),
    ] {
        let former = creation_keys::former(pool, &key).await.expect("Postgres answers");
        assert_eq!(former, expected, "{key:?}");
    }
}

/// The oldest hundred of them, without those that another creation deletes at the same moment.
#[tokio::test]
async fn a_note_of_a_creation_key_forgets_some_that_are_older_than_a_day() {
    let app = with_sales(1).await;
    let pool = &app.app.stores.pool;
    app.execute(
        "INSERT INTO creation_keys (administrator, key, fingerprint, coupon_id, created_at)
         SELECT 1, n::text, ''::bytea, 1024, now() - interval '2 days' + n * interval '1 s' FROM generate_series(1, 103) AS n
         UNION ALL SELECT 1, 'young', ''::bytea, 1024, now() - interval '23 h 30 min'",
    )
    .await;
    let mut other = postgres::begin(pool).await.expect("Postgres answers");
    sqlx::query("SELECT FROM creation_keys WHERE key = '2' FOR UPDATE")
        .execute(&mut *other)
        .await
        .expect("Postgres does it");
    let mut tx = postgres::begin(pool).await.expect("Postgres answers");
    // A day old at this very moment; and no lock is waited for.
    sqlx::raw_sql(
        "SET LOCAL lock_timeout = '2s';
         INSERT INTO creation_keys (administrator, key, fingerprint, coupon_id, created_at)
         VALUES (1, 'a day old', '', 1024, now() - interval '1 day')",
    )
    .execute(&mut *tx)
    .await
    .expect("Postgres does it");
    let noted = creation_keys::note(&mut tx, &key(1, "new", ""), sale(1)).await;
    assert!(noted.expect("Postgres answers"));
    tx.commit().await.expect("Postgres answers");
    other.rollback().await.expect("Postgres answers");
    let left = "SELECT key FROM creation_keys ORDER BY created_at";
    assert_eq!(app.texts(left).await, ["2", "102", "103", "a day old", "young", "new"]);
}

/// A coupon that could not be created any more is there all the same.
#[tokio::test]
async fn create_once_finds_the_former_creation_before_it_looks_at_the_window() {
    let app = with_sales(1).await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let noted = creation_keys::note(&mut tx, &key(1, "k", "body"), sale(1)).await;
    assert!(noted.expect("Postgres answers"));
    tx.commit().await.expect("Postgres answers");
    let window = ["2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"];
    let new = new_coupon(&json!({"total": 1, "opens_at": window[0], "closes_at": window[1]}));
    let by = Actor::command_line();
    for (key, told) in [
        (key(1, "k", "body"), "Created("),
        (key(1, "k", "another body"), "KeyReused"),
        (key(2, "k", "body"), "WindowPast"),
    ] {
        let created = app.app.coupons.create_once(new.clone(), key, &by).await;
        let created = format!("{:?}", created.expect("both stores answer"));
        assert!(created.starts_with(told), "{created}, not {told}");
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 1);
}

/// A creation that another one has overtaken goes back with its own connection, and waits for no second one.
#[tokio::test]
async fn insert_under_a_key_that_was_noted_meanwhile_gives_its_connection_back() {
    let app = TestApp::configured(&["--database-connections", "2"]).await;
    app.write_sales(1).await;
    app.execute("SELECT nextval('coupon_sequence')").await;
    app.expect_disagreements();
    // One is in use elsewhere.
    let _busy = app.app.stores.pool.acquire().await.expect("Postgres answers");
    let mut other = PgConnection::connect(&app.database_url()).await.expect("Postgres answers");
    let note = "BEGIN; INSERT INTO creation_keys (administrator, key, fingerprint, coupon_id)
        VALUES (1, 'k', sha256('body'), 1024)";
    sqlx::raw_sql(note).execute(&mut other).await.expect("Postgres does it");
    let new = new_coupon(&Value::Null);
    let by = Actor::command_line();
    let creation = app.app.coupons.create_once(new, key(1, "k", "body"), &by);
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut watch = PgConnection::connect(&app.database_url()).await.expect("Postgres answers");
    let overtake = async {
        eventually("it waits for the key", async || {
            sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut watch).await.expect("a number") > 0
        })
        .await;
        sqlx::raw_sql("COMMIT").execute(&mut other).await.expect("Postgres does it");
    };
    let (created, ()) = tokio::join!(creation, overtake);
    let created = created.expect("both stores answer");
    assert!(matches!(&created, Creation::Created(it) if it.id == sale(1)), "{created:?}");
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 1);
}

#[tokio::test]
async fn a_restock_before_is_that_of_the_same_coupon_and_key() {
    let app = TestApp::start().await;
    let (one, other) = (app.create_flash(9).await, app.create_flash(9).await);
    for (coupon, units, key, status) in [
        (one, 1, "a", 200),
        (one, 2, "b", 200),
        (other, 3, "a", 200),
        // Repeats add nothing.
        (one, 1, "a", 200),
        (one, 2, "b", 200),
        (other, 3, "a", 200),
        (one, 3, "a", 409),
    ] {
        assert_eq!(app.restock(coupon, units, key).await.status, status, "{units} under {key}");
    }
    let totals = "SELECT total FROM flash_sales ORDER BY coupon_id";
    assert_eq!(app.numbers(totals).await, [9 + 1 + 2, 9 + 3]);
}

#[tokio::test]
async fn forget_deletes_restocks_of_coupons_that_ended_before_a_time_page_by_page() {
    let app = with_sales(5).await;
    app.execute(
        "UPDATE coupons SET state = 'ended', ended_at = '2024-01-01T00:00:00Z' WHERE id >> 10 IN (1, 4);
         UPDATE coupons SET state = 'ended', ended_at = '2024-02-01T00:00:00Z' WHERE id >> 10 = 3;
         INSERT INTO restocks (coupon_id, key, units)
         SELECT number << 10, key, 1
         FROM (VALUES (1::bigint, 'a'), (1, 'b'), (2, 'a'), (3, 'a'), (4, 'a'), (5, 'a')) AS restock (number, key)",
    )
    .await;
    let pool = &app.app.stores.pool;
    let before: DateTime<Utc> = "2024-02-01T00:00:00Z".parse().expect("a time");
    let last = |number: i64| Some(sale(number).get());
    for (behind, limit, expected, left) in [
        // The first three keys are of two coupons.
        (0, 3, Page { last: last(2), deleted: 2 }, "2a 3a 4a 5a"),
        (sale(2).get(), 2, Page { last: last(4), deleted: 1 }, "2a 3a 5a"),
        (sale(4).get(), 2, Page { last: None, deleted: 0 }, "2a 3a 5a"),
    ] {
        let page = restocks::forget(pool, behind, before, limit).await.expect("Postgres answers");
        assert_eq!(page, expected, "behind {behind}");
        let rows = "SELECT string_agg(concat(coupon_id >> 10, key), ' ' ORDER BY coupon_id, key) FROM restocks";
        assert_eq!(app.texts(rows).await, [left], "behind {behind}");
    }
}

#[tokio::test]
async fn prices_hold_from_their_revision_on() {
    let app = with_sales(3).await;
    app.execute(
        "UPDATE coupons SET pay_cents = 30, revision = 5 WHERE id >> 10 = 1;
         UPDATE coupons SET pay_cents = 40, revision = 8 WHERE id >> 10 = 1;
         UPDATE coupons SET pay_cents = 50, revision = 3 WHERE id >> 10 = 2",
    )
    .await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    for (number, revision, expected) in [
        (1, 1, None),
        (1, 2, Some(1)),
        (1, 4, Some(1)),
        (1, 5, Some(30)),
        (1, 7, Some(30)),
        (1, 8, Some(40)),
        (1, 99, Some(40)),
        (2, 2, Some(2)),
        (2, 5, Some(50)),
        (3, 9, Some(3)),
        (4, 9, None),
    ] {
        let price = Prices::default().at(&mut tx, sale(number), revision).await;
        let cents = price.expect("Postgres answers").map(|price| price.pay_cents);
        assert_eq!(cents, expected, "coupon {number} at revision {revision}");
    }
}

/// A price of a revision never changes, so Postgres is asked for it once.
#[tokio::test]
async fn prices_that_are_known_are_remembered_by_coupon_and_revision() {
    let app = with_sales(2).await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let prices = Prices::default();
    for (number, revision) in [(1, 2), (3, 2)] {
        prices.at(&mut tx, sale(number), revision).await.expect("Postgres answers");
    }
    app.execute(
        "UPDATE coupon_prices SET pay_cents = 90, currency = 'EUR';
         INSERT INTO coupon_prices (coupon_id, revision, pay_cents, currency) VALUES (3 << 10, 1, 70, 'CNY')",
    )
    .await;
    for (number, revision, expected) in [
        (1, 2, (1, "CNY")),
        (1, 3, (90, "EUR")),
        (2, 2, (90, "EUR")),
        // A coupon that was unknown is asked for again.
        (3, 2, (70, "CNY")),
    ] {
        let price = prices.clone().at(&mut tx, sale(number), revision).await;
        let price = price.expect("Postgres answers").expect("a price");
        let known = (price.pay_cents, price.currency.as_str());
        assert_eq!(known, expected, "coupon {number} at revision {revision}");
    }
}
