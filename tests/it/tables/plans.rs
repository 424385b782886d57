//! Statements that meet many rows find theirs by an index. The texts are those that the build has compared with the schema
//! (`.sqlx`), so none stands here a second time.

use std::path::Path;

use flash_sale::store::postgres;
use serde_json::Value;

use crate::support::TestApp;

/// Words of a statement, and the index by which it finds its rows.
const STATEMENTS: [(&str, &str); 14] = [
    // Claims that are written for the second time.
    ("user_id AS \"user: UserId\"\n           FROM orders WHERE id = ANY($1)", "orders_pkey"),
    ("JOIN orders ON coupon_id = claim.coupon", "orders_flash_one_live"),
    ("ORDER BY pay_by LIMIT $1 FOR UPDATE SKIP LOCKED", "orders_due"),
    ("WITH RECURSIVE step (number, coupon_id)", "stock_returns_waiting"),
    ("AND done_at IS NULL ORDER BY updated_at LIMIT", "stock_returns_waiting"),
    ("FROM orders WHERE user_id = $1 AND id < $2", "orders_of_user"),
    ("WHERE (orders.status, id) >= (one.status, $2)", "orders_of_status"),
    ("WHERE (coupon_id, orders.status, id) >= ($1, one.status, $3)", "orders_of_coupon"),
    ("WHERE (coupon_id, status, id) > ($1, 'unpaid', $2)", "orders_of_coupon"),
    ("WHERE (status, id) > ('unpaid', $1)", "orders_of_status"),
    ("ORDER BY orders.coupon_id, status, id LIMIT 1) IS NULL", "orders_of_coupon"),
    ("AND refund_asked_at < now()", "payments_refunding"),
    ("WHERE (xid, id) >= ($1::text::xid8, $2)", "events_in_order"),
    ("FROM events ORDER BY xid, id LIMIT $2) AS oldest", "events_in_order"),
];

#[tokio::test]
async fn statements_find_their_rows_by_an_index() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.execute(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by, pay_cents, currency, status, cancelled_at)
             SELECT n, n % 20, 'flash', n, now(), now() + n * interval '1 s', 1, 'CNY',
                    CASE n % 2 WHEN 0 THEN 'unpaid' ELSE 'cancelled' END, CASE n % 2 WHEN 1 THEN now() END
             FROM generate_series(1, 20000) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id)
             SELECT id, coupon_id, user_id FROM orders WHERE status = 'cancelled';
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
             SELECT n, 'external', n::text, 'wechat', 1, 'refunding', 'too_late' FROM generate_series(1, 5000) AS n;
         INSERT INTO events (type, data) SELECT 'x', '{}' FROM generate_series(1, 20000);
         ANALYZE events; ANALYZE orders; ANALYZE stock_returns; ANALYZE payments",
    )
    .await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let statements: Vec<Value> = files
        .map(|file| std::fs::read(file.expect("a file").path()).expect("it can be read"))
        .map(|text| serde_json::from_slice(&text).expect("it is JSON"))
        .collect();
    for (words, index) in STATEMENTS {
        let is_it = |one: &&Value| one["query"].as_str().is_some_and(|it| it.contains(words));
        let found: Vec<&Value> = statements.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "one statement has the words {words:?}");
        let plan = plan_of(&app, found[0]).await;
        assert!(plan.contains(index), "{words}: expected {index}\n{plan}");
        for table in ["orders", "stock_returns", "payments", "events"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{words}\n{plan}");
        }
    }
}

/// The plan for any values.
async fn plan_of(app: &TestApp, statement: &Value) -> String {
    let text = statement["query"].as_str().expect("a statement");
    let values = statement["describe"]["parameters"]["Left"].as_array().expect("a list").len();
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let prepare = format!(
        "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_sort = off;
         SET LOCAL enable_bitmapscan = off; PREPARE asked AS {text}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *tx).await.expect(text);
    let explain = format!("EXPLAIN EXECUTE asked ({})", vec!["NULL"; values].join(", "));
    let lines: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(explain))
        .fetch_all(&mut *tx)
        .await
        .expect("it has a plan");
    sqlx::raw_sql("DEALLOCATE asked").execute(&mut *tx).await.expect("Postgres answers");
    lines.join("\n")
}
