//! A user's rows as they are exported and erased, and records that are forgotten.

use chrono::{DateTime, Utc};
use flash_sale::kit::postgres::Page;
use flash_sale::sale::order::past::{erase, export, forget};

use super::{begin, move_rows, pool, sorted, write_letters};
use crate::support::{TestApp, user};

/// Orders 11, 12 and 13 of user 1, of which the last has moved, and 14 of user 2; each with a return.
async fn orders() -> TestApp {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[
        (12, 1, "flash", 1, "cancelled"),
        (11, 1, "flash", 1, "redeemed"),
        (13, 1, "flash", 1, "expired"),
        (14, 1, "flash", 2, "redeemed"),
    ])
    .await;
    move_rows(&app, &[13]).await;
    app.execute(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at) SELECT id, coupon_id, user_id, now() FROM orders;
         INSERT INTO redemptions (order_id) VALUES (11), (14)",
    )
    .await;
    app
}

#[tokio::test]
async fn lock_locks_the_orders_of_a_user_in_the_order_of_their_ids() {
    let app = orders().await;
    let other = app.holding("SELECT FROM orders WHERE id = 11 FOR UPDATE").await;
    let mut tx = begin(&app).await;
    let free = "SELECT id FROM orders ORDER BY id FOR UPDATE SKIP LOCKED";
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let free = app.numbers(free).await;
        other.rollback().await.expect("Postgres answers");
        free
    };
    let (locked, waiting) = tokio::join!(erase::lock(&mut tx, user(1)), looking);
    assert_eq!(waiting, [12, 14], "it waits for the first, and has not come to the second");
    assert_eq!(locked.expect("Postgres answers"), [11, 12]);
    assert_eq!(app.numbers(free).await, [14]);
}

#[tokio::test]
async fn orders_are_erased_with_their_returns() {
    let app = orders().await;
    app.let_rows_age("orders").await;
    let mut tx = begin(&app).await;
    let erased = erase::orders(&mut tx, &[11, 12]).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
    assert_eq!(erased, 2);
    let users = "SELECT user_id FROM orders ORDER BY id";
    assert_eq!(app.numbers(users).await, [-11, -12, 2]);
    assert_eq!(app.numbers("SELECT order_id FROM stock_returns").await, [14]);
    assert_eq!(app.touched("orders", "id").await, [11, 12]);
}

#[tokio::test]
async fn letters_of_a_user_are_erased_once_they_are_closed() {
    let app = TestApp::with_sales(1).await;
    let letters = [(1, 1, 21, false), (1, 1, 22, true), (1, 2, 23, false), (1, 1, 24, false)];
    write_letters(&app, &letters).await;
    let mut tx = begin(&app).await;
    let erased = erase::letters(&mut tx, user(1)).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
    assert_eq!(sorted(erased), [21, 24]);
    assert_eq!(app.numbers("SELECT order_id FROM dead_letters ORDER BY id").await, [22, 23]);
}

#[tokio::test]
async fn the_export_of_a_user_has_the_rows_of_the_user_oldest_first() {
    let app = orders().await;
    write_letters(&app, &[(1, 1, 22, true), (1, 2, 23, true), (1, 1, 21, false)]).await;
    let mut tx = begin(&app).await;
    let rows = export::rows(&mut tx, user(1)).await.expect("Postgres answers");
    let ids = |rows: &[serde_json::Value], key: &str| -> Vec<i64> {
        rows.iter().map(|row| row[key].as_i64().expect("a number")).collect()
    };
    assert_eq!(ids(&rows.orders, "id"), [11, 12, 13]);
    assert_eq!(ids(&rows.redemptions, "order_id"), [11]);
    assert_eq!(ids(&rows.stock_returns, "order_id"), [11, 12]);
    assert_eq!(ids(&rows.dead_letters, "order_id"), [22, 21]);
    let unwritten = export::unwritten(&mut tx, &[11, 13, 14, 21, 22]).await;
    assert_eq!(sorted(unwritten.expect("Postgres answers")), [21, 22], "those that are no orders");
}

/// Keys of the rows that are left.
async fn left(app: &TestApp, table: &str, key: &str) -> Vec<i64> {
    app.numbers(&format!("SELECT {key} FROM {table} ORDER BY 1")).await
}

fn before() -> DateTime<Utc> {
    "2024-02-01T00:00:00Z".parse().expect("a time")
}

#[tokio::test]
async fn forget_deletes_stock_returns_that_were_done_before_a_time_page_by_page() {
    let app = TestApp::with_sales(1).await;
    let orders: Vec<_> = (1..=7).map(|id| (id, 1, "flash", id, "cancelled")).collect();
    app.write_rows(&orders).await;
    // Order 3 is on its way, and 5 was done at that very moment; 2 has another row, which is on its way.
    app.execute(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at)
         SELECT id, coupon_id, user_id, CASE id WHEN 3 THEN NULL WHEN 5 THEN '2024-02-01T00:00:00Z'::timestamptz
                                        ELSE '2024-01-01T00:00:00Z' END FROM orders;
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id) VALUES (2, 'place', 1024, 2)",
    )
    .await;
    for (range, limit, expected, rows) in [
        // Behind order 1: the rows of 2, which may have another one on the next page.
        ((1, 100), 2, Page { last: Some(1), deleted: 1 }, vec![1, 2, 3, 4, 5, 6, 7]),
        ((1, 100), 3, Page { last: Some(3), deleted: 1 }, vec![1, 2, 3, 5, 6, 7]),
        ((4, 6), 9, Page { last: None, deleted: 0 }, vec![1, 2, 3, 5, 6, 7]),
        ((5, 7), 9, Page { last: None, deleted: 1 }, vec![1, 2, 3, 5, 7]),
        ((0, 100), 9, Page { last: None, deleted: 2 }, vec![2, 3, 5]),
    ] {
        let page = forget::stock_returns(pool(&app), range, before(), limit).await;
        assert_eq!(page.expect("Postgres answers"), expected, "{range:?}, {limit}");
        assert_eq!(left(&app, "stock_returns", "order_id").await, rows, "{range:?}, {limit}");
    }
}

#[tokio::test]
async fn forget_deletes_dead_letters_that_were_closed_before_a_time_page_by_page() {
    let app = TestApp::with_sales(1).await;
    let letters: Vec<_> = (1..=7).map(|n| (1, n, n, n == 3)).collect();
    write_letters(&app, &letters).await;
    // Letter 6 was written at that very moment, and 5 was closed then; the unit of letter 4 is on its way.
    app.write_rows(&[(4, 1, "flash", 4, "cancelled"), (2, 1, "flash", 2, "cancelled")]).await;
    app.execute(
        "UPDATE dead_letters SET created_at = '2023-01-01T00:00:00Z';
         UPDATE dead_letters SET created_at = '2024-02-01T00:00:00Z' WHERE id = 6;
         UPDATE dead_letters SET resolved_at = '2024-02-01T00:00:00Z' WHERE id = 5;
         INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at) VALUES (4, 1024, 4, NULL), (2, 1024, 2, now())",
    )
    .await;
    for (behind, limit, expected, rows) in [
        (1, 2, Page { last: Some(3), deleted: 1 }, vec![1, 3, 4, 5, 6, 7]),
        (3, 2, Page { last: Some(5), deleted: 0 }, vec![1, 3, 4, 5, 6, 7]),
        // A young letter ends the walk.
        (5, 2, Page { last: None, deleted: 1 }, vec![1, 3, 4, 5, 6]),
        (0, 9, Page { last: None, deleted: 1 }, vec![3, 4, 5, 6]),
    ] {
        let page = forget::dead_letters(pool(&app), behind, before(), limit).await;
        assert_eq!(page.expect("Postgres answers"), expected, "behind {behind}, {limit}");
        assert_eq!(left(&app, "dead_letters", "id").await, rows, "behind {behind}, {limit}");
    }
}
