//! `one_sale`: buyers whose orders are another user's or another coupon's, and a sale that is archived meanwhile.

use flash_sale::sale::Stores;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile;

use super::checked_while;
use crate::faults::recovery::start;
use crate::support::lines::Lines;
use crate::support::{Bounded, TestApp, lane};

/// Findings about a sale, each with its code and the user.
async fn found(app: &TestApp, coupon: CouponId) -> Vec<String> {
    let Stores { pool, redis, keys } = &app.app.stores;
    let report = reconcile::check_sale(pool, redis, keys, coupon).bounded().await;
    let report = report.expect("both stores answer").expect("it is held");
    let line = |found: &reconcile::Disagreement| {
        let words = found.to_string();
        let user = words.split("user ").nth(1).and_then(|rest| rest.split([' ', ',']).next());
        format!("{} {}", found.code(), user.unwrap_or("-"))
    };
    let mut found: Vec<String> = report.disagreements.iter().map(line).collect();
    found.sort();
    found
}

#[tokio::test]
async fn unmatched_buyers_have_their_own_order_of_this_coupon_or_one_on_its_way() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (coupon, other) = (app.create_flash(20).await, app.create_flash(20).await);
    for user in 1..=5 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    for user in 3..=5 {
        let order = app.order_of(coupon, user).await;
        assert_eq!(app.cancel(user, order).await.status, 200);
    }
    // The unit of user 3 is on its way back, and that of users 4 and 5 never comes.
    app.execute("DELETE FROM stock_returns WHERE user_id IN (4, 5)").await;
    let closed = app.order_of(coupon, 5).await;
    app.forget_buyer(coupon, 5).await;
    app.set_buyer(coupon, 6, closed).await;
    let live = app.order_of(coupon, 1).await;
    app.set_buyer(coupon, 7, live).await;
    for (of, user, order) in [(coupon, 8, 1_008), (other, 9, 1_009), (coupon, 11, 1_010)] {
        let (of, user, order) = (of.to_string(), user.to_string(), order.to_string());
        app.append(lane(), &["coupon", &of, "user", &user, "order", &order]).await;
    }
    for (user, order) in [(8, 1_008), (9, 1_009), (10, 1_010)] {
        app.set_buyer(coupon, user, order).await;
    }
    let named = found(&app, coupon).await;
    let expected = [
        "not_conserved -",
        "not_given_back 4",
        "order_lost 10",
        "order_lost 6",
        "order_lost 7",
        "order_lost 9",
    ];
    assert_eq!(named, expected);
    // A letter names the order of user 10, and is closed later.
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         VALUES (0, '1-1', '{{}}', 'oversold', 'x', {coupon}, 10, 1010)"
    ))
    .await;
    let Stores { pool, redis, keys } = &app.app.stores;
    let report = reconcile::check_sale(pool, redis, keys, coupon).bounded().await;
    let report = report.expect("both stores answer").expect("it is held");
    assert_eq!(report.sales[0].in_review, 1, "and four others have no order");
    let is_lost = async || found(&app, coupon).await.contains(&"order_lost 10".to_owned());
    assert!(!is_lost().await);
    app.execute("UPDATE dead_letters SET resolved_at = now()").await;
    assert!(is_lost().await);
}

#[tokio::test]
async fn in_flight_are_the_claims_of_a_coupon_that_are_not_written() {
    let app = TestApp::start().await;
    let (coupon, other, none) =
        (app.create_flash(5).await, app.create_flash(5).await, app.create_flash(5).await);
    app.order(9, coupon).await;
    for (user, of) in [(1, coupon), (2, coupon), (3, other)] {
        assert_eq!(app.claim(user, of).await.status, 202);
    }
    let stores = &app.app.stores;
    let in_flight = async || {
        let mut counts = Vec::new();
        for coupon in [coupon, other, none] {
            let Stores { pool, redis, keys } = stores;
            let standing = reconcile::standing(pool, redis, keys, coupon).bounded().await;
            let standing = standing.expect("both stores answer");
            let count = reconcile::in_flight(stores, coupon).await.expect("both stores answer");
            assert_eq!(count, standing.in_flight);
            assert_eq!(standing.is_settled(), count == 0, "{standing:?}");
            counts.push(count);
        }
        counts
    };
    assert_eq!(in_flight().await, [2, 1, 0]);
    app.write_orders().await;
    assert_eq!(in_flight().await, [0, 0, 0]);
}

/// The sale is archived, and leaves Redis, after Postgres has been asked for its terms.
#[tokio::test]
async fn read_sale_asks_again_for_a_sale_that_is_missing() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let report = checked_while(&app, coupon, async || {
        app.lose_sale(coupon).await;
        app.execute("UPDATE flash_sales SET archived_at = now(), removed_at = now()").await;
    })
    .await;
    let report = report.expect("it was held when it was asked for");
    assert_eq!((report.findings(), report.sales.len()), (0, 0));
    let Stores { pool, redis, keys } = &app.app.stores;
    let now = reconcile::check_sale(pool, redis, keys, coupon)
        .bounded()
        .await
        .expect("both stores answer");
    assert!(now.is_none());
}

/// A refusal says nothing about the sale.
#[tokio::test]
async fn sale_or_why_not_finds_nothing_while_redis_refuses_to_tell_of_it() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(5).await;
    let Stores { pool, redis, keys } = &app.app.stores;
    app.permit("-hget").await;
    let refused = reconcile::check_sale(pool, redis, keys, coupon).bounded().await;
    assert!(refused.is_err(), "{refused:?}");
    app.permit("+hget").await;
    assert_eq!(found(&app, coupon).await, [""; 0]);
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "shards", "x"]).await;
    assert_eq!(found(&app, coupon).await, ["sale_unreadable -"]);
    app.expect_disagreements();
}

#[tokio::test]
async fn sale_with_a_finding_or_with_a_buyer_on_the_way_has_no_good_reading() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    for (units, claims, is_good, codes) in [
        ("0", false, true, &[][..]),
        ("0", true, false, &[]),
        ("1", false, false, &["not_conserved"]),
    ] {
        let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", units]).await;
        if claims {
            assert_eq!(app.claim(2, coupon).await.status, 202);
        }
        let report = app.reconcile().await;
        app.write_orders().await;
        assert_eq!(report.sales[0].identical, !claims);
        let [reading] = &report.readings[..] else { panic!("{report:?}") };
        assert_eq!(reading.is_good, is_good, "{reading:?}");
        assert_eq!(reading.codes, codes);
    }
}

/// Rows are asked for once for a page of buyers, and once for a page of orders; the unit of user 2 never comes back.
#[tokio::test]
async fn unmatched_buyers_are_none_with_a_row_of_their_own() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    let order = app.order(2, coupon).await;
    assert_eq!(app.cancel(2, order).await.status, 200);
    app.execute("DELETE FROM stock_returns").await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    assert_eq!(found(&app, coupon).await, ["not_given_back 2"]);
    assert_eq!(lines.count("FROM orders WHERE id = ANY($1) AND coupon_id = $2"), 2);
}
