//! Live orders, as comparisons and recoveries read them.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::limits;
use flash_sale::kit::id as order_ids;
use flash_sale::sale::ids::{CouponId, Lane};
use flash_sale::sale::order::live;

use super::{id, order, pool, sorted, user_id};
use crate::support::{TestApp, lane, sale, user};

const STATUSES: [&str; 7] =
    ["unpaid", "paid", "redeemed", "refunding", "cancelled", "expired", "refunded"];

/// Orders 1 to 7 of sale 1, one in each status and of the user of the same number; others of sale 2, and of a regular
/// coupon.
async fn orders() -> TestApp {
    let app = TestApp::with_sales(3).await;
    let of_each_status = (1..).zip(STATUSES).map(|(id, status)| (id, 1, "flash", id, status));
    let others = [
        (11, 2, "flash", 1, "unpaid"),
        (12, 2, "flash", 12, "paid"),
        (13, 3, "regular", 13, "unpaid"),
        (14, 1, "regular", 14, "unpaid"),
        (15, 1, "flash", 5, "expired"),
    ];
    app.write_rows(&of_each_status.chain(others).collect::<Vec<_>>()).await;
    app
}

#[tokio::test]
async fn live_page_lists_live_flash_orders_of_one_sale_by_user() {
    let app = orders().await;
    // User 3 has the order with the highest id.
    app.execute("UPDATE orders SET id = 30 WHERE id = 3").await;
    for (number, after, limit, expected) in [
        (1, None, 9, vec![(1, 1), (2, 2), (3, 30), (4, 4)]),
        (1, None, 2, vec![(1, 1), (2, 2)]),
        (1, Some(2), 9, vec![(3, 30), (4, 4)]),
        (1, Some(2), 1, vec![(3, 30)]),
        (2, None, 9, vec![(1, 11), (12, 12)]),
        (3, None, 9, vec![]),
    ] {
        let page = live::live_page(pool(&app), sale(number), after.map(user), limit).await;
        let page = page.expect("Postgres answers").into_iter();
        let page: Vec<_> = page.map(|(user, order)| (user_id(user), id(order))).collect();
        assert_eq!(page, expected, "sale {number} behind {after:?}, {limit}");
    }
}

#[tokio::test]
async fn unpaid_page_lists_unpaid_flash_orders_of_all_sales_oldest_first() {
    let app = orders().await;
    app.write_rows(&[(16, 2, "flash", 16, "unpaid"), (17, 2, "flash", 17, "unpaid")]).await;
    // Order 17 was claimed first, and 11 and 16 in the same moment.
    app.execute(
        "UPDATE orders SET claimed_at = '2023-01-01T00:00:00Z' WHERE id = 17;
         UPDATE orders SET claimed_at = '2024-01-01T00:00:16Z' WHERE id = 11",
    )
    .await;
    let mut seen = Vec::new();
    let mut after = None;
    for expected in [&[17, 1, 11, 16][..], &[1, 11, 16], &[11, 16], &[16], &[]] {
        let page = live::unpaid_page(pool(&app), after).await.expect("Postgres answers");
        let ids: Vec<i64> = page.iter().map(|unpaid| id(unpaid.order)).collect();
        assert_eq!(ids, expected);
        let Some(first) = page.first() else { break };
        seen.push((first.coupon, user_id(first.user)));
        after = Some(first.position());
    }
    assert_eq!(seen, [(sale(2), 17), (sale(1), 1), (sale(2), 1), (sale(2), 16)]);
}

#[tokio::test]
async fn unpaid_page_has_a_bound() {
    let app = TestApp::with_sales(1).await;
    let bound = i64::try_from(live::PAGE).expect("a small number");
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT n, 1024, 'flash', n, '2024-01-01' FROM generate_series(1, {bound} + 1) AS n"
    ))
    .await;
    let page = live::unpaid_page(pool(&app), None).await.expect("Postgres answers");
    assert_eq!(page.len(), live::PAGE);
    let rest = live::unpaid_page(pool(&app), page.last().map(live::Unpaid::position)).await;
    assert_eq!(rest.expect("Postgres answers").len(), 1);
}

#[tokio::test]
async fn unpaid_among_are_the_unpaid_ones_of_a_list() {
    let app = orders().await;
    let asked: Vec<_> = [1, 2, 5, 14, 99].map(|id| (user(1), order(id))).into();
    let found = live::unpaid_among(pool(&app), &asked).await.expect("Postgres answers");
    assert_eq!(sorted(found.into_iter().map(id)), [1, 14], "and not 11 and 13");
}

#[tokio::test]
async fn by_id_tells_the_users_of_orders_of_one_sale_and_newest_of_their_newest_orders() {
    let app = orders().await;
    let asked = [1, 5, 11, 99].map(order);
    let found = live::by_id(pool(&app), sale(1), asked.into_iter()).await;
    let found = found.expect("Postgres answers").into_iter();
    let found = sorted(found.map(|(order, (user, is_live))| (id(order), user_id(user), is_live)));
    assert_eq!(found, [(1, 1, true), (5, 5, false)], "by_id");
    let newest = live::newest_of(pool(&app), sale(1), &[1, 5, 12, 99]).await;
    let newest = newest.expect("Postgres answers").into_iter();
    let newest = sorted(newest.map(|(user, order)| (user_id(user), id(order))));
    assert_eq!(newest, [(1, 1), (5, 15)], "newest_of");
}

/// Orders around this time, by the seconds in their ids.
fn at(second: i64, number: i64) -> i64 {
    let then: DateTime<Utc> = "2024-01-01T00:00:00Z".parse().expect("a time");
    order_ids::first_at(then + TimeDelta::seconds(second)) + number
}

#[tokio::test]
async fn claimed_since_tells_live_flash_orders_of_a_lane_by_the_time_in_their_ids() {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[
        (at(0, -1), 1, "flash", 1, "unpaid"),
        (at(0, 0), 1, "flash", 2, "unpaid"),
        (at(0, 1), 1, "flash", 3, "redeemed"),
        (at(0, 2), 1, "flash", 4, "cancelled"),
        (at(0, 3), 1, "regular", 5, "unpaid"),
        (at(0, 4), 1, "flash", 6, "paid"),
    ])
    .await;
    app.execute("UPDATE orders SET coupon_id = coupon_id + 5 WHERE user_id = 6").await;
    let since = order_ids::time_of(at(0, 0));
    let other = CouponId::new(sale(1).get() + 5).expect("a positive number");
    for (lane, expected) in [
        (lane(), vec![(sale(1), 2, at(0, 0)), (sale(1), 3, at(0, 1))]),
        (other.lane(), vec![(other, 6, at(0, 4))]),
        (Lane::numbered(7), vec![]),
    ] {
        let found = live::claimed_since(pool(&app), lane, since).await.expect("Postgres answers");
        let found =
            found.into_iter().map(|(coupon, user, order)| (coupon, user_id(user), id(order)));
        assert_eq!(sorted(found), expected, "{lane:?}");
    }
}

#[tokio::test]
async fn count_since_counts_flash_orders_of_a_lane_claimed_or_written_since() {
    let app = TestApp::with_sales(1).await;
    let margin = i64::try_from(limits::BEAT_MARGIN.as_secs()).expect("a small number");
    // The first has too old an id. Of the others, user 2's was claimed at that very moment, user 3's written, user 4's
    // neither; user 5's is no claim of a flash coupon, and user 6's is of another lane.
    app.write_rows(&[
        (at(-margin, -1), 1, "flash", 1, "unpaid"),
        (at(-margin, 0), 1, "flash", 2, "unpaid"),
        (at(-margin, 1), 1, "flash", 3, "cancelled"),
        (at(-margin, 2), 1, "flash", 4, "unpaid"),
        (at(-margin, 3), 1, "regular", 5, "unpaid"),
        (at(-margin, 4), 1, "flash", 6, "unpaid"),
    ])
    .await;
    app.execute(
        "UPDATE orders SET claimed_at = '2024-01-01T00:00:00Z', created_at = '2024-01-02T00:00:00Z';
         UPDATE orders SET claimed_at = claimed_at - interval '1 us' WHERE user_id IN (3, 4);
         UPDATE orders SET created_at = created_at - interval '1 us' WHERE user_id IN (2, 4);
         UPDATE orders SET coupon_id = coupon_id + 5 WHERE user_id = 6",
    )
    .await;
    let claimed: DateTime<Utc> = "2024-01-01T00:00:00Z".parse().expect("a time");
    let written = claimed + TimeDelta::days(1);
    for (lane, expected) in [(lane(), 2), (Lane::numbered(5), 1), (Lane::numbered(7), 0)] {
        let count = live::count_since(pool(&app), lane, claimed, written).await;
        assert_eq!(count.expect("Postgres answers"), expected, "{lane:?}");
    }
}
