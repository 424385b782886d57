//! Units and places on their way back: the rows that are written, and those that a pass finds and closes.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{CouponId, DeadLetterId, Lane};
use flash_sale::sale::order::discard::Discarded;
use flash_sale::sale::order::give_back::stock_returns::{self, StockReturn};

use super::{begin, id, order, pool, sorted};
use crate::support::{TestApp, lane, sale, user};

/// Orders 1 to 7 of sale 1, one in each status and of the user of the same number; a regular one, and one of sale 2.
async fn orders() -> TestApp {
    let app = TestApp::with_sales(2).await;
    let statuses = ["cancelled", "expired", "refunded", "unpaid", "paid", "redeemed", "refunding"];
    let of_each_status = (1..).zip(statuses).map(|(id, status)| (id, 1, "flash", id, status));
    let others = [(8, 2, "regular", 8, "cancelled"), (9, 2, "flash", 9, "cancelled")];
    app.write_rows(&of_each_status.chain(others).collect::<Vec<_>>()).await;
    app
}

/// Writes returns of these orders by hand, some of which were done at the beginning of 2024.
async fn write_returns(app: &TestApp, returns: &[(i64, &str, bool)]) {
    let rows: Vec<String> = returns
        .iter()
        .map(|(order, what, is_done)| format!("({order}, '{what}', {is_done})"))
        .collect();
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at)
         SELECT id, what, coupon_id, user_id, CASE WHEN is_done THEN '2024-01-01T00:00:00Z'::timestamptz END
         FROM (VALUES {}) AS back (order_id, what, is_done) JOIN orders ON id = order_id",
        rows.join(", ")
    ))
    .await;
    app.let_rows_age("stock_returns").await;
}

async fn open(app: &TestApp) -> Vec<String> {
    let query = "SELECT concat_ws(' ', order_id, what) FROM stock_returns WHERE done_at IS NULL
                 ORDER BY order_id, what";
    app.texts(query).await
}

async fn touched(app: &TestApp) -> Vec<i64> {
    app.touched("stock_returns", "order_id").await
}

#[tokio::test]
async fn write_again_is_about_closed_flash_orders_of_this_coupon_and_user() {
    let app = orders().await;
    write_returns(&app, &[(2, "unit", true), (2, "place", true), (9, "unit", true)]).await;
    for (number, coupon, of, expected) in [
        (1, 1, 1, true),
        (2, 1, 2, true),
        (3, 1, 3, true),
        (4, 1, 4, false),
        (5, 1, 5, false),
        (6, 1, 6, false),
        (7, 1, 7, false),
        (8, 2, 8, false),
        (1, 2, 1, false),
        (3, 1, 1, false),
        (99, 1, 1, false),
    ] {
        let back =
            StockReturn { order_id: order(number), coupon_id: sale(coupon), user_id: user(of) };
        let written = stock_returns::write_again(pool(&app), &back).await;
        assert_eq!(written.expect("Postgres answers"), expected, "{back:?}");
    }
    assert_eq!(open(&app).await, ["1 unit", "2 unit", "3 unit"]);
    assert_eq!(touched(&app).await, [1, 2, 3]);
}

#[tokio::test]
async fn write_place_again_is_about_flash_orders_of_this_user_that_are_not_unpaid() {
    let app = orders().await;
    write_returns(&app, &[(2, "unit", true), (2, "place", true), (9, "place", true)]).await;
    for (number, of, expected) in [
        (1, 1, true),
        (2, 2, true),
        (5, 5, true),
        (7, 7, true),
        (4, 4, false),
        (8, 8, false),
        (5, 1, false),
        (99, 1, false),
    ] {
        let written = stock_returns::write_place_again(pool(&app), user(of), order(number)).await;
        assert_eq!(written.expect("Postgres answers"), expected, "order {number}, user {of}");
    }
    assert_eq!(open(&app).await, ["1 place", "2 place", "5 place", "7 place"]);
    assert_eq!(touched(&app).await, [1, 2, 5, 7]);
}

#[tokio::test]
async fn insert_place_is_about_one_flash_order() {
    let app = orders().await;
    let mut tx = begin(&app).await;
    for number in [5, 8, 99] {
        stock_returns::insert_place(&mut tx, order(number)).await.expect("Postgres answers");
    }
    tx.commit().await.expect("Postgres answers");
    assert_eq!(open(&app).await, ["5 place"]);
}

#[tokio::test]
async fn run_again_opens_what_was_done_in_a_lane_since_a_time() {
    let app = orders().await;
    let returns = [
        (1, "unit", true),
        (1, "place", false),
        (2, "unit", true),
        (3, "place", true),
        (9, "unit", true),
    ];
    write_returns(&app, &returns).await;
    app.execute(
        "UPDATE stock_returns SET done_at = done_at - interval '1 us' WHERE order_id = 2;
         UPDATE stock_returns SET coupon_id = coupon_id + 5 WHERE order_id = 9",
    )
    .await;
    let since = "2024-01-01T00:00:00Z".parse().expect("a time");
    for (lane, expected) in [(Lane::numbered(7), 0), (lane(), 2)] {
        let done = stock_returns::run_again(pool(&app), lane, since).await;
        assert_eq!(done.expect("Postgres answers"), expected, "{lane:?}");
    }
    assert_eq!(open(&app).await, ["1 place", "1 unit", "3 place"]);
    assert_eq!(touched(&app).await, [1, 3]);
}

#[tokio::test]
async fn open_units_are_counted_and_found_by_their_orders() {
    let app = orders().await;
    let returns = [
        (1, "unit", false),
        (1, "place", false),
        (2, "unit", true),
        (3, "place", false),
        (9, "unit", false),
    ];
    write_returns(&app, &returns).await;
    let among = stock_returns::open_among(pool(&app), &[1, 2, 3]).await.expect("Postgres answers");
    assert_eq!(sorted(among.into_iter().map(id)), [1], "open_among");
    assert_eq!(stock_returns::count_open(pool(&app)).await.expect("Postgres answers"), 2);
    for (number, expected) in [(1, 1), (2, 1), (3, 0)] {
        let count = stock_returns::count_open_of(pool(&app), sale(number)).await;
        assert_eq!(count.expect("Postgres answers"), expected, "count_open_of {number}");
    }
}

/// Sales that Postgres alone answers for: their units come back by a note.
async fn archived(last: i64) -> TestApp {
    let app = TestApp::with_sales(last).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    app
}

/// Coupons are waiting in both passes; some are postponed in one of them, and the last has no sale.
#[tokio::test]
async fn a_pass_finds_the_waiting_coupons_one_after_the_other_but_for_postponed_ones() {
    let app = archived(7).await;
    let numbers = [1, 2, 3, 4, 5, 6, 7, 9];
    app.write_rows(&numbers.map(|n| (n, n, "flash", n, "cancelled"))).await;
    let returns = [
        (1, "unit", false),
        (2, "unit", true),
        (3, "unit", false),
        (3, "place", false),
        (4, "unit", false),
        (4, "place", false),
        (5, "unit", false),
        (6, "unit", false),
        (7, "unit", false),
        (9, "place", false),
    ];
    write_returns(&app, &returns).await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
         SELECT pass, coupon << 10, 'x', now() + wait
         FROM (VALUES ('stock_returns', 3::bigint, interval '30 min'), ('places', 4, '30 min'),
                      ('stock_returns', 5, '-1 s'), ('expiry', 6, '30 min'), ('stock_returns', 7, '30 min'))
              AS note (pass, coupon, wait)",
    )
    .await;
    assert_eq!(app.give_back().await, 6);
    assert_eq!(open(&app).await, ["3 unit", "4 place", "7 unit"]);
    assert_eq!(touched(&app).await, [1, 3, 4, 5, 6, 9]);
    let in_turn = "SELECT order_id FROM stock_returns WHERE what = 'unit' AND done_at > '2024-01-02' ORDER BY done_at";
    assert_eq!(app.numbers(in_turn).await, [1, 4, 5, 6], "in the order of the coupons");
    assert_eq!(app.give_back().await, 0);
    app.let_postponed_be_due().await;
    assert_eq!((app.give_back().await, open(&app).await), (3, vec![]));
    let done = "SELECT order_id FROM stock_returns WHERE done_at = '2024-01-01T00:00:00Z'";
    assert_eq!(app.numbers(done).await, [2], "what was done before keeps its time");
}

/// Rows that were done long ago stand in front of it, and the time of another has not come by the order of the rows.
#[tokio::test]
async fn a_pass_finds_an_open_row_behind_many_that_are_done() {
    let app = archived(2).await;
    app.execute(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT n, CASE WHEN n > 1001 THEN 2048 ELSE 1024 END, 'flash', n, now(), 'cancelled', now()
         FROM generate_series(1, 1002) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id, done_at, updated_at)
         SELECT id, coupon_id, id, CASE WHEN id <= 1000 THEN now() END, now() + (id - 1001) * interval '30 min'
         FROM orders",
    )
    .await;
    assert_eq!((app.give_back().await, open(&app).await), (2, vec![]));
}

#[tokio::test]
async fn a_pass_takes_the_open_rows_that_have_waited_longest() {
    let app = archived(1).await;
    // One more than a pass takes of one coupon; the first order has waited for the shortest time.
    app.execute(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT n, 1024, 'flash', n, now(), 'cancelled', now() FROM generate_series(1, 10001) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id, updated_at)
         SELECT id, coupon_id, id, now() - id * interval '1 s' FROM orders",
    )
    .await;
    assert_eq!((app.give_back().await, open(&app).await), (10_000, vec!["1 unit".to_owned()]));
}

/// Rows of dead letters stand at the time of their next try, behind all others of their sale.
#[tokio::test]
async fn open_rows_of_the_future_wait_while_the_letters_of_their_sale_are_postponed() {
    let app = TestApp::start().await;
    let coupons = [app.create_flash(9).await, app.create_flash(9).await];
    for coupon in coupons {
        for buyer in [1, 2] {
            let order = app.order(buyer, coupon).await;
            assert_eq!(app.cancel(buyer, order).await.status, 200);
        }
    }
    let [postponed, due] = coupons;
    app.execute(&format!(
        "UPDATE stock_returns SET updated_at = now() + interval '30 min' WHERE user_id = 2;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES
             ('withdrawals', {postponed}, 'x', now() + interval '30 min'),
             ('withdrawals', {due}, 'x', now() - interval '1 s'), ('expiry', {due}, 'x', now() + interval '30 min')"
    ))
    .await;
    let open = "SELECT user_id FROM stock_returns WHERE done_at IS NULL";
    assert_eq!((app.give_back().await, app.numbers(open).await), (3, vec![2]));
    assert_eq!((app.stock(postponed).await, app.stock(due).await), (8, 9));
    app.execute("UPDATE stock_returns SET updated_at = now() WHERE done_at IS NULL").await;
    assert_eq!(app.give_back().await, 1, "its time has come");
}

/// Another process is faster.
#[tokio::test]
async fn close_leaves_rows_that_another_process_has_closed() {
    let app = archived(1).await;
    app.write_rows(&[(1, 1, "flash", 1, "cancelled"), (2, 1, "flash", 2, "cancelled")]).await;
    write_returns(&app, &[(1, "unit", false), (2, "unit", false)]).await;
    let change = "UPDATE stock_returns SET done_at = '2024-01-01T00:00:00Z', updated_at = now() WHERE order_id = 1";
    let other = app.holding(change).await;
    let ending = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (closed, ()) = tokio::join!(app.give_back(), ending);
    assert_eq!(closed, 1);
    let done = "SELECT order_id FROM stock_returns WHERE done_at = '2024-01-01T00:00:00Z'";
    assert_eq!(app.numbers(done).await, [1], "it keeps its time");
}

/// A sale of which Redis lacks buyers, so that the fate of its discarded letter can't be told.
#[tokio::test]
async fn put_last_has_the_rows_of_letters_wait_behind_all_others() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(1_000).await;
    let lost = app.create_flash(9).await;
    let cancelled = app.order(2, lost).await;
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    app.execute(&format!("UPDATE flash_sales SET sold = 1000 WHERE coupon_id = {coupon}")).await;
    let letter = app.order(1, coupon).await;
    discard(&app, 1).await;
    hide_a_shard(&app, coupon).await;
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id) VALUES ({letter}, 'place', {coupon}, 1);
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES
             ('stock_returns', {lost}, 'x', now() + interval '30 min'), ('withdrawals', {lost}, 'x', now() + interval '30 min'),
             ('places', {coupon}, 'x', now() + interval '30 min')"
    ))
    .await;
    app.let_rows_age("stock_returns").await;
    assert_eq!(app.give_back().await, 0);
    let last = format!(
        "SELECT concat_ws(' ', order_id, what) FROM stock_returns
         WHERE updated_at = (SELECT next_try_at FROM postponed WHERE pass = 'withdrawals' AND item = {coupon})"
    );
    assert_eq!(app.texts(&last).await, [format!("{letter} unit")]);
    assert_eq!(touched(&app).await, [letter], "neither its place nor the unit of another sale");

    // Another process closes the row while the next try is about to put it last once more.
    app.execute(&format!(
        "UPDATE postponed SET next_try_at = now() WHERE pass = 'withdrawals' AND item = {coupon};
         UPDATE stock_returns SET updated_at = now() - interval '2 days'"
    ))
    .await;
    let closing = "UPDATE stock_returns SET done_at = now(), updated_at = now() WHERE what = 'unit' AND user_id = 1";
    let other = app.holding(closing).await;
    let closed_at = "SELECT count(*) FROM stock_returns WHERE updated_at = done_at";
    let ending = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (given_back, ()) = tokio::join!(app.give_back(), ending);
    assert_eq!((given_back, app.number(closed_at).await), (0, 1), "it keeps its time");
}

async fn discard(app: &TestApp, letter: i64) {
    let letter = DeadLetterId::new(letter).expect("a positive number");
    let discarded = app.app.dead_letters.discard(letter, &Actor::command_line()).await;
    assert_eq!(discarded.expect("Postgres answers"), Discarded::Done);
}

async fn hide_a_shard(app: &TestApp, coupon: CouponId) {
    let own = app.shard_of(coupon, 1).await;
    let mut keys = app.shard_keys(coupon).await;
    keys.retain(|key| *key != own);
    let _: String = app.redis(&["RENAME", &keys[0], &format!("{}:hidden", keys[0])]).await;
}

/// User 5 has a live order of another sale, and a cancelled one of this sale; and one that is of no sale, by its kind. None
/// of them inherits a place.
#[tokio::test]
async fn live_orders_of_this_sale_alone_inherit_a_withdrawn_place() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let (coupon, other) = (app.create_flash(2).await, app.create_flash(9).await);
    let cancelled = app.order(5, coupon).await;
    assert_eq!(app.cancel(5, cancelled).await.status, 200);
    assert_eq!(app.give_back().await, 1);
    app.order(5, other).await;
    app.expect_disagreements();
    app.write_rows(&[(99, coupon.sequence(), "regular", 5, "unpaid")]).await;
    app.order(1, coupon).await;
    let forgotten = app.order(2, coupon).await;
    app.forget_buyer(coupon, 2).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    assert_eq!(app.claim(5, coupon).await.status, 202);
    assert_eq!(app.write_orders().await.dead_letters, 1);
    discard(&app, 1).await;
    assert_eq!((app.give_back().await, app.stock(coupon).await), (1, 0));
    let buyers = app.buyers(coupon).await;
    assert_eq!(buyers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(buyers[&2], forgotten);
}

/// `sold` was too high, so a claim is a letter although a unit is left.
#[tokio::test]
async fn units_left_are_counted_by_the_total_of_the_sale_itself() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let (small, coupon) = (app.create_flash(1).await, app.create_flash(3).await);
    app.order(1, coupon).await;
    app.order(2, coupon).await;
    app.execute(&format!("UPDATE flash_sales SET sold = 3 WHERE coupon_id = {coupon}")).await;
    assert_eq!(app.claim(3, coupon).await.status, 202);
    assert_eq!(app.write_orders().await.dead_letters, 1);
    discard(&app, 1).await;
    assert_eq!((app.give_back().await, app.stock(coupon).await), (1, 1));
    assert_eq!((app.sold(coupon).await, app.sold(small).await), (2, 0));
}

/// A failure is one, however many rows of the coupon wait.
#[tokio::test]
async fn a_pass_finds_a_waiting_coupon_once() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    for buyer in 1..=3 {
        let order = app.order(buyer, coupon).await;
        assert_eq!(app.cancel(buyer, order).await.status, 200);
    }
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "few"]).await;
    assert_eq!(app.give_back().await, 0);
    let failures = "flash_sale_pass_failures_total{pass=\"stock_returns\"}";
    assert_eq!(app.metric(failures).await, 1.0);
}

/// Redis has forgotten the buyers 2 and 3, and sold their units again; the order of one of them is cancelled just now.
#[tokio::test]
async fn lock_live_holds_the_heirs_alone_in_the_order_of_their_ids() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(3).await;
    for buyer in 1..=3 {
        app.order(buyer, coupon).await;
    }
    for buyer in [2, 3] {
        app.forget_buyer(coupon, buyer).await;
        let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    }
    for buyer in [4, 5] {
        assert_eq!(app.claim(buyer, coupon).await.status, 202);
    }
    assert_eq!(app.write_orders().await.dead_letters, 2);
    for letter in app.numbers("SELECT id FROM dead_letters").await {
        discard(&app, letter).await;
    }
    let change = "UPDATE orders SET status = 'cancelled', cancelled_at = now(), updated_at = now() WHERE user_id = 2";
    let other = app.holding(change).await;
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let free = "SELECT user_id FROM orders ORDER BY user_id FOR UPDATE SKIP LOCKED";
        let free = app.numbers(free).await;
        other.commit().await.expect("Postgres answers");
        free
    };
    let (given_back, free) = tokio::join!(app.give_back(), looking);
    assert_eq!(free, [1, 3, 4, 5], "it waits for the first heir, and has not come to the second");
    assert_eq!(given_back, 1);
    let buyers = app.buyers(coupon).await;
    let has = [1, 2, 3].map(|buyer| buyers.contains_key(&buyer));
    assert_eq!((has, buyers.len()), ([true, false, true], 3), "a place waits for another heir");
}
