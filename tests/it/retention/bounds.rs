//! `make`, `drop` and `erase`: bounds of their statements and locks, as the statements themselves see them.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::person::erase::{Erasure, erase};
use flash_sale::sale::retention::months::{self, Month};

use crate::support::{TestApp, now, user};

/// An app whose statements may take 9 s, unless a transaction allows more.
async fn app() -> TestApp {
    TestApp::configured(&["--database-timeout-ms", "9000"]).await
}

#[tokio::test]
async fn make_and_drop_hold_the_history_for_a_moment_and_drop_allows_long_statements() {
    let app = app().await;
    app.execute(
        "CREATE TABLE seen (tag text, lock text, statement text);
         CREATE FUNCTION see() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO seen VALUES (tg_tag, current_setting('lock_timeout'), current_setting('statement_timeout'));
         END $$;
         CREATE EVENT TRIGGER seen ON ddl_command_start WHEN TAG IN ('CREATE TABLE', 'DROP TABLE')
             EXECUTE FUNCTION see()",
    )
    .await;
    let month = Month::of(now()).back(3);
    months::make(&app.app.stores.pool, month).await.expect("Postgres answers");
    months::drop(&app.app.stores.pool, month).await.expect("Postgres answers");
    let seen = "SELECT concat_ws(' ', count(*), tag, lock, statement) FROM seen
                GROUP BY tag, lock, statement ORDER BY tag";
    assert_eq!(app.texts(seen).await, ["4 CREATE TABLE 100ms 9s", "4 DROP TABLE 100ms 10s"]);
}

#[tokio::test]
async fn erase_allows_long_statements() {
    let app = app().await;
    app.expect_disagreements();
    app.execute(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             VALUES (101, 1, 'regular', 7, now(), 'cancelled', now());
         CREATE TABLE seen (statement text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO seen VALUES (current_setting('statement_timeout')); RETURN NEW; END $$;
         CREATE TRIGGER seen BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION see()",
    )
    .await;
    let erased = erase(&app.app.stores, user(7), &Actor::command_line()).await;
    assert!(matches!(erased, Ok(Erasure::Done(_))), "{erased:?}");
    assert_eq!(app.texts("SELECT statement FROM seen").await, ["10s"]);
}
