//! `refund_now`, `insert`, `recall`, `hold_named` and `find`: what another session does between their looks
//! and their writes. Each waits for the other one's lock, and looks again.

use std::future::Future;

use flash_sale::kit::id;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::PaymentId;
use flash_sale::sale::payment::owed::Settled;
use flash_sale::sale::retention::months::{self, Month};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, raw_sql};

use super::past::{MONTHS, leave};
use super::{app_with, orders, payments, states, statuses};
use crate::support::lines::Lines;
use crate::support::{TestApp, now};

/// The answer to a request that has to wait for another session: this one has done something before that is not
/// committed yet, and does another thing while the request waits.
async fn raced<T>(
    app: &TestApp,
    (before, meanwhile): (&str, &str),
    request: impl Future<Output = T>,
) -> T {
    let before = format!("SET LOCAL application_name TO 'flash-sale test'; {before}");
    let mut other = app.holding(&before).await;
    let others = async {
        app.a_session_waits_for_a_row().await;
        let meanwhile = raw_sql(AssertSqlSafe(meanwhile.to_owned()));
        meanwhile.execute(&mut *other).await.expect("Postgres does it");
        other.commit().await.expect("Postgres does it");
    };
    tokio::join!(request, others).0
}

const LOCKED: &str = "SELECT FROM orders WHERE id = 1 FOR UPDATE";
const GONE: &str = "DELETE FROM payments WHERE id = 101";

fn pays(payment: &str, order: i64) -> Value {
    json!({"kind": "payment", "payment_id": payment, "order_id": order.to_string(), "method": 2,
           "amount_cents": 1})
}

#[tokio::test]
async fn refund_now_of_an_order_that_is_redeemed_meanwhile_moves_no_money() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "paid")]).await;
    payments(&app, &[(101, 1, "accepted", "")]).await;
    let redeemed = "UPDATE orders SET status = 'redeemed', redeemed_at = now() WHERE id = 1";
    let told = raced(&app, (redeemed, "SELECT 1"), app.act(1, 1, "refund")).await;
    let again = app.act(1, 1, "refund").await;
    assert_eq!((told.status, &told.body["code"]), (409, &again.body["code"]), "{told:?}");
    assert_eq!(
        (states(&app).await, statuses(&app).await),
        (vec!["101 accepted".to_owned()], vec!["1 redeemed".to_owned()])
    );
}

#[tokio::test]
async fn insert_takes_a_payment_that_was_known_and_is_gone_for_no_new_one() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    payments(&app, &[(101, 1, "refunded", "wrong_amount")]).await;
    let notice = pays("g101", 1);
    let told = raced(&app, (LOCKED, GONE), app.confirm(&notice)).await;
    assert!(told.status >= 500, "its gateway tells again: {told:?}");
    assert_eq!(statuses(&app).await, ["1 unpaid"]);
    assert_eq!(states(&app).await, [""; 0]);
}

/// The payment of a moved order is brought back, and gone once more while the notice waits for the order that it names.
#[tokio::test]
async fn recall_makes_a_payment_of_the_history_known() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    let month = Month::of(now()).back(2);
    months::make(&app.app.stores.pool, month).await.expect("Postgres does it");
    let moved = id::first_at(month.begins()) + 7;
    app.execute(&format!(
        "INSERT INTO order_history (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at, created_at, updated_at,
                                    pay_cents, currency)
             VALUES ({moved}, {coupon}, 'regular', 7, now(), 'cancelled', now(), now(), now(), 1, 'CNY');
         INSERT INTO moved_order_counts VALUES ({coupon}, 'cancelled', 1);
         INSERT INTO payment_history (id, order_id, gateway, gateway_payment_id, method, amount_cents, status,
                                      refund_reason, refunded_at, created_at, updated_at)
             VALUES (101, {moved}, 'external', 'g101', 'wechat', 1, 'refunded', 'too_late', now(), now(), now())"
    ))
    .await;
    let notice = pays("g101", 1);
    let told = raced(&app, (LOCKED, GONE), app.confirm(&notice)).await;
    assert!(told.status >= 500, "its gateway tells again: {told:?}");
    assert_eq!(statuses(&app).await, ["1 unpaid".to_owned(), format!("{moved} cancelled")]);
    assert_eq!(states(&app).await, [""; 0]);
}

/// Two notices name it at once: the second one says nothing of it.
#[tokio::test]
async fn recall_order_tells_that_it_brings_an_order_back_once() {
    let app = app_with(&[]).await;
    app.execute(MONTHS).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "cancelled"), (2, "cancelled")]).await;
    leave(&app, "1, 2").await;
    let heard = Lines::heard();
    let told = || heard.count("names an order of the history, which is brought back");
    let back = "WITH back AS (DELETE FROM order_history WHERE id = 1 RETURNING *) INSERT INTO orders SELECT * FROM back";
    let notice = pays("g101", 1);
    let answer = raced(&app, (back, "SELECT 1"), app.confirm(&notice)).await;
    assert_eq!((answer.text("reason"), told()), ("too_late", 0));
    assert_eq!(app.confirm(&pays("g102", 2)).await.text("reason"), "too_late");
    assert_eq!(told(), 1);
    assert_eq!(statuses(&app).await, ["1 cancelled", "2 cancelled"]);
}

#[tokio::test]
async fn hold_named_waits_for_the_order_and_looks_for_the_payment_again() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "paid")]).await;
    payments(&app, &[(101, 1, "accepted", "")]).await;
    let notice = json!({"kind": "refund", "payment_id": "g101"});
    let told = raced(&app, (LOCKED, GONE), app.confirm(&notice)).await;
    assert!(told.status >= 500, "its gateway tells again: {told:?}");
    assert_eq!(statuses(&app).await, ["1 paid"]);
    assert_eq!(app.confirm(&notice).await.refusal(), (404, "payment_not_found"));
}

#[tokio::test]
async fn find_waits_for_the_order_and_closes_no_payment_that_is_back_by_then() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "cancelled")]).await;
    payments(&app, &[(101, 1, "refunding", "too_late")]).await;
    let back = "UPDATE payments SET status = 'refunded', refunded_at = now() WHERE id = 101";
    let by = Actor::command_line();
    let payment = PaymentId::new(101).expect("a positive number");
    let close = app.app.payments.owed.close(payment, "told".into(), &by);
    let told = raced(&app, (LOCKED, back), close).await;
    assert_eq!(told.expect("Postgres answers"), Settled::DoesNotWait);
    assert_eq!(states(&app).await, ["101 refunded too_late"]);
}

#[tokio::test]
async fn find_locks_a_payment_whose_order_is_unknown() {
    let app = app_with(&[]).await;
    payments(&app, &[(101, 1, "held", "unknown_order")]).await;
    app.execute("INSERT INTO held_payments VALUES (101, now())").await;
    // As a pass does that has waited for the order for long.
    let given_up = "UPDATE payments SET status = 'refunding', refunding_at = now() WHERE id = 101";
    let by = Actor::command_line();
    let payment = PaymentId::new(101).expect("a positive number");
    let close = app.app.payments.owed.close(payment, "told".into(), &by);
    let told = raced(&app, (given_up, "DELETE FROM held_payments"), close).await;
    assert_eq!(told.expect("Postgres answers"), Settled::Done);
    assert_eq!(states(&app).await, ["101 closed unknown_order"]);
    let book = "SELECT before->>'status' FROM audit WHERE action = 'close_payment'";
    assert_eq!(app.texts(book).await, ["refunding"], "as it was when it was closed");
}

#[tokio::test]
async fn settle_of_an_order_that_is_cancelled_meanwhile_hands_the_money_back() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    let cancelled = "UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE id = 1";
    let told = raced(&app, (cancelled, "SELECT 1"), app.pay(1, 1)).await;
    let again = app.pay(1, 1).await;
    assert_eq!((told.status, &told.body["code"]), (409, &again.body["code"]), "{told:?}");
    let payment = "SELECT concat_ws(' ', gateway_payment_id, status, refund_reason) FROM payments";
    assert_eq!(app.texts(payment).await, ["1 refunding too_late"]);
    assert_eq!(statuses(&app).await, ["1 cancelled"]);
}
