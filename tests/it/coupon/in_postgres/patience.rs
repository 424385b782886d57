//! Time that statements about sales may take: those that may count many orders have more of it than all others.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::kit::postgres;
use flash_sale::sale::coupon::stock;
use sqlx::{PgConnection, PgPool};

use super::{rows, shelf};
use crate::support::{TestApp, lane, sale};

/// Time of all other statements here.
const USUAL: Duration = Duration::from_secs(7);

/// Sessions whose statements have the usual time, on the app's data.
fn impatient(app: &TestApp) -> PgPool {
    postgres::pool(&app.database_url(), 1, USUAL).expect("a valid URL")
}

/// Time that a statement of this session may take, in ms.
const ALLOWED: &str =
    "(extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::bigint";

async fn allowed(session: &mut PgConnection) -> i64 {
    let query = sqlx::AssertSqlSafe(format!("SELECT {ALLOWED}"));
    sqlx::query_scalar(query).fetch_one(session).await.expect("Postgres answers")
}

/// Whether a statement waits for a lock until its time is over.
async fn waits_for_locks(session: &mut PgConnection) -> bool {
    let query = sqlx::query_scalar("SELECT current_setting('lock_timeout') = '0'");
    query.fetch_one(session).await.expect("Postgres answers")
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("it is short")
}

#[tokio::test]
async fn allow_statements_holds_for_its_transaction_alone() {
    let app = TestApp::start().await;
    let pool = impatient(&app);
    for _ in 0..2 {
        let mut tx = postgres::begin(&pool).await.expect("Postgres answers");
        assert_eq!(allowed(&mut tx).await, ms(USUAL));
        assert!(!waits_for_locks(&mut tx).await);
        stock::allow_statements(&mut tx, Duration::from_millis(12_345)).await.expect("it may");
        assert_eq!(allowed(&mut tx).await, 12_345);
        assert!(waits_for_locks(&mut tx).await);
        stock::allow_long_statements(&mut tx).await.expect("it may");
        assert_eq!(allowed(&mut tx).await, ms(limits::RECOUNT_TIMEOUT));
        tx.commit().await.expect("Postgres answers");
    }
}

#[tokio::test]
async fn recount_sold_and_remove_again_have_the_time_of_a_recount() {
    let app = TestApp::start().await;
    let removed =
        "UPDATE flash_sales SET archived_at = now(), removed_at = now() WHERE coupon_id = $";
    shelf(&app, "", &rows([("", true), (removed, true)])).await;
    app.execute(&format!(
        "CREATE TABLE allowed (ms bigint);
         CREATE FUNCTION note_allowed() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO allowed VALUES ({ALLOWED}); RETURN NEW; END $$;
         CREATE TRIGGER noted BEFORE UPDATE ON flash_sales FOR EACH ROW EXECUTE FUNCTION note_allowed()"
    ))
    .await;
    let pool = impatient(&app);
    let notes = async || app.numbers("DELETE FROM allowed RETURNING ms").await;
    let counted = stock::recount_sold(&pool, sale(1)).await.expect("Postgres answers");
    assert_eq!(counted, Some((1, 0)));
    assert_eq!(notes().await, [ms(limits::RECOUNT_TIMEOUT)]);
    stock::remove_again(&pool, lane()).await.expect("Postgres answers");
    assert_eq!(notes().await, [ms(limits::RECOUNT_TIMEOUT)]);
    stock::note_applied(&pool, sale(1), 9).await.expect("Postgres answers");
    assert_eq!(notes().await, [ms(USUAL)]);
}
