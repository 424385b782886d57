//! `retry`: a dead letter becomes an order, or stays for the first reason that speaks against it.

use flash_sale::sale::Failure;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{CouponId, DeadLetterId, OrderId};
use flash_sale::sale::recovery::retry::{Kept, Retried};

use super::{BY_HAND, close_lanes, promise_in_redis, sold_to_two, write_letter};
use crate::faults::recovery::sell;
use crate::support::{Bounded, TestApp};

async fn letter_of(app: &TestApp, user: i64, order: i64) -> DeadLetterId {
    let id = format!("SELECT id FROM dead_letters WHERE user_id = {user} AND order_id = {order}");
    DeadLetterId::new(app.number(&id).await).expect("an id")
}

fn order(id: i64) -> OrderId {
    OrderId::new(id).expect("an id")
}

const OPEN: (&str, &str) = (", holds_unit", ", false");
const CLOSED: (&str, &str) = (", resolved_at", ", now()");

/// Users 3 and 4 have cancelled their orders.
async fn with_orders() -> (TestApp, CouponId, [i64; 4]) {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    app.expect_disagreements();
    let [sale] = sold_to_two::<1>(&app).await;
    sell(&app, sale, 3..=4).await;
    app.write_orders().await;
    let mut orders = [0; 4];
    for (user, order) in (1..).zip(&mut orders) {
        *order = app.order_of(sale, user).await;
    }
    for user in [3, 4] {
        assert_eq!(app.cancel(user, orders[user as usize - 1]).await.status, 200);
    }
    app.give_back().await;
    (app, sale, orders)
}

#[tokio::test]
async fn retry_makes_an_order_or_keeps_the_letter_for_the_first_reason() {
    let (app, sale, [first, second, third, fourth]) = with_orders().await;
    let by = Actor::command_line();
    promise_in_redis(&app, sale, 8, BY_HAND + 8).await;
    promise_in_redis(&app, sale, 10, BY_HAND + 100).await;
    let no_lane = CouponId::new((5 << 10) + 700).expect("an id");
    let not_loaded = CouponId::new(999 << 10).expect("an id");
    for (what, coupon, user, id, state, expected) in [
        ("the order is there", sale, 1, first, OPEN, Retried::Order(order(first))),
        ("the order is cancelled", sale, 3, third, OPEN, Retried::Order(order(third))),
        ("closed, and its order is there", sale, 2, second, CLOSED, Retried::Order(order(second))),
        ("closed, and cancelled", sale, 4, fourth, CLOSED, Retried::Kept(Kept::Closed)),
        ("closed without an order", sale, 5, BY_HAND + 5, CLOSED, Retried::Kept(Kept::Closed)),
        ("closed, another's order", sale, 6, first, CLOSED, Retried::Kept(Kept::Closed)),
        ("another's order", sale, 7, second, OPEN, Retried::Kept(Kept::OrderIdTaken)),
        ("claimed again", sale, 1, 77, OPEN, Retried::Kept(Kept::Superseded(order(first)))),
        (
            "claimed again, and cancelled",
            sale,
            3,
            78,
            OPEN,
            Retried::Kept(Kept::Superseded(order(third))),
        ),
        ("cancelled before", sale, 4, BY_HAND + 4, OPEN, Retried::Order(order(BY_HAND + 4))),
        ("of no lane", no_lane, 1, BY_HAND + 1, OPEN, Retried::Kept(Kept::NotLoaded)),
        ("of no sale", not_loaded, 1, BY_HAND + 2, OPEN, Retried::Kept(Kept::NotLoaded)),
        ("a buyer", sale, 8, BY_HAND + 8, OPEN, Retried::Order(order(BY_HAND + 8))),
        ("no buyer", sale, 9, BY_HAND + 9, OPEN, Retried::Order(order(BY_HAND + 9))),
        (
            "a buyer by another order",
            sale,
            10,
            BY_HAND + 10,
            OPEN,
            Retried::Kept(Kept::Superseded(order(BY_HAND + 100))),
        ),
    ] {
        write_letter(&app, coupon, (user, id), state).await;
        let letter = letter_of(&app, user, id).await;
        let retried =
            app.app.retries.retry(letter, &by).bounded().await.expect("both stores answer");
        assert_eq!(retried, expected, "{what}");
        let is_open = format!(
            "SELECT count(*) FROM dead_letters WHERE id = {letter} AND resolved_at IS NULL"
        );
        let stays = matches!(expected, Retried::Kept(_)) && state == OPEN;
        assert_eq!(app.number(&is_open).await, i64::from(stays), "{what}");
    }
    let unknown = DeadLetterId::new(9_999).expect("an id");
    assert_eq!(app.app.retries.retry(unknown, &by).bounded().await.ok(), Some(Retried::NotFound));
    assert_eq!(app.stock(sale).await, 3);
    assert!(app.buyers(sale).await.into_keys().eq([1, 2, 4, 8, 9, 10]));
    let book = "SELECT count(*) FROM audit WHERE action = 'retry_dead_letter'";
    assert_eq!(app.number(book).await, 5);
    let written = format!("SELECT id - {BY_HAND} FROM orders WHERE id > {BY_HAND} ORDER BY id");
    assert_eq!(app.numbers(&written).await, [4, 8, 9]);
}

/// Sales that take no further order: no unit, no room in Postgres, another epoch, and no shard.
async fn that_take_no_order(app: &TestApp) -> [CouponId; 4] {
    let mut sales = Vec::new();
    for _ in 0..4 {
        sales.push(app.create_flash(1).await);
    }
    let key = |coupon: CouponId| app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key(sales[0]), "stock", "0"]).await;
    app.execute(&format!("UPDATE flash_sales SET sold = 1 WHERE coupon_id = {}", sales[1])).await;
    let _: i64 = app.redis(&["HSET", &key(sales[2]), "epoch", "9"]).await;
    app.lose_buyers(sales[3]).await;
    sales.try_into().expect("four")
}

#[tokio::test]
async fn retry_all_counts_the_letters_that_stay_by_their_reason() {
    let (app, sale, [first, second, ..]) = with_orders().await;
    let by = Actor::command_line();
    let [no_unit, no_room, stale, lost] = that_take_no_order(&app).await;
    for (coupon, user, id) in [
        (lost, 1, BY_HAND + 1),
        (stale, 1, BY_HAND + 2),
        (no_room, 1, BY_HAND + 3),
        (no_unit, 1, BY_HAND + 4),
        (sale, 7, second),
        (sale, 1, 77),
        (sale, 2, 78),
        (sale, 9, BY_HAND + 9),
        (sale, 11, BY_HAND + 11),
    ] {
        write_letter(&app, coupon, (user, id), OPEN).await;
    }
    write_letter(&app, sale, (1, first), CLOSED).await;
    app.execute(
        "INSERT INTO dead_letters (lane, epoch, entry_id, payload, reason, detail)
         VALUES (0, 1, '5-5', '{}', 'undecodable', 'x')",
    )
    .await;
    let all = async |reason| {
        app.app.retries.retry_all(reason, &by).bounded().await.expect("both stores answer")
    };
    let told = |summary: &flash_sale::sale::recovery::retry::Summary| {
        let kept: Vec<String> =
            summary.kept.iter().map(|(code, letters)| format!("{code} {letters}")).collect();
        (summary.orders, kept.join(", "))
    };
    app.app.lanes.take_suspicion();
    let stay = "failed 1, letter_unreadable 1, no_unit 1, order_id_taken 1, order_refused 1, recovering 1, superseded 2";
    assert_eq!(told(&all(None).await), (2, stay.to_owned()));
    assert!(app.app.lanes.take_suspicion(), "a shard is lost");
    assert_eq!(told(&all(None).await), (0, stay.to_owned()));
    let reason = flash_sale::sale::order::dead_letter::Reason::Undecodable;
    assert_eq!(told(&all(Some(reason)).await), (0, "letter_unreadable 1".to_owned()));
    // The unit of the order that Postgres refuses has been taken.
    let units = "SELECT concat_ws(' ', coupon_id, user_id) FROM dead_letters WHERE holds_unit AND resolved_at IS NULL
                 AND coupon_id IS NOT NULL";
    assert_eq!(app.texts(units).await, [format!("{no_room} 1")]);
    assert_eq!(app.stock(no_room).await, 0);
}

/// The sale is being loaded, or has another epoch.
#[tokio::test]
async fn admit_leaves_a_letter_of_a_sale_that_is_not_loaded_and_fails_for_one_of_another_epoch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [sale] = sold_to_two::<1>(&app).await;
    write_letter(&app, sale, (9, BY_HAND + 9), OPEN).await;
    let letter = letter_of(&app, 9, BY_HAND + 9).await;
    let by = Actor::command_line();
    let key = app.keys().coupon(sale);
    let _: i64 = app.redis(&["HSET", &key, "state", "loading"]).await;
    let kept = app.app.retries.retry(letter, &by).bounded().await;
    assert_eq!(kept.expect("both stores answer"), Retried::Kept(Kept::NotLoaded));
    let _: i64 = app.redis(&["HSET", &key, "state", "active", "epoch", "9"]).await;
    let failed = app.app.retries.retry(letter, &by).bounded().await;
    assert!(matches!(&failed, Err(Failure::Stale(coupon)) if *coupon == sale), "{failed:?}");
    assert_eq!(app.buyers_count(sale).await, 2);
}

/// The process has not heard of the closure yet.
#[tokio::test]
async fn admit_asks_postgres_whether_the_lane_is_open() {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    write_letter(&app, sale, (9, BY_HAND + 9), OPEN).await;
    let letter = letter_of(&app, 9, BY_HAND + 9).await;
    let other = app.another_instance().await;
    close_lanes(&app).await;
    let by = Actor::command_line();
    let refused = other.retries.retry(letter, &by).bounded().await;
    assert!(refused.is_err_and(|failure| failure.is_recovering()));
    assert_eq!(app.buyers_count(sale).await, 2);
    app.recover().await;
    assert!(matches!(app.app.retries.retry(letter, &by).bounded().await, Ok(Retried::Order(_))));
    assert!(app.buyers(sale).await.into_keys().eq([1, 2, 9]));
}

/// A worker writes the order right after the retry has found none.
#[tokio::test]
async fn retry_makes_an_order_of_a_claim_that_becomes_a_row_meanwhile() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [sale] = sold_to_two::<1>(&app).await;
    promise_in_redis(&app, sale, 9, BY_HAND + 9).await;
    write_letter(&app, sale, (9, BY_HAND + 9), OPEN).await;
    let letter = letter_of(&app, 9, BY_HAND + 9).await;
    // All connections but one are in use, so that the two take turns.
    let pool = &app.app.stores.pool;
    let mut in_use = Vec::new();
    for _ in 1..app.config.stores.database_connections {
        in_use.push(pool.acquire().bounded().await.expect("Postgres answers"));
    }
    let writing = async {
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({BY_HAND} + 9, {sale}, 'flash', 9, now())"
        ))
        .await;
        in_use.clear();
    };
    let by = Actor::command_line();
    let both = async { tokio::join!(app.app.retries.retry(letter, &by), writing) };
    let (retried, ()) = both.bounded().await;
    assert_eq!(retried.expect("both stores answer"), Retried::Order(order(BY_HAND + 9)));
    assert!(app.buyers(sale).await.into_keys().eq([1, 2, 9]));
    let open = "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL";
    assert_eq!(app.number(open).await, 0);
}
