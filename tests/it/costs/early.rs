//! Plans that were made while the tables were empty, and are still kept when these are large: until a table is analysed
//! for the first time, or where it is not. A statement with an array is planned for its values (`plans.rs` counts that).

use std::collections::BTreeSet;

use serde_json::Value;
use sqlx::PgConnection;

use super::plans::{Query, explained, queries, read, run};
use super::queries::{OTHERS, QUERIES};

/// Words of statements without an array that the service plans for their values, too (`postgres::begin_planning`).
pub(super) const PLANNED: [&str; 10] = [
    "SELECT id AS \"job_id: JobId\"",
    "WITH new AS ( SELECT id, gateway",
    "WITH RECURSIVE step (number, coupon_id) AS",
    "WITH taken AS ( DELETE FROM order_count_changes",
    "AND state = 'ended' AND applied_revision = revision",
    "AND EXISTS (SELECT FROM coupons WHERE id = $1 AND state = 'ended' AND revision",
    "WHERE id >= $1 AND kind = 'flash' AND (coupon_id & 1023)::integer = $2",
    "SELECT id, user_id AS \"user_id!: UserId\", order_id AS \"order_id!: OrderId\" FROM dead_letters",
    "DELETE FROM audit WHERE id = ANY(ARRAY(",
    "DELETE FROM creation_keys",
];

/// Statements that read a whole table by such a plan all the same, and the reason.
const SCANS: [(&str, &str); 1] = [(
    "SELECT $1, id, kind, $3, $4, 'cancelled', now() FROM coupons",
    "reads the sales, for one claim of a dead letter that is given up",
)];

/// The words of [`PLANNED`] that are in this statement.
pub(super) fn planned(statement: &str) -> Option<&'static str> {
    let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    PLANNED.into_iter().find(|words| statement.contains(words))
}

/// A statement, and its plan from a time without rows.
pub(super) struct Early {
    name: String,
    query: Query,
    plan: Value,
}

impl Early {
    fn is_in(&self, mut words: impl Iterator<Item = &'static str>) -> bool {
        words.any(|words| self.query.contains(words))
    }
}

/// Prepares the statements of the code, and has each planned. No table is analysed by itself from here on.
pub(super) async fn prepare(connection: &mut PgConnection) -> Vec<Early> {
    let rests = "DO $$ DECLARE grown regclass;
         BEGIN
             FOR grown IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
                 EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', grown);
             END LOOP;
         END $$";
    run(connection, rests.to_owned()).await;
    let mut prepared = Vec::new();
    for (number, query) in queries().into_iter().enumerate() {
        let name = format!("early_{number}");
        run(connection, format!("PREPARE {name} AS {}", query.text)).await;
        let nulls = vec!["NULL"; query.arguments].join(", ");
        let plan = explained(connection, "FORMAT JSON", &name, &nulls).await;
        prepared.push(Early { name, query, plan });
    }
    prepared
}

/// Plans that read too much of the tables, which are large by now and have not been analysed. `given` makes the arguments.
pub(super) async fn complaints(
    connection: &mut PgConnection,
    prepared: &[Early],
    given: impl Fn(&str) -> String,
) -> Vec<String> {
    let kept = prepared.iter().filter(|early| !early.query.has_array);
    let kept: Vec<&Early> = kept.filter(|early| !early.is_in(PLANNED.into_iter())).collect();
    let mut complaints = Vec::new();
    for (what, words, arguments, asked_for) in QUERIES {
        let Some(early) = kept.iter().find(|early| early.query.contains(words)) else {
            continue;
        };
        run(connection, "BEGIN".to_owned()).await;
        let arguments = given(arguments);
        let plan = explained(connection, "ANALYZE, FORMAT JSON", &early.name, &arguments).await;
        run(connection, "ROLLBACK".to_owned()).await;
        let [before, now] = [&early.plan, &plan].map(|plan| plan[0]["Plan"]["Total Cost"].clone());
        assert_eq!(before, now, "{what}: the plan is kept");
        let read = read(&plan[0]["Plan"]);
        if read > 10.0 * asked_for {
            complaints.push(format!(
                "{what}, by a plan for empty tables: {read} rows read, {asked_for} asked for: {plan:#}"
            ));
        }
    }
    let large = large_tables(connection).await;
    let listed = || QUERIES.iter().map(|row| row.1).chain(OTHERS.map(|other| other.0));
    for early in kept.iter().filter(|early| !early.is_in(listed())) {
        let scanned = &scanned(&early.plan[0]["Plan"]) & &large;
        if !scanned.is_empty() && !early.is_in(SCANS.into_iter().map(|scan| scan.0)) {
            complaints
                .push(format!("a plan for empty tables scans {scanned:?}: {}", early.query.text));
        }
    }
    complaints
}

async fn large_tables(connection: &mut PgConnection) -> BTreeSet<String> {
    let large = "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND pg_relation_size(oid) > 1000000";
    let large: Vec<String> =
        sqlx::query_scalar(large).fetch_all(connection).await.expect("Postgres answers");
    assert!(large.len() >= 10, "{large:?}");
    large.into_iter().collect()
}

/// Tables that this plan reads from beginning to end.
fn scanned(node: &Value) -> BTreeSet<String> {
    let own = node["Relation Name"].as_str().filter(|_| node["Node Type"] == "Seq Scan");
    let parts = node["Plans"].as_array().into_iter().flatten().flat_map(scanned);
    parts.chain(own.map(str::to_owned)).collect()
}
