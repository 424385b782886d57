//! Old records are deleted page by page: those that are old enough and done, and the next page begins behind the last.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::kit::postgres::Page;
use flash_sale::sale::coupon::restocks;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::past::forget;
use flash_sale::sale::postponed;

use crate::support::{TestApp, now};

/// Begin of each page, and the page.
type Walk = Vec<(i64, Page)>;

/// Goes through all pages.
async fn walk(page: impl AsyncFn(i64) -> sqlx::Result<Page>) -> Walk {
    let mut pages = Walk::new();
    let mut behind = 0;
    for _ in 0..20 {
        let found = page(behind).await.expect("Postgres answers");
        pages.push((behind, found));
        match found.last {
            Some(last) => behind = last,
            None => return pages,
        }
    }
    panic!("{pages:?} have no end");
}

fn page(behind: i64, last: Option<i64>, deleted: u64) -> (i64, Page) {
    (behind, Page { last, deleted })
}

async fn ids(app: &TestApp, query: &'static str) -> Vec<i64> {
    sqlx::query_scalar(query).fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

async fn app() -> (TestApp, DateTime<Utc>) {
    let app = TestApp::start().await;
    app.expect_disagreements();
    (app, now() - TimeDelta::hours(1))
}

/// Nine closed orders of this coupon.
async fn closed_orders(app: &TestApp, coupon: CouponId) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             SELECT n, {coupon}, 'flash', n, now(), 'cancelled', now() FROM generate_series(1, 9) AS n"
    ))
    .await;
}

#[tokio::test]
async fn stock_returns_that_were_done_before_are_deleted_and_each_order_is_looked_at_whole() {
    let (app, before) = app().await;
    let coupon = app.create_flash(9).await;
    closed_orders(&app, coupon).await;
    for (order, what, done) in [
        (1, "unit", "now() - interval '2 hours'"),
        (2, "unit", "now()"),
        (3, "place", "now() - interval '2 hours'"),
        (3, "unit", "now() - interval '2 hours'"),
        (4, "unit", "NULL"),
        (5, "unit", "now() - interval '2 hours'"),
        (9, "unit", "now() - interval '2 hours'"),
    ] {
        app.execute(&format!(
            "INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at)
                 VALUES ({order}, '{what}', {coupon}, {order}, {done})"
        ))
        .await;
    }
    let pool = &app.app.stores.pool;
    let pages =
        walk(async |behind| forget::stock_returns(pool, (behind, 9), before, 3).await).await;
    // The third order may have another row, so the next page begins with it.
    let expected = [page(0, Some(2), 3), page(2, None, 1)];
    assert_eq!(pages, expected);
    assert_eq!(ids(&app, "SELECT order_id FROM stock_returns ORDER BY 1").await, [2, 4, 9]);
    let pages =
        walk(async |behind| forget::stock_returns(pool, (behind, 10), before, 3).await).await;
    assert_eq!(pages, [page(0, Some(8), 1), page(8, None, 0)]);
}

#[tokio::test]
async fn dead_letters_that_were_closed_before_are_deleted_unless_their_unit_is_on_its_way() {
    let (app, before) = app().await;
    let coupon = app.create_flash(9).await;
    closed_orders(&app, coupon).await;
    for (n, created, resolved) in [
        (1, "3 hours", "now() - interval '2 hours'"),
        (2, "3 hours", "NULL"),
        (3, "3 hours", "now() - interval '2 hours'"),
        (4, "3 hours", "now()"),
        (5, "3 hours", "now() - interval '2 hours'"),
        (6, "0 hours", "now() - interval '2 hours'"),
    ] {
        app.execute(&format!(
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, created_at, resolved_at)
                 VALUES (0, '{n}-1', '{{}}', 'conflict', '', {coupon}, {n}, {n}, now() - interval '{created}', {resolved})"
        ))
        .await;
    }
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES (3, {coupon}, 3)"
    ))
    .await;
    let first = app.number("SELECT min(id) FROM dead_letters").await - 1;
    let pool = &app.app.stores.pool;
    let pages = walk(async |behind| forget::dead_letters(pool, behind, before, 2).await).await;
    let expected = [
        page(0, Some(first + 2), 1),
        page(first + 2, Some(first + 4), 0),
        // A younger letter ends the walk.
        page(first + 4, None, 1),
    ];
    assert_eq!(pages, expected);
    assert_eq!(ids(&app, "SELECT order_id FROM dead_letters ORDER BY 1").await, [2, 3, 4, 6]);
}

#[tokio::test]
async fn forget_deletes_notes_of_postponed_items_that_were_settled_before() {
    let (app, _) = app().await;
    let before: DateTime<Utc> = "2024-02-01T00:00:00Z".parse().expect("a time");
    for (id, settled) in [
        (1, "2024-01-01T00:00:00Z"),
        (2, "2024-02-01T00:00:00Z"),
        (3, "2024-01-31T23:59:59.999999Z"),
        (4, "2024-01-01T00:00:00Z"),
    ] {
        app.execute(&format!(
            "INSERT INTO postponed_settled (id, pass, item, since, tries, error, settled_at)
                 VALUES ({id}, 'expiry', {id}, now(), 1, 'no', '{settled}')"
        ))
        .await;
    }
    let pool = &app.app.stores.pool;
    let pages = walk(async |behind| postponed::forget(pool, behind, before, 2).await).await;
    assert_eq!(pages, [page(0, Some(2), 1), page(2, Some(4), 2), page(4, None, 0)]);
    assert_eq!(ids(&app, "SELECT id FROM postponed_settled").await, [2]);
    let pages = walk(async |behind| postponed::forget(pool, behind, before, 2).await).await;
    assert_eq!(pages, [page(0, None, 0)]);
}

#[tokio::test]
async fn restocks_of_coupons_that_ended_before_are_deleted_in_parts() {
    let (app, before) = app().await;
    let mut coupons = Vec::new();
    for _ in 0..4 {
        coupons.push(app.create_flash(9).await.get());
    }
    let [many, young, active, one] = coupons[..] else { panic!("as many as were created") };
    app.execute(&format!(
        "UPDATE coupons SET state = 'ended', ended_at = now() - interval '2 hours' WHERE id IN ({many}, {one});
         UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = {young};
         INSERT INTO restocks (coupon_id, key, units) SELECT {many}, n::text, 1 FROM generate_series(1, 5) AS n;
         INSERT INTO restocks (coupon_id, key, units) VALUES ({young}, 'a', 1), ({active}, 'a', 1), ({one}, 'a', 1)"
    ))
    .await;
    let pool = &app.app.stores.pool;
    let pages = walk(async |behind| restocks::forget(pool, behind, before, 3).await).await;
    let expected = [
        // As many as one statement deletes, so the page is looked at again.
        page(0, Some(0), 3),
        // Of the first coupon, two are left; the page ends within the others.
        page(0, Some(young), 2),
        page(young, None, 1),
    ];
    assert_eq!(pages, expected);
    assert_eq!(ids(&app, "SELECT coupon_id FROM restocks ORDER BY 1").await, [young, active]);
}
