//! Costs of the queries on 300,000 rows of each table, with the plan that a prepared statement may keep for ever,
//! which knows no values. No plan reads more than ten times the rows that the query asks for.
//!
//! The queries are those of the code: their texts come from `.sqlx`, and words of the text find each. A query that is in
//! no table of `queries.rs` has to be cheap by its plan: no part of it may cost more than a hundred rows that are read by
//! an index.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::sale::ids::CouponId;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::early;
use super::queries::{OTHERS, QUERIES};
use crate::support::{OwnServers, TestApp};

/// Rows of each large table.
const ROWS: i64 = 300_000;

/// A query of the code: its text, the number of its arguments, and whether one of them is an array.
pub(super) struct Query {
    pub text: String,
    pub arguments: usize,
    pub has_array: bool,
}

impl Query {
    pub fn contains(&self, words: &str) -> bool {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
    }
}

/// All queries of the code.
pub(super) fn queries() -> Vec<Query> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/.sqlx");
    let files = fs::read_dir(folder).expect("it is there").map(|file| file.expect("a file").path());
    let read = files.map(|path| {
        let file: Value =
            serde_json::from_str(&fs::read_to_string(path).expect("a text")).expect("JSON");
        let kinds = file["describe"]["parameters"]["Left"].as_array().expect("a list");
        let is_array = |kind: &Value| kind.as_str().is_some_and(|kind| kind.ends_with("Array"));
        let text = file["query"].as_str().expect("a query").to_owned();
        Query { text, arguments: kinds.len(), has_array: kinds.iter().any(is_array) }
    });
    read.collect()
}

/// The text of the one query of the code that contains these words.
fn query(words: &str) -> String {
    let found: Vec<String> = queries()
        .into_iter()
        .filter(|query| query.contains(words))
        .map(|query| query.text)
        .collect();
    assert_eq!(found.len(), 1, "{words:?} is in {} queries: {found:#?}", found.len());
    found.into_iter().next().expect("one")
}

pub(super) async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.expect("Postgres does it");
}

/// A connection without the limits of the service's own.
async fn connect(app: &TestApp) -> PgConnection {
    let mut connection =
        PgConnection::connect(&app.store_arguments()[3]).await.expect("Postgres answers");
    run(&mut connection, "SET plan_cache_mode = force_generic_plan".to_owned()).await;
    connection
}

/// Runs a query. Returns the number of rows that its plan has read, and the plan.
async fn rows_read(connection: &mut PgConnection, query: &str, arguments: &str) -> (f64, Value) {
    run(connection, format!("BEGIN; PREPARE it AS {query}")).await;
    let plan = explained(connection, "ANALYZE, BUFFERS, FORMAT JSON", "it", arguments).await;
    run(connection, "ROLLBACK; DEALLOCATE it".to_owned()).await;
    (read(&plan[0]["Plan"]), plan)
}

/// The plan of the statement that was prepared under this name.
pub(super) async fn explained(
    connection: &mut PgConnection,
    options: &str,
    name: &str,
    arguments: &str,
) -> Value {
    let arguments = if arguments.is_empty() { String::new() } else { format!("({arguments})") };
    let explain = format!("EXPLAIN ({options}) EXECUTE {name}{arguments}");
    let plan = sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false);
    plan.fetch_one(connection).await.expect("Postgres explains it")
}

/// Runs a query for pages of 21 rows with these filters, each with a name, and fails if one reads more than ten pages.
async fn assert_pages(
    connection: &mut PgConnection,
    rows: &str,
    query: &str,
    filters: &[(&str, String)],
) {
    let mut complaints = Vec::new();
    for (what, arguments) in filters {
        let (read, plan) = rows_read(connection, query, arguments).await;
        println!("{rows}, {what}: {read} rows read");
        if read > 10.0 * 21.0 {
            complaints.push(format!("{rows}, {what}: {read} rows read: {plan:#}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Rows that the scans of tables and indexes in this plan have looked at.
pub fn read(node: &Value) -> f64 {
    let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let own = match kind {
        "Seq Scan" | "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan" | "Tid Scan" => {
            let rows = number("Actual Rows")
                + number("Rows Removed by Filter")
                + number("Rows Removed by Index Recheck");
            rows * number("Actual Loops")
        }
        _ => 0.0,
    };
    own + node["Plans"].as_array().into_iter().flatten().map(read).sum::<f64>()
}

/// Adds the names of the indexes that this plan uses.
fn indexes_used(node: &Value, names: &mut BTreeSet<String>) {
    names.extend(node["Index Name"].as_str().map(str::to_owned));
    for part in node["Plans"].as_array().into_iter().flatten() {
        indexes_used(part, names);
    }
}

/// Names of the indexes of `orders` that settle no race.
async fn indexes_of_orders(connection: &mut PgConnection) -> BTreeSet<String> {
    let names = "SELECT indexrelid::regclass::text FROM pg_index
                 WHERE indrelid = 'orders'::regclass AND NOT indisunique";
    let names: Vec<String> =
        sqlx::query_scalar(names).fetch_all(connection).await.expect("Postgres answers");
    names.into_iter().collect()
}

/// Fills all tables: of each kind of row some are open, among many that are closed.
async fn seed(connection: &mut PgConnection, coupons: &[CouponId]) {
    let first = coupons[0];
    let second = coupons[1];
    run(
        connection,
        format!(
            "BEGIN;
             -- 60,000 unpaid, a third of them late; 120,000 refunding; the others closed.
             INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, created_at, status, paid_at, pay_method,
                                 refunding_at, cancelled_at)
                 SELECT n, CASE n % 2 WHEN 0 THEN {first} ELSE {second} END, 'flash', n, now(),
                        now() - CASE n % 15 WHEN 0 THEN interval '1 day' ELSE interval '0' END,
                        CASE n % 5 WHEN 0 THEN 'unpaid' WHEN 1 THEN 'refunding' WHEN 2 THEN 'refunding'
                                   ELSE 'cancelled' END,
                        CASE WHEN n % 5 IN (1, 2) THEN now() END, CASE WHEN n % 5 IN (1, 2) THEN 'balance' END,
                        CASE WHEN n % 5 IN (1, 2) THEN now() END, CASE WHEN n % 5 IN (3, 4) THEN now() END
                 FROM generate_series(1, {ROWS}) AS n;
             -- All of those that are refunding have been asked about, but for the newest 1,000; no accepted one has.
             INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason,
                                   refund_asked_at, refunded_at)
                 SELECT n, 'external', n::text, 'balance', 1,
                        CASE WHEN n % 5 IN (1, 2) THEN 'refunding' WHEN n % 5 = 0 THEN 'accepted' ELSE 'refunded' END,
                        CASE WHEN n % 5 > 0 THEN 'asked_for' END,
                        CASE WHEN n % 5 > 0 AND n <= {ROWS} - 2500 THEN now() END, CASE WHEN n % 5 IN (3, 4) THEN now() END
                 FROM generate_series(1, {ROWS}) AS n;
             -- A third of the outbox is open; of the second sale only five units.
             INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
                 SELECT n, CASE WHEN n % 5 IN (3, 4) AND n < 26 THEN {second} ELSE {first} END, n,
                        CASE WHEN n % 3 = 0 THEN NULL ELSE now() END
                 FROM generate_series(1, {ROWS}) AS n;
             INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
                 SELECT 0, n || '-1', '{{}}', 'conflict', '', CASE n % 2 WHEN 0 THEN {first} ELSE {second} END,
                        n, n, CASE WHEN n > 100 THEN now() END
                 FROM generate_series(1, {ROWS}) AS n;
             INSERT INTO postponed (pass, item, error, next_try_at)
                 SELECT CASE n % 100 WHEN 0 THEN 'refunds' ELSE 'places' END, n, 'x',
                        now() + CASE WHEN n % 1000 = 0 THEN interval '0' ELSE interval '1 hour' END
                 FROM generate_series(1, {ROWS}) AS n;
             INSERT INTO jobs (coupon_id, key, reason, created_at)
                 VALUES ({first}, 'k', 'wrong price', now() + interval '1 hour');
             INSERT INTO jobs (coupon_id, key, reason, finished_at)
                 SELECT {second}, n, 'wrong price', now() FROM generate_series(1, 30000) AS n;
             COMMIT"
        ),
    )
    .await;
    seed_sales(connection).await;
}

/// Makes months of the history, which have no rows yet.
async fn make_months(connection: &mut PgConnection) {
    let months = "
        CREATE TABLE order_history_202201 PARTITION OF order_history FOR VALUES FROM (0) TO (1150000);
        CREATE TABLE order_history_202202 PARTITION OF order_history FOR VALUES FROM (1150000) TO (2000000);
        CREATE TABLE payment_history_1 PARTITION OF payment_history FOR VALUES FROM (0) TO (2000000);
        CREATE TABLE redemption_history_1 PARTITION OF redemption_history FOR VALUES FROM (0) TO (2000000);
        CREATE TABLE stock_return_history_1 PARTITION OF stock_return_history FOR VALUES FROM (0) TO (2000000)";
    run(connection, months.to_owned()).await;
}

/// Adds 30,000 sales that have ended, of which 100 are still in Redis, and rows of the other tables that grow.
async fn seed_sales(connection: &mut PgConnection) {
    let statements = format!(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, state, ended_at)
             SELECT n << 10, 'flash', '', '', '', 1, 1, 'ended', now() FROM generate_series(1001, 31000) AS n;
         INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total, loaded_at, load_id, applied_revision,
                                  archived_at, removed_at)
             SELECT id, now() - interval '2 days', now() - interval '1 day', 1, now(), '', 1,
                    CASE WHEN id > 1100 << 10 THEN now() END, CASE WHEN id > 1100 << 10 THEN now() END
             FROM coupons WHERE state = 'ended';
         INSERT INTO restocks (coupon_id, key, units) SELECT coupon_id, '', 1 FROM flash_sales WHERE archived_at IS NOT NULL;
         INSERT INTO creation_keys (administrator, key, fingerprint, coupon_id)
             SELECT 1, coupon_id::text, '', coupon_id FROM flash_sales WHERE archived_at IS NOT NULL;
         INSERT INTO order_counts SELECT coupon_id, 'paid', 1 FROM flash_sales WHERE archived_at IS NOT NULL;
         INSERT INTO order_count_changes (coupon_id, status, orders)
             SELECT (2000 + n % 1000) << 10, 'paid', 1 FROM generate_series(1, {ROWS}) AS n;
         INSERT INTO redemptions (order_id, code) SELECT n, upper(md5(n::text)) FROM generate_series(1, 30000) AS n;
         INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at)
             SELECT n, 'balance', 1, 'CNY', now(), CASE WHEN n > 100 THEN now() END FROM generate_series(1, 30000) AS n;
         INSERT INTO order_history (id, coupon_id, kind, user_id, status, claimed_at, created_at, updated_at)
             SELECT 1000000 + n, 1, 'flash', n % 30000, 'expired', now(), now(), now() FROM generate_series(1, {ROWS}) AS n;
         INSERT INTO payment_history (id, order_id, gateway, gateway_payment_id, method, amount_cents, status, created_at,
                                      updated_at)
             SELECT n, 1000000 + n, 'external', n::text, 'balance', 1, 'accepted', now(), now()
             FROM generate_series(1, {ROWS}) AS n;
         INSERT INTO redemption_history (order_id, code) SELECT 1000000 + n, n::text FROM generate_series(1, {ROWS}) AS n;
         INSERT INTO postponed_settled (id, pass, item, since, tries, error)
             SELECT {ROWS} + n, 'places', n, now(), 1, 'x' FROM generate_series(1, {ROWS}) AS n;
         INSERT INTO audit (at, actor, scope, action, subject_id)
             SELECT now() - n * interval '1 minute', n % 1009 + 1, 'admin', 'redeem_order', n % 3001 + 1
             FROM generate_series(1, 30000) AS n"
    );
    run(connection, statements).await;
}

/// The largest planned cost of a part of this plan, and that part.
fn dearest(node: &Value) -> (f64, &Value) {
    let own = (node["Total Cost"].as_f64().unwrap_or(0.0), node);
    let parts = node["Plans"].as_array().into_iter().flatten().map(dearest);
    parts.fold(own, |most, part| if part.0 > most.0 { part } else { most })
}

/// Queries that are in no table, and whose plan is dear. 200 is the planned cost of about a hundred rows in places apart.
async fn dear_ones(connection: &mut PgConnection) -> Vec<String> {
    let is_named = |query: &Query| {
        let mut words = QUERIES.iter().map(|row| row.1).chain(OTHERS.iter().map(|other| other.0));
        words.any(|words| query.contains(words))
    };
    let mut dear = Vec::new();
    for query in queries().into_iter().filter(|query| !is_named(query)) {
        run(connection, format!("BEGIN; PREPARE it AS {}", query.text)).await;
        let nulls = vec!["NULL"; query.arguments].join(", ");
        let plan = explained(connection, "FORMAT JSON", "it", &nulls).await;
        run(connection, "ROLLBACK; DEALLOCATE it".to_owned()).await;
        let (cost, part) = dearest(&plan[0]["Plan"]);
        if cost > 200.0 {
            dear.push(format!(
                "cost {cost}, for {part:#}: enter it in `queries.rs`: {}",
                query.text
            ));
        }
    }
    dear
}

#[tokio::test]
async fn no_plan_reads_more_than_ten_times_what_it_was_asked_for() {
    // Many changes of tables, as other tests make them, would have Postgres forget the plans that it keeps.
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.expect_disagreements();
    let coupons = [app.create_flash(9).await, app.create_flash(9).await];
    let mut connection = connect(&app).await;
    make_months(&mut connection).await;
    let early = early::prepare(&mut connection).await;
    seed(&mut connection, &coupons).await;
    let ids: Vec<String> = (1..=1_000).map(|n: i64| (n * 3).to_string()).collect();
    let thousand = format!("'{{{}}}'", ids.join(","));
    let [first, second] = coupons.map(|coupon| coupon.to_string());
    let given = |arguments: &str| {
        let arguments = arguments.replace("{first}", &first).replace("{second}", &second);
        let arguments =
            arguments.replace("{third}", "1001 << 10").replace("{counted}", "2500 << 10");
        arguments.replace("{thousand}", &thousand)
    };
    for words in OTHERS.map(|other| other.0).into_iter().chain(early::PLANNED) {
        query(words);
    }
    let mut complaints = early::complaints(&mut connection, &early, given).await;
    run(&mut connection, "ANALYZE".to_owned()).await;
    complaints.extend(dear_ones(&mut connection).await);
    let mut used = BTreeSet::new();
    for (what, words, arguments, asked_for) in QUERIES {
        let (read, plan) = rows_read(&mut connection, &query(words), &given(arguments)).await;
        let mut by = BTreeSet::new();
        indexes_used(&plan[0]["Plan"], &mut by);
        println!("{what}: {read} rows read, {asked_for} asked for, by {by:?}");
        used.extend(by);
        if read > 10.0 * asked_for {
            complaints.push(format!("{what}: {read} rows read, {asked_for} asked for: {plan:#}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    // Each index costs each insert something; a unique one earns that by the races that it settles.
    let idle = &indexes_of_orders(&mut connection).await - &used;
    assert!(idle.is_empty(), "no query here uses {idle:?}");
}

/// Queries for some orders out of many that became unpaid after the last look at the statistics, as in each large sale.
const OF_A_BURST: [(&str, &str, &str); 12] = [
    (
        "open returns and places among orders",
        "SELECT order_id AS \"order_id: OrderId\" FROM stock_returns WHERE order_id = ANY($1) AND coalesce",
        "'{ids}'",
    ),
    ("open units among orders", "FROM stock_returns WHERE order_id = ANY($1) AND what", "'{ids}'"),
    (
        "orders that are late",
        "SELECT id AS \"order_id: OrderId\", coupon_id AS \"coupon_id: CouponId\" FROM orders WHERE status = 'unpaid'",
        "900, 50, '{}'",
    ),
    (
        "orders that wait for a job",
        "SELECT id AS \"id: OrderId\" FROM orders WHERE coupon_id = $1 AND status = 'unpaid' AND claimed_at <",
        "{coupon}, 1, 50",
    ),
    ("refunds to ask for", "WITH new AS ( SELECT id, gateway", "10, 50"),
    ("refunds in the process", "WHERE status = 'refunding' AND gateway = 'in_process'", "50"),
    ("returns of a sale", "WHERE (what, coupon_id) >= ($1, $2)", "'unit', {coupon}, 50, false"),
    ("closing returns", "UPDATE stock_returns SET done_at = now()", "'{ids}', 'unit'"),
    ("orders that are late, to be closed", "WITH due AS ( SELECT id FROM orders", "900, 50, '{}'"),
    ("closing some orders", "WITH these AS ( SELECT id, status FROM orders", "'{ids}', 'expired'"),
    ("unpaid ones among some", "status = 'unpaid' AS \"is_unpaid!\" FROM orders", "'{ids}'"),
    (
        "orders that are over, to be moved",
        "SELECT id FROM orders WHERE id = ANY($1) AND status IN ('redeemed'",
        "'{ids}', now()",
    ),
];

#[tokio::test]
async fn a_plan_from_before_a_burst_searches_no_order_for_another() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    let mut connection = connect(&app).await;
    let seed = format!(
        "SET plan_cache_mode = force_custom_plan;
         ALTER TABLE orders SET (autovacuum_enabled = false);
         ALTER TABLE payments SET (autovacuum_enabled = false);
         ALTER TABLE stock_returns SET (autovacuum_enabled = false);
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             SELECT n, {coupon}, 'flash', n, now(), 'cancelled', now() FROM generate_series(1, 30000) AS n;
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason,
                               refunded_at)
             SELECT n, 'in_process', n::text, 'balance', 1, 'refunded', 'asked_for', now()
             FROM generate_series(1, 30000) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
             SELECT n, {coupon}, n, now() FROM generate_series(1, 30000) AS n;
         ANALYZE;
         INSERT INTO jobs (coupon_id, key, reason, created_at) VALUES ({coupon}, 'k', 'wrong price', now() + interval '1 h');
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by)
             SELECT n, {coupon}, 'flash', n, now(), now() - interval '1 day' FROM generate_series(30001, 50000) AS n;
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
             SELECT n, 'in_process', n::text, 'balance', 1, 'refunding', 'asked_for'
             FROM generate_series(30001, 50000) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id)
             SELECT n, {coupon}, n FROM generate_series(30001, 50000) AS n"
    );
    run(&mut connection, seed).await;
    let ids: Vec<String> = (1..=50).map(|n: i64| (30_000 + n * 400).to_string()).collect();
    let mut complaints = Vec::new();
    for (what, words, arguments) in OF_A_BURST {
        let arguments = arguments.replace("{ids}", &format!("{{{}}}", ids.join(",")));
        let arguments = arguments.replace("{coupon}", &coupon.to_string());
        // As `begin_by_index` has it for these.
        let by_index = ["orders that are late", "orders that wait for a job", "refunds to ask for"];
        let sorts = if by_index.iter().any(|begin| what.starts_with(begin)) { "off" } else { "on" };
        run(&mut connection, format!("SET enable_sort = {sorts}")).await;
        let (read, plan) = rows_read(&mut connection, &query(words), &arguments).await;
        // An update of a row in all indexes looks at 20 to 30 blocks.
        let blocks = plan[0]["Plan"]["Shared Hit Blocks"].as_u64().expect("a number");
        println!("{what}: {read} rows and {blocks} blocks read for 50 orders");
        if blocks > 50 * 50 || read > 50.0 * 10.0 {
            complaints.push(format!("{what}: {read} rows, {blocks} blocks read: {plan:#}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Lists whose filters are planned for their values: a page, by each filter alone and by several.
const LISTS: [(&str, &str); 7] = [
    ("all", "NULL, NULL, NULL, NULL, NULL, NULL, NULL, 21"),
    ("an actor", "7, NULL, NULL, NULL, NULL, NULL, NULL, 21"),
    ("an action", "NULL, 'edit_coupon', NULL, NULL, NULL, NULL, NULL, 21"),
    ("a thing", "NULL, NULL, 77, NULL, NULL, NULL, NULL, 21"),
    (
        "a time",
        "NULL, NULL, NULL, now() - interval '200001 minutes', now() - interval '200000 minutes', NULL, NULL, 21",
    ),
    (
        "an actor, further on",
        "7, NULL, NULL, NULL, NULL, now() - interval '200000 minutes', 200000, 21",
    ),
    ("an actor at a thing", "7, NULL, 77, NULL, NULL, NULL, NULL, 21"),
];

#[tokio::test]
async fn no_list_of_changes_reads_more_than_ten_pages() {
    let app = TestApp::start().await;
    let mut connection = connect(&app).await;
    // A thousand actors; of the rare action a thousand entries, of each thing a hundred.
    let seed = format!(
        "INSERT INTO audit (at, actor, scope, action, subject_id)
         SELECT now() - n * interval '1 minute', n % 1009 + 1, 'admin',
                CASE n % 300 WHEN 0 THEN 'edit_coupon' ELSE 'redeem_order' END, n % 3001 + 1
         FROM generate_series(1, {ROWS}) AS n;
         ANALYZE audit; SET plan_cache_mode = force_custom_plan"
    );
    run(&mut connection, seed).await;
    let query = query("FROM audit WHERE ($1::bigint IS NULL OR actor = $1)");
    // The thing, if it is an order, and the actions on orders.
    let actions = "78, ARRAY['cancel_order', 'refund_order', 'redeem_order']";
    let lists = LISTS.map(|(what, arguments)| (what, format!("{arguments}, {actions}")));
    assert_pages(&mut connection, "changes", &query, &lists).await;
}

/// Lists of dead letters: a page, by each filter alone and by several.
const LETTERS: [(&str, &str); 7] = [
    ("open ones", "true, NULL, NULL, NULL, NULL, 21"),
    ("closed ones", "false, NULL, NULL, NULL, NULL, 21"),
    ("open ones of a reason", "true, 'conflict', NULL, NULL, NULL, 21"),
    ("a coupon", "false, NULL, 77, NULL, NULL, 21"),
    ("a user", "false, NULL, NULL, 77, NULL, 21"),
    ("open ones of a user", "true, NULL, NULL, 77, NULL, 21"),
    ("a user of a coupon, further on", "false, NULL, 77, 77, 200000, 21"),
];

#[tokio::test]
async fn no_list_of_dead_letters_reads_more_than_ten_pages() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let mut connection = connect(&app).await;
    // A hundred letters of each coupon and user; of all, a hundred are open.
    let seed = format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
         SELECT 0, n || '-1', '{{}}', 'conflict', '', n % 3001 + 1, n % 3001 + 1, n, CASE WHEN n % 3000 > 0 THEN now() END
         FROM generate_series(1, {ROWS}) AS n;
         ANALYZE dead_letters; SET plan_cache_mode = force_custom_plan"
    );
    run(&mut connection, seed).await;
    let query = query("FROM dead_letters WHERE ($1 AND resolved_at IS NULL");
    let lists = LETTERS.map(|(what, arguments)| (what, arguments.to_owned()));
    assert_pages(&mut connection, "dead letters", &query, &lists).await;
}

/// The orders of a job that has far more than other coupons have unpaid ones.
#[tokio::test]
async fn a_job_reads_its_batch_alone_beside_many_coupons() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    let mut connection = connect(&app).await;
    let seed = format!(
        "INSERT INTO jobs (coupon_id, key, reason, created_at) VALUES ({coupon}, 'k', 'wrong price', now() + interval '1 h');
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             SELECT n, CASE WHEN n <= 20000 THEN {coupon} ELSE {coupon} + n % 500 + 1 END, 'flash', n, now()
             FROM generate_series(1, 60000) AS n;
         ANALYZE; SET plan_cache_mode = force_custom_plan; SET enable_sort = off"
    );
    run(&mut connection, seed).await;
    let query = query(
        "SELECT id AS \"id: OrderId\" FROM orders WHERE coupon_id = $1 AND status = 'unpaid' AND claimed_at <",
    );
    let (read, plan) = rows_read(&mut connection, &query, &format!("{coupon}, 1, 500")).await;
    assert!(read <= 10.0 * 500.0, "{read} rows read: {plan:#}");
}

/// Lists of items: a page of all, of a common pass, and of a rare one.
const ITEMS: [(&str, &str); 4] = [
    ("all", "NULL, NULL, 21"),
    ("a common pass", "NULL, 'places', 21"),
    ("a rare pass", "NULL, 'refunds', 21"),
    ("a rare pass, further on", "200000, 'refunds', 21"),
];

#[tokio::test]
async fn no_list_of_postponed_items_reads_more_than_ten_pages() {
    let app = TestApp::start().await;
    let mut connection = connect(&app).await;
    let seed = format!(
        "INSERT INTO postponed_settled (id, pass, item, since, tries, error)
         SELECT n, CASE n % 5000 WHEN 0 THEN 'refunds' ELSE 'places' END, n, now(), 1, 'x'
         FROM generate_series(1, {ROWS}) AS n;
         INSERT INTO postponed (pass, item, error, next_try_at)
         SELECT pass, item, error, now() FROM postponed_settled ORDER BY id;
         ANALYZE; SET plan_cache_mode = force_custom_plan"
    );
    run(&mut connection, seed).await;
    let lists = ITEMS.map(|(what, arguments)| (what, arguments.to_owned()));
    for table in ["postponed", "postponed_settled"] {
        let query = query(&format!("FROM {table} WHERE ($2::text IS NULL OR pass = $2)"));
        assert_pages(&mut connection, table, &query, &lists).await;
    }
}

/// Lists of recoveries: a page, by each filter alone and by several.
const RECOVERIES: [(&str, &str); 12] = [
    ("all", "NULL, NULL, NULL, NULL, NULL, NULL, NULL, 21"),
    ("a lane", "7, NULL, NULL, NULL, NULL, NULL, NULL, 21"),
    ("a common reason", "NULL, 'Redis has been started anew', NULL, NULL, NULL, NULL, NULL, 21"),
    ("a rare reason", "NULL, 'Redis went back in time', NULL, NULL, NULL, NULL, NULL, 21"),
    ("unfinished ones", "NULL, NULL, 'unfinished', NULL, NULL, NULL, NULL, 21"),
    ("those that kept all", "NULL, NULL, 'kept_all', NULL, NULL, NULL, NULL, 21"),
    ("unsettled ones", "NULL, NULL, 'unsettled', NULL, NULL, NULL, NULL, 21"),
    ("settled ones", "NULL, NULL, 'settled', NULL, NULL, NULL, NULL, 21"),
    (
        "a time",
        "NULL, NULL, NULL, now() - interval '200001 minutes', now() - interval '200000 minutes', NULL, NULL, 21",
    ),
    ("old ones", "NULL, NULL, NULL, NULL, now() - interval '200000 minutes', NULL, NULL, 21"),
    (
        "a lane, further on",
        "7, NULL, NULL, NULL, NULL, now() - interval '200000 minutes', 200000, 21",
    ),
    ("unsettled ones of a lane", "7, NULL, 'unsettled', NULL, NULL, NULL, NULL, 21"),
];

#[tokio::test]
async fn no_list_of_recoveries_reads_more_than_ten_pages() {
    let app = TestApp::start().await;
    let mut connection = connect(&app).await;
    // 300 closures of each lane; a hundred of the rare reason, and of each rare state.
    let seed = format!(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost, settled_at, note)
         SELECT n % 1000, 1,
                CASE n % 3000 WHEN 1 THEN 'Redis went back in time' ELSE 'Redis has been started anew' END,
                now() - n * interval '1 minute', CASE WHEN n % 3000 <> 2 THEN now() END,
                CASE WHEN n % 3000 IN (3, 4) THEN '[{{}}]'::jsonb ELSE '[]' END, CASE WHEN n % 3000 = 4 THEN now() END,
                CASE WHEN n % 3000 = 4 THEN 'told' END
         FROM generate_series(1, {ROWS}) AS n;
         ANALYZE recoveries; SET plan_cache_mode = force_custom_plan"
    );
    run(&mut connection, seed).await;
    let query = query("FROM recoveries WHERE ($1::integer IS NULL OR lane = $1)");
    let lists = RECOVERIES.map(|(what, arguments)| (what, arguments.to_owned()));
    assert_pages(&mut connection, "recoveries", &query, &lists).await;
}

/// Searches in the history without a user: a page of four statuses or one, of all coupons, a common one, and a rare one.
const SEARCHES: [(&str, &str); 5] = [
    (
        "all",
        "'{redeemed,cancelled,expired,refunded}', NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21, NULL",
    ),
    (
        "a coupon",
        "'{redeemed,cancelled,expired,refunded}', NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21, 1",
    ),
    (
        "a rare coupon",
        "'{redeemed,cancelled,expired,refunded}', NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21, 2",
    ),
    ("a rare status", "'{refunded}', NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21, NULL"),
    (
        "a coupon, further on",
        "'{expired}', NULL, NULL, now() - interval '200000 minutes', 200000, 0, 9223372036854775807, 21, 1",
    ),
];

#[tokio::test]
async fn no_search_in_the_history_reads_more_than_ten_pages() {
    let app = TestApp::start().await;
    let mut connection = connect(&app).await;
    let seed = format!(
        "CREATE TABLE order_history_202201 PARTITION OF order_history FOR VALUES FROM (0) TO (150000);
         CREATE TABLE order_history_202202 PARTITION OF order_history FOR VALUES FROM (150000) TO (1000000);
         INSERT INTO order_history (id, coupon_id, kind, user_id, status, claimed_at, created_at, updated_at)
             SELECT n, CASE n % 5000 WHEN 0 THEN 2 ELSE 1 END, 'flash', n,
                    CASE n % 3000 WHEN 0 THEN 'refunded' ELSE 'expired' END, now() - n * interval '1 minute', now(), now()
             FROM generate_series(1, {ROWS}) AS n;
         ANALYZE order_history; SET plan_cache_mode = force_custom_plan"
    );
    run(&mut connection, seed).await;
    let query = query("SELECT * FROM order_history WHERE coupon_id = coalesce($9, coupon_id)");
    let lists = SEARCHES.map(|(what, arguments)| (what, arguments.to_owned()));
    assert_pages(&mut connection, "moved orders", &query, &lists).await;
}

/// Payments whose wait is over: a page of all, of the usual reason, a rare one here or in the history, and of an order.
const SETTLED: [(&str, &str); 6] = [
    ("all", "NULL, 21, NULL, NULL"),
    ("the usual reason", "NULL, 21, 'asked_for', NULL"),
    ("a rare reason", "NULL, 21, 'paid_twice', NULL"),
    ("a rare reason, further on", "200000, 21, 'paid_twice', NULL"),
    ("a rare reason in the history", "NULL, 21, 'wrong_amount', NULL"),
    ("an order", "NULL, 21, NULL, 7"),
];

#[tokio::test]
async fn no_list_of_settled_payments_reads_more_than_ten_pages() {
    let app = TestApp::start().await;
    let mut connection = connect(&app).await;
    // Ten of each rare reason.
    let row = |rare: &str| {
        format!(
            "n, 'external', n::text, 'balance', 1, 'refunded',
             CASE n % 30000 WHEN 0 THEN '{rare}' ELSE 'asked_for' END, now(), now(), now()"
        )
    };
    let columns = "order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, refunded_at, \
                   created_at, updated_at";
    let seed = format!(
        "INSERT INTO payments ({columns}) SELECT {} FROM generate_series(1, {ROWS}) AS n;
         CREATE TABLE payment_history_1 PARTITION OF payment_history FOR VALUES FROM (0) TO (1150000);
         CREATE TABLE payment_history_2 PARTITION OF payment_history FOR VALUES FROM (1150000) TO (2000000);
         INSERT INTO payment_history (id, {columns})
             SELECT 1000000 + n, 1000000 + {} FROM generate_series(1, {ROWS}) AS n;
         ANALYZE payments; ANALYZE payment_history; SET plan_cache_mode = force_custom_plan",
        row("paid_twice"),
        row("wrong_amount"),
    );
    run(&mut connection, seed).await;
    let query = query("FROM every_payment WHERE status IN ('refunded', 'closed') AND id <");
    let lists = SETTLED.map(|(what, arguments)| (what, arguments.to_owned()));
    assert_pages(&mut connection, "settled payments", &query, &lists).await;
}

/// A plan that was made while the tables were empty must not be kept where it would read all of them: for an array, and
/// where `early.rs` says so.
#[tokio::test]
async fn no_statement_with_an_array_keeps_a_plan_from_the_time_when_the_tables_were_empty() {
    let app = TestApp::configured(&["--database-connections", "2"]).await;
    let coupon = app.create_flash(100).await;
    for user in 1..=10 {
        let order = app.paid_order(user, coupon).await;
        assert_eq!(app.act(user, order, "refund").await.status, 200);
        app.refund_payments().await;
        app.expire().await;
        // The unit is on its way back: the comparison looks at each order.
        assert!(app.reconcile().await.agrees());
        app.give_back().await;
        app.changes_pass().await;
        app.app.archive.pass().await.expect("both stores answer");
        app.app.numbers.pass().await.expect("both stores answer");
        app.app.order_counts.pass().await.expect("Postgres answers");
        app.app.audit.pass(Duration::from_hours(24)).await.expect("Postgres answers");
        assert_eq!(app.get("/v1/jobs", &app.admin_token()).await.status, 200);
    }
    let pool = &app.app.stores.pool;
    let mut one = pool.acquire().await.unwrap();
    let mut other = pool.acquire().await.unwrap();
    let mut seen = Vec::new();
    for connection in [&mut one, &mut other] {
        let query = "SELECT statement, generic_plans, custom_plans,
                            statement SIMILAR TO '%ANY%(\\$|ARRAY)%' AS has_array
                     FROM pg_prepared_statements WHERE statement NOT LIKE '%SIMILAR%'";
        let statements: Vec<(String, i64, i64, bool)> =
            sqlx::query_as(query).fetch_all(&mut **connection).await.expect("Postgres answers");
        seen.extend(statements);
    }
    let planned = seen.iter().filter_map(|(text, ..)| early::planned(text));
    let planned: BTreeSet<&str> = planned.collect();
    assert!(planned.len() >= 5, "{planned:#?}");
    seen.retain(|(text, _, _, has_array)| *has_array || early::planned(text).is_some());
    let runs: i64 = seen.iter().map(|(_, _, custom, _)| custom).sum();
    assert!(runs >= 40, "only {runs} runs: {seen:#?}");
    seen.retain(|(_, generic, ..)| *generic > 0);
    assert!(seen.is_empty(), "{seen:#?}");
}
