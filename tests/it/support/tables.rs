//! The tables as they are, and a Postgres that refuses to write to one of them, or holds it back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flash_sale::app::App;
use flash_sale::base::limits::LANE_BITS;
use flash_sale::kit::postgres;
use flash_sale::sale::ids::CouponId;
use sqlx::{Postgres, Transaction};

use super::{TestApp, eventually};

/// An order that a test writes by hand: its id, the number of its coupon, its kind, its user and its status.
pub type OrderRow<'a> = (i64, i64, &'a str, i64, &'a str);

/// Sale of this number that [`TestApp::write_sales`] has written.
pub fn sale(number: i64) -> CouponId {
    CouponId::new(number << LANE_BITS).expect("a positive number")
}

/// Tables whose rows a test may compare. Notes of passes and records of comparisons are not among them.
const TABLES: [&str; 9] = [
    "coupons",
    "flash_sales",
    "orders",
    "payments",
    "held_payments",
    "stock_returns",
    "dead_letters",
    "restocks",
    "settings",
];

impl TestApp {
    /// With so many sales by hand, which only Postgres knows.
    pub async fn with_sales(last: i64) -> Self {
        let app = Self::start().await;
        app.expect_disagreements();
        app.write_sales(last).await;
        app
    }

    /// All rows of each table, without the time of their last change.
    pub async fn tables(&self) -> BTreeMap<&'static str, String> {
        let mut tables = BTreeMap::new();
        for table in TABLES {
            let query = format!(
                "SELECT coalesce(string_agg(line, E'\\n' ORDER BY line), '')
                 FROM (SELECT (to_jsonb(row) - 'updated_at')::text AS line FROM {table} AS row) AS lines"
            );
            let rows = sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(query));
            let rows = rows.fetch_one(&self.app.stores.pool).await.expect("Postgres answers");
            tables.insert(table, rows);
        }
        tables
    }

    /// Names of the tables that differ from these rows by now.
    pub async fn changed_since(
        &self,
        before: &BTreeMap<&'static str, String>,
    ) -> Vec<&'static str> {
        let now = self.tables().await;
        now.iter()
            .filter(|(table, rows)| before[*table] != **rows)
            .map(|(table, _)| *table)
            .collect()
    }

    /// What Redis has of a sale, and of the log and the lists of its lane, byte for byte.
    pub async fn dump(&self, coupon: CouponId) -> Vec<Option<Vec<u8>>> {
        let mut keys = self.shard_keys(coupon).await;
        let lane = coupon.lane();
        keys.extend([self.keys().coupon(coupon), self.log(lane), self.keys().unpaid(lane)]);
        let mut dump = Vec::with_capacity(keys.len());
        for key in keys {
            dump.push(self.redis(&["DUMP", &key]).await);
        }
        dump
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

    /// Statements of connections that begin from now on fail when they read a row of `table` for which `rows` holds. A row
    /// that another condition of the statement excludes isn't read.
    pub async fn forbid_reading(&self, table: &str, rows: &str) {
        self.execute(&format!(
            "ALTER TABLE {table} RENAME TO {table}_kept;
             CREATE OR REPLACE FUNCTION refuse_to_read() RETURNS boolean LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'a row was read that is of no use'; END $$;
             CREATE VIEW {table} AS
                 SELECT * FROM {table}_kept WHERE CASE WHEN {rows} THEN refuse_to_read() ELSE true END"
        ))
        .await;
    }

    /// Connections that begin from now on have these settings.
    pub async fn set_for_connections(&self, settings: &[(&str, &str)]) {
        for (setting, value) in settings {
            self.execute(&format!(
                "DO $$ BEGIN
                     EXECUTE format('ALTER DATABASE %I SET {setting} = {value}', current_database());
                 END $$"
            ))
            .await;
        }
    }

    /// A process that finds rows by indexes and in their order, as in tables that are large.
    pub async fn another_instance_by_indexes(&self) -> Arc<App> {
        let unused = ["enable_seqscan", "enable_bitmapscan", "enable_sort"];
        self.set_for_connections(&unused.map(|setting| (setting, "off"))).await;
        self.another_instance().await
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

    /// Loads a sale of ten units into each of so many lanes: all that the installation has.
    pub async fn load_sales_of_lanes(&self, lanes: usize) {
        self.execute(&format!(
            "WITH numbers AS (SELECT nextval('coupon_sequence') AS n FROM generate_series(1, {lanes})),
                  new AS (INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
                          SELECT n << 10 | n % {lanes}, 'flash', 't', '', '', 1, 2 FROM numbers RETURNING id)
             INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total)
             SELECT id, now() - interval '1 h', now() + interval '1 h', 10 FROM new"
        ))
        .await;
        let loaded = self.app.loader.pass(Duration::ZERO).await;
        assert_eq!(loaded.expect("both stores answer"), lanes);
        let held =
            "SELECT count(DISTINCT coupon_id & 1023) FROM flash_sales WHERE loaded_at IS NOT NULL";
        assert_eq!(usize::try_from(self.number(held).await), Ok(lanes));
    }

    /// Writes orders by hand, all in one statement. An order with a small id was claimed as many seconds after the
    /// beginning of 2024, and each has the times that its status needs.
    pub async fn write_rows(&self, orders: &[OrderRow<'_>]) {
        let row = |(id, coupon, kind, user, status): &OrderRow<'_>| {
            format!("({id}::bigint, {coupon}::bigint << 10, '{kind}', {user}, '{status}')")
        };
        let rows: Vec<String> = orders.iter().map(row).collect();
        self.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, status, claimed_at, pay_cents, currency, pay_by, paid_at,
                                 pay_method, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at)
             SELECT id, coupon, kind, buyer, status, '2024-01-01T00:00:00Z'::timestamptz + (id & 65535) * interval '1 s', id, 'CNY',
                    now() + interval '1 hour',
                    CASE WHEN status IN ('paid', 'redeemed', 'refunding', 'refunded') THEN now() END,
                    CASE WHEN status IN ('paid', 'redeemed', 'refunding', 'refunded') THEN 'balance' END,
                    CASE status WHEN 'redeemed' THEN now() END, CASE status WHEN 'cancelled' THEN now() END,
                    CASE status WHEN 'expired' THEN now() END,
                    CASE WHEN status IN ('refunding', 'refunded') THEN now() END,
                    CASE status WHEN 'refunded' THEN now() END
             FROM (VALUES {}) AS written (id, coupon, kind, buyer, status)",
            rows.join(", ")
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

    /// From now on [`touched`](Self::touched) tells rows of this table.
    pub async fn let_rows_age(&self, table: &str) {
        self.execute(&format!("UPDATE {table} SET updated_at = updated_at - interval '1 day'"))
            .await;
    }

    /// Keys of the rows that have been written since then.
    pub async fn touched(&self, table: &str, key: &str) -> Vec<i64> {
        self.numbers(&format!(
            "SELECT {key} FROM {table} WHERE updated_at > now() - interval '12 hours' ORDER BY {key}"
        ))
        .await
    }

    /// From now on [`statements`](Self::statements) tells the number of statements of this kind on a table, also of those
    /// that change no row or are refused. Several tables are counted together.
    pub async fn count_statements(&self, verb: &str, table: &str) {
        self.execute(&format!(
            "CREATE SEQUENCE IF NOT EXISTS statements;
             CREATE OR REPLACE FUNCTION count_statement() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN PERFORM nextval('statements'); RETURN NULL; END $$;
             CREATE TRIGGER counted BEFORE {verb} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION count_statement()"
        ))
        .await;
    }

    /// Statements since the last call.
    pub async fn statements(&self) -> i64 {
        let count = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM statements";
        let count = self.number(count).await;
        self.execute("ALTER SEQUENCE statements RESTART").await;
        count
    }

    /// From now on [`timeout_noted`](Self::timeout_noted) tells the time that statements of this kind on a table may take.
    pub async fn note_timeout_of(&self, verb: &str, table: &str) {
        self.execute(&format!(
            "CREATE SEQUENCE timeout_ms;
             CREATE FUNCTION note_timeout() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM setval('timeout_ms', (extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::bigint);
                     RETURN NULL;
                 END $$;
             CREATE TRIGGER noted AFTER {verb} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION note_timeout()"
        ))
        .await;
    }

    /// The time that the last such statement could take.
    pub async fn timeout_noted(&self) -> Duration {
        let ms = self.number("SELECT last_value FROM timeout_ms").await;
        Duration::from_millis(ms.try_into().expect("a positive number"))
    }

    /// Waits until a session waits for a row, or a table, that another one has locked.
    pub async fn a_session_waits_for_a_row(&self) {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("a session waits for a row", async || self.number(waiting).await > 0).await;
    }

    /// Waits until a session that is at a statement with these words waits for a row or a table.
    pub async fn a_session_waits_in(&self, words: &str) {
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND position('{words}' IN query) > 0"
        );
        eventually("a session waits", async || self.number(&waiting).await > 0).await;
    }

    /// A transaction of another process, which holds what these statements lock until it ends, however slow the machine is.
    pub async fn holding(&self, statements: &str) -> Transaction<'static, Postgres> {
        let mut tx = postgres::begin(&self.app.stores.pool).await.expect("Postgres answers");
        let statements = format!("SET LOCAL idle_in_transaction_session_timeout = 0; {statements}");
        let statements = sqlx::raw_sql(sqlx::AssertSqlSafe(statements));
        statements.execute(&mut *tx).await.expect("Postgres does it");
        tx
    }

    /// Asks Postgres some questions: time for tasks of this process that wait for a store, while its clock stands still.
    pub async fn some_replies(&self) {
        for _ in 0..20 {
            self.number("SELECT 1::bigint").await;
        }
    }
}
