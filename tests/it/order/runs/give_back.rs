//! Units and places on their way back: rounds and turns of a pass, and rows that stay open.

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::give_back::places::Places;
use flash_sale::sale::pass::Ran;

use super::{errors, raise_epoch};
use crate::support::played::{Play, Played, hash};
use crate::support::{Bounded, TestApp, bounded, lane, patience};

async fn pass(app: &TestApp) -> Ran {
    app.app.stock_returns.pass().bounded().await.expect("both stores answer")
}

fn ran(items: usize, goes_on: bool) -> Ran {
    Ran { items, goes_on }
}

/// Writes cancelled orders by hand, of the users of the same numbers, each with an open row.
async fn write_returns(app: &TestApp, coupon: CouponId, (first, last): (i64, i64), what: &str) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT n, {coupon}, 'flash', n, now(), 'cancelled', now() FROM generate_series({first}, {last}) AS n
         ON CONFLICT DO NOTHING;
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
         SELECT n, '{what}', {coupon}, n FROM generate_series({first}, {last}) AS n"
    ))
    .await;
}

/// Units of an archived sale come back by a note alone.
#[tokio::test]
async fn work_through_takes_ten_batches_of_a_coupon_and_tells_whether_it_goes_on() {
    let app = TestApp::with_sales(1).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let coupon = crate::support::sale(1);
    for what in ["unit", "place"] {
        write_returns(&app, coupon, (1, 10_001), what).await;
        assert_eq!(pass(&app).await, ran(10_000, true), "{what}");
        assert_eq!(pass(&app).await, ran(1, false), "{what}");
        assert_eq!(pass(&app).await, ran(0, false), "{what}");
    }
}

#[tokio::test]
async fn rounds_of_units_and_of_places_are_added_up() {
    let app = TestApp::with_sales(2).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let [first, second] = [1, 2].map(crate::support::sale);
    let mut next = 1;
    for (units, places) in [(2, 3), (1_000, 0), (1_001, 2), (999, 1_001)] {
        write_returns(&app, first, (next, next + units - 1), "unit").await;
        next += units;
        write_returns(&app, second, (next, next + places - 1), "place").await;
        next += places;
        let items = usize::try_from(units + places).expect("a few");
        assert_eq!(pass(&app).await, ran(items, false), "{units} units, {places} places");
    }
}

/// A round in which nothing could be closed is the last one, however many rows wait.
#[tokio::test]
async fn a_full_turn_that_closes_nothing_ends_the_rounds() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    write_returns(&app, coupon, (1, 1_000), "unit").await;
    raise_epoch(&app, 2, &[coupon]).await;
    assert_eq!(pass(&app).await, ran(0, false), "it learns of the epoch");
    assert_eq!((pass(&app).await, app.postponed().await.len()), (ran(1_000, false), 0));
}

/// Notes of coupons without an open row: those that are due have nothing left to do.
#[tokio::test]
async fn work_through_ends_the_tries_of_coupons_of_which_no_row_is_open() {
    let app = TestApp::with_sales(1).await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
         SELECT pass, item, 'x', now() + (item - 8) * interval '1 hour'
         FROM unnest('{places, stock_returns, withdrawals, expiry}'::text[]) AS pass, unnest('{7, 9}'::bigint[]) AS item",
    )
    .await;
    assert_eq!(pass(&app).await, ran(0, false));
    let left = ["expiry 7 1", "expiry 9 1", "places 9 1", "stock_returns 9 1", "withdrawals 9 1"];
    assert_eq!(app.postponed().await, left);
}

/// Of the second sale a place waits, and of the third one nothing does: notes about their units are settled together,
/// since neither has a turn.
#[tokio::test]
async fn a_coupon_has_a_turn_only_where_a_row_of_that_kind_is_open() {
    let app = TestApp::with_sales(3).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let [first, second, third] = [1, 2, 3].map(crate::support::sale);
    write_returns(&app, first, (1, 1), "unit").await;
    write_returns(&app, second, (2, 2), "place").await;
    app.execute(&format!(
        "INSERT INTO postponed (pass, item, error, next_try_at) VALUES
             ('places', {second}, 'x', now() + interval '1 hour'),
             ('stock_returns', {second}, 'x', now()), ('stock_returns', {third}, 'x', now())"
    ))
    .await;
    app.count_statements("DELETE", "postponed").await;
    assert_eq!((pass(&app).await, app.statements().await), (ran(1, false), 1));
    assert_eq!(app.postponed().await, [format!("places {second} 1")]);
    let settled = "SELECT item FROM postponed_settled ORDER BY item";
    assert_eq!(app.numbers(settled).await, [second.get(), third.get()]);
}

/// Each way in which units of a sale can't come back is noted with its reason.
#[tokio::test]
async fn units_that_cannot_come_back_are_postponed_with_the_reason() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.count_statements("UPDATE", "stock_returns").await;
    for (at, (field, value, reason)) in (1..).zip([
        ("state", "", "missing in Redis"),
        ("layout", "9", "has another epoch or layout"),
        ("epoch", "9", "has another epoch or layout"),
        ("returns", "many", "stock_returns: Redis: "),
        ("stock", "few", "stock_returns: Redis: "),
    ]) {
        let coupon = app.create_flash(9).await;
        let order = app.order(at, coupon).await;
        assert_eq!(app.cancel(at, order).await.status, 200);
        let key = app.keys().coupon(coupon);
        let _: i64 = match value {
            "" => app.redis(&["HDEL", &key, field]).await,
            value => app.redis(&["HSET", &key, field, value]).await,
        };
        app.statements().await;
        assert_eq!(pass(&app).await, ran(0, false), "{field}");
        assert_eq!(app.statements().await, 0, "{field}: no row is written");
        assert_eq!(app.postponed().await, [format!("stock_returns {coupon} 1")], "{field}");
        let errors = errors(&app).await;
        assert!(errors[0].contains(reason), "{field}: {errors:?}");
        app.execute("DELETE FROM stock_returns; DELETE FROM postponed").await;
    }
}

/// Ten rounds close one row each: Postgres leaves out all others.
#[tokio::test]
async fn a_pass_goes_on_if_its_units_do_or_its_places() {
    let app = TestApp::with_sales(1).await;
    app.execute(
        "UPDATE flash_sales SET archived_at = now();
         CREATE SEQUENCE closings;
         CREATE FUNCTION close_the_first() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('closings') % 1000 = 1 THEN RETURN NEW; END IF;
                 RETURN NULL;
             END $$;
         CREATE TRIGGER the_first BEFORE UPDATE ON stock_returns FOR EACH ROW EXECUTE FUNCTION close_the_first()",
    )
    .await;
    for what in ["unit", "place"] {
        write_returns(&app, crate::support::sale(1), (1, 1_010), what).await;
        assert_eq!(pass(&app).await, ran(10, true), "{what}");
        app.execute("DELETE FROM stock_returns").await;
    }
}

/// An open unit that is postponed, a unit that is done, a place that is postponed, and a unit whose row Postgres can't
/// write at this moment. The notes of the second and of the third coupon are due.
#[tokio::test]
async fn work_through_that_is_broken_off_ends_no_tries_of_coupons_without_waiting_rows() {
    let app = TestApp::with_sales(4).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    for (number, what) in [(1, "unit"), (2, "unit"), (3, "place"), (4, "unit")] {
        write_returns(&app, crate::support::sale(number), (number, number), what).await;
    }
    app.execute(
        "UPDATE stock_returns SET done_at = now() WHERE order_id = 2;
         INSERT INTO postponed (pass, item, error, next_try_at)
         SELECT pass, coupon << 10, 'x', now() + wait
         FROM (VALUES ('stock_returns', 1::bigint, interval '1 hour'), ('stock_returns', 2, '-1 s'), ('withdrawals', 2, '-1 s'),
                      ('stock_returns', 3, '-1 s'), ('places', 3, '1 hour')) AS note (pass, coupon, wait)",
    )
    .await;
    app.refuse("UPDATE", "stock_returns", "OLD.order_id = 4", "57014").await;
    let notes = app.postponed().await;
    assert_eq!(notes.len(), 5);
    for deleted in [0, 1] {
        app.execute(&format!("DELETE FROM stock_returns WHERE order_id = {deleted}")).await;
        let broken_off = app.app.stock_returns.pass().bounded().await;
        assert!(broken_off.is_err(), "{broken_off:?}");
        assert_eq!(app.postponed().await, notes, "without {deleted}");
    }
}

#[tokio::test]
async fn give_back_to_a_lane_that_is_recovering_waits_and_has_the_lane_looked_at() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    let of_lane = app.keys().lane(lane());
    let _: i64 = app.redis(&["HSET", &of_lane, "state", "recovering"]).await;
    app.app.lanes.take_suspicion();
    assert_eq!((pass(&app).await, app.postponed().await.len()), (ran(0, false), 0));
    assert!(app.app.lanes.take_suspicion(), "the lane is looked at");
    let _: i64 = app.redis(&["HSET", &of_lane, "state", "open"]).await;
    assert_eq!((pass(&app).await, app.stock(coupon).await), (ran(1, false), 3));
}

/// Postgres, asked anew, knows of no such epoch.
#[tokio::test]
async fn give_back_to_a_lane_that_is_stale_is_postponed() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    let of_lane = app.keys().lane(lane());
    let epoch: String = app.redis(&["HGET", &of_lane, "epoch"]).await;
    let _: i64 = app.redis(&["HSET", &of_lane, "epoch", "77"]).await;
    assert_eq!(pass(&app).await, ran(0, false));
    let postponed = [format!("stock_returns {coupon} 1")];
    assert_eq!(app.postponed().await, postponed);
    app.let_postponed_wait().await;
    let _: i64 = app.redis(&["HSET", &of_lane, "epoch", &epoch]).await;
    assert_eq!((pass(&app).await, app.postponed().await), (ran(0, false), postponed.to_vec()));
    app.let_postponed_be_due().await;
    assert_eq!((pass(&app).await, app.postponed().await.len()), (ran(1, false), 0));
    assert_eq!((pass(&app).await, app.stock(coupon).await), (ran(0, false), 3));
}

/// A list of unpaid orders has been built of which none has gone.
#[tokio::test]
async fn places_of_no_order_are_freed_without_a_call() {
    let app = TestApp::start().await;
    let script = hash(include_str!("../../../../lua/free_place.lua"));
    let played = Played::before(app.redis_url(), move |words| match words {
        [_, called, ..] if *called == script => Play::Reply(":1\r\n".to_owned()),
        _ => Play::Real,
    })
    .await;
    let redis = played.redis(patience());
    let link = redis.link().await.expect("Redis answers");
    let places = Places::new(app.keys().clone());
    for (pairs, calls) in [(&[][..], 0), (&[42, 7], 1), (&[], 1)] {
        let freed = bounded("an answer", places.free(&link, lane(), pairs)).await;
        freed.expect("Redis answers");
        assert_eq!(played.asked().len(), calls, "{pairs:?}");
    }
}

/// A place comes back by a row of its own, and its buyer keeps the unit, whatever the state of the sale.
#[tokio::test]
async fn places_come_back_and_leave_the_units_to_their_buyers() {
    let app = TestApp::configured(&["--unpaid-orders-max", "9"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    let unpaid = app.keys().unpaid(lane());
    assert_eq!(app.redis::<i64>(&["HLEN", &unpaid]).await, 2);
    assert_eq!(app.pay(1, orders[0]).await.status, 200);
    assert_eq!(app.cancel(2, orders[1]).await.status, 200);
    let [layout] = app.in_redis(coupon, ["layout"]).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "layout", "9"]).await;
    assert_eq!(pass(&app).await, ran(1, false), "the place alone");
    let open = "SELECT what FROM stock_returns WHERE done_at IS NULL";
    assert_eq!(app.texts(open).await, ["unit"]);
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(app.stock(coupon).await, 7);
    assert_eq!(app.redis::<i64>(&["HLEN", &unpaid]).await, 0, "both have left the list");
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "layout", &layout]).await;
    app.let_postponed_be_due().await;
    assert_eq!((pass(&app).await, app.stock(coupon).await), (ran(1, false), 8));
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), [1]);
}

/// A recovery in between has taken the lane to another epoch.
#[tokio::test]
async fn close_leaves_rows_open_if_the_lane_has_another_epoch_by_then() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    let other = app.holding("LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE").await;
    let recovering = async {
        app.a_session_waits_for_a_row().await;
        app.execute("UPDATE lanes SET epoch = 2").await;
        other.rollback().await.expect("Postgres answers");
    };
    let (closed, ()) = tokio::join!(pass(&app), recovering);
    assert_eq!((closed, app.stock(coupon).await), (ran(0, false), 9));
    let open = "SELECT count(*) FROM stock_returns WHERE done_at IS NULL";
    assert_eq!((app.number(open).await, app.postponed().await.len()), (1, 0));
    app.execute("UPDATE lanes SET epoch = 1").await;
    assert_eq!((pass(&app).await, app.stock(coupon).await), (ran(1, false), 9));
}

/// Redis has no such sale when the script runs, and needs none any more.
#[tokio::test]
async fn units_of_a_sale_that_is_archived_in_their_turn_are_closed_by_the_next_pass() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    let other = app.holding("LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE").await;
    let archiving = async {
        app.a_session_waits_for_a_row().await;
        app.execute("UPDATE flash_sales SET archived_at = now(), removed_at = now()").await;
        app.lose_sale(coupon).await;
        other.rollback().await.expect("Postgres answers");
    };
    let (closed, ()) = tokio::join!(pass(&app), archiving);
    assert_eq!((closed, app.postponed().await.len()), (ran(0, false), 0));
    assert_eq!(app.number("SELECT count(*) FROM stock_returns WHERE done_at IS NULL").await, 1);
    assert_eq!(pass(&app).await, ran(1, false));
}
