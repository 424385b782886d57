//! Orders as users and the staff read them, and the bounds that closed orders set.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::kit::id as order_ids;
use flash_sale::sale::order::model::{Order, RedemptionCode};
use flash_sale::sale::order::moves::Moved;
use flash_sale::sale::order::write::ClosedOrders;

use super::{id, order, user_id};
use crate::support::{TestApp, now, sale, user};

/// Adds regular coupons of these numbers, in these states.
async fn write_regular(app: &TestApp, coupons: &[(i64, &str)]) {
    for (number, state) in coupons {
        app.execute(&format!(
            "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, state, ended_at)
             VALUES ({number} << 10, 'regular', '', '', '', {number}, 1, '{state}', CASE '{state}' WHEN 'ended' THEN now() END)"
        ))
        .await;
    }
}

/// User 1 has orders 11, 12, 13 and 16, user 2 has 14, and the user of 15 was erased. 13 and 14 have codes.
async fn orders() -> TestApp {
    let app = TestApp::with_sales(3).await;
    app.write_rows(&[
        (11, 1, "flash", 1, "expired"),
        (12, 1, "flash", 1, "unpaid"),
        (13, 2, "flash", 1, "paid"),
        (14, 1, "flash", 2, "redeemed"),
        (15, 1, "flash", 5, "cancelled"),
        (16, 9, "flash", 1, "cancelled"),
    ])
    .await;
    app.execute(
        "UPDATE orders SET user_id = -id WHERE id = 15;
         UPDATE coupons SET currency = 'JPY' WHERE id >> 10 = 1;
         -- Of an older version; the coupon of the second one is missing.
         UPDATE orders SET pay_cents = NULL, currency = NULL WHERE id IN (12, 16);
         INSERT INTO redemptions (order_id, code) VALUES (13, '0000000000000013'), (14, '0000000000000014')",
    )
    .await;
    app
}

/// Id, user, price, currency and code.
type Told = (i64, Option<i64>, i64, String, Option<String>);

fn told(order: &Order) -> Told {
    let code = order.redemption_code.as_ref().map(|code| code.canonical().to_owned());
    let (user, currency) = (order.user_id.map(user_id), order.currency.clone());
    (id(order.order_id), user, order.pay_cents, currency, code)
}

/// As [`told`], with the code that the paid order has for its buyer.
fn expected(number: i64, with_code: bool) -> Option<Told> {
    let row = |user, cents, currency: &str, code: Option<&str>| {
        let code = code.filter(|_| with_code).map(str::to_owned);
        Some((number, user, cents, currency.to_owned(), code))
    };
    match number {
        11 => row(Some(1), 11, "CNY", None),
        12 => row(Some(1), 1, "JPY", None),
        13 => row(Some(1), 13, "CNY", Some("0000000000000013")),
        14 => row(Some(2), 14, "CNY", None),
        15 => row(None, 15, "CNY", None),
        16 => row(Some(1), 0, "CNY", None),
        _ => None,
    }
}

#[tokio::test]
async fn find_and_get_tell_one_order_and_written_those_of_a_list() {
    let app = orders().await;
    for number in 11..=17 {
        let found = app.app.order_moves.find(order(number)).await.expect("Postgres answers");
        assert_eq!(found.as_ref().map(told), expected(number, true), "find {number}");
        for buyer in [1, 2] {
            let found = app.app.orders.get(user(buyer), order(number)).await;
            let found = found.expect("Postgres answers");
            let own = expected(number, true).filter(|(_, of, ..)| *of == Some(buyer));
            assert_eq!(found.as_ref().map(told), own, "get {number} of user {buyer}");
        }
    }
    let asked = [12, 13, 14, 15, 17].map(order);
    let mut written = app.app.orders.written(&asked).await.expect("Postgres answers");
    written.sort_by_key(|order| order.order_id);
    let written: Vec<_> = written.iter().map(told).collect();
    let of_list = [12, 13, 14, 15].map(|number| expected(number, false).expect("an order"));
    assert_eq!(written, of_list, "written");
}

#[tokio::test]
async fn list_selects_the_orders_of_a_user_newest_first_in_pages() {
    let app = orders().await;
    for (of, before, limit, ids, next) in [
        (1, None, 9, vec![16, 13, 12, 11], None),
        (1, None, 2, vec![16, 13], Some(13)),
        (1, Some(13), 9, vec![12, 11], None),
        (1, Some(13), 1, vec![12], Some(12)),
        (1, Some(11), 9, vec![], None),
        (2, None, 9, vec![14], None),
        (3, None, 9, vec![], None),
    ] {
        let listed = app.app.orders.list(user(of), before.map(order), limit).await;
        let listed = listed.expect("Postgres answers");
        let all: Vec<_> = listed.orders.iter().map(told).collect();
        let of_user: Vec<_> = ids.iter().filter_map(|number| expected(*number, true)).collect();
        assert_eq!(all, of_user, "user {of} before {before:?}, {limit}");
        assert_eq!(listed.next.map(id), next, "user {of} before {before:?}, {limit}");
    }
}

#[tokio::test]
async fn an_order_is_found_by_its_redemption_code() {
    let app = orders().await;
    for (code, expected) in
        [("0000000000000013", Some(13)), ("0000000000000014", Some(14)), ("0000000000000015", None)]
    {
        let found = app.app.order_moves.of_code(&RedemptionCode::typed(code)).await;
        assert_eq!(found.expect("Postgres answers").map(|it| id(it.order_id)), expected, "{code}");
    }
}

/// An older version has made an order paid, and two requests give it a code at one moment.
#[tokio::test]
async fn make_codes_tells_the_code_that_another_request_has_just_made() {
    let app = orders().await;
    app.execute("DELETE FROM redemptions WHERE order_id = 13").await;
    let other = app
        .holding("INSERT INTO redemptions (order_id, code) VALUES (13, '0000000000000099')")
        .await;
    let ending = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (found, ()) = tokio::join!(app.app.orders.get(user(1), order(13)), ending);
    let found = found.expect("Postgres answers").expect("an order");
    assert_eq!(found.redemption_code, Some(RedemptionCode::typed("0000000000000099")));
}

#[tokio::test]
async fn last_of_and_live_of_are_about_one_user_and_coupon() {
    let app = orders().await;
    write_regular(&app, &[(4, "active")]).await;
    let statuses = ["unpaid", "paid", "redeemed", "refunding", "cancelled", "expired", "refunded"];
    for (kind, coupon) in [("flash", 3), ("regular", 4)] {
        let of_each_status = (31..).zip(statuses);
        let rows: Vec<_> = of_each_status
            .map(|(user, status)| (100 * coupon + user, coupon, kind, user, status))
            .collect();
        app.write_rows(&rows).await;
    }
    for (coupon, of, last, live) in [
        (1, 1, Some(12), Some(12)),
        (2, 1, Some(13), Some(13)),
        (1, 2, Some(14), Some(14)),
        (2, 2, None, None),
        (3, 31, Some(331), Some(331)),
        (3, 32, Some(332), Some(332)),
        (3, 33, Some(333), Some(333)),
        (3, 34, Some(334), Some(334)),
        (3, 35, Some(335), None),
        (3, 36, Some(336), None),
        (3, 37, Some(337), None),
        (4, 31, Some(431), Some(431)),
        (4, 32, Some(432), None),
        (4, 33, Some(433), None),
        (4, 35, Some(435), None),
    ] {
        let found = app.app.orders.last_of(sale(coupon), user(of)).await;
        let found = found.expect("Postgres answers").map(|(order, _)| id(order));
        assert_eq!(found, last, "last_of, user {of} and coupon {coupon}");
        let found = app.app.orders.live_of(sale(coupon), user(of)).await;
        let found = found.expect("Postgres answers").map(id);
        assert_eq!(found, live, "live_of, user {of} and coupon {coupon}");
    }
}

/// Order of this number from this second of 2024.
fn at(second: i64, number: i64) -> i64 {
    let then: DateTime<Utc> = "2024-01-01T00:00:00Z".parse().expect("a time");
    order_ids::first_at(then + TimeDelta::seconds(second)) + number
}

/// Closed orders of user 1 and regular coupon 4: one is an hour old, two are younger; and others that don't count.
async fn closed_orders() -> TestApp {
    let app = TestApp::with_sales(1).await;
    let coupons = [(4, "active"), (5, "active"), (6, "paused"), (7, "ended")];
    write_regular(&app, &coupons).await;
    app.write_rows(&[
        (at(0, 0), 4, "regular", 1, "cancelled"),
        (at(10, 1), 4, "regular", 1, "cancelled"),
        (at(20, 2), 4, "regular", 1, "expired"),
        (at(30, 3), 4, "regular", 1, "paid"),
        (at(40, 4), 4, "regular", 2, "cancelled"),
        (at(50, 5), 5, "regular", 1, "cancelled"),
    ])
    .await;
    app
}

#[tokio::test]
async fn closed_orders_wait_until_the_oldest_of_as_many_as_may_be_is_an_hour_old() {
    let app = closed_orders().await;
    let wait = |seconds| Some(Duration::from_secs(seconds));
    for (of, coupon, most, expected) in [
        // A second more, because ids tell seconds only.
        (1, 4, 1, wait(21)),
        (1, 4, 2, wait(11)),
        (1, 4, 3, None),
        (1, 4, 0, None),
        (2, 4, 1, wait(41)),
        (1, 5, 1, wait(51)),
        (2, 5, 1, None),
        (3, 4, 1, None),
    ] {
        let closed = ClosedOrders { most };
        let found = app
            .app
            .orders
            .closed_orders_wait(order(at(3_600, 0)), sale(coupon), user(of), closed)
            .await;
        assert_eq!(
            found.expect("Postgres answers"),
            expected,
            "user {of}, coupon {coupon}, {most}"
        );
    }
}

#[tokio::test]
async fn insert_regular_is_about_active_regular_coupons_and_within_the_bound() {
    let app = closed_orders().await;
    for (number, of, coupon, most, expected) in [
        (1, 1, 4, 1, false),
        (2, 1, 4, 2, false),
        (3, 1, 4, 3, true),
        (4, 1, 4, 0, false),
        (5, 2, 4, 0, true),
        (6, 3, 4, 1, true),
        (7, 3, 6, 0, false),
        (8, 3, 7, 0, false),
        (9, 3, 1, 0, false),
        (10, 3, 8, 0, false),
    ] {
        let inserted = app
            .app
            .orders
            .insert_regular(order(at(3_600, number)), sale(coupon), user(of), ClosedOrders { most })
            .await;
        assert_eq!(inserted.expect("Postgres answers"), expected, "order {number}");
    }
    let rows = format!(
        "SELECT concat_ws(' ', id - {}, coupon_id >> 10, kind, user_id, status, pay_cents, currency,
                          extract(epoch FROM pay_by - claimed_at)::bigint)
         FROM orders WHERE id > {} ORDER BY id",
        at(3_600, 0),
        at(3_600, 0)
    );
    let expected = [
        "3 4 regular 1 unpaid 4 CNY 900",
        "5 4 regular 2 unpaid 4 CNY 900",
        "6 4 regular 3 unpaid 4 CNY 900",
    ];
    assert_eq!(app.texts(&rows).await, expected);
}

/// Each user has an unpaid order of a sale, and closed orders of these ages in seconds.
#[tokio::test]
async fn closed_too_many_is_about_young_closed_orders_of_the_same_sale_and_buyer() {
    let app = TestApp::configured(&["--closed-orders-max", "2"]).await;
    app.expect_disagreements();
    app.write_sales(2).await;
    write_regular(&app, &[(4, "active")]).await;
    let began = now();
    let young = |age: i64, number| order_ids::first_at(began - TimeDelta::seconds(age)) + number;
    app.write_rows(&[
        // Four of user 1: the second but the last one counts.
        (young(1_000, 1), 1, "flash", 1, "cancelled"),
        (young(700, 2), 1, "flash", 1, "expired"),
        (young(400, 3), 1, "flash", 1, "refunded"),
        (young(100, 4), 1, "flash", 1, "cancelled"),
        (young(0, 5), 1, "flash", 1, "unpaid"),
        // User 2: two of another sale, one of an hour ago, and one that is young.
        (young(100, 6), 2, "flash", 2, "cancelled"),
        (young(150, 15), 2, "flash", 2, "cancelled"),
        (young(3_700, 7), 1, "flash", 2, "cancelled"),
        (young(100, 8), 1, "flash", 2, "cancelled"),
        (young(0, 9), 1, "flash", 2, "unpaid"),
        // User 3: a regular coupon has a bound of its own.
        (young(200, 10), 4, "regular", 3, "cancelled"),
        (young(100, 11), 4, "regular", 3, "cancelled"),
        (young(0, 12), 4, "regular", 3, "unpaid"),
        // User 4: an order that is live is not closed.
        (young(200, 13), 2, "flash", 4, "cancelled"),
        (young(0, 14), 2, "flash", 4, "unpaid"),
    ])
    .await;
    let cancel = async |of, number| {
        let cancelled = app.app.order_moves.cancel(user(of), order(young(0, number))).await;
        cancelled.expect("Postgres answers")
    };
    let Moved::TooManyClosed(wait) = cancel(1, 5).await else { panic!("as many as may be") };
    // An hour and a second after the order that is 400 s old by now, or a little older.
    assert!((2_902..=3_202).contains(&wait.as_secs()), "{wait:?}");
    for (of, number) in [(2, 9), (3, 12), (4, 14)] {
        let moved = cancel(of, number).await;
        assert!(matches!(moved, Moved::There(_)), "user {of}: {moved:?}");
    }
    let unpaid = "SELECT user_id FROM orders WHERE status = 'unpaid'";
    assert_eq!(app.numbers(unpaid).await, [1]);
}

#[tokio::test]
async fn closed_too_many_refuses_no_cancellation_where_there_is_no_bound() {
    let app = TestApp::configured(&["--closed-orders-max", "0"]).await;
    app.expect_disagreements();
    app.write_sales(1).await;
    let young = order_ids::first_at(now());
    app.write_rows(&[
        (young + 1, 1, "flash", 1, "cancelled"),
        (young + 2, 1, "flash", 1, "unpaid"),
    ])
    .await;
    let moved = app.app.order_moves.cancel(user(1), order(young + 2)).await;
    assert!(matches!(moved, Ok(Moved::There(_))), "{moved:?}");
}
