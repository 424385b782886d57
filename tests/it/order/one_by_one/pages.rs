//! Lists and searches over more months than a page reads, and what is told of orders of these months.

use chrono::{DateTime, Utc};
use flash_sale::kit::id::first_at;
use flash_sale::sale::ids::OrderId;
use flash_sale::sale::order::history;
use flash_sale::sale::order::history::window::Walk;
use flash_sale::sale::order::model::{OrderFilter, RedemptionCode};
use flash_sale::sale::order::read::Listed;
use flash_sale::sale::retention::months::{self, Month};

use crate::support::{TestApp, bounded, sale, user};

fn time(text: &str) -> DateTime<Utc> {
    format!("{text}T00:00:00Z").parse().expect("a time")
}

/// First order id of this day.
fn first(day: &str) -> i64 {
    first_at(time(day))
}

fn order(id: i64) -> OrderId {
    OrderId::new(id).expect("an id")
}

/// Orders of user 1 and sale 1, by the day of their claim; and whether they have moved. The oldest month of the newest twelve
/// begins at 2023-03-01.
const ORDERS: [(&str, bool); 8] = [
    ("2024-03-10", false),
    ("2024-02-10", true),
    ("2023-03-10", true),
    ("2023-03-01", false),
    ("2023-02-20", false),
    ("2023-02-10", true),
    ("2023-01-20", false),
    ("2023-01-10", true),
];

/// Days of the orders, newest first, at these places of the list above.
fn days(places: std::ops::Range<usize>) -> Vec<&'static str> {
    ORDERS[places].iter().map(|(day, _)| *day).collect()
}

/// Fourteen months of history, the last of which is February 2024. User 2 has one order, of the first month.
async fn months_of_orders() -> TestApp {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(1).await;
    let pool = &app.app.stores.pool;
    for back in 0..14 {
        let month = Month::of(time("2024-02-01")).back(back);
        months::make(pool, month).await.expect("Postgres does it");
    }
    let of_user = ORDERS.map(|(day, has_moved)| (first(day), day, 1, has_moved));
    for (id, day, buyer, has_moved) in
        of_user.into_iter().chain([(first("2023-01-05"), "2023-01-05", 2, true)])
    {
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at, pay_cents, currency)
             VALUES ({id}, 1024, 'flash', {buyer}, '{day}T00:00:00Z', 'cancelled', now(), 1, 'CNY')"
        ))
        .await;
        if has_moved {
            app.execute(&format!(
                "WITH gone AS (DELETE FROM orders WHERE id = {id} RETURNING *)
                 INSERT INTO order_history SELECT * FROM gone"
            ))
            .await;
        }
    }
    app
}

/// The days of a page, and the id behind which the next one begins.
fn told(listed: Listed) -> (Vec<String>, Option<i64>) {
    let day = |at: DateTime<Utc>| at.date_naive().to_string();
    let days = listed.orders.iter().map(|order| day(order.claimed_at)).collect();
    (days, listed.next.map(OrderId::get))
}

#[tokio::test]
async fn a_list_over_many_months_ends_a_page_where_the_months_that_it_reads_begin() {
    let app = months_of_orders().await;
    let begin = Some(first("2023-03-01"));
    let at = |place: usize| Some(first(ORDERS[place].0));
    for (before, limit, places, next) in [
        (None, 9, 0..4, begin),
        (None, 4, 0..4, begin),
        (None, 3, 0..3, at(2)),
        (None, 2, 0..2, at(1)),
        (at(1), 2, 2..4, begin),
        (at(1), 1, 2..3, at(2)),
        (begin, 9, 4..8, None),
        (begin, 2, 4..6, at(5)),
        (begin, 4, 4..8, None),
        (at(7), 9, 8..8, None),
    ] {
        let listed = app.app.orders.list(user(1), before.map(order), limit).await;
        let (found, goes_on) = told(listed.expect("Postgres answers"));
        assert_eq!(
            (found, goes_on),
            (days(places).iter().map(ToString::to_string).collect(), next),
            "{before:?}, {limit}"
        );
    }
}

#[tokio::test]
async fn a_search_over_many_months_goes_on_behind_them_unless_no_older_ones_are_asked_for() {
    let app = months_of_orders().await;
    let begin = Some(first("2023-03-01"));
    let at = |place: usize| Some(first(ORDERS[place].0));
    for (from, behind, limit, places, next) in [
        (None, None, 9, 0..4, begin),
        (None, None, 2, 0..2, at(1)),
        (None, begin, 9, 4..8, None),
        (None, begin, 2, 4..6, at(5)),
        (Some("2023-06-01"), None, 9, 0..2, None),
        (Some("2023-02-15"), None, 9, 0..4, begin),
        (Some("2023-02-15"), begin, 9, 4..5, None),
        (Some("2023-03-01"), None, 9, 0..4, begin),
    ] {
        for coupon in [None, Some(sale(1))] {
            let filter = OrderFilter {
                user: Some(user(1)),
                coupon,
                from: from.map(time),
                ..OrderFilter::default()
            };
            let listed = app.app.orders.search(&filter, behind.map(order), limit).await;
            let (found, goes_on) = told(listed.expect("Postgres answers"));
            let expected: Vec<String> =
                days(places.clone()).iter().map(ToString::to_string).collect();
            assert_eq!((found, goes_on), (expected, next), "{filter:?} {behind:?}, {limit}");
        }
    }
}

#[tokio::test]
async fn a_walk_has_each_window_of_months_once_and_the_newest_first() {
    let app = months_of_orders().await;
    let mut walk = Walk::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let mut windows = Vec::new();
    bounded("the last window", async {
        while let Some((tx, first, end)) = walk.next().await.expect("Postgres answers") {
            tx.rollback().await.expect("Postgres answers");
            windows.push((first, end));
        }
    })
    .await;
    let (begin, least) = (first("2023-03-01"), first_at(DateTime::UNIX_EPOCH));
    assert_eq!(windows, [(begin, i64::MAX), (least, begin)]);
}

#[tokio::test]
async fn an_order_of_the_oldest_month_is_found_by_its_code_its_coupon_and_its_buyer_alone() {
    let app = months_of_orders().await;
    let oldest = first("2023-01-05");
    app.execute(&format!(
        "INSERT INTO redemption_history (order_id, code) VALUES ({oldest}, '0000000000000013')"
    ))
    .await;
    for (code, expected) in [("0000000000000013", Some(oldest)), ("0000000000000014", None)] {
        let found = app.app.order_moves.of_code(&RedemptionCode::typed(code)).await;
        assert_eq!(
            found.expect("Postgres answers").map(|it| it.order_id.get()),
            expected,
            "{code}"
        );
    }
    let pool = &app.app.stores.pool;
    let last = async |of| {
        let last = history::last_of(pool, sale(1), user(of)).await.expect("Postgres answers");
        last.map(|(order, _)| order.get())
    };
    assert_eq!(
        [last(1).await, last(2).await],
        [None, None],
        "no order of the coupon is said to have moved"
    );
    app.execute("INSERT INTO moved_order_counts VALUES (1024, 'cancelled', 5)").await;
    let newest = first("2024-02-10");
    assert_eq!([last(1).await, last(2).await, last(3).await], [Some(newest), Some(oldest), None]);
    for (of, expected) in [(1, None), (2, Some(oldest))] {
        let found = app.app.orders.get(user(of), order(oldest)).await.expect("Postgres answers");
        assert_eq!(found.map(|it| it.order_id.get()), expected, "user {of}");
        // The order of its own that is newest in both tables.
        let found = app.app.orders.last_of(sale(1), user(of)).await.expect("Postgres answers");
        let newest = if of == 1 { first("2024-03-10") } else { oldest };
        assert_eq!(found.map(|(order, _)| order.get()), Some(newest), "user {of}");
    }
}

/// Orders that an older version has made paid get codes when they are listed, and those with a code keep it unwritten.
#[tokio::test]
async fn make_codes_gives_each_order_its_own_code_and_writes_no_other() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(4).await;
    let orders =
        [1, 2, 3, 4].map(|n| (10 + n, n, "flash", 1, if n == 4 { "unpaid" } else { "paid" }));
    app.write_rows(&orders).await;
    app.execute("INSERT INTO redemptions (order_id, code) VALUES (12, '0000000000000012')").await;
    let version = "SELECT xmin::text::bigint FROM redemptions WHERE order_id = 12";
    let before = app.number(version).await;
    let codes = async || -> Vec<Option<String>> {
        let listed = app.app.orders.list(user(1), None, 9).await.expect("Postgres answers");
        let orders = listed.orders.into_iter();
        orders.map(|it| it.redemption_code.map(|code| code.canonical().to_owned())).collect()
    };
    let first = codes().await;
    let rows = "SELECT code FROM redemptions ORDER BY order_id DESC";
    let rows: Vec<Option<String>> = app.texts(rows).await.into_iter().map(Some).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!((&first[0], &first[1..]), (&None, &rows[..]), "the unpaid one has none");
    app.count_statements("INSERT OR UPDATE", "redemptions").await;
    assert_eq!((codes().await, app.number(version).await), (first, before));
    assert_eq!(app.statements().await, 0);
}
