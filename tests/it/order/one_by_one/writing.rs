//! Batches of claims become rows, dead letters, or nothing: each batch with its result.

use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::log::LoggedClaim;
use flash_sale::sale::order::dead_letter::Reason;
use flash_sale::sale::order::insert::{NotWritten, Written};
use tokio_util::sync::CancellationToken;

use crate::support::{TestApp, lane, user};

fn claim(coupon: CouponId, buyer: i64, order: i64) -> LoggedClaim {
    LoggedClaim::without_entry(coupon, user(buyer), OrderId::new(order).expect("an id"))
}

fn claims(coupon: CouponId, pairs: &[(i64, i64)]) -> Vec<LoggedClaim> {
    pairs.iter().map(|(buyer, order)| claim(coupon, *buyer, *order)).collect()
}

async fn write(app: &TestApp, claims: &[LoggedClaim]) -> Result<Written, NotWritten> {
    app.app.orders.write((lane(), 1), claims, &CancellationToken::new()).await
}

async fn write_what_fits(app: &TestApp, claims: &[LoggedClaim]) -> Result<Written, NotWritten> {
    app.app.orders.write_what_fits((lane(), 1), claims, &CancellationToken::new()).await
}

fn written(inserted: usize, repeated: usize, conflicts: usize, oversold: usize) -> Written {
    Written { inserted, repeated, conflicts, oversold, before_mark: 0 }
}

async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app
}

/// Orders by user, as they lie in Postgres.
async fn rows(app: &TestApp, coupon: CouponId) -> Vec<(i64, i64)> {
    let rows = "SELECT user_id, id FROM orders WHERE coupon_id = $1 ORDER BY id";
    sqlx::query_as(rows)
        .bind(coupon.get())
        .fetch_all(&app.app.stores.pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test]
async fn claims_are_new_repeated_or_in_conflict_with_a_row() {
    let app = app().await;
    let coupon = app.create_flash(100).await;
    let other = app.create_flash(100).await;
    let of_other = claims(other, &[(9, 90)]);
    assert_eq!(write(&app, &of_other).await.expect("written"), written(1, 0, 0, 0));
    for (pairs, expected, sold) in [
        (&[][..], written(0, 0, 0, 0), 0),
        (&[(1, 11), (2, 12), (3, 13)], written(3, 0, 0, 0), 3),
        (&[(1, 11), (2, 12), (3, 13)], written(0, 3, 0, 0), 3),
        (&[(3, 13), (4, 14)], written(1, 1, 0, 0), 4),
        // A second order of a buyer, and an order id of another coupon or buyer.
        (&[(4, 24), (5, 15)], written(1, 0, 1, 0), 5),
        (&[(6, 90), (7, 15), (8, 18)], written(1, 0, 2, 0), 6),
        (&[(6, 90), (7, 15), (8, 18)], written(0, 3, 0, 0), 6),
        // Two orders of a new buyer: the first in the log wins.
        (&[(10, 30), (10, 29)], written(1, 0, 1, 0), 7),
        (&[(11, 31), (12, 31)], written(1, 0, 1, 0), 8),
        // The first can't be written, and so the second is.
        (&[(13, 90), (13, 33)], written(1, 0, 1, 0), 9),
        (&[(14, 34), (14, 34)], written(1, 1, 0, 0), 10),
    ] {
        let found = write(&app, &claims(coupon, pairs)).await.expect("it is written");
        assert_eq!((found, app.sold(coupon).await), (expected, sold), "{pairs:?}");
    }
    let orders = [
        (1, 11),
        (2, 12),
        (3, 13),
        (4, 14),
        (5, 15),
        (8, 18),
        (10, 30),
        (11, 31),
        (13, 33),
        (14, 34),
    ];
    assert_eq!(rows(&app, coupon).await, orders);
    assert_eq!((rows(&app, other).await, app.sold(other).await), (vec![(9, 90)], 1));
    let letters = "SELECT count(*) FROM dead_letters WHERE reason = 'conflict'";
    assert_eq!(app.number(letters).await, 6);
}

#[tokio::test]
async fn a_batch_is_refused_as_a_whole_with_its_reason() {
    let app = app().await;
    let [few, plenty] = [app.create_flash(2).await, app.create_flash(100).await];
    let regular = app.create_regular().await;
    let unknown = CouponId::compose(999, 1);
    let three = [(1, 11), (2, 12), (3, 13)];
    let beside = claims(plenty, &[(1, 21)]);
    for (coupon, reason) in
        [(few, Reason::Oversold), (regular, Reason::Invalid), (unknown, Reason::Invalid)]
    {
        let batch = [beside.clone(), claims(coupon, &three)].concat();
        let refused = write(&app, &batch).await;
        let is_expected = matches!(&refused, Err(NotWritten::Poison(found, _)) if *found == reason);
        assert!(is_expected, "{coupon}: {refused:?}");
    }
    let lost = CancellationToken::new();
    lost.cancel();
    let orders = &app.app.orders;
    let refused = orders.write((lane(), 1), &beside, &lost).await;
    assert!(matches!(refused, Err(NotWritten::LocksLost)), "{refused:?}");
    let stale = orders.write((lane(), 2), &beside, &CancellationToken::new()).await;
    assert!(matches!(stale, Err(NotWritten::Stale)), "{stale:?}");
    let known = LoggedClaim { revision: Some(1), ..claim(plenty, 2, 22) };
    let priceless = LoggedClaim { revision: Some(0), ..claim(plenty, 3, 23) };
    let refused = write(&app, &[known, priceless]).await;
    assert!(matches!(refused, Err(NotWritten::Poison(Reason::Invalid, _))), "{refused:?}");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
    assert_eq!(write(&app, &[known]).await.expect("it is written").inserted, 1);
    assert_eq!(app.number("SELECT pay_cents FROM orders WHERE currency = 'CNY'").await, 1);
}

#[tokio::test]
async fn as_many_claims_are_written_as_fit_and_the_others_are_oversold() {
    let app = app().await;
    let coupon = app.create_flash(4).await;
    for (pairs, expected, sold) in [
        (&[][..], written(0, 0, 0, 0), 0),
        (&[(1, 11)], written(1, 0, 0, 0), 1),
        // The second order of a buyer takes no unit.
        (&[(1, 11), (2, 12), (2, 22), (3, 13)], written(2, 1, 1, 0), 3),
        (&[(1, 99), (5, 15), (6, 16), (7, 17)], written(1, 0, 1, 2), 4),
        (&[(8, 18), (9, 13)], written(0, 0, 1, 1), 4),
        (&[(1, 11), (6, 16), (8, 18), (9, 13)], written(0, 4, 0, 0), 4),
    ] {
        let found = write_what_fits(&app, &claims(coupon, pairs)).await.expect("it is written");
        assert_eq!((found, app.sold(coupon).await), (expected, sold), "{pairs:?}");
    }
    assert_eq!(rows(&app, coupon).await, [(1, 11), (2, 12), (3, 13), (5, 15)]);
    let changed_at = "SELECT (extract(epoch FROM updated_at) * 1000000)::bigint FROM flash_sales";
    let before = app.number(changed_at).await;
    let repeats = claims(coupon, &[(1, 11), (2, 12)]);
    let found = write_what_fits(&app, &repeats).await.expect("they are there");
    assert_eq!((found, app.number(changed_at).await), (written(0, 2, 0, 0), before));
    let open =
        "SELECT count(*) FROM dead_letters WHERE reason = 'oversold' AND resolved_at IS NULL";
    assert_eq!(app.number(open).await, 3);
    let unknown = CouponId::compose(999, 1);
    let refused = write_what_fits(&app, &claims(unknown, &[(1, 31)])).await;
    assert!(matches!(refused, Err(NotWritten::Poison(Reason::Invalid, _))), "{refused:?}");
    let roomy = app.create_flash(10).await;
    let found = write_what_fits(&app, &claims(roomy, &[(1, 41), (2, 42)])).await;
    assert_eq!(found.expect("it is written"), written(2, 0, 0, 0));
}

/// Claims up to the retention mark whose sale is archived may have been orders that have moved, and been dropped.
#[tokio::test]
async fn a_claim_up_to_the_retention_mark_becomes_no_row_of_an_archived_sale() {
    let app = app().await;
    let [archived, open] = [app.create_flash(100).await, app.create_flash(100).await];
    write(&app, &claims(archived, &[(1, 11), (2, 12)])).await.expect("it is written");
    app.execute(&format!(
        "UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = {archived};
         UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {archived};
         UPDATE settings SET orders_moved_to = 20"
    ))
    .await;
    for fits in [false, true] {
        let base = if fits { 3 } else { 0 };
        for (coupon, pairs, expected) in [
            (archived, vec![(1, 11)], written(0, 1, 0, 0)),
            (
                archived,
                vec![(3 + base, 13 + base)],
                Written { before_mark: 1, ..Written::default() },
            ),
            (archived, vec![(3 + base, 13 + base)], written(0, 1, 0, 0)),
            (archived, vec![(7 + base, 12)], written(0, 0, 1, 0)),
            (archived, vec![(8 + base, 21 + base)], written(1, 0, 0, 0)),
            (open, vec![(4 + base, 14 + base)], written(1, 0, 0, 0)),
            (open, vec![(4 + base, 14 + base), (5 + base, 25 + base)], written(1, 1, 0, 0)),
        ] {
            let batch = claims(coupon, &pairs);
            let found =
                if fits { write_what_fits(&app, &batch).await } else { write(&app, &batch).await };
            assert_eq!(found.expect("it is written"), expected, "{coupon} {pairs:?} {fits}");
        }
    }
    let letters = "SELECT count(*) FROM dead_letters WHERE reason = 'before_mark'";
    assert_eq!(app.number(letters).await, 2);
}
