//! Running counts of orders: the same as a count of all rows, for writers of each kind, and corrected where they aren't.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use flash_sale::kit::postgres;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::counts::{self, OrderCounts};
use futures_util::future::join_all;
use serde_json::json;

use crate::support::process::{flash_sale, run};
use crate::support::{Bounded, TestApp, bounded, eventually};

/// Orders by status, each row counted.
async fn rows(app: &TestApp, coupon: CouponId) -> BTreeMap<String, i64> {
    let query = "SELECT status, count(*) FROM orders WHERE coupon_id = $1 GROUP BY status";
    let rows: Vec<(String, i64)> = sqlx::query_as(query)
        .bind(coupon.get())
        .fetch_all(&app.app.stores.pool)
        .await
        .expect("Postgres answers");
    rows.into_iter().collect()
}

async fn counted(app: &TestApp, coupon: CouponId) -> BTreeMap<String, i64> {
    counts::of_coupon(&app.app.stores.pool, coupon).await.expect("Postgres answers")
}

async fn add_up(app: &TestApp) {
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
}

/// Counts the orders of the next coupon, now.
async fn audit(app: &TestApp) -> Option<CouponId> {
    app.execute("UPDATE order_count_audit SET next_at = now()").await;
    app.app.order_counts.audit_next().bounded().await.expect("Postgres answers")
}

fn of(counts: &[(&str, i64)]) -> BTreeMap<String, i64> {
    counts.iter().map(|&(status, orders)| (status.to_owned(), orders)).collect()
}

#[tokio::test]
async fn each_move_of_an_order_is_counted_in_its_own_transaction() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let other = app.create_regular().await;
    app.claim(1, other).await;
    for user in 1..=5 {
        app.order(user, coupon).await;
    }
    assert_eq!(counted(&app, coupon).await, of(&[("unpaid", 5)]));
    let paid = app.paid_order(6, coupon).await;
    app.redeem(paid).await;
    let refunded = app.paid_order(7, coupon).await;
    app.act(7, refunded, "refund").await;
    assert_eq!(
        counted(&app, coupon).await,
        of(&[("redeemed", 1), ("refunding", 1), ("unpaid", 5)])
    );
    add_up(&app).await;
    app.refund_payments().await;
    app.let_time_pass().await;
    app.expire().await;
    let all = of(&[("expired", 5), ("redeemed", 1), ("refunded", 1)]);
    assert_eq!((counted(&app, coupon).await, rows(&app, coupon).await), (all.clone(), all));
    let lane = coupon.lane().get();
    let everything = counts::all(&app.app.stores.pool).await.expect("Postgres answers");
    assert_eq!(
        everything.of_lane,
        [(lane, 7)].into(),
        "the order of the regular coupon is in no log"
    );
    // That order had expired, too.
    assert_eq!(everything.of_status, of(&[("expired", 6), ("redeemed", 1), ("refunded", 1)]));
    assert_eq!(app.reconcile().await.orders, everything.of_status);
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_counts_nothing() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    app.order(1, coupon).await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    sqlx::query("UPDATE orders SET status = 'expired', expired_at = now(), updated_at = now()")
        .execute(&mut *tx)
        .await
        .expect("Postgres does it");
    tx.rollback().await.expect("Postgres answers");
    assert_eq!(counted(&app, coupon).await, of(&[("unpaid", 1)]));
}

/// As an older version, a person or a restored backup writes.
#[tokio::test]
async fn statements_of_others_are_counted_too() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT n, {coupon}, 'flash', n, now() FROM generate_series(1, 100) AS n"
    ))
    .await;
    app.execute("UPDATE orders SET status = 'expired', expired_at = now() WHERE id > 10").await;
    app.execute("UPDATE orders SET updated_at = now()").await;
    app.execute("DELETE FROM orders WHERE id % 10 = 0").await;
    app.execute("INSERT INTO orders SELECT * FROM orders WHERE id = 1 ON CONFLICT DO NOTHING")
        .await;
    let expected = of(&[("expired", 81), ("unpaid", 9)]);
    assert_eq!(
        (counted(&app, coupon).await, rows(&app, coupon).await),
        (expected.clone(), expected)
    );
    let changes = "SELECT count(*) FROM order_count_changes";
    assert_eq!(app.number(changes).await, 5, "a change that moves no order is none");
    add_up(&app).await;
    assert_eq!(app.number(changes).await, 0);
    assert_eq!(counted(&app, coupon).await, of(&[("expired", 81), ("unpaid", 9)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_add_up_at_one_moment_lose_nothing_beside_writers() {
    let app = TestApp::configured(&["--database-connections", "12"]).await;
    app.expect_disagreements();
    let coupons = [app.create_flash(1_000).await, app.create_flash(1_000).await];
    let others = [app.another_instance().await, app.another_instance().await];
    let is_written = AtomicBool::new(false);
    let writers = (0..4).map(async |writer| {
        for n in 1..=50 {
            let coupon = coupons[n % 2];
            let user = 1_000 * writer + n;
            app.execute(&format!(
                "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
                 VALUES ({user} + 1, {coupon}, 'flash', {user} + 1, now());
                 UPDATE orders SET status = 'expired', expired_at = now() WHERE id = {user} + 1 AND id % 3 = 0"
            ))
            .await;
        }
    });
    let writing = async {
        join_all(writers).await;
        is_written.store(true, Ordering::SeqCst);
    };
    let adding = others.iter().map(async |other| {
        while !is_written.load(Ordering::SeqCst) {
            other
                .order_counts
                .pass()
                .bounded()
                .await
                .expect("no process waits for another in a circle");
        }
    });
    // Each look is at one moment, in which an order is in one of the two tables.
    let looking = async {
        while !is_written.load(Ordering::SeqCst) {
            let query = "SELECT (SELECT count(*) FROM orders) - (SELECT sum(orders) FROM
                             (SELECT orders FROM order_counts UNION ALL SELECT orders FROM order_count_changes) AS all_)::bigint";
            let differ: Option<i64> = sqlx::query_scalar(query)
                .fetch_one(&app.app.stores.pool)
                .await
                .expect("it answers");
            assert_eq!(differ.unwrap_or(0), 0);
        }
    };
    let all = async { tokio::join!(writing, join_all(adding), looking) };
    bounded("all is written", all).await;
    for coupon in coupons {
        assert_eq!(counted(&app, coupon).await, rows(&app, coupon).await);
    }
    add_up(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM order_count_changes").await, 0);
    for coupon in coupons {
        assert_eq!(counted(&app, coupon).await, rows(&app, coupon).await);
    }
}

#[tokio::test]
async fn the_audit_corrects_counts_coupon_by_coupon_and_goes_on_where_it_was() {
    let app = TestApp::start().await;
    let coupons = [app.create_flash(9).await, app.create_flash(9).await, app.create_flash(9).await];
    for coupon in coupons {
        app.order(1, coupon).await;
    }
    add_up(&app).await;
    // Rows are brought back by hand, with triggers off.
    app.execute("UPDATE order_counts SET orders = orders + 2").await;
    app.execute("UPDATE order_count_audit SET after_coupon_id = 0").await;
    assert_eq!(audit(&app).await, Some(coupons[0]));
    assert_eq!(counted(&app, coupons[0]).await, of(&[("unpaid", 1)]));
    assert_eq!(counted(&app, coupons[1]).await, of(&[("unpaid", 3)]), "its turn comes");
    // Not due: another process has just counted, or died in it.
    let none = app.app.order_counts.audit_next().bounded().await.expect("Postgres answers");
    assert_eq!(none, None);

    let another = app.another_instance().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        app.execute("UPDATE order_count_audit SET next_at = now()").await;
        let next: &OrderCounts = &another.order_counts;
        seen.extend(next.audit_next().bounded().await.expect("Postgres answers"));
    }
    assert_eq!(seen, coupons[1..], "it goes on behind the last coupon");
    for coupon in coupons {
        assert_eq!(counted(&app, coupon).await, of(&[("unpaid", 1)]));
    }
    assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, 3);
    assert_eq!(audit(&app).await, None, "the round is over");
    assert_eq!(audit(&app).await, Some(coupons[0]), "and the next one begins");
    assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, 3);
}

#[tokio::test]
async fn a_correction_is_found_with_its_coupon_in_the_history_of_postponed_items() {
    let app = TestApp::start().await;
    let [right, wrong] = [app.create_flash(9).await, app.create_flash(9).await];
    app.order(1, right).await;
    app.order(2, wrong).await;
    add_up(&app).await;
    app.execute(&format!(
        "UPDATE order_counts SET orders = orders + 2 WHERE coupon_id = {wrong};
         INSERT INTO order_counts VALUES ({wrong}, 'paid', -1)"
    ))
    .await;
    app.execute("UPDATE order_count_audit SET after_coupon_id = 0").await;
    assert_eq!((audit(&app).await, audit(&app).await), (Some(right), Some(wrong)));
    // The next round finds them right.
    assert_eq!((audit(&app).await, audit(&app).await), (None, Some(right)));
    assert_eq!(audit(&app).await, Some(wrong));

    let path = "/v1/postponed?settled=true&pass=order_counts";
    let reply = app.get(path, &app.admin_token()).await;
    let kept = reply.body["postponed"].as_array().expect("a list");
    assert_eq!(kept.len(), 1, "{reply:?}");
    let (item, of) = (&kept[0], wrong.to_string());
    assert_eq!((&item["item_kind"], &item["item"]), (&json!("coupon"), &json!(of)));
    let correction =
        "the running counts of orders were wrong, and are corrected: paid: +1, unpaid: -2";
    assert_eq!(item["error"], correction);
    assert!(item["settled_at"].is_string() && item["next_try_at"].is_null(), "{item}");
    let advice = item["what_to_do"].as_str().expect("a text");
    assert!(advice.contains(&format!("`flash-sale coupon show {of}`")), "{advice}");
    assert_eq!(app.postponed().await.len(), 0, "nothing waits");
}

#[tokio::test]
async fn the_audit_finds_rows_and_counts_without_each_other() {
    let app = TestApp::start().await;
    let coupons = [app.create_flash(9).await, app.create_flash(9).await];
    app.order(1, coupons[0]).await;
    app.execute("DELETE FROM order_count_changes").await;
    app.execute(&format!("INSERT INTO order_counts VALUES ({}, 'paid', 4)", coupons[1])).await;
    assert_eq!((audit(&app).await, audit(&app).await), (Some(coupons[0]), Some(coupons[1])));
    assert_eq!(counted(&app, coupons[0]).await, of(&[("unpaid", 1)]));
    assert_eq!(counted(&app, coupons[1]).await, of(&[]));
}

/// A database with orders is migrated while older processes write.
#[tokio::test]
async fn orders_of_before_the_triggers_are_counted_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let [older, later] = [app.order(1, coupon).await, app.order(2, coupon).await];
    app.execute("DELETE FROM order_count_changes; DELETE FROM order_counts").await;
    // Between the two migrations, older orders move on.
    assert_eq!(app.pay(1, older).await.status, 200);
    app.order(3, coupon).await;
    app.execute("DROP INDEX dead_letters_open_of_coupon").await;
    for name in ["0029_older_orders_counted", "0038_older_orders_digested"] {
        app.execute(&migration(name)).await;
    }
    assert_eq!(counted(&app, coupon).await, of(&[("paid", 1), ("unpaid", 2)]));
    assert_eq!(app.cancel(2, later).await.status, 200);
    assert_eq!(counted(&app, coupon).await, rows(&app, coupon).await);
}

fn migration(name: &str) -> String {
    let path = format!("{}/migrations/{name}.sql", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).expect("it is there")
}

/// A statement that had called the older triggers may note a change without a digest after older orders were digested.
#[tokio::test]
async fn a_change_that_older_triggers_note_late_is_digested() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    app.order(1, coupon).await;
    let late = app.holding("UPDATE order_count_changes SET digest = 0").await;
    let sleeps = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let (name, digests) = ("0056_late_orders_digested", "SELECT count(*) FROM order_count_changes");
    let migration = migration(name);
    let ((), ()) = tokio::join!(app.execute(&migration), async {
        eventually("the migration waits", async || app.number(sleeps).await == 1).await;
        assert_eq!(app.number(digests).await, 1);
        late.commit().await.expect("Postgres answers");
    });
    assert_eq!(app.number(digests).await, 2);
    assert_eq!(audit(&app).await, Some(coupon));
    assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, 0);
}
