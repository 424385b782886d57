//! `receipts::table`: processes that live, and their promises in Postgres, row by row.

use std::time::Duration;

use flash_sale::sale::ids::{CouponId, Lane, OrderId};
use flash_sale::sale::receipts::book::Receipt;
use flash_sale::sale::receipts::table;
use sqlx::AssertSqlSafe;

use crate::support::{Bounded, TestApp, user};

async fn lines(app: &TestApp, query: &str) -> Vec<String> {
    let lines = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    lines.fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

/// An app without signs of life of its own.
async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.execute("DELETE FROM processes").await;
    app
}

/// An app of two lanes, both under this epoch, and these processes.
async fn app_with(epoch: i64, processes: &[&str]) -> TestApp {
    let app = TestApp::with_lanes(2).await;
    app.execute(&format!("DELETE FROM processes; UPDATE lanes SET epoch = {epoch}")).await;
    for process in processes {
        table::live(&app.app.stores.pool, process).await.expect("Postgres answers");
    }
    app
}

#[tokio::test]
async fn missing_are_processes_that_live_and_have_not_handed_in() {
    let app = app_with(5, &["late", "done", "dead"]).await;
    let pool = &app.app.stores.pool;
    app.execute("UPDATE processes SET beat_at = now() - interval '2 hours' WHERE process = 'dead'")
        .await;
    let (first, second) = (Lane::numbered(0), Lane::numbered(1));
    let noted = table::complete(pool, "done", first, (5, 0)).await;
    assert!(noted.expect("Postgres answers"));
    for (lane, epoch, expected) in
        [(first, 5, &["late"][..]), (first, 6, &["done", "late"]), (second, 5, &["done", "late"])]
    {
        let missing = table::missing(pool, lane, epoch, Duration::from_secs(3_600)).await;
        assert_eq!(missing.expect("Postgres answers"), expected, "{lane:?} {epoch}");
    }
    let long = table::missing(pool, first, 6, Duration::from_secs(3 * 3_600)).await;
    assert_eq!(long.expect("Postgres answers"), ["dead", "done", "late"]);
    table::leave(pool, "late").await.expect("Postgres answers");
    let processes = "SELECT process FROM processes ORDER BY 1";
    assert_eq!(lines(&app, processes).await, ["dead", "done"]);
}

/// In a Postgres that went back, a note of a higher epoch would count for a recovery that reaches that epoch again.
#[tokio::test]
async fn a_hand_in_is_noted_under_the_epoch_of_postgres_alone() {
    let app = app_with(5, &["a", "b"]).await;
    let pool = &app.app.stores.pool;
    let lane = Lane::numbered(0);
    for (process, epoch, dropped, is_noted) in
        [("a", 4, 1, false), ("a", 5, 2, true), ("a", 6, 3, false), ("b", 5, 40, true)]
    {
        let noted = table::complete(pool, process, lane, (epoch, dropped)).await;
        assert_eq!(noted.expect("Postgres answers"), is_noted, "{process} {epoch}");
    }
    for (epoch, expected) in [(5, 42), (6, 0)] {
        let dropped = table::dropped(pool, lane, epoch).await;
        assert_eq!(dropped.expect("Postgres answers"), expected, "{epoch}");
    }
}

#[tokio::test]
async fn receipts_are_added_once_and_settled_by_their_orders() {
    let app = app().await;
    let pool = &app.app.stores.pool;
    let (even, odd) = (CouponId::compose(2, 2), CouponId::compose(3, 2));
    let receipt = |coupon, id: i64, order| Receipt {
        coupon,
        user: user(id),
        order: OrderId::new(order).expect("an id"),
    };
    let coupon = app.create_regular().await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES (4, {coupon}, 'regular', 4, now())"
    ))
    .await;
    let all = [receipt(even, 2, 9), receipt(even, 1, 8), receipt(odd, 1, 7), receipt(even, 4, 4)];
    for _ in 0..2 {
        table::add(pool, &all).await.expect("Postgres answers");
    }
    let rows =
        "SELECT concat_ws(' ', order_id, coupon_id, user_id) FROM receipts ORDER BY order_id";
    let expected = [format!("7 {odd} 1"), format!("8 {even} 1"), format!("9 {even} 2")];
    assert_eq!(lines(&app, rows).await, expected, "what is a row needs none");
    let mut lanes = table::lanes(pool).await.expect("Postgres answers");
    lanes.sort();
    assert_eq!(lanes, [Lane::numbered(0), Lane::numbered(1)]);
    let open =
        async |lane: i32| table::open(pool, Lane::numbered(lane)).await.expect("Postgres answers");
    assert_eq!(open(0).await, [all[1], all[0]], "in the order of their ids");
    assert_eq!(open(1).await, [all[2]]);
    assert_eq!(open(2).await, []);
    table::settle(pool, &all[1..3]).await.expect("Postgres answers");
    assert_eq!(lines(&app, rows).await, expected[2..]);
    assert_eq!(table::lanes(pool).await.expect("Postgres answers"), [Lane::numbered(0)]);
    app.execute("DELETE FROM receipts").await;
}

#[tokio::test]
async fn forget_dead_forgets_processes_that_were_silent_for_a_day() {
    let app = app().await;
    let pool = &app.app.stores.pool;
    app.execute(
        "INSERT INTO processes (process, beat_at)
         SELECT n::text, now() - n * interval '1 hour' FROM unnest('{0, 23, 25}'::integer[]) AS n",
    )
    .await;
    let noted = table::complete(pool, "25", Lane::numbered(0), (1, 0)).await;
    assert!(noted.expect("Postgres answers"));
    table::forget_dead(pool).await.expect("Postgres answers");
    assert_eq!(lines(&app, "SELECT process FROM processes ORDER BY 1").await, ["0", "23"]);
    assert_eq!(app.number("SELECT count(*) FROM receipt_hand_ins").await, 0);
}

/// A lane that is open needs no receipts: the workers write what is in its log.
#[tokio::test]
async fn hand_in_waits_until_a_lane_has_another_epoch() {
    let app = app().await;
    let coupon = app.create_flash(5).await;
    app.app.receipts_pass().bounded().await;
    let order = app.claim(1, coupon).await.order_id();
    for _ in 0..2 {
        app.app.receipts_pass().bounded().await;
        assert_eq!(lines(&app, "SELECT order_id::text FROM receipts").await, [""; 0]);
    }
    app.execute(
        "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1",
    )
    .await;
    app.app.lanes.read_now().await.expect("Postgres answers");
    app.app.receipts_pass().bounded().await;
    assert_eq!(lines(&app, "SELECT order_id::text FROM receipts").await, [order.to_string()]);
    let epochs = "SELECT (lanes.epoch = receipt_hand_ins.epoch)::text FROM lanes JOIN receipt_hand_ins USING (lane)";
    assert_eq!(lines(&app, epochs).await, ["true"]);
    app.recover().await;
    assert_eq!(lines(&app, "SELECT order_id::text FROM receipts").await, [""; 0]);
    assert_eq!(app.status(1, order).await, "unpaid");
}
