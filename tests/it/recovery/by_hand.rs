//! `differences`: the facts about the sales of a lane that only one store has.

use flash_sale::sale::recovery::by_hand::{SaleDifference, differences};

use crate::support::{TestApp, lane};

#[tokio::test]
async fn differences_of_each_sale_are_counted_by_store() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (same, differs, lost) =
        (app.create_flash(9).await, app.create_flash(9).await, app.create_flash(9).await);
    for (coupon, users) in [(same, 1..=2), (differs, 1..=5), (lost, 1..=3)] {
        for user in users {
            app.order(user, coupon).await;
        }
    }
    for user in 1..=2 {
        app.forget_buyer(differs, user).await;
    }
    // Of users without an order, and of one with another order.
    for user in [5, 6, 7, 8] {
        app.set_buyer(differs, user, 77 + user).await;
    }
    app.lose_sale(lost).await;
    let mut found = differences(&app.app.stores, lane()).await.expect("both stores answer");
    found.sort_by_key(|one| one.coupon);
    let difference = |coupon, is_there, only_redis, only_postgres| SaleDifference {
        coupon,
        is_there,
        only_redis,
        only_postgres,
    };
    let mut expected = [
        difference(same, true, 0, 0),
        difference(differs, true, 4, 3),
        difference(lost, false, 0, 3),
    ];
    expected.sort_by_key(|one| one.coupon);
    assert_eq!(found, expected);
}
