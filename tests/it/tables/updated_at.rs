//! The triggers of test databases (`support/updated_at.sql`) see an UPDATE of the service's that leaves `updated_at`.

use crate::support::TestApp;

#[tokio::test]
async fn an_update_by_the_service_that_leaves_updated_at_is_refused() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let pool = &app.app.stores.pool;
    let leaves = format!("UPDATE coupons SET title = 'other' WHERE id = {coupon}");
    let refused = sqlx::query(sqlx::AssertSqlSafe(leaves.clone())).execute(pool).await;
    let refused = refused.expect_err("a trigger is there").to_string();
    assert!(refused.contains("an UPDATE of coupons leaves updated_at as it was"), "{refused}");
    let says = leaves.replace("SET", "SET updated_at = now(),");
    let done = sqlx::query(sqlx::AssertSqlSafe(says)).execute(pool).await;
    assert_eq!(done.expect("it says when it happened").rows_affected(), 1);
    app.execute(&leaves).await;
}

#[tokio::test]
async fn all_tables_with_updated_at_have_the_trigger_but_opened_payments() {
    let app = TestApp::start().await;
    let without = "SELECT relname::text FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
                   WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND NOT relispartition
                     AND attname = 'updated_at' AND NOT attisdropped
                     AND NOT EXISTS (SELECT FROM pg_trigger
                                     WHERE tgrelid = pg_class.oid AND tgname = 'updated_at_was_left')";
    assert_eq!(app.texts(without).await, ["opened_payments"]);
}
