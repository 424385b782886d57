//! Live orders whose users are no buyers in Redis, or buyers by another order: all of them, in pages, up to a number.

use flash_sale::app::App;
use flash_sale::base::limits::FORGOTTEN_PAGES;
use flash_sale::sale::Failure;
use flash_sale::sale::ids::{CouponId, OrderId, UserId};
use flash_sale::sale::order::give_back::forgotten::{Found, Searches};
use flash_sale::sale::order::live::{Missing, PAGE, missing_page};

use crate::support::buyers::FIRST_ORDER_BY_HAND;
use crate::support::{TestApp, bounded, eventually, proxy_before, user};

/// A sale whose users 1 to `units` have live orders and are buyers in Redis.
async fn sold_out(app: &TestApp, units: i64) -> CouponId {
    let coupon = app.create_flash(units).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             SELECT {FIRST_ORDER_BY_HAND} + n, {coupon}, 'flash', n, now() FROM generate_series(1, {units}) AS n;
         UPDATE flash_sales SET sold = {units}"
    ))
    .await;
    app.sell_out_by_hand(coupon, units).await;
    coupon
}

/// A turn of this search in an epoch.
async fn turn(
    searches: &Searches,
    app: &App,
    (coupon, epoch): (CouponId, i64),
    max: usize,
) -> Result<Found, Failure> {
    let stores = &app.stores;
    let found = searches.go_on((&stores.pool, &stores.redis, &stores.keys), (coupon, epoch), max);
    bounded("a turn of the search", found).await
}

/// A search that begins, in its first turn.
async fn forgotten(
    app: &App,
    coupon: CouponId,
    max: usize,
) -> Result<Vec<(UserId, OrderId)>, Failure> {
    Ok(turn(&Searches::default(), app, (coupon, 1), max).await?.forgotten)
}

#[tokio::test]
async fn a_search_goes_on_behind_the_orders_whose_users_are_all_known_in_this_epoch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let page = i64::try_from(PAGE).expect("a small number");
    let pages = i64::try_from(FORGOTTEN_PAGES).expect("a small number");
    let coupon = sold_out(&app, pages * page + 2).await;
    let last = pages * page + 1;
    app.forget_buyer(coupon, last).await;
    let searches = Searches::default();
    let found = async |epoch| {
        let found = turn(&searches, &app.app, (coupon, epoch), 2).await;
        let found = found.expect("both stores answer");
        (found.forgotten.iter().map(|(user, _)| user.get()).collect::<Vec<_>>(), found.is_all)
    };
    assert_eq!(found(1).await, (vec![], false));
    assert_eq!(found(1).await, (vec![last], true), "to the end");
    assert_eq!(found(1).await, (vec![], false), "from the first order again");
    app.forget_buyer(coupon, 5).await;
    assert_eq!(found(2).await, (vec![5], false), "another epoch has begun");
    assert_eq!(found(2).await, (vec![5], false), "it is found until it is a buyer");
    app.forget_buyer(coupon, 2 * page).await;
    assert_eq!(found(2).await, (vec![5, 2 * page], true), "as many as were asked for");
}

#[tokio::test]
async fn live_orders_that_redis_has_forgotten_are_found_in_all_pages_up_to_a_number() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let page = i64::try_from(PAGE).expect("a small number");
    let coupon = sold_out(&app, 2 * page + 1).await;
    let (pool, redis, keys) = (&app.app.stores.pool, &app.app.stores.redis, app.keys());
    let find = async |max| {
        let found = forgotten(&app.app, coupon, max).await.expect("both stores answer");
        let user = |(user, order): (UserId, OrderId)| {
            assert_eq!(order.get(), FIRST_ORDER_BY_HAND + user.get());
            user.get()
        };
        found.into_iter().map(user).collect::<Vec<i64>>()
    };
    assert_eq!(find(9).await, [0; 0]);
    for id in [2, 3, page, page + 1, 2 * page + 1] {
        app.forget_buyer(coupon, id).await;
    }
    app.set_buyer(coupon, 4, 77).await;
    app.execute("UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE user_id = 3")
        .await;
    let all = [2, page, page + 1, 2 * page + 1];
    for (max, count) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (9, 4)] {
        assert_eq!(find(max).await, all[..count], "up to {max}");
    }

    let mut after = None;
    let mut pages = Vec::new();
    bounded("the last page", async {
        while let Some(missing) =
            missing_page(pool, redis, keys, coupon, &mut after).await.expect("both stores answer")
        {
            let other = |((user, _), other): Missing| (user.get(), other.map(OrderId::get));
            pages.push(missing.into_iter().map(other).collect::<Vec<_>>());
        }
    })
    .await;
    // User 3's order is no live one, so the first page has one more.
    let expected = [
        vec![(2, None), (4, Some(77)), (page, None), (page + 1, None)],
        vec![(2 * page + 1, None)],
    ];
    assert_eq!((&pages[..], after), (&expected[..], Some(user(2 * page + 1))));
}

/// Three orders are live and have no buyers when they are read. Until Redis has answered, one is cancelled, and one goes.
#[tokio::test]
async fn missing_orders_are_those_that_are_live_after_redis_has_answered() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let proxy = proxy_before(&app, "HGET").await;
    let other = app.another_instance_behind(&proxy).await;
    let coupon = sold_out(&app, 4).await;
    for id in 1..=3 {
        app.forget_buyer(coupon, id).await;
    }
    proxy.hold();
    let changing = async {
        eventually("Redis is asked", async || proxy.held() > 0).await;
        app.execute(
            "UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE user_id = 1;
             DELETE FROM orders WHERE user_id = 2",
        )
        .await;
        proxy.release();
    };
    let (found, ()) = tokio::join!(forgotten(&other, coupon, 9), changing);
    let third = OrderId::new(FIRST_ORDER_BY_HAND + 3).expect("an id");
    assert_eq!(found.expect("both stores answer"), [(user(3), third)]);
}

/// The buyer of the second page can't be read.
#[tokio::test]
async fn forgotten_orders_are_looked_for_on_no_more_pages_than_it_takes() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let last = i64::try_from(PAGE).expect("a small number") + 1;
    let coupon = sold_out(&app, last).await;
    app.forget_buyer(coupon, 2).await;
    let shard = app.shard_of(coupon, last).await;
    let _: i64 = app.redis(&["HSET", &shard, &last.to_string(), "junk"]).await;
    for (max, expected) in [(0, Some(0)), (1, Some(1)), (2, None)] {
        let found = forgotten(&app.app, coupon, max).await;
        assert_eq!(found.ok().map(|found| found.len()), expected, "up to {max}");
    }
}
