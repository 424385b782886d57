//! `readings`: the sales that the audit reads next, the lanes that are read in any case, and readings that are forgotten.

use std::time::Duration;

use flash_sale::sale::Stores;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile::{self, Kind, Report};
use tokio::time::Instant;

use crate::support::lines::{Lines, rows_returned};
use crate::support::{Bounded, TestApp, later};

/// A loaded sale with one buyer.
async fn sale(app: &TestApp, user: i64) -> CouponId {
    let coupon = app.create_flash(5).await;
    app.order(user, coupon).await;
    coupon
}

/// Dates the reading of a sale back by some minutes.
async fn read_before(app: &TestApp, coupon: CouponId, minutes: i64) {
    app.execute(&format!(
        "INSERT INTO sale_readings (coupon_id, read_at, in_redis, in_postgres, is_good)
         VALUES ({coupon}, now() - {minutes} * interval '1 min', '', '', true)"
    ))
    .await;
}

async fn next(app: &TestApp) -> Option<CouponId> {
    app.execute("UPDATE sale_reading_audit SET next_at = now()").await;
    app.app.reconciler.audit_next().bounded().await.expect("both stores answer")
}

#[tokio::test]
async fn next_of_audit_is_the_sale_that_was_never_read_or_read_longest_ago() {
    let app = TestApp::start().await;
    let mut coupons = Vec::new();
    for user in 1..=7 {
        coupons.push(sale(&app, user).await);
    }
    let [later, oldest, young, never, never_too, archived, unloaded] = coupons[..] else {
        panic!("{coupons:?}")
    };
    for (coupon, minutes) in [(later, 70), (oldest, 130), (young, 10), (archived, 900)] {
        read_before(&app, coupon, minutes).await;
    }
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {archived};
         UPDATE flash_sales SET loaded_at = NULL, load_id = NULL WHERE coupon_id = {unloaded};
         UPDATE sale_reading_audit SET next_at = now() + interval '30 min'"
    ))
    .await;
    assert_eq!(
        app.app.reconciler.audit_next().bounded().await.expect("both stores answer"),
        None,
        "it rests"
    );
    for expected in [Some(never), Some(never_too), Some(oldest), Some(later), None] {
        let began = app.number("SELECT extract(epoch FROM clock_timestamp())::bigint").await;
        assert_eq!(next(&app).await, expected);
        let rests = format!(
            "SELECT count(*) FROM sale_reading_audit WHERE extract(epoch FROM next_at) >= {began}"
        );
        assert_eq!(app.number(&rests).await, 1, "it rests for a second at least");
    }
    let young_reading =
        "SELECT count(*) FROM sale_readings WHERE read_at < now() - interval '9 min'";
    assert_eq!(app.number(young_reading).await, 1, "the others were read just now");
    let idle = "SELECT count(*) FROM sale_reading_audit WHERE next_at > now() + interval '5 s'";
    assert_eq!(app.number(idle).await, 1, "without a sale it rests for a minute");
    app.expect_disagreements();
}

#[tokio::test]
async fn next_of_audit_is_one_row_of_all_sales_that_are_due() {
    let app = TestApp::start().await;
    let coupons = [sale(&app, 1).await, sale(&app, 2).await, sale(&app, 3).await];
    let lines = Lines::down_to(tracing::Level::DEBUG);
    assert_eq!(next(&app).await, Some(coupons[0]));
    let rows = rows_returned(&lines, "FROM sale_reading_audit CROSS JOIN flash_sales");
    assert_eq!(rows, [1]);
}

/// So the audit takes a twentieth of the time at most, and no less.
#[tokio::test]
async fn audit_rests_for_twenty_times_the_time_of_a_reading() {
    let app = TestApp::start().await;
    let coupon = sale(&app, 1).await;
    let locked = app.holding("LOCK TABLE coupons IN ACCESS EXCLUSIVE MODE").await;
    let rests_from = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let (began, before) = (Instant::now(), app.number(rests_from).await);
    let reads = async {
        app.a_session_waits_for_a_row().await;
        // Should the process die of the sale, the next one leaves it alone.
        let rests =
            "SELECT count(*) FROM sale_reading_audit WHERE next_at > now() + interval '5 min'";
        assert_eq!(app.number(rests).await, 1);
        // Less than a silence that would cost the turn.
        later(Duration::from_secs(15)).await;
        locked.rollback().await.expect("Postgres answers");
    };
    let both = async { tokio::join!(app.app.reconciler.audit_next().bounded(), reads) };
    let (read, ()) = both.bounded().await;
    assert_eq!(read.expect("both stores answer"), Some(coupon));
    let most = i64::try_from((20 * began.elapsed()).as_millis()).expect("some minutes");
    let until = "SELECT (extract(epoch FROM next_at) * 1000)::bigint FROM sale_reading_audit";
    let (until, after) = (app.number(until).await, app.number(rests_from).await);
    assert!(until >= before + 20 * 15_000, "{until} {before}");
    assert!(until <= after + most, "{until} {after} {most}");
}

/// A comparison by the command line has ended when it is told, so the next one need not wait for it.
#[tokio::test]
async fn compare_ends_its_turn() {
    let app = TestApp::start().await;
    let coupon = sale(&app, 1).await;
    for _ in 0..3 {
        app.execute("DELETE FROM sale_readings").await;
        let compared = app.app.reconciler.compare().bounded().await.expect("both stores answer");
        assert!(compared.is_some_and(|report| report.agrees()));
        assert_eq!(next(&app).await, Some(coupon), "the turn is free at once");
    }
}

async fn compare(app: &TestApp, unchecked: &[CouponId]) -> Report {
    let Stores { pool, redis, keys } = &app.app.stores;
    let lanes: Vec<_> = unchecked.iter().map(|coupon| coupon.lane()).collect();
    let compared = reconcile::check_as(Kind::Changed, &lanes, pool, redis, keys).bounded().await;
    compared.expect("both stores answer")
}

#[tokio::test]
async fn sales_of_unchecked_lanes_are_read_though_they_have_not_changed() {
    let app = TestApp::with_lanes(2).await;
    let mut coupons = Vec::new();
    for user in 1..=4 {
        coupons.push(sale(&app, user).await);
    }
    coupons.sort();
    // The record of a comparison keeps its readings.
    app.app.reconciler.pass(Duration::from_secs(60)).bounded().await.expect("both stores answer");
    let report = compare(&app, &[]).await;
    assert_eq!((report.unchanged, report.waiting, report.readings.len()), (4, 0, 0));
    let told: Vec<_> = report.sales.iter().map(|sale| sale.coupon).collect();
    assert_eq!(told, coupons, "in the order of their ids");
    assert!(
        report.sales.iter().all(|sale| sale.identical && sale.live_orders == 1 && sale.buyers == 1)
    );
    let lane = coupons[0].lane();
    let report = compare(&app, &coupons[..1]).await;
    let read: Vec<_> = report.readings.iter().map(|reading| reading.coupon).collect();
    let mut of_lane: Vec<_> =
        coupons.iter().copied().filter(|coupon| coupon.lane() == lane).collect();
    of_lane.sort();
    let mut read_sorted = read.clone();
    read_sorted.sort();
    assert_eq!((read_sorted, report.unchanged), (of_lane.clone(), 4 - of_lane.len()));
    assert!(report.readings.iter().all(|reading| reading.is_good && reading.codes.is_empty()));
}

#[tokio::test]
async fn readings_of_sales_that_redis_need_not_hold_are_forgotten() {
    let app = TestApp::start().await;
    let (held, archived, unloaded) =
        (sale(&app, 1).await, sale(&app, 2).await, sale(&app, 3).await);
    for coupon in [held, archived, unloaded] {
        read_before(&app, coupon, 200).await;
    }
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {archived};
         UPDATE flash_sales SET loaded_at = NULL, load_id = NULL WHERE coupon_id = {unloaded}"
    ))
    .await;
    assert_eq!(next(&app).await, Some(held));
    let left = "SELECT string_agg(coupon_id || ' ' || is_good || ' ' || (in_redis <> '') || ' ' || (in_postgres <> ''), ',') FROM sale_readings";
    let left: String =
        sqlx::query_scalar(left).fetch_one(&app.app.stores.pool).await.expect("Postgres answers");
    assert_eq!(left, format!("{held} true true true"));
    let again = "SELECT count(*) FROM sale_readings WHERE read_at > now() - interval '100 min'";
    assert_eq!(app.number(again).await, 1);
    app.expect_disagreements();
}
