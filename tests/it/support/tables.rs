//! The tables as they are, and a Postgres that refuses to write to one of them, or holds it back.

use flash_sale::store::postgres;
use sqlx::{Postgres, Transaction};

use super::{TestApp, eventually};

impl TestApp {
    /// With so many sales by hand, which only Postgres knows.
    pub async fn with_sales(last: i64) -> Self {
        let app = Self::start().await;
        app.expect_disagreements();
        app.write_sales(last).await;
        app
    }

    /// From now on Postgres answers with this SQLSTATE when a row of `table` is written for which `when` holds. `write` is
    /// `INSERT`, `UPDATE` or both.
    pub async fn refuse(&self, write: &str, table: &str, when: &str, sqlstate: &str) {
        self.execute(&format!(
            "CREATE OR REPLACE FUNCTION refuse_to_write() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = TG_ARGV[0]; END $$;
             CREATE TRIGGER refused BEFORE {write} ON {table} FOR EACH ROW WHEN ({when})
                 EXECUTE FUNCTION refuse_to_write('{sqlstate}')"
        ))
        .await;
    }

    /// Postgres writes to `table` again.
    pub async fn accept(&self, table: &str) {
        self.execute(&format!("DROP TRIGGER refused ON {table}")).await;
    }

    /// Writes sales with the numbers 1 to `last` by hand: of lane 0, active, open, in Redis by what Postgres has noted, and
    /// each with a total, a count of sold units, a title and a price of its own.
    pub async fn write_sales(&self, last: i64) {
        self.execute(&format!(
            "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, revision)
             SELECT n << 10, 'flash', 'sale ' || n, '', '', n, 2, 2 FROM generate_series(1::bigint, {last}) AS n;
             INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total, sold, loaded_at, load_id, applied_revision)
             SELECT n << 10, now() - interval '1 hour', now() + interval '1 hour', 100 + n, n, now(), 'load ' || n, 2
             FROM generate_series(1::bigint, {last}) AS n"
        ))
        .await;
    }

    /// Numbers from Postgres, in its order.
    pub async fn numbers(&self, query: &str) -> Vec<i64> {
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned()));
        query.fetch_all(&self.app.stores.pool).await.expect("Postgres answers")
    }

    /// Texts from Postgres, in its order.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned()));
        query.fetch_all(&self.app.stores.pool).await.expect("Postgres answers")
    }

    /// Waits until a session waits for a row, or a table, that another one has locked.
    pub async fn a_session_waits_for_a_row(&self) {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("a session waits for a row", async || self.number(waiting).await > 0).await;
    }

    /// A transaction of another process, which holds what these statements lock until it ends, however slow the machine is.
    pub async fn holding(&self, statements: &str) -> Transaction<'static, Postgres> {
        let mut tx = postgres::begin(&self.app.stores.pool).await.expect("Postgres answers");
        let statements = format!("SET LOCAL idle_in_transaction_session_timeout = 0; {statements}");
        let statements = sqlx::raw_sql(sqlx::AssertSqlSafe(statements));
        statements.execute(&mut *tx).await.expect("Postgres does it");
        tx
    }
}
