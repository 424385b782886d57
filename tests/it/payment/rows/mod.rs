//! Payments in each state, written by hand: those that a pass, a notice or an administrator moves, and those that stay.

// A gateway that answers as the ids of its payments say.
mod scripted;

// Held payments, looked at again.
mod held;

// Opened payments, asked about.
mod opened;

// The next look at an opened payment.
mod opened_again;

// Payments that change while their gateway is asked.
mod meanwhile;

// Refunds that are asked for.
mod queries;

// Notices of a gateway.
mod notices;

// Notices and requests that wait for another session.
mod raced;

// Payments of a time of which some are deleted, and places of users.
mod known;

// Lists and numbers of payments that wait, and the words of administrators.
mod owed;

// Payments that are over.
mod past;

use flash_sale::sale::ids::CouponId;
use sqlx::AssertSqlSafe;

use crate::support::{SECRET, TestApp};

/// An app with a gateway elsewhere that takes no requests. Redis doesn't know the rows of these tests.
async fn app_with(more: &[&str]) -> TestApp {
    let arguments = [&["--payment-callback-secret", SECRET], more].concat();
    let app = TestApp::without_in_process_gateway(&arguments).await;
    app.expect_disagreements();
    app
}

/// Orders with these ids and statuses, each of a user of its own, for 1 cent (CNY).
async fn orders(app: &TestApp, coupon: CouponId, rows: &[(i64, &str)]) {
    let rows: Vec<_> = rows.iter().map(|(id, status)| format!("({id}, '{status}')")).collect();
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, status, pay_method, paid_at,
                             redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at)
         SELECT id, {coupon}, 'regular', id, now(), 1, 'CNY', status, CASE WHEN was_paid THEN 'balance' END,
                CASE WHEN was_paid THEN now() END, CASE status WHEN 'redeemed' THEN now() END,
                CASE status WHEN 'cancelled' THEN now() END, CASE status WHEN 'expired' THEN now() END,
                CASE WHEN status IN ('refunding', 'refunded') THEN now() END,
                CASE status WHEN 'refunded' THEN now() END
         FROM (SELECT id, status, status IN ('paid', 'redeemed', 'refunding', 'refunded') AS was_paid
               FROM (VALUES {}) AS row (id, status)) AS row",
        rows.join(", ")
    ))
    .await;
}

/// Payments with these ids, orders, statuses and reasons. Their gateway calls them `g` and their id.
async fn payments(app: &TestApp, rows: &[(i64, i64, &str, &str)]) {
    let line = |(id, order, status, reason): &(i64, i64, &str, &str)| {
        format!("({id}, {order}, '{status}', nullif('{reason}', ''))")
    };
    let rows: Vec<_> = rows.iter().map(line).collect();
    app.execute(&format!(
        "INSERT INTO payments (id, order_id, gateway, gateway_payment_id, method, amount_cents, currency, status,
                               refund_reason, refunding_at, refunded_at, closed_at, note)
         OVERRIDING SYSTEM VALUE
         SELECT id, order_id, 'external', 'g' || id, 'wechat', 1, 'CNY', status, reason,
                CASE WHEN status IN ('refunding', 'refunded') THEN now() END, CASE status WHEN 'refunded' THEN now() END,
                CASE status WHEN 'closed' THEN now() END, CASE status WHEN 'closed' THEN 'by hand' END
         FROM (VALUES {}) AS row (id, order_id, status, reason)",
        rows.join(", ")
    ))
    .await;
}

/// Texts from Postgres.
async fn lines(app: &TestApp, query: &str) -> Vec<String> {
    let lines = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    lines.fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

/// All payments: id, status and reason.
async fn states(app: &TestApp) -> Vec<String> {
    lines(app, "SELECT concat_ws(' ', id, status, refund_reason) FROM payments ORDER BY id").await
}

/// All orders: id and status.
async fn statuses(app: &TestApp) -> Vec<String> {
    lines(app, "SELECT id || ' ' || status FROM orders ORDER BY id").await
}

/// The time of Postgres, in seconds.
const CLOCK: &str = "SELECT ceil(extract(epoch FROM clock_timestamp()))::bigint";
