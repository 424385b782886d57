//! `counted` and `trace`: the claims of one day, and the row of one traced claim.

use chrono::{DateTime, Days, NaiveTime, Utc};
use flash_sale::base::clock::Clock;
use flash_sale::kit::id;
use serde_json::{Value, json};

use crate::support::{TestApp, now, shared};

/// Ids of the last moment before the day, of its first, of its last, and of the first one behind it. A letter has become an
/// order since.
#[tokio::test]
async fn count_of_a_day_has_its_first_and_its_last_moment() {
    let clock = Clock::manual(now());
    let app = TestApp::on(shared(), &[], clock.clone()).await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    let today = clock.now().date_naive();
    let first = id::first_at(today.and_time(NaiveTime::MIN).and_utc());
    let last = id::first_at((today + Days::new(1)).and_time(NaiveTime::MIN).and_utc()) - 1;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT id, {coupon}, 'regular', id, now() FROM unnest(ARRAY[{first} - 1, {first}, {last}, {last} + 1]) AS id;
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         VALUES (0, '1-1', '{{}}', 'conflict', '', {coupon}, 9, {first})"
    ))
    .await;
    let told = async |days_ago: u64| -> Value {
        let day = today - Days::new(days_ago);
        app.get(&format!("/v1/statistics/days/{day}"), &app.admin_token()).await.body
    };
    let (present, before) = (told(0).await, told(1).await);
    assert_eq!((&present["orders"], &present["dead_letters"]), (&json!({"unpaid": 2}), &json!(0)));
    assert_eq!((&before["orders"], &before["dead_letters"]), (&json!({"unpaid": 1}), &json!(0)));
    // The same of dead letters.
    app.execute(&format!(
        "DELETE FROM orders; DELETE FROM dead_letters;
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         SELECT 0, id || '-1', '{{}}', 'conflict', '', {coupon}, 9, id
         FROM unnest(ARRAY[{first} - 1, {first}, {last}, {last} + 1]) AS id"
    ))
    .await;
    let (present, before) = (told(0).await, told(1).await);
    assert_eq!((&present["orders"], &present["dead_letters"]), (&json!({}), &json!(2)));
    assert_eq!((&before["orders"], &before["dead_letters"]), (&json!({}), &json!(1)));
}

#[tokio::test]
async fn count_is_whole_unless_an_order_of_the_day_may_have_moved_without_its_month() {
    let app = TestApp::start().await;
    let begin: DateTime<Utc> = "2024-02-15T00:00:00Z".parse().expect("a time");
    let (day, first) = (begin.date_naive(), id::first_at(begin));
    let is_whole = async |moved_to: i64| {
        app.execute(&format!("UPDATE settings SET orders_moved_to = {moved_to}")).await;
        let path = format!("/v1/statistics/days/{day}");
        app.get(&path, &app.admin_token()).await.body["is_whole"].clone()
    };
    for (moved_to, expected) in [(0, true), (first - 1, true), (first, false), (first + 1, false)] {
        assert_eq!(is_whole(moved_to).await, expected, "{}", moved_to - first);
    }
    // Its month is there.
    let (begin, end) = (first - (1 << 40), first + (1 << 40));
    app.execute(&format!(
        "CREATE TABLE order_history_202402 PARTITION OF order_history FOR VALUES FROM ({begin}) TO ({end})"
    ))
    .await;
    assert_eq!(is_whole(first).await, true);
    app.execute("UPDATE settings SET orders_moved_to = 0").await;
}

#[tokio::test]
async fn row_of_a_traced_claim_is_that_of_its_order() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut orders = Vec::new();
    for user in 1..=3 {
        orders.push(app.claim_traced(user, coupon, "1").await.order_id());
        app.write_orders().await;
    }
    let waits = app.claim_traced(4, coupon, "1").await.order_id();
    app.execute("UPDATE orders SET created_at = '2026-03-01T00:00:00Z'::timestamptz + user_id * interval '1 s'")
        .await;
    let trace = async |user: i64, order: i64| {
        app.get(&format!("/v1/orders/{order}/trace"), &app.token(user)).await.body
    };
    for (user, order) in (1..).zip(orders) {
        let told = trace(user, order).await;
        let written = told["written_at"].as_str().expect("it is a row").to_owned();
        assert!(written.starts_with(&format!("2026-03-01T00:00:0{user}")), "{told}");
    }
    assert_eq!(trace(4, waits).await["written_at"], Value::Null);
    app.write_orders().await;
}
