//! Places of discarded dead letters: each state of a sale in both stores, with the fate of its places.

use std::collections::BTreeMap;

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::pass::Ran;

use super::{errors, raise_epoch};
use crate::support::lines::{Lines, rows_returned};
use crate::support::{Bounded, TestApp, lane};

/// A user and an order.
type Pair = (i64, i64);

/// A sale in both stores, and the fate of the places of its letters. Orders are told apart by a number of the sale.
#[derive(Default)]
struct Case {
    /// Units on offer by Redis, and by Postgres.
    total: (i64, i64),
    sold: i64,
    stock: i64,
    /// Live orders.
    live: Vec<Pair>,
    /// Discarded letters, the one that has waited longest first.
    letters: Vec<Pair>,
    buyers: Vec<Pair>,
    /// Rows closed.
    items: usize,
    stock_then: i64,
    buyers_then: Vec<Pair>,
    sold_then: i64,
    /// Places that were passed on, or ended.
    passed_on: usize,
    /// Letters whose rows stay open.
    waiting: Vec<i64>,
    is_postponed: bool,
}

/// Letters whose places go to no order, or to one.
fn inherited() -> Vec<Case> {
    let one = vec![(1, 11)];
    vec![
        // Its user is no buyer by it. `sold` is counted only for a place that goes to the stock.
        Case {
            total: (1, 1),
            live: one.clone(),
            letters: vec![(7, 17)],
            buyers: one.clone(),
            items: 1,
            buyers_then: one.clone(),
            ..Case::default()
        },
        // The user has a live order.
        Case {
            total: (2, 2),
            sold: 2,
            live: vec![(1, 11), (2, 12)],
            letters: vec![(2, 22)],
            buyers: vec![(1, 11), (2, 22)],
            items: 1,
            buyers_then: vec![(1, 11), (2, 12)],
            sold_then: 2,
            passed_on: 1,
            ..Case::default()
        },
        // The same, beside a letter whose place goes to an order that Redis has forgotten.
        Case {
            total: (3, 3),
            sold: 3,
            live: vec![(1, 11), (2, 12), (3, 13)],
            letters: vec![(2, 22), (4, 24)],
            buyers: vec![(1, 11), (2, 22), (4, 24)],
            items: 2,
            buyers_then: vec![(1, 11), (2, 12), (3, 13)],
            sold_then: 3,
            passed_on: 2,
            ..Case::default()
        },
        // More stock and buyers than the total.
        Case {
            total: (1, 1),
            sold: 1,
            live: one.clone(),
            letters: vec![(7, 17)],
            buyers: vec![(1, 11), (7, 17)],
            items: 1,
            buyers_then: one,
            sold_then: 1,
            passed_on: 1,
            ..Case::default()
        },
    ]
}

/// Letters whose places go to the stock, as far as there are units.
fn to_stock() -> Vec<Case> {
    let one = vec![(1, 11)];
    let three = vec![(5, 15), (6, 16), (7, 17)];
    let four = [one.clone(), three.clone()].concat();
    vec![
        // Two are too many, and the third one comes back.
        Case {
            total: (4, 4),
            sold: 2,
            stock: 2,
            live: one.clone(),
            letters: three.clone(),
            buyers: four.clone(),
            items: 3,
            stock_then: 3,
            buyers_then: one.clone(),
            sold_then: 1,
            passed_on: 2,
            ..Case::default()
        },
        // Postgres has units for two of three.
        Case {
            total: (5, 3),
            sold: 1,
            stock: 1,
            live: one.clone(),
            letters: three,
            buyers: four,
            items: 2,
            stock_then: 3,
            buyers_then: vec![(1, 11), (7, 17)],
            sold_then: 1,
            waiting: vec![17],
            ..Case::default()
        },
    ]
}

/// Letters for which live orders leave no unit.
fn without_units() -> Vec<Case> {
    let one = vec![(1, 11)];
    vec![
        // One unit is sold.
        Case {
            total: (2, 1),
            sold: 1,
            live: one.clone(),
            letters: vec![(5, 15)],
            buyers: vec![(1, 11), (5, 15)],
            buyers_then: vec![(1, 11), (5, 15)],
            sold_then: 1,
            waiting: vec![15],
            is_postponed: true,
            ..Case::default()
        },
        // A stock below 0 takes one without offering it.
        Case {
            total: (1, 1),
            sold: 1,
            stock: -1,
            live: one.clone(),
            letters: vec![(7, 17)],
            buyers: vec![(1, 11), (7, 17)],
            items: 1,
            buyers_then: one,
            sold_then: 1,
            ..Case::default()
        },
        // More live orders than units.
        Case {
            total: (3, 1),
            sold: 1,
            live: vec![(1, 11), (2, 12)],
            letters: vec![(7, 17)],
            buyers: vec![(1, 11), (2, 12), (7, 17)],
            buyers_then: vec![(1, 11), (2, 12), (7, 17)],
            sold_then: 1,
            waiting: vec![17],
            is_postponed: true,
            ..Case::default()
        },
    ]
}

/// Writes live orders and letters by hand, whose ids are `base` and their numbers.
async fn write(app: &TestApp, coupon: CouponId, base: i64, (live, letters): (&[Pair], &[Pair])) {
    for (user, order) in live {
        let order = base + order;
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({order}, {coupon}, 'flash', {user}, now())"
        ))
        .await;
    }
    for (user, order) in letters {
        let order = base + order;
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
                 VALUES ({order}, {coupon}, 'flash', {user}, now(), 'cancelled', now());
             INSERT INTO stock_returns (order_id, coupon_id, user_id, updated_at)
                 VALUES ({order}, {coupon}, {user}, now() - interval '1 day' + {order} * interval '1 ms');
             INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
                 VALUES (0, '{order}-1', '{{}}', 'oversold', '', {coupon}, {user}, {order}, now())"
        ))
        .await;
        let unpaid = app.keys().unpaid(lane());
        let _: i64 = app.redis(&["HSET", &unpaid, &user.to_string(), &order.to_string()]).await;
    }
}

async fn set_up(app: &TestApp, base: i64, case: &Case) -> CouponId {
    let coupon = app.create_flash(case.total.0).await;
    write(app, coupon, base, (&case.live, &case.letters)).await;
    let (_, total) = case.total;
    app.execute(&format!(
        "UPDATE flash_sales SET total = {total}, sold = {} WHERE coupon_id = {coupon}",
        case.sold
    ))
    .await;
    for (user, order) in &case.buyers {
        app.set_buyer(coupon, *user, base + order).await;
    }
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key, "stock", &case.stock.to_string()]).await;
    coupon
}

async fn pass(app: &TestApp) -> Ran {
    app.app.stock_returns.pass().bounded().await.expect("both stores answer")
}

async fn settle(cases: Vec<Case>) {
    let app = TestApp::start().await;
    app.expect_disagreements();
    for (base, case) in (1..).map(|n| 1_000 * n).zip(cases) {
        let coupon = set_up(&app, base, &case).await;
        let lines = Lines::heard();
        assert_eq!(pass(&app).await, Ran { items: case.items, goes_on: false }, "{base}");
        let told = lines.with("places of discarded dead letters have made up for it");
        let expected = (case.passed_on > 0).then(|| format!("places={}", case.passed_on));
        assert_eq!(told.len(), usize::from(expected.is_some()), "{base}: {told:?}");
        assert!(
            told.iter().all(|line| line.contains(expected.as_deref().unwrap_or(""))),
            "{told:?}"
        );
        let miscounted = lines.count("`sold` didn't count the live orders");
        assert_eq!(miscounted, usize::from(case.sold != case.sold_then), "{base}");
        drop(lines);
        let buyers: BTreeMap<i64, i64> =
            case.buyers_then.iter().map(|(user, order)| (*user, base + order)).collect();
        assert_eq!((app.buyers(coupon).await, app.stock(coupon).await), (buyers, case.stock_then));
        assert_eq!(app.sold(coupon).await, case.sold_then, "{base}");
        let open = "SELECT order_id FROM stock_returns WHERE done_at IS NULL ORDER BY 1";
        let waiting: Vec<i64> = case.waiting.iter().map(|order| base + order).collect();
        assert_eq!(app.numbers(open).await, waiting, "{base}");
        let postponed = format!("withdrawals {coupon} 1");
        let postponed: Vec<String> = case.is_postponed.then_some(postponed).into_iter().collect();
        assert_eq!(app.postponed().await, postponed, "{base}");
        let unpaid = app.keys().unpaid(lane());
        assert_eq!(app.redis::<i64>(&["HLEN", &unpaid]).await, 0, "{base}: no place on a list");
        app.execute("DELETE FROM stock_returns; DELETE FROM postponed").await;
    }
}

#[tokio::test]
async fn heirs_of_withdrawn_places_are_live_orders_and_others_end() {
    settle(inherited()).await;
}

#[tokio::test]
async fn withdrawn_units_return_to_stock_as_far_as_live_orders_leave_some() {
    settle(to_stock()).await;
}

#[tokio::test]
async fn withdrawn_places_wait_while_live_orders_have_all_units() {
    settle(without_units()).await;
}

/// A sale for two, of which one is sold, and a letter whose unit comes back.
fn one_to_stock() -> Case {
    Case {
        total: (2, 2),
        sold: 1,
        live: vec![(1, 11)],
        letters: vec![(5, 15)],
        buyers: vec![(1, 11), (5, 15)],
        ..Case::default()
    }
}

/// The same letter is tried again when it is due, and counts as one that has failed before.
#[tokio::test]
async fn withdraw_notes_the_failures_of_a_letter_in_their_turn() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let case = Case { total: (2, 1), ..one_to_stock() };
    let coupon = set_up(&app, 1_000, &case).await;
    for tries in 1..=3 {
        assert_eq!(pass(&app).await.items, 0);
        assert_eq!(app.postponed().await, [format!("withdrawals {coupon} {tries}")]);
        app.let_postponed_be_due().await;
        app.execute("UPDATE stock_returns SET updated_at = now()").await;
    }
    let error = errors(&app).await;
    assert!(error[0].contains("units of discarded dead letters can't come back"), "{error:?}");
    app.execute("UPDATE flash_sales SET total = 2").await;
    assert_eq!((pass(&app).await.items, app.postponed().await.len()), (1, 0));
    assert_eq!(app.stock(coupon).await, 1);
}

/// Of two letters one has a unit, which its sale can't take back, and the other has none.
#[tokio::test]
async fn withdraw_tells_the_failure_of_its_sale_before_the_want_of_units() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let case = Case {
        total: (3, 2),
        letters: vec![(5, 15), (6, 16)],
        buyers: vec![(1, 11), (5, 15), (6, 16)],
        ..one_to_stock()
    };
    let coupon = set_up(&app, 1_000, &case).await;
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key, "layout", "9"]).await;
    assert_eq!(pass(&app).await.items, 0);
    let expected = format!(
        "withdrawals: coupon {coupon} has another epoch or layout in Redis than in Postgres"
    );
    assert_eq!(errors(&app).await, [expected]);
}

/// The epoch of the lane is another one than this process knows.
#[tokio::test]
async fn withdrawn_units_wait_for_a_new_epoch_to_be_learned_and_are_not_postponed() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = set_up(&app, 1_000, &one_to_stock()).await;
    raise_epoch(&app, 2, &[coupon]).await;
    assert_eq!((pass(&app).await.items, app.postponed().await.len()), (0, 0));
    assert_eq!((pass(&app).await.items, app.stock(coupon).await), (1, 1));
}

/// A unit of the same sale can't come back: letters are not looked at.
#[tokio::test]
async fn letters_wait_for_the_next_turn_if_the_returns_of_their_sale_have_failed() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let case = Case { buyers: vec![(1, 11), (2, 12)], ..one_to_stock() };
    let coupon = set_up(&app, 1_000, &case).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             VALUES (1012, {coupon}, 'flash', 2, now(), 'cancelled', now());
         INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES (1012, {coupon}, 2)"
    ))
    .await;
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key, "returns", "many"]).await;
    assert_eq!(pass(&app).await.items, 0);
    assert_eq!(app.postponed().await, [format!("stock_returns {coupon} 1")]);
    let _: i64 = app.redis(&["HDEL", &key, "returns"]).await;
    app.let_postponed_be_due().await;
    assert_eq!((pass(&app).await.items, app.stock(coupon).await), (2, 1));
}

/// A unit that has come back before needs no look at a sale that can't be counted.
#[tokio::test]
async fn returns_without_letters_don_t_have_their_sale_counted() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(2).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             VALUES (12, {coupon}, 'flash', 2, now(), 'cancelled', now());
         INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES (12, {coupon}, 2)"
    ))
    .await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "few"]).await;
    assert_eq!((pass(&app).await.items, app.postponed().await.len()), (1, 0));
}

/// The sale was archived while its letters were postponed: no unit has to come back any more.
#[tokio::test]
async fn letters_of_an_archived_sale_end_though_they_are_postponed() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let case = Case { total: (2, 1), ..one_to_stock() };
    let coupon = set_up(&app, 1_000, &case).await;
    assert_eq!(pass(&app).await.items, 0);
    app.let_postponed_wait().await;
    app.execute(
        "UPDATE flash_sales SET archived_at = now();
         UPDATE stock_returns SET updated_at = now() + interval '30 min'",
    )
    .await;
    app.lose_sale(coupon).await;
    assert_eq!(pass(&app).await.items, 1);
}

/// Rows that have to wait are put behind all others; where there are none, none is written.
#[tokio::test]
async fn put_last_writes_rows_that_wait_and_a_refusal_is_noted() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let done = set_up(&app, 1_000, &inherited()[0]).await;
    app.count_statements("UPDATE", "stock_returns").await;
    assert_eq!((pass(&app).await.items, app.statements().await), (1, 1), "one closes its row");
    // One letter is no buyer's, and the other waits, whose row Postgres refuses to write.
    let case = Case { total: (2, 1), letters: vec![(5, 15), (7, 17)], ..one_to_stock() };
    let coupon = set_up(&app, 2_000, &case).await;
    assert_ne!(done, coupon);
    app.refuse("UPDATE", "stock_returns", "NEW.done_at IS NULL", "23514").await;
    assert_eq!((pass(&app).await.items, app.statements().await), (1, 2));
    let error = errors(&app).await;
    assert!(error.len() == 1 && error[0].starts_with("withdrawals: Postgres: "), "{error:?}");
}

/// The buyer of another live order can't be read, and needn't be.
#[tokio::test]
async fn heirs_of_their_own_users_are_found_without_a_look_at_other_live_orders() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = set_up(&app, 1_000, &inherited()[1]).await;
    let shard = app.shard_of(coupon, 1).await;
    let _: i64 = app.redis(&["HSET", &shard, "1", "junk"]).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    assert_eq!((pass(&app).await.items, app.postponed().await.len()), (1, 0));
    assert_eq!(rows_returned(&lines, "user_id = ANY($2) AND kind = 'flash'"), [1]);
    assert_eq!(app.redis::<String>(&["HGET", &shard, "2"]).await, "1012");
}
