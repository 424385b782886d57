//! The erasure of a user is one transaction: whatever Postgres says to one of its writes, nothing is erased.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::person::erase::{Erasure, erase};

use crate::retention::{history, persons};
use crate::support::{Bounded, TestApp, user};

/// Two codes about data, which say nothing about an item here, and two others.
const STATES: [&str; 4] = ["22003", "23514", "40001", "57014"];

const USER: i64 = 7_340_033_123_461;

/// Writes about a user whose orders are in the main tables.
const HERE: [(&str, &str); 8] = [
    ("UPDATE", "orders"),
    ("DELETE", "stock_returns"),
    ("DELETE", "dead_letters"),
    ("DELETE", "opened_payments"),
    ("UPDATE", "payments"),
    ("UPDATE", "recoveries"),
    ("UPDATE", "reconcile_runs"),
    ("UPDATE", "audit"),
];

/// Writes about a user whose orders have moved.
const MOVED: [(&str, &str); 4] = [
    ("UPDATE", "order_history"),
    ("DELETE", "stock_return_history"),
    ("UPDATE", "payment_history"),
    ("INSERT", "audit"),
];

/// All rows of the tables that an erasure writes to.
async fn rows(app: &TestApp) -> Vec<String> {
    let all = HERE.iter().chain(&MOVED).map(|(_, table)| {
        format!("SELECT '{table} ' || to_jsonb(row)::text AS line FROM {table} AS row")
    });
    app.texts(&format!("{} ORDER BY line", all.collect::<Vec<_>>().join(" UNION "))).await
}

async fn refuse_the_writes(app: &TestApp, writes: &[(&str, &str)]) {
    let by = Actor::command_line();
    let erase = async || erase(&app.app.stores, user(USER), &by).bounded().await;
    let before = rows(app).await;
    for (write, table) in writes {
        for state in STATES {
            app.refuse(write, table, "true", state).await;
            let refused = erase().await;
            app.accept(table).await;
            assert!(refused.is_err(), "{state} on {write} {table}: {refused:?}");
        }
        assert_eq!(rows(app).await, before, "{write} {table}: nothing is erased");
    }
    assert!(matches!(erase().await, Ok(Erasure::Done(_))));
    app.execute("DELETE FROM reconcile_runs").await;
}

#[tokio::test]
async fn the_erasure_of_a_user() {
    let app = persons::app().await;
    let (coupon, order) = persons::history(&app, USER).await;
    persons::archive(&app, coupon).await;
    app.execute(&format!(
        "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at)
         VALUES ({order}, 'alipay', 1, 'CNY', now(), now())"
    ))
    .await;
    refuse_the_writes(&app, &HERE).await;
}

#[tokio::test]
async fn the_erasure_of_a_user_whose_orders_have_moved() {
    let app = history::old_app(&["--unpaid-orders-max", "5"]).await;
    let (coupon, _) = persons::history(&app, USER).await;
    history::archive(&app, coupon).await;
    assert_eq!(history::moved(&app.app).await, 4);
    refuse_the_writes(&app, &MOVED).await;
}
