//! `lane`: logs of lanes that differ in one fact are compared at once.

// Logs that Redis doesn't tell of.
mod refused;

use flash_sale::sale::Stores;
use flash_sale::sale::ids::{CouponId, Lane};
use flash_sale::sale::reconcile::{self, Report};

use crate::support::played::Played;
use crate::support::{Bounded, TestApp, patience};

/// Appends an entry with the order of one made-up user for each number from `first` on.
async fn append(app: &TestApp, coupon: CouponId, first: i64, claims: i64) {
    let claims: Vec<String> =
        (first..first + claims).map(|n| format!("{} {}", 1_000 + n, 5_000 + n)).collect();
    let fields = ["coupon", &coupon.to_string(), "revision", "1", "epoch", "1", "first"];
    let rest = [&first.to_string(), "claims", &claims.join(" ")];
    let log = app.log(coupon.lane());
    let _: String = app.redis(&[&["XADD", &log, "*"], &fields[..], &rest].concat()).await;
}

/// The lane has promised and written so many orders.
async fn count(app: &TestApp, lane: Lane, promised: &str, written: &str) {
    let key = app.keys().lane(lane);
    let _: i64 = app.redis(&["HSET", &key, "promised", promised, "written", written]).await;
}

/// Hands all entries of a log out to a worker, and returns their ids.
async fn deliver(app: &TestApp, lane: Lane) -> Vec<String> {
    let log = app.log(lane);
    let words = ["XREADGROUP", "GROUP", "order-writers", "w", "STREAMS", &log, ">"];
    let _: redis::Value = app.redis(&words).await;
    let pending: Vec<(String, String, u64, u64)> =
        app.redis(&["XPENDING", &log, "order-writers", "-", "+", "1000"]).await;
    pending.into_iter().map(|(id, ..)| id).collect()
}

/// An app with a sale in each of so many lanes, by lane, and the group of each log.
async fn with_lanes(lanes: i32) -> (TestApp, Vec<CouponId>) {
    let app = TestApp::with_lanes(lanes).await;
    app.expect_disagreements();
    let mut sales = Vec::new();
    for _ in 0..lanes {
        sales.push(app.create_flash(9).await);
    }
    sales.sort_by_key(|coupon| coupon.lane());
    for worker in &mut app.workers() {
        worker.ensure_group().bounded().await.expect("Redis answers");
    }
    (app, sales)
}

/// Findings about lanes, up to the second sentence.
fn of_lanes(report: &Report) -> Vec<String> {
    let found = report.disagreements.iter().filter(|found| found.coupon().is_none());
    let mut found: Vec<String> = found
        .map(|found| format!("{} {found}", found.code()))
        .map(|line| line.split(". ").next().unwrap_or_default().to_owned())
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn numbers_of_entries_in_flight_have_neither_gap_nor_overlap() {
    let (app, sales) = with_lanes(7).await;
    for (lane, promised, entries) in [
        (1, "3", &[(1, 1), (2, 2)][..]),
        (2, "6", &[(1, 1), (4, 2), (6, 1)]),
        (3, "4", &[(1, 3), (2, 1), (3, 1)]),
        (4, "2", &[(1, 1), (1, 1)]),
        (5, "9", &[(7, 1), (9, 1)]),
    ] {
        for (first, claims) in entries {
            append(&app, sales[lane], *first, *claims).await;
        }
        count(&app, sales[lane].lane(), promised, "0").await;
    }
    // More than one page of entries, and a gap behind the first.
    for first in (1..=150).chain([152]) {
        append(&app, sales[6], first, 1).await;
    }
    count(&app, sales[6].lane(), "152", "0").await;
    let report = app.reconcile().await;
    let missing = |lane, from, to| {
        format!(
            "numbers_missing lane {lane}: the order log lacks the promised orders with the numbers {from} to {to}"
        )
    };
    let repeated = |lane, from, to| {
        format!("numbers_repeated lane {lane}: the order log has the numbers {from} to {to} twice")
    };
    let expected = [
        missing(2, 2, 3),
        missing(5, 8, 8),
        missing(6, 151, 151),
        repeated(3, 2, 3),
        repeated(4, 1, 1),
    ];
    assert_eq!(of_lanes(&report), expected);
    assert_eq!((report.in_flight, report.at_rest), (3 + 6 + 4 + 2 + 9 + 152, false));
}

#[tokio::test]
async fn pending_deleted_are_entries_that_the_log_has_no_more() {
    let (app, sales) = with_lanes(4).await;
    for sale in &sales[..3] {
        for first in 1..=120 {
            append(&app, *sale, first, 1).await;
        }
        count(&app, sale.lane(), "120", "0").await;
    }
    let mut deleted = Vec::new();
    for sale in &sales[1..3] {
        let entries = deliver(&app, sale.lane()).await;
        assert_eq!(entries.len(), 120);
        deleted.push([entries[1].clone(), entries[118].clone()]);
    }
    // One was written and trimmed.
    let log = app.log(sales[1].lane());
    let _: i64 = app.redis(&["XACK", &log, "order-writers", &deleted[0][0]]).await;
    for (lane, entries) in [(1, &deleted[0]), (2, &deleted[1])] {
        for entry in entries {
            let log = app.log(sales[lane].lane());
            assert_eq!(app.redis::<i64>(&["XDEL", &log, entry]).await, 1);
        }
    }
    let report = app.reconcile().await;
    let found = of_lanes(&report);
    let gone: Vec<&String> = found.iter().filter(|line| line.starts_with("pending")).collect();
    let named = |lane, entry| {
        format!(
            "pending_deleted lane {lane}: entry {entry} was deleted from the order log before it was written"
        )
    };
    let mut expected =
        [named(1, &deleted[0][1]), named(2, &deleted[1][0]), named(2, &deleted[1][1])];
    expected.sort();
    assert!(gone.iter().copied().eq(&expected), "{found:#?}");
    // The numbers of what is gone are missing between the others.
    assert_eq!(found.len() - gone.len(), 4, "{found:#?}");
}

#[tokio::test]
async fn acknowledged_orders_are_rows_or_letters_and_a_log_that_cannot_be_read_is_told() {
    let (app, sales) = with_lanes(6).await;
    // Lanes 1 to 4 have acknowledged two orders each.
    for sale in &sales[1..5] {
        for user in 1..=2 {
            assert_eq!(app.claim(user, *sale).await.status, 202);
        }
    }
    app.write_orders().await;
    app.execute(&format!(
        "DELETE FROM orders WHERE user_id = 2 AND coupon_id <> {};
         DELETE FROM orders WHERE coupon_id = {};
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         VALUES (3, '1-1', '{{}}', 'oversold', 'x', {}, 2, 77)",
        sales[1], sales[4], sales[3]
    ))
    .await;
    let log = app.log(sales[5].lane());
    let _: i64 = app.redis(&["DEL", &log]).await;
    let _: String = app.redis(&["SET", &log, "x"]).await;
    let report = app.reconcile().await;
    let short = |lane, accounted| {
        format!(
            "acknowledged_unwritten lane {lane}: 2 orders of the order log were acknowledged, but only {accounted} are rows or dead letters"
        )
    };
    let found = of_lanes(&report);
    assert_eq!(found[..2], [short(2, 1), short(4, 0)]);
    assert!(found[2].starts_with("log_unreadable lane 5: its order log can't be read (Redis: "));
    assert_eq!(found.len(), 3);
    assert_eq!(report.orders.get("unpaid"), Some(&4));
    assert_eq!(report.in_flight, 0);
}

/// Without its group, no entry of the log has been read.
#[tokio::test]
async fn entries_without_a_group_are_in_flight_from_the_first_on() {
    let (app, sales) = with_lanes(2).await;
    for sale in &sales {
        for first in 1..=3 {
            append(&app, *sale, first, 1).await;
        }
        count(&app, sale.lane(), "3", "0").await;
    }
    let log = app.log(sales[1].lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
    let report = app.reconcile().await;
    assert_eq!((of_lanes(&report), report.in_flight), (vec![], 6));
    for user in 1_001..=1_003 {
        app.set_buyer(sales[1], user, 4_000 + user).await;
    }
    let lost = app.reconcile().await.disagreements;
    assert!(!lost.iter().any(|found| found.code() == "order_lost"), "{lost:?}");
}

#[tokio::test]
async fn a_comparison_is_at_rest_without_orders_in_flight() {
    let (app, sales) = with_lanes(2).await;
    assert_eq!(app.claim(1, sales[0]).await.status, 202);
    let report = app.reconcile().await;
    assert_eq!((report.in_flight, report.at_rest), (1, false));
    app.write_orders().await;
    let report = app.reconcile().await;
    assert_eq!((report.in_flight, report.at_rest), (0, true));
    // Given to a worker that has not written it.
    assert_eq!(app.claim(2, sales[0]).await.status, 202);
    assert_eq!(deliver(&app, sales[0].lane()).await.len(), 1);
    let report = app.reconcile().await;
    assert_eq!((report.in_flight, report.at_rest), (1, false));
}

/// A log is asked for its oldest entry once, if a worker has to read on; neither its state nor a list of unpaid orders
/// is a reason to ask for more.
#[tokio::test]
async fn acknowledged_logs_and_orders_that_are_listed_cost_no_look_at_pending_entries() {
    let app = TestApp::configured(&["--unpaid-orders-max", "5"]).await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    let listed: i64 = app.redis(&["HLEN", &app.keys().unpaid(coupon.lane())]).await;
    assert_eq!(listed, 1);
    let played = Played::hearing(app.redis_url(), "XPENDING").await;
    let Stores { pool, keys, .. } = &app.app.stores;
    let log = app.log(coupon.lane());
    for reads_again in [false, true] {
        if reads_again {
            let set: String = app.redis(&["XGROUP", "SETID", &log, "order-writers", "0"]).await;
            assert_eq!(set, "OK");
        }
        let report = reconcile::check(pool, &played.redis(patience()), keys).bounded().await;
        assert!(report.expect("both stores answer").agrees());
        let asked: Vec<String> =
            played.take_asked().into_iter().map(|command| command[1].clone()).collect();
        assert_eq!(asked, vec![log.clone(); usize::from(reads_again)]);
    }
}

/// A log of which the lane has counted all entries as written before they were delivered anew.
#[tokio::test]
async fn numbers_in_flight_are_not_acknowledged() {
    let (app, sales) = with_lanes(1).await;
    append(&app, sales[0], 1, 3).await;
    count(&app, sales[0].lane(), "3", "3").await;
    let report = app.reconcile().await;
    assert_eq!((of_lanes(&report), report.in_flight, report.at_rest), (vec![], 0, false));
}

#[tokio::test]
async fn lanes_with_a_row_for_each_acknowledged_order_are_compared_without_dead_letters() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    app.execute("ALTER TABLE dead_letters RENAME TO aside").await;
    assert!(app.reconcile().await.agrees());
    app.execute("ALTER TABLE aside RENAME TO dead_letters").await;
}
