//! Counts of a day: those that are kept, those that are whole, and the time that each may take.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::base::limits::{DAY_COUNT_KEPT_MIN, DAY_COUNT_PAUSES, DAY_COUNT_TIMEOUT};
use flash_sale::kit::id::first_at;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::retention::months::{self, Month};
use flash_sale::sale::statistics::{Day, DayStatistics};

use crate::support::{TestApp, later, shared};

/// An app in the middle of this day, of which orders can be written by hand.
async fn on(day: &str) -> (TestApp, Day, CouponId) {
    let noon = format!("{day}T12:00:00Z").parse().expect("a time");
    let app = TestApp::on(shared(), &[], Clock::manual(noon)).await;
    app.expect_disagreements();
    app.write_sales(1).await;
    (app, day.parse().expect("a day"), crate::support::sale(1))
}

async fn statistics(app: &TestApp, day: Day) -> DayStatistics {
    let told = app.app.numbers.statistics.of(day).await.expect("both stores answer");
    told.expect("the day has begun")
}

async fn claims(app: &TestApp, day: Day) -> i64 {
    statistics(app, day).await.claims
}

/// The claims of a day, by a count that takes this time by the clock of the process.
async fn claims_counted_in(app: &TestApp, day: Day, time: Duration) -> i64 {
    let other = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let waiting = async {
        app.a_session_waits_for_a_row().await;
        later(time).await;
        other.rollback().await.expect("Postgres answers");
    };
    let (claims, ()) = tokio::join!(claims(app, day), waiting);
    claims
}

async fn write_orders(app: &TestApp, coupon: CouponId, day: Day, (first, last): (i64, i64)) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT {} + n, {coupon}, 'flash', n, now() FROM generate_series({first}, {last}) AS n",
        first_at(day.begin())
    ))
    .await;
}

/// A large count is told again for twenty times the time that it took, and a small one never.
#[tokio::test]
async fn counts_of_many_orders_are_kept_for_a_multiple_of_their_time() {
    let (app, day, coupon) = on("2026-11-27").await;
    let (most, time) = (DAY_COUNT_KEPT_MIN, Duration::from_secs(10_000));
    write_orders(&app, coupon, day, (1, most - 1)).await;
    assert_eq!(claims_counted_in(&app, day, time).await, most - 1);
    write_orders(&app, coupon, day, (most, most)).await;
    assert_eq!(claims_counted_in(&app, day, time).await, most, "the last one was not kept");
    write_orders(&app, coupon, day, (most + 1, most + 1)).await;
    assert_eq!(claims(&app, day).await, most);
    later(time * DAY_COUNT_PAUSES - time / 2).await;
    assert_eq!(claims(&app, day).await, most, "it is kept");
    let yesterday = "2026-11-26".parse().expect("a day");
    assert_eq!(claims(&app, yesterday).await, 0, "and is that of its day");
    later(time).await;
    assert_eq!(claims(&app, day).await, most + 1);
}

/// Orders of a day may have been dropped with their month once orders of that day have moved.
#[tokio::test]
async fn the_count_of_a_day_is_whole_until_its_month_may_have_left_the_history() {
    let (app, day, _) = on("2024-01-05").await;
    let begin = first_at(day.begin());
    let pool = &app.app.stores.pool;
    for (moved_to, is_whole) in [(0, true), (begin - 1, true), (begin, false), (begin + 1, false)] {
        app.execute(&format!("UPDATE settings SET orders_moved_to = {moved_to}")).await;
        assert_eq!(statistics(&app, day).await.is_whole, is_whole, "{}", moved_to - begin);
    }
    let next = Month::of("2024-02-05T00:00:00Z".parse().expect("a time"));
    for (month, is_whole) in [(next, false), (next.back(1), true)] {
        months::make(pool, month).await.expect("Postgres does it");
        assert_eq!(statistics(&app, day).await.is_whole, is_whole);
    }
}

/// Letters without an order count for the day that the ids of their claims carry.
#[tokio::test]
async fn the_count_of_a_day_has_the_dead_letters_of_that_day() {
    let (app, day, coupon) = on("2026-11-27").await;
    write_orders(&app, coupon, day, (7, 7)).await;
    let (begin, end) = (first_at(day.begin()), first_at(day.end()));
    for order in [begin - 1, begin, begin + 7, end - 1, end] {
        app.execute(&format!(
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
             VALUES (0, '{order}-1', '{{}}', 'oversold', '', {coupon}, 9, {order})"
        ))
        .await;
    }
    let told = statistics(&app, day).await;
    assert_eq!((told.claims, told.dead_letters), (3, 2), "one has become an order");
    let yesterday = statistics(&app, "2026-11-26".parse().expect("a day")).await;
    assert_eq!((yesterday.claims, yesterday.dead_letters), (1, 1));
}

/// The view of all orders notes the time that the statement may take.
#[tokio::test]
async fn the_count_of_a_day_has_a_time_of_its_own() {
    let (app, day, coupon) = on("2026-11-27").await;
    write_orders(&app, coupon, day, (1, 1)).await;
    app.execute(
        "CREATE SEQUENCE timeout_ms;
         CREATE FUNCTION note_timeout() RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM setval('timeout_ms', (extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::bigint);
                 RETURN true;
             END $$;
         DO $$ BEGIN
             EXECUTE 'CREATE OR REPLACE VIEW every_order AS SELECT * FROM ('
                 || rtrim(pg_get_viewdef('every_order'::regclass), ';') || ') AS every WHERE note_timeout()';
         END $$",
    )
    .await;
    let told = statistics(&app, day).await;
    assert_eq!((told.claims, told.dead_letters), (1, 0));
    let expected = i64::try_from(DAY_COUNT_TIMEOUT.as_millis()).expect("a small number");
    assert_eq!(app.number("SELECT last_value FROM timeout_ms").await, expected);
}
