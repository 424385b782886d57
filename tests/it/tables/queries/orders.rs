//! `read`, `insert`, `counts`, `moves` and `jobs`: pages of a user's orders, rows that are there already, counts that are
//! corrected, and orders that are held.

use flash_sale::sale::ids::OrderId;
use flash_sale::sale::log::LoggedClaim;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Bounded, SECRET, TestApp, bounded, lane, sale, user};

/// Paid orders 1 to 4 of user 1 that an older version has written: none has a redemption code.
#[tokio::test]
async fn select_makes_codes_for_the_orders_of_a_page() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(4).await;
    let rows: Vec<_> = (1..=4).map(|n| (n, n, "flash", 1, "paid")).collect();
    app.write_rows(&rows).await;
    let listed = app.app.orders.list(user(1), None, 1).await.expect("Postgres answers");
    let ids: Vec<i64> = listed.orders.iter().map(|order| order.order_id.get()).collect();
    assert_eq!(ids, [4]);
    assert!(listed.orders[0].redemption_code.is_some());
    let coded = "SELECT order_id FROM redemptions ORDER BY order_id";
    assert_eq!(app.numbers(coded).await, [3, 4], "and for the one that tells that there are more");
}

/// A row with an impossible coupon doesn't disturb a batch that has no claim of its id.
#[tokio::test]
async fn existing_rows_are_those_under_the_ids_of_the_claims() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(1).await;
    app.write_rows(&[(11, 1, "flash", 1, "cancelled"), (12, 1, "flash", 2, "cancelled")]).await;
    app.execute("UPDATE orders SET coupon_id = -1 WHERE id = 12").await;
    let order = |id: i64| OrderId::new(id).expect("a positive number");
    let claims = [(11, 1), (13, 3)];
    let claims = claims.map(|(id, of)| LoggedClaim::without_entry(sale(1), user(of), order(id)));
    let never = CancellationToken::new();
    let written = app.app.orders.write_what_fits((lane(), 1), &claims, &never).await;
    let written = written.expect("Postgres answers");
    assert_eq!((written.inserted, written.repeated), (1, 1));
}

/// An order of each sale is in the changes still.
#[tokio::test]
async fn correct_compares_the_orders_of_a_coupon_with_its_own_counts_and_changes() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(2).await;
    app.execute("UPDATE order_count_audit SET next_at = 'infinity'").await;
    app.write_rows(&[(1, 1, "flash", 1, "unpaid"), (2, 2, "flash", 2, "unpaid")]).await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    app.write_rows(&[(3, 1, "flash", 3, "paid"), (4, 2, "flash", 4, "unpaid")]).await;
    app.execute("UPDATE order_count_audit SET next_at = now()").await;
    let audited = app.app.order_counts.audit_next().bounded().await.expect("Postgres answers");
    assert_eq!(audited, Some(sale(1)));
    let changes = "SELECT concat_ws(' ', coupon_id >> 10, status, orders) FROM order_count_changes ORDER BY 1";
    assert_eq!(app.texts(changes).await, ["1 paid 1", "2 unpaid 1"], "nothing is corrected");
    assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, 0);
}

/// Order 11 has been paid since it was postponed, and order 12 isn't due.
#[tokio::test]
async fn of_order_finds_no_job_for_an_order_that_is_no_longer_unpaid() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(1).await;
    app.write_rows(&[(11, 1, "flash", 11, "paid"), (12, 1, "flash", 12, "unpaid")]).await;
    app.execute(
        "INSERT INTO jobs (coupon_id, key, reason, created_at) VALUES (1024, 'k', 'r', '2024-01-01T00:01:00Z');
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES
             ('cancellations', 11, 'x', now()), ('cancellations', 12, 'x', now() + interval '1 hour')",
    )
    .await;
    app.let_rows_age("jobs").await;
    assert_eq!(app.cancel_for_jobs().await, 0);
    assert_eq!(app.touched("jobs", "id").await, [0; 0], "it has counted nothing");
    assert_eq!(app.postponed().await, ["cancellations 12 1"]);
}

/// Orders of users 1 and 2 that the gateway has been paid for.
async fn paid_at_a_gateway() -> (TestApp, [i64; 2]) {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let coupon = app.create_flash(5).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    for (user, order) in (1..).zip(orders) {
        let notice = json!({"kind": "payment", "payment_id": format!("g{user}"), "order_id": order.to_string(),
                            "method": 2, "amount_cents": 1});
        assert_eq!(app.confirm(&notice).await.text("outcome"), "accepted");
    }
    (app, orders)
}

#[tokio::test]
async fn hold_has_a_chargeback_wait_for_the_redemption_of_its_order() {
    let (app, [first, _]) = paid_at_a_gateway().await;
    let redeems = format!(
        "UPDATE orders SET status = 'redeemed', redeemed_at = now(), updated_at = now() WHERE id = {first}"
    );
    let clerk = app.holding(&redeems).await;
    let notice = json!({"kind": "refund", "payment_id": "g1"});
    let commits = async {
        app.a_session_waits_for_a_row().await;
        clerk.commit().await.expect("Postgres answers");
    };
    let (told, ()) = tokio::join!(app.confirm(&notice), commits);
    assert_eq!(told.text("outcome"), "charged_back");
    let expected = ["redeemed external held charged_back", "paid external accepted"];
    assert_eq!(app.payments().await, expected);
}

#[tokio::test]
async fn hold_is_about_one_order() {
    let (app, [_, second]) = paid_at_a_gateway().await;
    let other = app.holding(&format!("SELECT FROM orders WHERE id = {second} FOR UPDATE")).await;
    let notice = json!({"kind": "refund", "payment_id": "g1"});
    let told = bounded("the answer to the notice", app.confirm(&notice)).await;
    assert_eq!(told.text("outcome"), "charged_back");
    other.rollback().await.expect("Postgres answers");
    let expected = ["refunded external refunded charged_back", "paid external accepted"];
    assert_eq!(app.payments().await, expected);
}
