//! Expiry: which orders are due, and in which order they are closed.

use flash_sale::base::limits;

use crate::support::TestApp;

/// Orders 1 to 8 of the sales of their numbers, by what they are about; 1, 3, 7 and 8 are due.
async fn due_orders() -> TestApp {
    let app = TestApp::configured(&["--payment-window-s", "3600"]).await;
    app.expect_disagreements();
    app.write_sales(9).await;
    app.write_rows(&[
        (1, 1, "flash", 1, "unpaid"),
        (2, 2, "flash", 2, "unpaid"),
        (3, 3, "flash", 3, "unpaid"),
        (4, 4, "flash", 4, "unpaid"),
        (5, 5, "flash", 5, "paid"),
        (6, 6, "flash", 6, "unpaid"),
        (7, 7, "flash", 7, "unpaid"),
        (8, 8, "regular", 8, "unpaid"),
    ])
    .await;
    app.execute(
        "UPDATE orders SET pay_by = now() - interval '1 min';
         -- Its time is not over, though it is old.
         UPDATE orders SET pay_by = now() + interval '30 min', created_at = now() - interval '2 h' WHERE id = 2;
         -- Two of an older version: their time is the window since they were written.
         UPDATE orders SET pay_by = NULL, created_at = now() - interval '2 h' WHERE id = 3;
         UPDATE orders SET pay_by = NULL, created_at = now() - interval '30 min' WHERE id = 4;
         INSERT INTO postponed (pass, item, error, next_try_at)
             VALUES ('expiry', 6, 'x', now() + interval '30 min'), ('history', 7, 'x', now() + interval '30 min')",
    )
    .await;
    app
}

async fn expired(app: &TestApp) -> Vec<i64> {
    app.numbers(
        "SELECT id FROM orders WHERE status = 'expired' AND expired_at <= now() ORDER BY id",
    )
    .await
}

#[tokio::test]
async fn expire_closes_the_orders_that_are_due() {
    let app = due_orders().await;
    app.let_rows_age("flash_sales").await;
    assert_eq!(app.expire().await, 4);
    assert_eq!(expired(&app).await, [1, 3, 7, 8]);
    let counted = app.numbers("SELECT sold FROM flash_sales ORDER BY coupon_id").await;
    assert_eq!(
        counted,
        [0, 2, 2, 4, 5, 6, 6, 8, 9],
        "one less of each sale; a regular coupon has none"
    );
    let returns = "SELECT order_id FROM stock_returns WHERE what = 'unit' AND done_at IS NULL ORDER BY order_id";
    assert_eq!(app.numbers(returns).await, [1, 3, 7]);
    assert_eq!(app.expire().await, 0);
    app.let_postponed_be_due().await;
    assert_eq!((app.expire().await, expired(&app).await), (1, vec![1, 3, 6, 7, 8]));
}

#[tokio::test]
async fn expire_skips_an_order_that_is_locked() {
    let app = due_orders().await;
    let other = app.holding("SELECT FROM orders WHERE id = 3 FOR UPDATE").await;
    assert_eq!((app.expire().await, expired(&app).await), (3, vec![1, 7, 8]));
    other.rollback().await.expect("Postgres answers");
    assert_eq!(app.expire().await, 1);
}

/// Postgres refuses to close one of a batch. Orders that are not due don't become it by that, and orders that were paid
/// long ago stand in front of none.
#[tokio::test]
async fn due_orders_are_closed_beside_one_that_cannot_be() {
    let app = due_orders().await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, paid_at, pay_method, pay_by)
         SELECT 1000 + n, 9216, 'flash', 1000 + n, now(), 'paid', now(), 'balance', now() - interval '1 day'
         FROM generate_series(1, {}) AS n",
        limits::EXPIRY_BATCH
    ))
    .await;
    app.write_rows(&[(9, 9, "flash", 9, "unpaid")]).await;
    app.execute("UPDATE orders SET pay_by = now() - interval '1 h' WHERE id = 9").await;
    app.refuse("UPDATE", "orders", "OLD.id = 9", "23514").await;
    assert_eq!(app.expire().await, 4);
    assert_eq!(expired(&app).await, [1, 3, 7, 8]);
    assert_eq!(app.postponed().await, ["expiry 6 1", "expiry 9 1", "history 7 1"]);
    app.accept("orders").await;
    app.let_postponed_be_due().await;
    assert_eq!((app.expire().await, expired(&app).await), (2, vec![1, 3, 6, 7, 8, 9]));
    let cancelled = "SELECT count(*) FROM orders WHERE cancelled_at IS NOT NULL";
    assert_eq!(app.number(cancelled).await, 0);
}

/// Writes one due order more than a pass closes; the nth has to be paid by this time. Returns how many it closes.
async fn write_more_than_a_pass(app: &TestApp, pay_by: &str) -> i64 {
    let batches = i64::try_from(limits::PASS_BATCHES_MAX).expect("a small number");
    let orders = batches * i64::from(limits::EXPIRY_BATCH);
    app.execute(&format!(
        "UPDATE flash_sales SET total = 10000, sold = 10000;
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by, created_at)
         SELECT n, 1024, 'flash', n, now(), {pay_by}, now() - interval '3 days'
         FROM generate_series(1, {orders} + 1) AS n"
    ))
    .await;
    orders
}

/// The oldest order is one of an older version, whose time counts from its row on.
#[tokio::test]
async fn expire_takes_those_first_that_have_been_due_for_longest() {
    let app = TestApp::with_sales(1).await;
    let orders = write_more_than_a_pass(
        &app,
        "CASE WHEN n > 1 THEN now() - interval '2 days' + n * interval '1 s' END",
    )
    .await;
    assert_eq!(i64::try_from(app.expire().await).expect("some"), orders, "a pass has a bound");
    let left = app.numbers("SELECT id FROM orders WHERE status = 'unpaid'").await;
    assert_eq!(left, [orders + 1]);
}

/// The same where Postgres refuses one of the first batch: that one waits, and the youngest is left.
#[tokio::test]
async fn due_orders_are_closed_oldest_first_beside_one_that_cannot_be() {
    let app = TestApp::with_sales(1).await;
    let orders =
        write_more_than_a_pass(&app, "now() - interval '2 days' + n * interval '1 s'").await;
    app.refuse("UPDATE", "orders", "OLD.id = 2", "23514").await;
    assert_eq!(i64::try_from(app.expire().await).expect("some"), orders - 1);
    let left = app.numbers("SELECT id FROM orders WHERE status = 'unpaid' ORDER BY id").await;
    assert_eq!(left, [2, orders + 1]);
}
