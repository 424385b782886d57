//! `months`: the partitions of the history, made and dropped, and waited for only for a moment.

use chrono::{DateTime, Utc};
use flash_sale::kit::id;
use flash_sale::kit::postgres;
use flash_sale::sale::retention::months::{self, Month};
use sqlx::{AssertSqlSafe, raw_sql};

use crate::support::TestApp;

fn time(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

/// Tables of the history, without their parents.
async fn tables(app: &TestApp) -> Vec<String> {
    let tables =
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relispartition ORDER BY 1";
    sqlx::query_scalar(tables).fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

async fn kept_from(app: &TestApp) -> DateTime<Utc> {
    let kept = "SELECT payments_kept_from FROM settings";
    sqlx::query_scalar(kept).fetch_one(&app.app.stores.pool).await.expect("Postgres answers")
}

#[tokio::test]
async fn a_month_is_made_once_holds_its_orders_and_is_dropped_with_its_payments() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let (march, april) =
        (Month::of(time("2023-03-31T23:59:59Z")), Month::of(time("2023-04-01T00:00:00Z")));
    for month in [march, april, march] {
        months::make(pool, month).await.expect("Postgres answers");
    }
    let names = ["order_history", "payment_history", "redemption_history", "stock_return_history"];
    let expected: Vec<_> = names
        .iter()
        .flat_map(|name| [format!("{name}_202303"), format!("{name}_202304")])
        .collect();
    assert_eq!(tables(&app).await, expected);
    let all: Vec<_> = months::all(pool).await.expect("Postgres answers").into_iter().collect();
    assert_eq!(all, [march, april]);

    let (first, next) =
        (id::first_at(time("2023-03-01T00:00:00Z")), id::first_at(time("2023-04-01T00:00:00Z")));
    app.execute(&format!(
        "INSERT INTO payment_history (id, order_id, gateway, gateway_payment_id, method, amount_cents, status, created_at, updated_at)
         SELECT n, n, 'external', n, 'alipay', 1, 'accepted', now(), now() FROM unnest(ARRAY[{first}, {next} - 1, {next}]) AS n"
    ))
    .await;
    assert_eq!(app.number("SELECT count(*) FROM payment_history_202303").await, 2);
    let before = kept_from(&app).await;
    assert!(before < time("2023-04-01T00:00:00Z"));
    months::drop(pool, march).await.expect("Postgres answers");
    assert_eq!(app.number("SELECT order_id FROM payment_history").await, next);
    assert_eq!(
        kept_from(&app).await,
        time("2023-04-01T00:00:00Z"),
        "payments before are known no more"
    );
    assert_eq!(tables(&app).await.len(), names.len());
    months::drop(pool, march).await.expect("nothing is left to drop");
}

/// A reader of the history holds its table, and other readers must not wait behind a month.
#[tokio::test]
async fn a_month_that_can_not_be_made_or_dropped_at_once_is_left_for_the_next_run() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let (there, absent) =
        (Month::of(time("2023-03-01T00:00:00Z")), Month::of(time("2023-04-01T00:00:00Z")));
    months::make(pool, there).await.expect("Postgres answers");
    let mut other = postgres::begin(pool).await.expect("Postgres answers");
    let lock = "LOCK TABLE order_history IN SHARE UPDATE EXCLUSIVE MODE";
    raw_sql(AssertSqlSafe(lock.to_owned())).execute(&mut *other).await.expect("Postgres answers");
    let code = |done: sqlx::Result<()>| {
        let error = done.expect_err("the table is held");
        error.as_database_error().and_then(|error| error.code()).map(std::borrow::Cow::into_owned)
    };
    let not_available = Some("55P03".to_owned());
    assert_eq!(code(months::make(pool, absent).await), not_available);
    assert_eq!(code(months::drop(pool, there).await), not_available);
    other.commit().await.expect("Postgres answers");
    months::make(pool, absent).await.expect("Postgres answers");
    months::drop(pool, there).await.expect("Postgres answers");
    assert_eq!(tables(&app).await.len(), 4);
}
