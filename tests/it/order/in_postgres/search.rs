//! Searches find the same orders, in the same order and on the same pages, whether they have moved into the history or not.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::limits;
use flash_sale::kit::id as order_ids;
use flash_sale::sale::order::history::search::{self, CLOCKS_APART_MAX};
use flash_sale::sale::order::history::window::{self, Window};
use flash_sale::sale::order::model::{OrderFilter, OrderStatus};
use flash_sale::sale::retention::months::{self, Month};

use super::{id, move_rows, order, pool, user_id};
use crate::support::lines::{Lines, rows_returned};
use crate::support::{TestApp, sale, user};

fn time(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

/// Second `second` of 2024.
fn second(second: i64) -> DateTime<Utc> {
    time("2024-01-01T00:00:00Z") + TimeDelta::seconds(second)
}

/// Id of the order of this number, from the first second of 2024.
fn numbered(number: i64) -> i64 {
    order_ids::first_at(second(0)) + number
}

/// Orders 1 to 7, claimed in the seconds of their numbers; but order 1 was claimed after all others, and 4 in the same
/// moment as 3. The user of order 7 was erased.
async fn orders() -> TestApp {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (numbered(1), 1, "flash", 1, "redeemed"),
        (numbered(2), 1, "flash", 2, "cancelled"),
        (numbered(3), 2, "flash", 1, "expired"),
        (numbered(4), 2, "flash", 2, "refunded"),
        (numbered(5), 1, "flash", 1, "cancelled"),
        (numbered(6), 2, "flash", 1, "redeemed"),
        (numbered(7), 1, "flash", 7, "cancelled"),
    ])
    .await;
    app.execute(&format!(
        "UPDATE orders SET claimed_at = '2024-01-01T00:01:00Z' WHERE id = {};
         UPDATE orders SET claimed_at = '2024-01-01T00:00:03Z' WHERE id = {};
         UPDATE orders SET user_id = -id WHERE id = {}",
        numbered(1),
        numbered(4),
        numbered(7)
    ))
    .await;
    app
}

/// User, coupon, status, and seconds from which and before which an order was claimed.
type Asked = (Option<i64>, Option<i64>, Option<&'static str>, Option<i64>, Option<i64>);

fn filter((of, coupon, status, from, to): Asked) -> OrderFilter {
    OrderFilter {
        user: of.map(user),
        coupon: coupon.map(sale),
        status: status.and_then(|name| OrderStatus::ALL.into_iter().find(|it| it.as_str() == name)),
        from: from.map(second),
        to: to.map(second),
    }
}

/// The filter, the order behind which the page begins, its size, and the orders on it.
fn searches() -> Vec<(Asked, Option<i64>, u32, Vec<i64>)> {
    let all = (None, None, None, None, None);
    vec![
        (all, None, 9, vec![1, 7, 6, 5, 4, 3, 2]),
        (all, None, 2, vec![1, 7]),
        (all, Some(7), 9, vec![6, 5, 4, 3, 2]),
        (all, Some(4), 1, vec![3]),
        (all, Some(3), 9, vec![2]),
        ((None, None, None, Some(3), None), None, 9, vec![1, 7, 6, 5, 4, 3]),
        ((None, None, None, None, Some(5)), None, 9, vec![4, 3, 2]),
        ((None, None, None, Some(3), Some(6)), None, 9, vec![5, 4, 3]),
        ((None, None, None, Some(3), Some(7)), Some(6), 2, vec![5, 4]),
        ((None, None, Some("cancelled"), None, None), None, 9, vec![7, 5, 2]),
        ((None, None, Some("cancelled"), None, None), None, 1, vec![7]),
        ((None, None, Some("cancelled"), None, None), Some(7), 1, vec![5]),
        ((None, None, Some("refunded"), None, None), None, 9, vec![4]),
        ((None, Some(1), None, None, None), None, 9, vec![1, 7, 5, 2]),
        ((None, Some(1), None, None, None), None, 2, vec![1, 7]),
        ((None, Some(1), None, None, None), Some(7), 9, vec![5, 2]),
        ((None, Some(2), None, None, None), Some(4), 9, vec![3]),
        ((None, Some(2), None, None, None), Some(6), 1, vec![4]),
        ((None, Some(1), None, Some(5), Some(60)), None, 9, vec![7, 5]),
        ((None, Some(2), None, Some(3), Some(6)), None, 9, vec![4, 3]),
        ((None, Some(1), Some("cancelled"), None, None), None, 9, vec![7, 5, 2]),
        ((None, Some(1), Some("cancelled"), None, None), None, 1, vec![7]),
        ((None, Some(2), Some("redeemed"), None, None), None, 9, vec![6]),
        ((Some(1), None, None, None, None), None, 9, vec![1, 6, 5, 3]),
        ((Some(1), None, None, None, None), None, 2, vec![1, 6]),
        ((Some(1), None, None, None, None), Some(6), 9, vec![5, 3]),
        ((Some(1), None, None, None, None), Some(4), 9, vec![3]),
        ((Some(2), None, None, None, None), None, 9, vec![4, 2]),
        ((Some(1), Some(2), None, None, None), None, 9, vec![6, 3]),
        ((Some(1), None, Some("redeemed"), None, None), None, 9, vec![1, 6]),
        ((Some(1), None, None, Some(3), Some(6)), None, 9, vec![5, 3]),
        ((Some(1), None, None, Some(5), None), None, 9, vec![1, 6, 5]),
        ((Some(7), None, None, None, None), None, 9, vec![]),
    ]
}

async fn search_all(app: &TestApp) {
    for (asked, behind, limit, expected) in searches() {
        let behind = behind.map(|number| order(numbered(number)));
        let listed = app.app.orders.search(&filter(asked), behind, limit).await;
        let listed = listed.expect("Postgres answers");
        let found: Vec<i64> =
            listed.orders.iter().map(|it| id(it.order_id) - numbered(0)).collect();
        assert_eq!(found, expected, "{asked:?} behind {behind:?}, {limit}");
        for found in &listed.orders {
            let is_erased = id(found.order_id) == numbered(7);
            assert_eq!(found.user_id.is_none(), is_erased, "{found:?}");
        }
    }
}

#[tokio::test]
async fn a_search_by_user_coupon_status_and_time_finds_orders_in_pages() {
    let app = orders().await;
    search_all(&app).await;
}

/// The history has no month.
#[tokio::test]
async fn a_search_without_any_month_of_history_reads_the_orders_alone() {
    let app = orders().await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    search_all(&app).await;
    assert_eq!(rows_returned(&lines, "FROM order_history"), [0; 0]);
}

#[tokio::test]
async fn a_search_finds_the_same_orders_in_the_history() {
    let app = orders().await;
    move_rows(&app, &[1, 2, 3, 4, 5, 6, 7].map(numbered)).await;
    search_all(&app).await;
}

#[tokio::test]
async fn a_search_finds_the_same_orders_half_of_which_are_in_the_history() {
    let app = orders().await;
    move_rows(&app, &[1, 4, 5].map(numbered)).await;
    search_all(&app).await;
}

/// One order more than a page has tells that there is a next page.
#[tokio::test]
async fn a_search_reads_a_page_and_one_order_more() {
    let app = TestApp::with_sales(6).await;
    // Of user 1, and of sale 1: of either status as many as are read.
    let of_user = (1..=6).map(|n| (numbered(n), n, "flash", 1, "cancelled"));
    let statuses = ["cancelled", "expired"].into_iter().cycle();
    let of_sale = (7..=12).zip(statuses).map(|(n, status)| (numbered(n), 1, "flash", n, status));
    app.write_rows(&of_user.chain(of_sale).collect::<Vec<_>>()).await;
    for (of, coupon, words) in [
        (Some(1), None, "WHERE user_id = $1 AND coupon_id = coalesce($2, coupon_id)"),
        (None, None, "FROM UNNEST($1::text[]) AS one (status)"),
        (None, Some(1), "FROM UNNEST($1::text[]) AS one (status)"),
    ] {
        let lines = Lines::down_to(tracing::Level::DEBUG);
        let asked = filter((of, coupon, None, None, None));
        let listed = app.app.orders.search(&asked, None, 2).await.expect("Postgres answers");
        assert_eq!(listed.orders.len(), 2, "{asked:?}");
        assert_eq!(rows_returned(&lines, words), [3], "{asked:?}");
        assert_eq!(rows_returned(&lines, "FROM orders WHERE id = ANY($1)"), [3], "{asked:?}");
    }
}

/// From now on a process that starts fails where it reads this order in the history: its id can't be compared. (With a view
/// in its place, the history would have no months.)
async fn forbid_comparing(app: &TestApp, order: i64) {
    app.execute(&format!(
        "CREATE SCHEMA refusing;
         CREATE FUNCTION refusing.is_at_least(id bigint, lowest bigint) RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN
                 IF id = {order} THEN RAISE EXCEPTION 'a row was read that is of no use'; END IF;
                 RETURN id OPERATOR(pg_catalog.>=) lowest;
             END $$;
         CREATE OPERATOR refusing.>= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = refusing.is_at_least)"
    ))
    .await;
    app.set_for_connections(&[("search_path", "refusing, public, pg_catalog")]).await;
}

/// Asked for one, a search reads the two newest of a status at most, and none behind them.
#[tokio::test]
async fn a_search_reads_no_row_behind_its_page() {
    for has_moved in [false, true] {
        let app = orders().await;
        let last = numbered(2);
        if has_moved {
            move_rows(&app, &[2, 5, 7].map(numbered)).await;
            forbid_comparing(&app, last).await;
        } else {
            app.forbid_reading("orders", &format!("id = {last}")).await;
        }
        let other = app.another_instance_by_indexes().await;
        for coupon in [None, Some(1)] {
            let asked = filter((None, coupon, Some("cancelled"), None, None));
            let listed = other.orders.search(&asked, None, 1).await;
            let listed = listed.expect("no row is read that is of no use");
            let found: Vec<i64> =
                listed.orders.iter().map(|it| id(it.order_id) - numbered(0)).collect();
            assert_eq!(found, [7], "{coupon:?} {has_moved}");
            let behind = Some(order(numbered(7)));
            let refused = other.orders.search(&asked, behind, 1).await;
            assert!(refused.is_err(), "the next page reads it: {coupon:?} {has_moved}");
        }
    }
}

#[tokio::test]
async fn ids_of_each_of_the_statuses_are_found() {
    let app = TestApp::with_sales(1).await;
    let statuses = OrderStatus::ALL.map(OrderStatus::as_str);
    let orders: Vec<_> =
        (1..).zip(statuses).map(|(n, status)| (numbered(n), 1, "flash", n, status)).collect();
    app.write_rows(&orders).await;
    for (number, status) in (1..).zip(statuses) {
        for coupon in [None, Some(1)] {
            let asked = (None, coupon, Some(status), None, None);
            let listed = app.app.orders.search(&filter(asked), None, 9).await;
            let listed = listed.expect("Postgres answers").orders.into_iter();
            let found: Vec<_> =
                listed.map(|it| (id(it.order_id), it.user_id.map(user_id))).collect();
            assert_eq!(found, [(numbered(number), Some(number))], "{asked:?}");
        }
    }
}

#[tokio::test]
async fn a_search_of_the_history_finds_no_more_than_it_is_asked_for() {
    let app = orders().await;
    move_rows(&app, &[1, 2, 3, 4, 5, 6, 7].map(numbered)).await;
    for (asked, expected) in [
        ((None, None, None, None, None), [1, 7]),
        ((None, Some(2), None, None, None), [6, 4]),
        ((Some(1), None, None, None, None), [1, 6]),
    ] {
        let found = search::search(pool(&app), &filter(asked), None, 2).await;
        let found = found.expect("Postgres answers").into_iter();
        let found: Vec<i64> = found.map(|it| id(it.order_id) - numbered(0)).collect();
        assert_eq!(found, expected, "{asked:?}");
    }
}

/// The months that are read follow from the times of the search, with the difference that clocks may have.
#[tokio::test]
async fn a_search_of_the_history_reads_ids_of_a_day_more_on_both_sides() {
    let app = TestApp::with_sales(1).await;
    let claimed = second(0);
    let first = order_ids::first_at(claimed - CLOCKS_APART_MAX);
    let end = order_ids::first_at(claimed + CLOCKS_APART_MAX + TimeDelta::seconds(1));
    let ids = [first - 1, first, end - 1, end];
    let rows: Vec<_> = (1..).zip(ids).map(|(n, id)| (id, 1, "flash", n, "cancelled")).collect();
    app.write_rows(&rows).await;
    app.execute("UPDATE orders SET user_id = 1").await;
    app.execute("UPDATE orders SET claimed_at = '2024-01-01T00:00:00Z'").await;
    move_rows(&app, &ids).await;
    let (from, to) = (Some(claimed), Some(claimed + TimeDelta::microseconds(1)));
    for (of, from, to, expected) in [
        (None, from, None, vec![end, end - 1, first]),
        (None, None, to, vec![end - 1, first, first - 1]),
        (Some(1), from, None, vec![end, end - 1, first]),
        (Some(1), None, to, vec![end - 1, first, first - 1]),
    ] {
        let filter = OrderFilter { user: of.map(user), from, to, ..OrderFilter::default() };
        let found = search::search(pool(&app), &filter, None, 9).await.expect("Postgres answers");
        let found: Vec<i64> = found.iter().map(|it| id(it.order_id)).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn months_before_an_order_are_read_a_year_at_a_time() {
    let app = TestApp::with_sales(1).await;
    // Fourteen months, the last of which is February 2024.
    let newest = Month::of(time("2024-02-01T00:00:00Z"));
    for back in 0..limits::HISTORY_MONTHS_READ + 2 {
        months::make(pool(&app), newest.back(back)).await.expect("Postgres does it");
    }
    let february = order_ids::first_at(time("2024-02-01T00:00:00Z"));
    let year = |begins: &str| Some(Window { begins: time(begins), has_older: true });
    let whole = Window { begins: DateTime::UNIX_EPOCH, has_older: false };
    for (order, expected) in [
        (None, year("2023-03-01T00:00:00Z")),
        (Some(february + 1), year("2023-03-01T00:00:00Z")),
        (Some(february), year("2023-02-01T00:00:00Z")),
        (Some(order_ids::first_at(time("2024-01-01T00:00:00Z"))), Some(whole)),
        (Some(order_ids::first_at(time("2023-01-01T00:00:00Z"))), None),
    ] {
        let window = window::before(pool(&app), order).await.expect("Postgres answers");
        assert_eq!(window, expected, "{order:?}");
    }
}
