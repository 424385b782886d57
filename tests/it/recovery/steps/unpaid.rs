//! `unpaid`: the lists of a lane have the unpaid orders of its sales, and are built only where there is a bound.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use flash_sale::sale::ids::CouponId;

use super::{close_lanes, damage, end_of, no_process_keeps, pass_up_to_command};
use crate::faults::recovery::{keep, sell};
use crate::support::played::{Play, Played, hash};
use crate::support::{Bounded, TestApp, lane, proxy_before};

static LIST: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../lua/list_unpaid.lua")));
static SWITCH: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../lua/switch_unpaid.lua")));

/// The orders on the users' lists of a coupon's lane.
async fn lists(app: &TestApp, coupon: CouponId) -> BTreeMap<i64, String> {
    app.redis(&["HGETALL", &app.keys().unpaid(coupon.lane())]).await
}

/// An app with this bound, and two sales in each of two lanes, by lane.
async fn with_sales(bound: &str) -> (TestApp, Vec<CouponId>) {
    let app = TestApp::configured(&["--lanes", "2", "--unpaid-orders-max", bound]).await;
    let mut sales = Vec::new();
    for _ in 0..4 {
        sales.push(app.create_flash(9).await);
    }
    sales.sort_by_key(|coupon| (coupon.lane(), *coupon));
    (app, sales)
}

#[tokio::test]
async fn fill_lists_each_unpaid_order_of_the_lane_once() {
    let (app, sales) = with_sales("5").await;
    // Users 1 to 3 in each of the first three sales.
    for coupon in &sales[..3] {
        sell(&app, *coupon, 1..=3).await;
    }
    app.write_orders().await;
    let paid = app.order_of(sales[0], 3).await;
    assert_eq!(app.pay(3, paid).await.status, 200);
    app.give_back().await;
    keep(&app).await;
    for coupon in &sales {
        damage(&app, *coupon).await;
        let _: i64 = app.redis(&["HSET", &app.keys().unpaid(coupon.lane()), "99", "1"]).await;
    }
    close_lanes(&app).await;
    keep(&app).await;
    let mut expected = BTreeMap::new();
    for user in 1..=3 {
        let mut orders = vec![];
        for coupon in &sales[..2] {
            let order = app.order_of(*coupon, user).await;
            orders.extend((order != paid).then(|| order.to_string()));
        }
        orders.sort_by_key(|order| order.parse::<i64>().expect("an id"));
        expected.insert(user, orders.join(" "));
    }
    assert_eq!(lists(&app, sales[0]).await, expected);
    for (user, orders) in &mut expected {
        *orders = app.order_of(sales[2], *user).await.to_string();
    }
    assert_eq!(lists(&app, sales[2]).await, expected);
    let built = app.keys().unpaid_built(lane(), 3);
    assert_eq!(app.redis::<i64>(&["EXISTS", &built]).await, 0);
}

#[tokio::test]
async fn lists_are_filled_from_a_bound_of_one_on() {
    for (bound, listed) in [("0", 0), ("1", 2)] {
        let (app, sales) = with_sales(bound).await;
        sell(&app, sales[0], 1..=2).await;
        app.write_orders().await;
        keep(&app).await;
        damage(&app, sales[0]).await;
        let _: i64 = app.redis(&["DEL", &app.keys().unpaid(lane())]).await;
        close_lanes(&app).await;
        keep(&app).await;
        assert_eq!(lists(&app, sales[0]).await.len(), listed, "{bound}");
    }
}

/// A key of another type stands in the place of the lists.
#[tokio::test]
async fn build_of_lists_that_fails_removes_what_it_has_built() {
    let (app, sales) = with_sales("5").await;
    sell(&app, sales[0], 1..=1).await;
    app.write_orders().await;
    keep(&app).await;
    damage(&app, sales[0]).await;
    close_lanes(&app).await;
    let in_the_way = app.keys().unpaid_built(lane(), 3);
    let _: String = app.redis(&["SET", &in_the_way, "x"]).await;
    assert!(app.app.keeper.pass().bounded().await.is_err());
    assert_eq!(app.redis::<i64>(&["EXISTS", &in_the_way]).await, 0);
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE lane = 0 AND state = 'open'").await, 0);
    app.recover().await;
    assert_eq!(lists(&app, sales[0]).await.len(), 1);
}

/// The lane has a newer epoch when the lists are filled, or when they are switched.
#[tokio::test]
async fn fill_and_switch_are_fenced_by_another_recovery() {
    let (app, sales) = with_sales("5").await;
    sell(&app, sales[0], 1..=1).await;
    app.write_orders().await;
    keep(&app).await;
    let before = lists(&app, sales[0]).await;
    for script in [&*LIST, &*SWITCH] {
        let proxy = proxy_before(&app, script).await;
        damage(&app, sales[0]).await;
        app.execute("UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1 WHERE lane = 0").await;
        let pass = pass_up_to_command(&app, &proxy).await;
        let key = app.keys().lane(lane());
        let epoch: i64 = app.redis(&["HGET", &key, "epoch"]).await;
        let _: i64 = app.redis(&["HSET", &key, "epoch", &(epoch + 1).to_string()]).await;
        let ended = end_of(pass, &proxy).await;
        assert!(ended.is_err_and(|failure| failure.is_recovering()), "{script}");
        assert_eq!(lists(&app, sales[0]).await, before, "{script}");
        let _: i64 = app.redis(&["HSET", &key, "epoch", &epoch.to_string()]).await;
        no_process_keeps(&app).await;
        app.recover().await;
        assert_eq!(lists(&app, sales[0]).await, before, "{script}");
    }
}

/// An order is paid after the snapshot, and before the lists are switched.
#[tokio::test]
async fn take_off_takes_an_order_off_the_new_lists_that_was_paid_meanwhile() {
    let (app, sales) = with_sales("5").await;
    sell(&app, sales[0], 1..=2).await;
    app.write_orders().await;
    keep(&app).await;
    damage(&app, sales[0]).await;
    close_lanes(&app).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    let pass = pass_up_to_command(&app, &proxy).await;
    assert_eq!(app.pay(1, app.order_of(sales[0], 1).await).await.status, 200);
    // The pass over the places has taken it off the lists in use.
    let _: i64 = app.redis(&["HDEL", &app.keys().unpaid(lane()), "1"]).await;
    app.execute("UPDATE stock_returns SET done_at = now() WHERE what = 'place'").await;
    assert!(end_of(pass, &proxy).await.is_ok());
    assert!(lists(&app, sales[0]).await.into_keys().eq([2]));
}

#[tokio::test]
async fn fill_lists_no_page_without_an_order_of_the_lane() {
    let (app, sales) = with_sales("5").await;
    sell(&app, sales[2], 1..=2).await;
    app.write_orders().await;
    keep(&app).await;
    let played = Played::before(app.redis_url(), |command| match command {
        [_, of, ..] if *of == *LIST => Play::Heard,
        _ => Play::Real,
    })
    .await;
    let other = played.process(&app).await;
    for (damaged, listed) in [(0, 0), (2, 1)] {
        damage(&app, sales[damaged]).await;
        let closed = sales[damaged].lane();
        app.execute(&format!(
            "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1 WHERE lane = {closed}"
        ))
        .await;
        no_process_keeps(&app).await;
        played.take_asked();
        other.keeper.pass().bounded().await.expect("both stores answer");
        // A process asks once more for a script that Redis doesn't know yet.
        assert_eq!(played.take_asked().len().min(1), listed, "{damaged}");
    }
}
