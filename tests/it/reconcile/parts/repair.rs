//! `repair`: each repair of a finding that is so, is so no longer, or was never so, with what it does and says.

use std::time::Duration;

use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::order::model::OrderStatus;
use flash_sale::sale::reconcile::repair::repair;
use flash_sale::sale::reconcile::{Disagreement, Listing, Report};

use crate::support::{TestApp, lane, user};

fn order(id: i64) -> OrderId {
    OrderId::new(id).expect("an id")
}

/// The repairs of these findings: whether each is done, and its words.
async fn repaired(app: &TestApp, disagreements: Vec<Disagreement>) -> Vec<(bool, String)> {
    let report = Report { disagreements, ..Report::default() };
    let done = repair(&app.app.stores, &report, Duration::from_secs(60)).await;
    done.expect("both stores answer").into_iter().map(|one| (one.done, one.detail)).collect()
}

/// Asserts that a finding has one repair, which is done or not, and begins with these words.
async fn assert_repaired(app: &TestApp, found: Disagreement, done: bool, words: &str) {
    let case = format!("{found:?}");
    let repairs = repaired(app, vec![found]).await;
    let [(is_done, detail)] = &repairs[..] else { panic!("{case}: {repairs:?}") };
    assert_eq!(*is_done, done, "{case}: {detail}");
    assert!(detail.starts_with(words), "{case}: {detail}");
}

/// A sale of three units; users 1 and 2 have orders, of which the second is paid.
async fn with_orders() -> (TestApp, CouponId, [i64; 2]) {
    let app = TestApp::configured(&["--unpaid-orders-max", "5"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(3).await;
    let first = app.order(1, coupon).await;
    let second = app.paid_order(2, coupon).await;
    app.give_back().await;
    (app, coupon, [first, second])
}

#[tokio::test]
async fn recount_sets_sold_to_the_live_orders_that_there_are() {
    let (app, coupon, _) = with_orders().await;
    let miscounted = || Disagreement::SoldMiscounted { coupon, sold: 3, live_orders: 2 };
    app.execute("UPDATE flash_sales SET sold = 3").await;
    assert_repaired(&app, miscounted(), true, "`sold` was 3, and is 2 now").await;
    assert_eq!(app.sold(coupon).await, 2);
    assert_repaired(&app, miscounted(), false, "`sold` is 2 as it should be, by now").await;
    app.execute("UPDATE flash_sales SET sold = 1, total = 1").await;
    assert_repaired(&app, miscounted(), false, "there are more live orders than units").await;
}

#[tokio::test]
async fn apply_again_is_for_a_redis_with_an_older_revision() {
    let (app, coupon, _) = with_orders().await;
    let differs = |redis, postgres| Disagreement::RevisionDiffers { coupon, redis, postgres };
    app.execute("UPDATE coupons SET revision = 4; UPDATE flash_sales SET applied_revision = 4")
        .await;
    assert_eq!(repaired(&app, vec![differs(4, 4), differs(5, 4)]).await, []);
    assert_repaired(
        &app,
        differs(2, 4),
        true,
        "its newest revision is on its way to Redis, which has 2",
    )
    .await;
    assert_eq!(app.number("SELECT applied_revision FROM flash_sales").await, 2);
    assert_repaired(&app, differs(2, 4), false, "its newest revision was on its way").await;
}

#[tokio::test]
async fn write_lost_writes_an_order_whose_buyer_still_holds_it() {
    let (app, coupon, [first, _]) = with_orders().await;
    let lost = |id, of| Disagreement::OrderLost { coupon, user: user(id), order: order(of) };
    assert_repaired(&app, lost(5, 1_005), false, "user 5 doesn't hold order 1005 any more").await;
    app.set_buyer(coupon, 5, 1_005).await;
    assert_repaired(&app, lost(5, 1_006), false, "user 5 doesn't hold order 1006 any more").await;
    let doubtful = Disagreement::NegativeStock { coupon, stock: -1 };
    let doubted = repaired(&app, vec![doubtful, lost(5, 1_005)]).await;
    assert!(!doubted[0].0 && doubted[0].1.starts_with("nothing is done for order 1005 of user 5"));
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 2);
    assert_repaired(&app, lost(5, 1_005), true, "order 1005 of user 5 is written").await;
    assert_repaired(&app, lost(5, 1_005), false, "order 1005 of user 5 is there by now").await;
    // Its id is that of another order; then there is no unit.
    app.set_buyer(coupon, 6, first).await;
    let words = format!("order {first} of user 6 is a dead letter now: its id");
    assert_repaired(&app, lost(6, first), true, &words).await;
    app.set_buyer(coupon, 7, 1_007).await;
    assert_repaired(&app, lost(7, 1_007), true, "order 1007 of user 7 is a dead letter now: ")
        .await;
    let letters =
        "SELECT concat_ws(' ', user_id, order_id, reason) FROM dead_letters ORDER BY user_id";
    assert_eq!(app.texts(letters).await, [format!("6 {first} conflict"), "7 1007 oversold".into()]);
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "shards", "x"]).await;
    assert_repaired(&app, lost(8, 1_008), false, "it could not be repaired: ").await;
}

#[tokio::test]
async fn return_again_is_for_closed_orders_and_free_places_for_orders_that_are_not_unpaid() {
    let (app, coupon, [first, second]) = with_orders().await;
    let third = app.order(3, coupon).await;
    assert_eq!(app.cancel(3, third).await.status, 200);
    app.execute("DELETE FROM stock_returns").await;
    let back = |id, of| Disagreement::NotGivenBack { coupon, user: user(id), order: order(of) };
    let words = format!("order {first} of user 1 isn't closed");
    assert_repaired(&app, back(1, first), false, &words).await;
    let words = format!("the unit of order {third} of user 3 is on its way back");
    assert_repaired(&app, back(3, third), true, &words).await;
    let listed = |id, of, row| {
        Disagreement::Listing(Listing::NotFreed {
            lane: lane(),
            user: user(id),
            order: order(of),
            row,
        })
    };
    assert_eq!(repaired(&app, vec![listed(9, 77, None)]).await, []);
    let row = Some((coupon, OrderStatus::Paid));
    let words = format!("order {second} is on its way off the list of user 2");
    assert_repaired(&app, listed(2, second, row), true, &words).await;
    let words = format!("order {first} of user 1 is unpaid");
    assert_repaired(&app, listed(1, first, row), false, &words).await;
    let returns = "SELECT concat_ws(' ', user_id, what) FROM stock_returns WHERE done_at IS NULL ORDER BY user_id";
    assert_eq!(app.texts(returns).await, ["2 place", "3 unit"]);
    // What no repair is for.
    let others = vec![
        Disagreement::SaleMissing { coupon },
        Disagreement::NegativeStock { coupon, stock: -1 },
    ];
    assert_eq!(repaired(&app, others).await, []);
}
