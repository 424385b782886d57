//! Statistics of a day: claims, orders and sequence by the stores, answers by the process.

use std::time::Duration;

use chrono::{Days, TimeDelta};
use flash_sale::base::clock::Clock;
use flash_sale::kit::id;
use flash_sale::kit::postgres;
use serde_json::{Value, json};

use crate::support::process::{flash_sale, run};
use crate::support::{Bounded, TestApp, now, shared};

/// An app whose day doesn't end in the middle of a test.
async fn app() -> (TestApp, Clock, String) {
    let clock = Clock::manual(now());
    let app = TestApp::on(shared(), &[], clock.clone()).await;
    let day = clock.now().date_naive().to_string();
    (app, clock, day)
}

async fn statistics(app: &TestApp, day: &str) -> Value {
    let reply = app.get(&format!("/v1/statistics/days/{day}"), &app.admin_token()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body
}

#[tokio::test]
async fn a_day_has_its_claims_its_orders_and_a_sequence_above_them() {
    let (app, clock, day) = app().await;
    let coupon = app.create_flash(3).await;
    let order = app.order(1, coupon).await;
    app.paid_order(2, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    assert_eq!(app.claim(3, coupon).await.status, 202);
    assert_eq!(app.claim(2, coupon).await.refusal(), (409, "already_claimed"));
    assert_eq!(app.claim(4, coupon).await.refusal(), (410, "sold_out"));

    let told = statistics(&app, &day).await;
    assert_eq!(told["day"], json!(day));
    // The third claim still waits in the log.
    assert_eq!((&told["claims"], &told["dead_letters"]), (&json!(2), &json!(0)));
    assert_eq!(told["orders"], json!({"cancelled": 1, "paid": 1}));
    let sequence = &told["sequence"];
    // Ten numbers in a block. Refused claims have had numbers, too.
    assert_eq!(sequence["taken"], json!(10));
    assert_eq!(sequence["orders_at_most"], sequence["taken"]);
    assert!(sequence["granted"].as_i64() > sequence["taken"].as_i64(), "{sequence}");
    let answers = &told["process"]["claims"];
    let counted =
        ["accepted", "already_claimed", "sold_out", "sale_paused"].map(|code| &answers[code]);
    assert_eq!(counted, [&json!(3), &json!(1), &json!(1), &json!(0)]);
    assert!(told["process"]["since"].is_string());
    app.app.numbers.pass().bounded().await.expect("both stores answer");
    let page = app.get("/metrics", "").await;
    let page = page.body.as_str().expect("text");
    assert!(page.contains("\nflash_sale_order_numbers_taken 10\n"), "{page}");

    app.write_orders().await;
    let letter = id::first_at(clock.now()) + 7;
    let insert = |entry: &str, order: i64| {
        format!(
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
             VALUES (0, '{entry}', '{{}}', 'oversold', '', {coupon}, 9, {order});"
        )
    };
    // The second letter has become an order after all.
    app.execute(&(insert("1-1", letter) + &insert("1-2", order))).await;
    app.expect_disagreements();
    let told = statistics(&app, &day).await;
    assert_eq!((&told["claims"], &told["dead_letters"]), (&json!(4), &json!(1)));
    assert_eq!(told["orders"], json!({"cancelled": 1, "paid": 1, "unpaid": 1}));
}

#[tokio::test]
async fn a_day_ends_where_the_next_begins() {
    let (app, clock, day) = app().await;
    let coupon = app.create_flash(5).await;
    let today = clock.now().date_naive();
    let first = id::first_at(today.and_time(chrono::NaiveTime::MIN).and_utc());
    let last = id::first_at((today + Days::new(1)).and_time(chrono::NaiveTime::MIN).and_utc()) - 1;
    for (user, order) in [(1, first - 1), (2, first), (3, last), (4, last + 1)] {
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES ({order}, {coupon}, 'flash', {user}, now())"
        ))
        .await;
    }
    app.expect_disagreements();
    assert_eq!(statistics(&app, &day).await["orders"], json!({"unpaid": 2}));
    let yesterday = (today - Days::new(1)).to_string();
    let told = statistics(&app, &yesterday).await;
    assert_eq!((&told["orders"], &told["process"]), (&json!({"unpaid": 1}), &Value::Null));
    // Neither store has ever had a sequence of that day.
    for member in ["orders_at_most", "taken", "granted"] {
        assert_eq!(told["sequence"][member], Value::Null, "{member}");
    }
}

#[tokio::test]
async fn a_redis_that_may_have_gone_back_in_time_is_not_believed() {
    let (app, clock, day) = app().await;
    let coupon = app.create_flash(3).await;
    app.order(1, coupon).await;
    let sequence = format!("{}:{}", app.keys().order_sequence(), clock.now().format("%Y:%m:%d"));
    let ceiling = format!("{{{sequence}}}:ceiling");
    let taken = statistics(&app, &day).await["sequence"]["taken"].clone();
    assert_eq!(taken, json!(10));
    // The number stands in both keys.
    let _: i64 = app.redis(&["DEL", &sequence]).await;
    assert_eq!(statistics(&app, &day).await["sequence"]["taken"], taken);
    let _: i64 = app.redis(&["HSET", &ceiling, "origin", "another life"]).await;
    let told = statistics(&app, &day).await["sequence"].clone();
    assert_eq!(told["taken"], Value::Null);
    assert_eq!(told["orders_at_most"], told["granted"]);
    let _: i64 = app.redis(&["DEL", &ceiling]).await;
    let told = statistics(&app, &day).await["sequence"].clone();
    assert!(told["taken"].is_null() && told["orders_at_most"].as_i64() >= Some(10), "{told}");
}

#[tokio::test]
async fn the_answers_of_a_process_are_those_since_it_or_the_day_began() {
    let app = TestApp::start().await;
    let clock = Clock::manual("2026-11-27T12:00:00Z".parse().expect("a time"));
    let process = app.another_instance_at(clock.clone()).await;
    let day = |text: &str| text.parse().expect("a day");
    let first = day("2026-11-27");
    let told = async |day| process.numbers.statistics.of(day).await.expect("both stores answer");
    process.metrics.count_claim("sold_out");
    let answers = told(first).await.expect("it is today").process.expect("it runs");
    assert_eq!((answers.since, answers.claims["sold_out"]), (clock.now(), 1));
    assert!(told(day("2026-11-28")).await.is_none(), "it is still to come");

    clock.set(clock.now() + TimeDelta::hours(13));
    assert!(told(first).await.expect("it is over").process.is_none());
    process.metrics.count_claim("sold_out");
    process.metrics.count_claim("sold_out");
    let answers = told(day("2026-11-28")).await.expect("it is today").process.expect("it runs");
    assert_eq!((answers.since, answers.claims["sold_out"]), (clock.now(), 2));
}

#[tokio::test]
async fn a_large_count_is_kept_for_a_multiple_of_the_time_that_it_took() {
    let (app, clock, day) = app().await;
    let coupon = app.create_flash(30_000).await;
    let first = id::first_at(clock.now());
    let orders = format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT {first} + n, {coupon}, 'flash', n, now() FROM generate_series(1, 20000) AS n"
    );
    app.execute(&orders).await;
    app.expect_disagreements();
    let hold = async || {
        let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
        let lock = "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE";
        sqlx::query(lock).execute(&mut *tx).await.expect("it may");
        tx
    };
    // The first count waits for a second, so the next one is 20 s off.
    let held = hold().await;
    let release = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        held.rollback().await.expect("Postgres answers");
    };
    let (told, ()) = tokio::join!(statistics(&app, &day), release);
    assert_eq!(told["orders"], json!({"unpaid": 20_000}));
    // Not a row can be read meanwhile.
    let held = hold().await;
    assert_eq!(statistics(&app, &day).await["counted_at"], told["counted_at"]);
    held.rollback().await.expect("Postgres answers");
}
