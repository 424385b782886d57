//! Statuses of claims.

use crate::support::TestApp;

/// Another claim's row makes this one a dead letter, once it is written.
#[tokio::test]
async fn status_of_a_claim_is_not_that_of_a_row_of_another_coupon() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (coupon, other) = (app.create_flash(5).await, app.create_flash(5).await);
    let order = app.claim(1, coupon).await.order_id();
    for (of, status) in [(other, "pending"), (coupon, "unpaid")] {
        app.execute(&format!(
            "DELETE FROM orders;
             INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES ({}, {of}, 'flash', 1, now())",
            app.inner(order)
        ))
        .await;
        let mine = app.my_claim(1, coupon).await;
        assert_eq!((mine.order_id(), mine.text("status")), (order, status));
    }
}
