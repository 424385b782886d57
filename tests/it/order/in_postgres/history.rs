//! The way of orders into the history and back, and what is found there.

use chrono::{DateTime, Utc};
use flash_sale::sale::order::history;
use flash_sale::sale::order::history::moved;
use flash_sale::sale::retention::months::{self, Month};
use sqlx::{Postgres, Transaction, raw_sql};

use super::{begin, claim, id, move_rows, order, pool, sorted, user_id, write};
use crate::support::lines::{Lines, rows_returned};
use crate::support::{TestApp, sale, user};

/// Time before which an order has to be over.
fn before() -> DateTime<Utc> {
    "2024-02-01T00:00:00Z".parse().expect("a time")
}

/// Moved orders: 11, 12 and 14 of user 1, 13 of user 2, and 15 of a user who was erased. 12 is of sale 2, whose counts of
/// moved orders are missing.
async fn moved_orders() -> TestApp {
    let app = TestApp::with_sales(3).await;
    app.write_rows(&[
        (11, 1, "flash", 1, "redeemed"),
        (12, 2, "flash", 1, "cancelled"),
        (13, 1, "flash", 2, "expired"),
        (14, 1, "flash", 1, "refunded"),
        (15, 1, "flash", 5, "cancelled"),
    ])
    .await;
    app.execute("UPDATE orders SET user_id = -id WHERE id = 15").await;
    move_rows(&app, &[11, 12, 13, 14, 15]).await;
    app.execute("INSERT INTO moved_order_counts VALUES (1024, 'redeemed', 1)").await;
    app
}

#[tokio::test]
async fn find_and_list_tell_moved_orders_with_their_users() {
    let app = moved_orders().await;
    for (number, expected) in
        [(11, Some(Some(1))), (13, Some(Some(2))), (15, Some(None)), (16, None)]
    {
        let found = history::find(pool(&app), order(number)).await.expect("Postgres answers");
        let found = found.map(|found| (id(found.order_id), found.user_id.map(user_id)));
        assert_eq!(found, expected.map(|user| (number, user)), "find {number}");
        let has = moved::has(pool(&app), order(number)).await.expect("Postgres answers");
        assert_eq!(has, expected.is_some(), "has {number}");
    }
    for (of, first, before, limit, expected) in [
        (1, 0, None, 9, vec![14, 12, 11]),
        (1, 0, None, 2, vec![14, 12]),
        (1, 12, None, 9, vec![14, 12]),
        (1, 0, Some(14), 9, vec![12, 11]),
        (1, 12, Some(14), 9, vec![12]),
        (2, 0, None, 9, vec![13]),
        (5, 0, None, 9, vec![]),
    ] {
        let bounds = (first, before.map(order));
        let listed = history::list(pool(&app), user(of), bounds, limit).await;
        let listed: Vec<_> = listed
            .expect("Postgres answers")
            .into_iter()
            .map(|found| (id(found.order_id), found.user_id.map(user_id)))
            .collect();
        let expected: Vec<_> = expected.into_iter().map(|number| (number, Some(of))).collect();
        assert_eq!(listed, expected, "user {of}, {bounds:?}, {limit}");
    }
}

/// Four orders of user 1, of which one has not moved. One more than a page has tells that there is a next page.
#[tokio::test]
async fn a_list_reads_a_page_and_one_order_more() {
    let app = moved_orders().await;
    app.write_rows(&[(10, 3, "flash", 1, "cancelled")]).await;
    for (limit, orders, moved) in [(1, vec![1], 2), (2, vec![1], 3), (9, vec![1], 3)] {
        let lines = Lines::down_to(tracing::Level::DEBUG);
        let listed = app.app.orders.list(user(1), None, limit).await.expect("Postgres answers");
        assert_eq!(listed.orders.len(), 4.min(limit as usize));
        assert_eq!(rows_returned(&lines, "WHERE user_id = $1 AND id = coalesce($2, id)"), orders);
        assert_eq!(rows_returned(&lines, "FROM order_history WHERE user_id = $1"), [moved]);
    }
}

#[tokio::test]
async fn last_of_a_coupon_is_looked_for_if_orders_of_it_have_moved() {
    let app = moved_orders().await;
    for (number, of, expected) in
        [(1, 1, Some(14)), (1, 2, Some(13)), (1, 3, None), (2, 1, None), (3, 1, None)]
    {
        let last = history::last_of(pool(&app), sale(number), user(of)).await;
        let last = last.expect("Postgres answers").map(|(order, _)| id(order));
        assert_eq!(last, expected, "sale {number}, user {of}");
    }
}

#[tokio::test]
async fn erase_takes_a_user_off_moved_orders_and_deletes_their_returns() {
    let app = moved_orders().await;
    app.execute(
        "INSERT INTO stock_return_history (order_id, what, coupon_id, user_id, created_at, updated_at)
         SELECT id, 'unit', coupon_id, user_id, now(), now() FROM order_history WHERE id < 14;
         UPDATE order_history SET updated_at = now() - interval '1 day'",
    )
    .await;
    let mut tx = begin(&app).await;
    let erased = history::erase(&mut tx, user(1)).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
    assert_eq!(sorted(erased), [11, 12, 14]);
    let users = app.numbers("SELECT user_id FROM order_history ORDER BY id").await;
    assert_eq!(users, [-11, -12, 2, -14, -15]);
    assert_eq!(app.touched("order_history", "id").await, [11, 12, 14]);
    assert_eq!(app.numbers("SELECT order_id FROM stock_return_history").await, [13]);
}

#[tokio::test]
async fn look_tells_the_orders_of_a_page_that_are_over_since_a_time() {
    let app = TestApp::with_sales(1).await;
    let statuses = [
        "redeemed",
        "cancelled",
        "expired",
        "refunded",
        "unpaid",
        "paid",
        "refunding",
        "cancelled",
        "cancelled",
        "cancelled",
    ];
    let orders: Vec<_> =
        (1..).zip(statuses).map(|(id, status)| (id, 1, "flash", id, status)).collect();
    app.write_rows(&orders).await;
    // Order 8 is over since that very moment, and 9 and 10 are postponed, one of them here.
    app.execute(
        "UPDATE orders SET updated_at = '2024-02-01T00:00:00Z'::timestamptz - CASE id WHEN 8 THEN interval '0' ELSE '1 us' END;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('history', 9, 'x', now()), ('expiry', 10, 'x', now())",
    )
    .await;
    let mut tx = begin(&app).await;
    for (range, limit, over, last) in [
        ((0, 100), 50, vec![1, 2, 3, 4, 10], None),
        ((0, 100), 3, vec![1, 2, 3], Some(3)),
        ((3, 100), 3, vec![4], Some(6)),
        ((3, 10), 50, vec![4], None),
        ((10, 100), 50, vec![], None),
    ] {
        let looked = moved::look(&mut tx, range, before(), limit).await.expect("Postgres answers");
        assert_eq!((looked.over, looked.last), (over, last), "{range:?}, {limit}");
    }
}

/// Status and kind of an order that is over, with its sale out of Redis, but for what these statements do to it; and
/// whether it may move. `$` stands for its id, and `sale` for its sale.
const ORDERS_OVER: [(&str, &str, &str, bool); 24] = [
    ("cancelled", "flash", "", true),
    ("redeemed", "flash", "", true),
    ("expired", "flash", "", true),
    ("refunded", "flash", "", true),
    ("unpaid", "flash", "", false),
    ("paid", "flash", "", false),
    ("refunding", "flash", "", false),
    ("cancelled", "flash", "UPDATE orders SET updated_at = '2024-02-01T00:00:00Z' WHERE id = $", false),
    ("cancelled", "flash", "UPDATE flash_sales SET removed_at = NULL WHERE coupon_id = sale", false),
    ("cancelled", "flash", "UPDATE flash_sales SET removed_at = NULL, archived_at = NULL WHERE coupon_id = sale", false),
    ("cancelled", "regular", "UPDATE flash_sales SET removed_at = NULL, archived_at = NULL WHERE coupon_id = sale", true),
    ("redeemed", "flash", "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, updated_at)
        VALUES ($, 'external', '$', 'alipay', 1, '2024-01-01T00:00:00Z')", true),
    ("redeemed", "flash", "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, updated_at)
        VALUES ($, 'external', '$', 'alipay', 1, '2024-02-01T00:00:00Z')", false),
    ("redeemed", "flash", "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, updated_at)
        VALUES ($, 'external', '$', 'alipay', 1, 'refunding', 'paid_twice', '2024-01-01T00:00:00Z')", false),
    ("redeemed", "flash", "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, updated_at)
        VALUES ($, 'external', '$', 'alipay', 1, 'held', 'wrong_amount', '2024-01-01T00:00:00Z')", false),
    ("cancelled", "flash", "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at)
        VALUES ($, 'alipay', 1, 'CNY', now())", false),
    ("cancelled", "flash", "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at)
        VALUES ($, 'alipay', 1, 'CNY', now(), now())", true),
    ("cancelled", "flash", "INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES ($, sale, 1)", false),
    ("cancelled", "flash", "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at) VALUES ($, sale, 1, now())", true),
    ("cancelled", "flash", "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
        VALUES (0, '$-1', '{}', 'conflict', '', sale, 1, $)", false),
    ("cancelled", "flash", "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
        VALUES (0, '$-1', '{}', 'conflict', '', sale, 1, $, now())", true),
    // Of these, one is locked by another process, one is not asked for, and one is as all others.
    ("cancelled", "flash", "", false),
    ("cancelled", "flash", "", false),
    ("cancelled", "flash", "", true),
];

#[tokio::test]
async fn lock_those_over_locks_orders_of_which_nothing_is_under_way() {
    let last = i64::try_from(ORDERS_OVER.len()).expect("few");
    let app = TestApp::with_sales(last).await;
    let orders: Vec<_> =
        (1..).zip(ORDERS_OVER).map(|(id, (status, kind, ..))| (id, id, kind, id, status)).collect();
    app.write_rows(&orders).await;
    app.execute(
        "UPDATE orders SET updated_at = '2024-01-01T00:00:00Z';
         UPDATE flash_sales SET archived_at = now(), removed_at = now()",
    )
    .await;
    let mut expected = Vec::new();
    for (number, (_, _, but, may_move)) in (1..).zip(ORDERS_OVER) {
        if !but.is_empty() {
            let but = but.replace("= sale", &format!("= {}", sale(number)));
            let but = but.replace(" sale,", &format!(" {},", sale(number)));
            app.execute(&but.replace('$', &i64::to_string(&number))).await;
        }
        expected.extend(may_move.then_some(number));
    }
    let (locked, not_asked_for) = (last - 2, last - 1);
    let mut other = begin(&app).await;
    let lock = format!("SELECT FROM orders WHERE id = {locked} FOR UPDATE");
    raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *other).await.expect("Postgres does it");
    // No lock is waited for.
    let mut tx = begin(&app).await;
    raw_sql("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await.expect("Postgres does it");
    let asked: Vec<i64> = (1..=last).rev().filter(|id| *id != not_asked_for).collect();
    let found = moved::lock_those_over(&mut tx, &asked, before()).await.expect("Postgres answers");
    assert_eq!(found, expected);
    let free = app.numbers("SELECT id FROM orders ORDER BY id FOR UPDATE SKIP LOCKED").await;
    let others: Vec<i64> =
        (1..=last).filter(|id| !expected.contains(id) && *id != locked).collect();
    assert_eq!(free, others, "the others are free");
}

#[tokio::test]
async fn fix_prices_gives_orders_of_older_versions_the_price_that_they_had() {
    let app = TestApp::with_sales(5).await;
    app.write_rows(&[
        (1, 1, "flash", 1, "cancelled"),
        (2, 2, "flash", 2, "cancelled"),
        (3, 3, "flash", 3, "cancelled"),
        (4, 4, "flash", 4, "cancelled"),
        (5, 5, "flash", 5, "cancelled"),
        (6, 99, "flash", 6, "cancelled"),
    ])
    .await;
    app.execute(
        "UPDATE coupons SET currency = 'JPY' WHERE id >> 10 IN (1, 3);
         UPDATE orders SET pay_cents = NULL WHERE id IN (1, 2, 5, 6);
         UPDATE orders SET pay_cents = 70 WHERE id = 3;
         UPDATE orders SET currency = NULL WHERE id IN (1, 3, 5, 6);
         UPDATE orders SET currency = 'EUR' WHERE id = 2",
    )
    .await;
    let version = "SELECT xmin::text::bigint FROM orders WHERE id IN (4, 5) ORDER BY id";
    let versions = app.numbers(version).await;
    let mut tx = begin(&app).await;
    moved::fix_prices(&mut tx, &[1, 2, 3, 4, 6]).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
    let prices = "SELECT concat_ws(' ', id, coalesce(pay_cents::text, '-'), coalesce(currency, '-')) FROM orders ORDER BY id";
    let expected = ["1 1 JPY", "2 2 EUR", "3 70 JPY", "4 4 CNY", "5 - -", "6 0 CNY"];
    assert_eq!(app.texts(prices).await, expected);
    assert_eq!(app.numbers(version).await, versions, "one has its price, and one is not asked for");
}

/// Five orders, each with a return; 3 and 5 with a redemption, too.
async fn to_move() -> TestApp {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (1, 1, "flash", 1, "cancelled"),
        (2, 1, "flash", 2, "cancelled"),
        (3, 1, "flash", 3, "redeemed"),
        (4, 2, "flash", 4, "cancelled"),
        (5, 2, "flash", 5, "redeemed"),
    ])
    .await;
    app.execute(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at) SELECT id, coupon_id, user_id, now() FROM orders;
         INSERT INTO redemptions (order_id) VALUES (3), (5);
         INSERT INTO moved_order_counts VALUES (1024, 'cancelled', 10), (2048, 'cancelled', 20)",
    )
    .await;
    months::make(pool(&app), Month::of_order(1)).await.expect("Postgres does it");
    app
}

/// Orders in these tables, and the counts of moved ones.
async fn places(app: &TestApp) -> Vec<Vec<i64>> {
    let mut places = Vec::new();
    for (table, key) in [
        ("orders", "id"),
        ("stock_returns", "order_id"),
        ("redemptions", "order_id"),
        ("order_history", "id"),
        ("stock_return_history", "order_id"),
        ("redemption_history", "order_id"),
    ] {
        places.push(app.numbers(&format!("SELECT {key} FROM {table} ORDER BY {key}")).await);
    }
    let counts = "SELECT orders FROM moved_order_counts ORDER BY coupon_id, status";
    places.push(app.numbers(counts).await);
    places
}

async fn leave(mut tx: Transaction<'static, Postgres>, orders: &[i64]) {
    moved::leave(&mut tx, orders).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
}

#[tokio::test]
async fn orders_leave_with_what_belongs_to_them_and_recall_brings_one_back() {
    let app = to_move().await;
    leave(begin(&app).await, &[1, 2, 3, 4]).await;
    let left = [
        vec![5],
        vec![5],
        vec![5],
        vec![1, 2, 3, 4],
        vec![1, 2, 3, 4],
        vec![3],
        // Of sale 1, cancelled and redeemed; of sale 2.
        vec![12, 1, 21],
    ];
    assert_eq!(places(&app).await, left);
    app.let_rows_age("orders").await;
    app.let_rows_age("order_history").await;
    let mut tx = begin(&app).await;
    for (number, expected) in [(99, false), (2, true), (3, true), (2, false)] {
        let back = moved::recall(&mut tx, order(number)).await.expect("Postgres answers");
        assert_eq!(back, expected, "recall {number}");
    }
    tx.commit().await.expect("Postgres answers");
    let back =
        [vec![2, 3, 5], vec![2, 3, 5], vec![3, 5], vec![1, 4], vec![1, 4], vec![], vec![11, 0, 21]];
    assert_eq!(places(&app).await, back);
    assert_eq!(app.touched("orders", "id").await, [2, 3], "they move again much later");
}

/// Two processes lock the counts that they raise in one order.
#[tokio::test]
async fn leave_raises_the_counts_in_the_order_of_the_coupons() {
    let app = to_move().await;
    let other =
        app.holding("SELECT FROM moved_order_counts WHERE coupon_id = 1024 FOR UPDATE").await;
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let free = "SELECT coupon_id >> 10 FROM moved_order_counts ORDER BY coupon_id FOR UPDATE SKIP LOCKED";
        let free = app.numbers(free).await;
        other.rollback().await.expect("Postgres answers");
        free
    };
    let ((), free) = tokio::join!(leave(begin(&app).await, &[4, 1]), looking);
    assert_eq!(free, [2], "it waits for the first, and has not come to the second");
}

/// Claims of moved orders are repeats, or conflicts; of an erased user, whose order it was isn't known.
#[tokio::test]
async fn among_the_moved_orders_a_claim_finds_its_own() {
    let app = moved_orders().await;
    app.execute("UPDATE settings SET orders_moved_to = 100, updated_at = now()").await;
    // A claim that is a row already stands in the way of the first try.
    app.write_rows(&[(201, 1, "flash", 201, "cancelled")]).await;
    for (number, of, coupon, expected) in [
        (11, 1, 1, (0, 1, 0)),
        (15, 5, 1, (0, 1, 0)),
        (13, 1, 1, (0, 0, 1)),
        (11, 1, 2, (0, 0, 1)),
        (16, 6, 1, (1, 0, 0)),
    ] {
        let claims = [claim(number, coupon, of), claim(201, 1, 201)];
        let written = write(&app, &claims).await.expect("Postgres answers");
        let told = (written.inserted, written.repeated - 1, written.conflicts);
        assert_eq!(told, expected, "order {number} of user {of} and coupon {coupon}");
    }
}
