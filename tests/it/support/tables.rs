//! The tables as they are, and a Postgres that refuses to write to one of them.

use std::collections::BTreeMap;

use flash_sale::sale::ids::CouponId;

use super::TestApp;

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
}
