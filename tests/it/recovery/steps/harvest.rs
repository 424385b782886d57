//! `harvest`: buyers that only Redis knows become orders, unless a row, a letter or a newer order speaks against it.

use super::{
    BY_HAND, close_lanes, damage, fate, no_process_keeps, outcomes, sold_to_two, write_letter,
};
use crate::faults::recovery::{keep, sell};
use crate::support::lines::Lines;
use crate::support::played::{Play, Played, list, text};
use crate::support::{Bounded, TestApp};

#[tokio::test]
async fn harvest_makes_orders_of_buyers_that_no_row_letter_or_newer_order_knows() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    app.expect_disagreements();
    let sales = sold_to_two::<4>(&app).await;
    let [only_redis, superseded, letters, unreadable] = sales;
    let full = app.create_flash(3).await;
    sell(&app, full, 1..=2).await;
    let cancelled = app.order(3, superseded).await;
    assert_eq!(app.cancel(3, cancelled).await.status, 200);
    let before = app.order(4, only_redis).await;
    assert_eq!(app.cancel(4, before).await.status, 200);
    app.give_back().await;
    keep(&app).await;
    // The later claim is the first one that Redis tells.
    for (coupon, user, order) in [
        // The user has cancelled an older order.
        (only_redis, 4, BY_HAND + 4),
        (only_redis, 5, BY_HAND + 5),
        (only_redis, 6, BY_HAND + 6),
        (superseded, 3, 77),
        (superseded, 1, 78),
        (letters, 7, BY_HAND + 7),
        (letters, 8, BY_HAND + 8),
        (unreadable, 9, BY_HAND + 9),
        (full, 5, BY_HAND + 60),
        (full, 6, BY_HAND + 50),
    ] {
        app.set_buyer(coupon, user, order).await;
    }
    write_letter(&app, letters, (7, BY_HAND + 7), ("", "")).await;
    write_letter(&app, letters, (8, BY_HAND + 8), (", resolved_at", ", now()")).await;
    let junk = app.shard_of(unreadable, 9).await;
    let _: i64 = app.redis(&["HSET", &junk, "no id", "x"]).await;
    for coupon in sales.into_iter().chain([full]) {
        damage(&app, coupon).await;
    }
    close_lanes(&app).await;
    keep(&app).await;

    for (what, coupon, expected) in [
        ("claims of Redis alone", only_redis, "built 4 [1, 2, 4, 5, 6]"),
        ("newer orders", superseded, "built 7 [1, 2]"),
        ("an open letter and a closed one", letters, "built 6 [1, 2, 7]"),
        ("a buyer that can't be read", unreadable, "built 7 [1, 2]"),
        ("one unit for two", full, "built 0 [1, 2, 6]"),
    ] {
        assert_eq!(fate(&app, coupon).await, expected, "{what}");
    }
    let orders = format!(
        "SELECT concat_ws(' ', coupon_id, user_id, id - {BY_HAND}, status) FROM orders WHERE id >= {BY_HAND} ORDER BY 1"
    );
    let mut expected = vec![
        format!("{only_redis} 4 4 unpaid"),
        format!("{only_redis} 5 5 unpaid"),
        format!("{only_redis} 6 6 unpaid"),
        format!("{full} 6 50 unpaid"),
    ];
    expected.sort();
    assert_eq!(app.texts(&orders).await, expected);
    assert_eq!(outcomes(&app, "sales_built, buyers, harvested, receipts").await, ["5 15 4 0"]);
    let lost = "SELECT concat_ws(' ', one->>'user_id', one->>'reason')
                FROM recoveries, jsonb_array_elements(lost) AS one ORDER BY 1";
    assert_eq!(app.texts(lost).await, ["1 superseded", "3 superseded", "5 promised_without_unit"]);
    let oversold = format!("SELECT reason FROM dead_letters WHERE order_id = {BY_HAND} + 60");
    assert_eq!(app.texts(&oversold).await, ["oversold"]);
}

/// Postgres takes the claim as no order, and at first no letter at all, which is not its fault. Redis may tell a
/// buyer twice.
#[tokio::test]
async fn harvest_makes_one_letter_of_a_claim_that_postgres_refuses_as_soon_as_letters_are_written()
{
    const ALARM: &str = "ALARM: a claim that only Redis or its process knew can't become an order";
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [sale] = sold_to_two::<1>(&app).await;
    let order = BY_HAND + 9;
    let shard = app.shard_of(sale, 9).await;
    let buyers = list(&["9", &order.to_string(), "9", &order.to_string()]);
    let played = Played::before(app.redis_url(), move |command| match command {
        [name, key, ..] if name == "HSCAN" && *key == shard => {
            Play::Reply(format!("*2\r\n{}{buyers}", text("0")))
        }
        _ => Play::Real,
    })
    .await;
    let other = played.process(&app).await;
    damage(&app, sale).await;
    close_lanes(&app).await;
    app.refuse("INSERT", "orders", "NEW.user_id = 9", "23514").await;
    app.refuse("INSERT", "dead_letters", "true", "40001").await;
    no_process_keeps(&app).await;
    let lines = Lines::heard();
    assert!(other.keeper.pass().bounded().await.is_err());
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);

    app.accept("dead_letters").await;
    other.keeper.pass().bounded().await.expect("both stores answer");
    app.accept("orders").await;
    assert_eq!(fate(&app, sale).await, "built 6 [1, 2, 9]");
    assert_eq!(app.numbers("SELECT order_id FROM dead_letters").await, [order]);
    assert_eq!(outcomes(&app, "harvested, jsonb_array_length(lost)").await, ["0 0"]);
    assert_eq!(lines.count(ALARM), 1);
}
