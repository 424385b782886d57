//! Lists of sales for the passes, and the numbers of a sale: each condition of a query decides about one row.

use std::time::Duration;

use chrono::{DateTime, Utc};
use flash_sale::kit::postgres;
use flash_sale::sale::coupon::stock::{self, HeldSale};
use flash_sale::sale::ids::{CouponId, Lane};

use super::{Row, in_pages, postponed, rows, shelf};
use crate::support::{Bounded, TestApp, lane, sale};

/// The pass looks so far.
const TEN_MINUTES: Duration = Duration::from_secs(600);

#[tokio::test]
async fn to_load_lists_sales_that_open_soon_and_were_never_loaded() {
    let app = TestApp::start().await;
    let fits = "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0,
                    opens_at = now() + interval '5 min', closes_at = now() + interval '40 min' WHERE coupon_id = $";
    let of_window = rows([
        ("", true),
        ("UPDATE flash_sales SET opens_at = now() - interval '1 h' WHERE coupon_id = $", true),
        ("UPDATE flash_sales SET opens_at = now() + interval '30 min' WHERE coupon_id = $", false),
        (
            "UPDATE flash_sales SET opens_at = now() - interval '1 h', closes_at = now() WHERE coupon_id = $",
            false,
        ),
        ("UPDATE flash_sales SET loaded_at = now(), load_id = 'x' WHERE coupon_id = $", false),
        ("UPDATE coupons SET state = 'paused' WHERE id = $", true),
        ("UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $", false),
    ]);
    let found = shelf(&app, fits, &[of_window, postponed("warm_up")].concat()).await;
    let pool = &app.app.stores.pool;
    in_pages(&found, async |after, limit| {
        stock::to_load(pool, TEN_MINUTES, after, limit).await.expect("Postgres answers")
    })
    .await;
}

#[tokio::test]
async fn unapplied_lists_sales_of_which_redis_has_an_older_revision() {
    let app = TestApp::start().await;
    let fits = "UPDATE flash_sales SET applied_revision = 1 WHERE coupon_id = $";
    let of_sale = rows([
        ("", true),
        ("UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $", true),
        ("UPDATE flash_sales SET applied_revision = 2 WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET applied_revision = 3 WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $", false),
        (
            "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id = $",
            false,
        ),
    ]);
    let found = shelf(&app, fits, &[of_sale, postponed("changes")].concat()).await;
    let pool = &app.app.stores.pool;
    in_pages(&found, async |after, limit| {
        stock::unapplied(pool, after, limit).await.expect("Postgres answers")
    })
    .await;
}

#[tokio::test]
async fn closed_lists_sales_whose_window_has_ended_and_that_have_not() {
    let app = TestApp::start().await;
    let fits = "UPDATE flash_sales SET closes_at = '2024-01-01T00:00:00Z', opens_at = '2023-01-01T00:00:00Z' WHERE coupon_id = $";
    let of_sale = rows([
        ("", true),
        ("UPDATE flash_sales SET closes_at = now() - interval '5 min' WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET closes_at = now() + interval '5 min' WHERE coupon_id = $", false),
        ("UPDATE coupons SET state = 'paused' WHERE id = $", true),
        ("UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $", false),
        ("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $", false),
        (
            "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id = $",
            false,
        ),
    ]);
    let found = shelf(&app, fits, &[of_sale, postponed("archive")].concat()).await;
    let pool = &app.app.stores.pool;
    let then: DateTime<Utc> = "2024-01-01T00:00:00Z".parse().expect("a time");
    in_pages(&found, async |after, limit| {
        let closed = stock::closed(pool, TEN_MINUTES, after, limit).await;
        let closed = closed.expect("Postgres answers").into_iter();
        let told = closed.map(|(coupon, at)| {
            assert_eq!(at, then, "the end of its window");
            coupon
        });
        told.collect()
    })
    .await;
}

/// Open matters of an ended sale, and those that are over.
fn open_things() -> Vec<Row> {
    let order = |status: &str, columns: &str, values: &str| {
        format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status{columns})
             VALUES ($, $, 'flash', 1, now(), '{status}'{values})"
        )
    };
    let cancelled = order("cancelled", ", cancelled_at", ", now()");
    let unit = |what: &str, done_at: &str| {
        format!(
            "{cancelled};INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at) VALUES ($, '{what}', $, 1, {done_at})"
        )
    };
    let letter = |resolved_at: &str| {
        format!(
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
             VALUES (0, '1-$', '{{}}', 'conflict', '', $, 1, $, {resolved_at})"
        )
    };
    vec![
        (order("unpaid", "", ""), false),
        (order("paid", ", paid_at, pay_method", ", now(), 'balance'"), true),
        (unit("unit", "NULL"), false),
        (unit("unit", "now()"), true),
        (unit("place", "NULL"), false),
        (unit("place", "now()"), true),
        (letter("NULL"), false),
        (letter("now()"), true),
    ]
}

#[tokio::test]
async fn ended_lists_sales_that_ended_long_ago_and_of_which_nothing_is_open() {
    let app = TestApp::start().await;
    let fits =
        "UPDATE coupons SET state = 'ended', ended_at = now() - interval '30 min' WHERE id = $";
    let of_sale = rows([
        ("", true),
        (
            "UPDATE coupons SET ended_at = now() WHERE id = $;
             UPDATE flash_sales SET closes_at = now() - interval '30 min' WHERE coupon_id = $",
            true,
        ),
        ("UPDATE coupons SET ended_at = now() - interval '5 min' WHERE id = $", false),
        (
            "UPDATE coupons SET state = 'active', ended_at = NULL WHERE id = $;
             UPDATE flash_sales SET closes_at = now() - interval '30 min' WHERE coupon_id = $",
            false,
        ),
        ("UPDATE flash_sales SET applied_revision = 1 WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $", false),
    ]);
    let found = shelf(&app, fits, &[of_sale, open_things(), postponed("archive")].concat()).await;
    let pool = &app.app.stores.pool;
    in_pages(&found, async |after, limit| {
        stock::ended(pool, TEN_MINUTES, after, limit).await.expect("Postgres answers")
    })
    .await;
}

#[tokio::test]
async fn archived_lists_sales_that_may_still_be_in_redis_with_their_totals() {
    let app = TestApp::start().await;
    let fits = "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $";
    let of_sale = rows([
        ("", true),
        ("UPDATE flash_sales SET removed_at = now() WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET archived_at = NULL WHERE coupon_id = $", false),
        ("UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $", true),
    ]);
    let found = shelf(&app, fits, &[of_sale, postponed("archive")].concat()).await;
    let pool = &app.app.stores.pool;
    in_pages(&found, async |after, limit| {
        let archived = stock::archived(pool, after, limit).await.expect("Postgres answers");
        let told = archived.into_iter().map(|(coupon, total)| {
            assert_eq!(total, 100 + coupon.sequence());
            coupon
        });
        told.collect()
    })
    .await;
}

/// Decision of [`archive`](stock::archive) about each of these, and no other sale.
#[tokio::test]
async fn archive_notes_an_ended_sale_of_which_nothing_is_open() {
    let app = TestApp::start().await;
    let fits = "UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $";
    let of_sale = rows([
        ("", true),
        ("UPDATE coupons SET state = 'active', ended_at = NULL WHERE id = $", false),
        ("UPDATE coupons SET state = 'paused', ended_at = NULL WHERE id = $", false),
        ("UPDATE flash_sales SET applied_revision = 1 WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET archived_at = '2024-01-01' WHERE coupon_id = $", false),
    ]);
    let on_shelf = [of_sale, open_things()].concat();
    shelf(&app, fits, &on_shelf).await;
    app.let_rows_age("flash_sales").await;
    let mut noted = Vec::new();
    for (number, (but, is_archived)) in (1..).zip(on_shelf) {
        let archived = stock::archive(&app.app.stores.pool, sale(number)).await;
        assert_eq!(archived.expect("Postgres answers"), is_archived, "{but}");
        noted.extend(is_archived.then_some(sale(number).get()));
        assert_eq!(app.touched("flash_sales", "coupon_id").await, noted, "{but}");
    }
    let archived =
        "SELECT coupon_id FROM flash_sales WHERE archived_at > '2024-01-02' ORDER BY coupon_id";
    assert_eq!(app.numbers(archived).await, noted);
}

fn told(held: &[HeldSale]) -> Vec<(CouponId, i64, i64)> {
    held.iter().map(|held| (held.coupon, held.sold, held.applied_revision)).collect()
}

/// Sales 1, 2 and 7 are held in lane 0, and sale 4 in another; 3 was never loaded, 5 is archived and 6 is removed.
async fn held() -> (TestApp, CouponId) {
    let app = TestApp::start().await;
    let statements = rows([
        ("", true),
        ("", true),
        ("UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id = $", false),
        (
            "INSERT INTO coupons SELECT (jsonb_populate_record(coupons, jsonb_build_object('id', $ + 5))).* FROM coupons WHERE id = $;
             UPDATE flash_sales SET coupon_id = $ + 5 WHERE coupon_id = $",
            false,
        ),
        ("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $", false),
        ("UPDATE flash_sales SET archived_at = now(), removed_at = now() WHERE coupon_id = $", false),
        ("UPDATE coupons SET state = 'ended', ended_at = now(), revision = 9 WHERE id = $", true),
    ]);
    shelf(&app, "", &statements).await;
    let other = CouponId::new(sale(4).get() + 5).expect("a positive number");
    (app, other)
}

#[tokio::test]
async fn loaded_sales_are_those_that_redis_has_to_hold() {
    let (app, other) = held().await;
    let pool = &app.app.stores.pool;
    let all = [sale(1), sale(2), other, sale(7)];
    assert_eq!(stock::loaded(pool).await.expect("Postgres answers"), all);
    let newest = stock::newest_loaded(pool, 3).await.expect("Postgres answers");
    assert_eq!(told(&newest), [(sale(7), 7, 2), (other, 4, 2), (sale(2), 2, 2)], "newest_loaded");
    let asked: Vec<CouponId> = (2..=7).map(sale).collect();
    let mut of = told(&stock::loaded_of(pool, &asked).await.expect("Postgres answers"));
    of.sort_unstable();
    assert_eq!(of, [(sale(2), 2, 2), (sale(7), 7, 2)], "loaded_of");
    for number in 1..=8 {
        let is_loaded = stock::is_loaded(pool, sale(number)).await.expect("Postgres answers");
        assert_eq!(is_loaded, [1, 2, 7].contains(&number), "is_loaded, sale {number}");
    }
}

#[tokio::test]
async fn loaded_in_lists_the_sales_of_a_lane() {
    let (app, other) = held().await;
    let pool = &app.app.stores.pool;
    for (lane, expected) in [
        (lane(), vec![(sale(1), "load 1", 2), (sale(2), "load 2", 2), (sale(7), "load 7", 9)]),
        (other.lane(), vec![(other, "load 4", 2)]),
        (Lane::numbered(7), vec![]),
    ] {
        let sales = stock::loaded_in(pool, lane).await.expect("Postgres answers");
        let sales: Vec<_> =
            sales.iter().map(|one| (one.coupon, one.load_id.as_str(), one.revision)).collect();
        assert_eq!(sales, expected, "{lane:?}");
    }
}

#[tokio::test]
async fn revisions_are_listed_of_loaded_sales() {
    let (app, other) = held().await;
    let pool = &app.app.stores.pool;
    in_pages(&[sale(1), sale(2), other, sale(7)], async |after, limit| {
        let revisions = stock::revisions(pool, after, limit).await.expect("Postgres answers");
        let told = revisions.into_iter().map(|(coupon, revision)| {
            assert_eq!(revision, if coupon == sale(7) { 9 } else { 2 }, "{coupon}");
            coupon
        });
        told.collect()
    })
    .await;
}

#[tokio::test]
async fn a_sale_to_build_has_its_own_values() {
    let (app, other) = held().await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    for (coupon, expected) in [
        (sale(2), Some((102, "load 2", 2, "active"))),
        (other, Some((104, "load 4", 2, "active"))),
        (sale(7), Some((107, "load 7", 9, "ended"))),
        (sale(3), None),
        (sale(5), None),
        (sale(8), None),
    ] {
        let built = stock::to_build(&mut tx, coupon).await.expect("Postgres answers");
        let built = built
            .as_ref()
            .map(|it| (it.total, it.load_id.as_str(), it.revision, it.state.as_str()));
        assert_eq!(built, expected, "to_build, {coupon}");
    }
}

#[tokio::test]
async fn units_left_are_those_of_one_sale() {
    let app = TestApp::start().await;
    shelf(&app, "UPDATE flash_sales SET sold = 30 WHERE coupon_id = $", &rows([("", true); 2]))
        .await;
    let pool = &app.app.stores.pool;
    let mut tx = postgres::begin(pool).await.expect("Postgres answers");
    for (number, left) in [(1, Some(71)), (2, Some(72)), (3, None)] {
        let coupon = sale(number);
        let units = stock::units_left(&mut tx, coupon).await.expect("Postgres answers");
        let locked = stock::lock_units_left(&mut tx, coupon).await.expect("Postgres answers");
        assert_eq!((units, locked), (left, left), "sale {number}");
        let exists = stock::exists(&mut tx, coupon).await.expect("Postgres answers");
        assert_eq!(exists, left.is_some(), "exists, sale {number}");
        let sold = stock::sold(pool, coupon).await.expect("Postgres answers");
        let total = stock::total(pool, coupon).await.expect("Postgres answers");
        let expected = if left.is_some() { (30, 100 + number) } else { (0, 0) };
        assert_eq!((sold, total), expected, "sale {number}");
    }
}

#[tokio::test]
async fn lock_units_left_locks_the_row_of_that_sale_alone() {
    let app = TestApp::start().await;
    shelf(&app, "", &rows([("", true); 2])).await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let free = async || {
        app.numbers(
            "SELECT coupon_id FROM flash_sales ORDER BY coupon_id FOR NO KEY UPDATE SKIP LOCKED",
        )
        .await
    };
    stock::units_left(&mut tx, sale(1)).await.expect("Postgres answers");
    assert_eq!(free().await, [sale(1).get(), sale(2).get()], "a look locks nothing");
    stock::lock_units_left(&mut tx, sale(1)).await.expect("Postgres answers");
    assert_eq!(free().await, [sale(2).get()]);
}

#[tokio::test]
async fn open_of_counts_what_is_open_about_one_sale() {
    let app = TestApp::start().await;
    shelf(&app, "", &rows([("", true); 3])).await;
    let unpaid = |id: i64, sale: i64| (id, sale, "flash", id, "unpaid");
    let gone = |id: i64, sale: i64| (id, sale, "flash", id, "cancelled");
    app.write_rows(&[unpaid(1, 1), unpaid(2, 1), (3, 1, "flash", 3, "paid"), unpaid(4, 2)]).await;
    // Those counts are added up, and later changes are not yet.
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    app.write_rows(&[unpaid(5, 1), (6, 1, "flash", 6, "paid"), unpaid(7, 2)]).await;
    app.write_rows(&[gone(11, 1), gone(12, 1), gone(13, 1), gone(14, 2)]).await;
    app.execute(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at)
         SELECT order_id, what, coupon << 10, order_id, CASE WHEN is_done THEN now() END
         FROM (VALUES (11, 'unit', 1, false), (11, 'place', 1, false), (12, 'unit', 1, true), (13, 'place', 1, true),
                      (14, 'unit', 2, false)) AS back (order_id, what, coupon, is_done);
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
         SELECT 0, n || '-1', '{}', 'conflict', '', coupon << 10, n, n, CASE WHEN is_closed THEN now() END
         FROM (VALUES (21, 1, false), (22, 1, true), (23, 2, false), (24, 2, false)) AS letter (n, coupon, is_closed)",
    )
    .await;
    for (number, expected) in [(1, [3, 2, 1]), (2, [2, 1, 2]), (3, [0, 0, 0])] {
        let open = stock::open_of(&app.app.stores.pool, sale(number)).await;
        let open = open.expect("Postgres answers");
        let counts = [open.unpaid, open.stock_returns, open.dead_letters];
        assert_eq!(counts, expected, "sale {number}");
    }
}
