//! The place of a discarded dead letter: its unit is offered again only if no live order needs it.

use flash_sale::app::start_housekeeping;
use flash_sale::base::limits;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::dead_letter::LetterFilter;
use futures_util::future::join_all;

use crate::support::lines::Lines;
use crate::support::{Bounded, TestApp, eventually, lane, user, write_all};

/// An app that asks Redis about every claim, with one sale of which all units are sold and written: to users 1, 2, 3 ...
async fn sold_out(units: i64) -> (TestApp, CouponId) {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(units).await;
    for n in 1..=units {
        assert_eq!(app.claim(n, coupon).await.status, 202);
    }
    app.write_orders().await;
    (app, coupon)
}

/// Redis goes back to before this user had claimed.
async fn forget(app: &TestApp, coupon: CouponId, n: i64) {
    app.forget_buyer(coupon, n).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
}

/// A promise without a unit in Postgres.
async fn oversold(app: &TestApp, coupon: CouponId, n: i64) -> i64 {
    let order = app.claim(n, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    assert_eq!(app.my_claim(n, coupon).await.text("status"), "in_review");
    order
}

/// Discards every open dead letter. Returns their number.
async fn discard_all(app: &TestApp) -> usize {
    let open = app
        .app
        .dead_letters
        .list(&LetterFilter::default(), None, 1_000)
        .await
        .expect("Postgres answers");
    for letter in &open {
        app.app
            .dead_letters
            .discard(letter.id, &Actor::command_line())
            .await
            .expect("Postgres answers");
    }
    open.len()
}

/// Checks that each user is told the truth, and that the stores agree: these are the buyers, and so many units are
/// left.
async fn assert_settled(app: &TestApp, coupon: CouponId, buyers: &[i64], left: i64) {
    assert_eq!(app.stock(coupon).await, left, "stock");
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), buyers);
    let report = app.reconcile().await;
    assert!(report.agrees() && report.sales[0].identical, "{report:#?}");
    for n in buyers {
        let mine = app.my_claim(*n, coupon).await;
        let again = app.claim(*n, coupon).await;
        assert_eq!(again.refusal(), (409, "already_claimed"), "user {n}");
        assert_eq!(again.order_id(), mine.order_id(), "user {n}");
    }
}

#[tokio::test]
async fn after_a_roll_back_a_discarded_promise_offers_no_unit_that_is_not_there() {
    let (app, coupon) = sold_out(2).await;
    forget(&app, coupon, 2).await;
    let order = oversold(&app, coupon, 3).await;
    assert_eq!(discard_all(&app).await, 1);
    assert_eq!(app.give_back().await, 1);
    assert_settled(&app, coupon, &[1, 2], 0).await;
    assert_eq!(app.status(3, order).await, "cancelled");
    assert_eq!(app.my_claim(3, coupon).await.text("status"), "cancelled");
    for n in [3, 4] {
        assert_eq!(app.claim(n, coupon).await.refusal(), (410, "sold_out"));
    }
    assert_eq!((app.write_orders().await.positions, app.give_back().await), (0, 0));
}

/// Also where a page in between has a forgotten order, to which the place goes.
#[tokio::test]
async fn other_sales_wait_for_a_few_pages_of_a_search_for_heirs_and_not_for_its_end() {
    for is_forgotten in [false, true] {
        let (app, large) = sold_out(1).await;
        let small = app.create_flash(1).await;
        assert!(large < small, "the large one has the first turn");
        let order = app.order(1, small).await;
        assert_eq!(app.cancel(1, order).await.status, 200);
        app.append(lane(), &["coupon", &large.to_string(), "user", "7", "order", "77"]).await;
        app.set_buyer(large, 7, 77).await;
        assert_eq!(app.write_orders().await.dead_letters, 1);
        discard_all(&app).await;
        let pages = i64::try_from(limits::FORGOTTEN_PAGES).expect("a few");
        let last = live_orders(&app, large, pages * 1_000).await;
        if is_forgotten {
            app.forget_buyer(large, last).await;
        }
        let lines = Lines::down_to(tracing::Level::DEBUG);
        assert_eq!(app.give_back().await, 2);
        let is_page = |line: &String| line.contains("ORDER BY user_id LIMIT $3");
        let is_closing = |line: &String| {
            line.contains("UPDATE stock_returns SET done_at") && line.contains("rows_affected=1 ")
        };
        let all = lines.with("");
        let first_closed = all.iter().position(is_closing).expect("both are closed");
        let before = all[..first_closed].iter().filter(|line| is_page(line)).count();
        assert_eq!(before, limits::FORGOTTEN_PAGES);
        let behind = lines.count("UPDATE stock_returns SET updated_at = greatest");
        assert_eq!(behind, 1, "meanwhile the letter waits behind other units of its sale");
        let buyers = app.buyers(large).await;
        assert!(buyers.contains_key(&last) && !buyers.contains_key(&7));
        assert_eq!(app.stock(small).await, 1);
        assert_eq!(app.stock(large).await, 0, "no unit was left");
        app.expect_disagreements();
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_read_is_not_looked_at_again_at_once() {
    let (app, coupon) = sold_out(1).await;
    app.expect_disagreements();
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "7", "order", "77"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    let shard = app.shard_of(coupon, 7).await;
    let _: i64 = app.redis(&["HSET", &shard, "7", "junk"]).await;
    discard_all(&app).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let ran = app.app.stock_returns.pass().bounded().await.expect("both stores answer");
    assert_eq!((ran.items, ran.goes_on), (0, false));
    let looks = lines.count("WITH RECURSIVE step (number, coupon_id)");
    assert_eq!(looks, 3, "for places, for units, and for units behind those of this sale");
    let noted = app.texts("SELECT pass FROM postponed").await;
    assert_eq!(noted, ["withdrawals"]);
}

/// Live orders of users behind all others, and these users as buyers in Redis. Returns the last user.
async fn live_orders(app: &TestApp, coupon: CouponId, orders: i64) -> i64 {
    let first = 1_000_000;
    let last = first + orders - 1;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT n, {coupon}, 'flash', n, now() FROM generate_series({first}, {last}) AS n"
    ))
    .await;
    let [shard] = &app.shard_keys(coupon).await[..] else { panic!("a small sale has one shard") };
    let pairs = (first..=last).flat_map(|user| [user.to_string(), user.to_string()]);
    let words: Vec<String> = ["HSET".to_owned(), shard.clone()].into_iter().chain(pairs).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(app.redis::<i64>(&words).await, orders);
    last
}

#[tokio::test]
async fn units_that_were_offered_once_more_stay_offered_and_no_others() {
    // Of four orders Redis has forgotten three, and sold one of their units again.
    let (app, coupon) = sold_out(4).await;
    for n in 2..=4 {
        forget(&app, coupon, n).await;
    }
    oversold(&app, coupon, 5).await;
    discard_all(&app).await;
    assert_eq!((app.give_back().await, app.stock(coupon).await), (1, 2));
    let mut missing = app.reconcile().await.disagreements;
    missing.retain(|found| found.code() == "buyer_missing");
    assert_eq!(missing.len(), 2, "the comparison names the others");
    // Users who claim these are in review as well; then each letter makes up for one.
    for n in [6, 7] {
        oversold(&app, coupon, n).await;
    }
    assert_eq!((discard_all(&app).await, app.give_back().await), (2, 2));
    assert_settled(&app, coupon, &[1, 2, 3, 4], 0).await;
}

#[tokio::test]
async fn the_place_goes_to_a_forgotten_order_also_while_units_are_left() {
    let (app, coupon) = sold_out(3).await;
    forget(&app, coupon, 2).await;
    oversold(&app, coupon, 4).await;
    // One unit comes back before the letter is discarded.
    let order = app.my_claim(1, coupon).await.order_id();
    app.cancel(1, order).await;
    assert_eq!((app.give_back().await, app.stock(coupon).await, app.sold(coupon).await), (1, 1, 2));
    discard_all(&app).await;
    assert_eq!(app.give_back().await, 1);
    assert_settled(&app, coupon, &[2, 3], 1).await;
    assert!(app.order(5, coupon).await > 0, "and that one can be claimed");
}

#[tokio::test]
async fn who_has_claimed_a_second_time_is_a_buyer_by_the_first_order_again() {
    let (app, coupon) = sold_out(2).await;
    let first = app.my_claim(2, coupon).await.order_id();
    forget(&app, coupon, 2).await;
    let second = app.claim(2, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1, "a conflict");
    // Also while units are left.
    assert_eq!(app.restock(coupon, 1, "k").await.status, 200);
    discard_all(&app).await;
    assert_eq!(app.give_back().await, 1);
    assert_settled(&app, coupon, &[1, 2], 1).await;
    assert_eq!(app.buyers(coupon).await[&2], first);
    assert_eq!(app.status(2, second).await, "cancelled");
}

#[tokio::test]
async fn where_sold_was_too_high_the_unit_comes_back_and_can_be_sold() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(2).await;
    app.order(1, coupon).await;
    app.execute("UPDATE flash_sales SET sold = 2").await;
    oversold(&app, coupon, 2).await;
    discard_all(&app).await;
    assert_eq!((app.give_back().await, app.sold(coupon).await), (1, 1));
    assert_settled(&app, coupon, &[1], 1).await;
    // No further order is put aside.
    let order = app.order(3, coupon).await;
    assert_eq!(app.status(3, order).await, "unpaid");
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 1);
}

#[tokio::test]
async fn an_entry_that_was_made_by_hand_has_no_place() {
    let (app, coupon) = sold_out(1).await;
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "7", "order", "77"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    discard_all(&app).await;
    assert_eq!(app.give_back().await, 1);
    assert_settled(&app, coupon, &[1], 0).await;
}

#[tokio::test]
async fn a_buyer_that_was_made_by_hand_as_well_leaves_no_unit_behind() {
    let (app, coupon) = sold_out(1).await;
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "7", "order", "77"]).await;
    app.set_buyer(coupon, 7, 77).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    assert_eq!(app.reconcile().await.disagreements[0].code(), "not_conserved");
    discard_all(&app).await;
    assert_eq!(app.give_back().await, 1);
    assert_settled(&app, coupon, &[1], 0).await;
}

/// A stock below 0 was written by hand; Redis's numbers add up all the same.
#[tokio::test]
async fn a_stock_below_zero_takes_the_unit_and_offers_none() {
    let (app, coupon) = sold_out(1).await;
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "7", "order", "77"]).await;
    app.set_buyer(coupon, 7, 77).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "-1"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    discard_all(&app).await;
    assert_eq!(app.give_back().await, 1);
    assert_settled(&app, coupon, &[1], 0).await;
}

#[tokio::test]
async fn a_pass_that_died_before_it_wrote_that_down_passes_nothing_on_twice() {
    let (app, coupon) = sold_out(3).await;
    for n in [2, 3] {
        forget(&app, coupon, n).await;
    }
    for n in [4, 5] {
        oversold(&app, coupon, n).await;
    }
    discard_all(&app).await;
    for _ in 0..3 {
        assert_eq!(app.give_back().await, 2);
        assert_settled(&app, coupon, &[1, 2, 3], 0).await;
        app.execute("UPDATE stock_returns SET done_at = NULL").await;
    }
    app.give_back().await;
    let returns: i64 = app.redis(&["HGET", &app.keys().coupon(coupon), "returns"]).await;
    assert_eq!(returns, 1);
}

#[tokio::test]
async fn while_redis_lacks_buyers_of_the_sale_its_places_wait() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    // More than one shard.
    let coupon = app.create_flash(1_000).await;
    assert!(app.shards(coupon).await.count() > 1);
    app.execute("UPDATE flash_sales SET sold = 1000").await;
    let order = oversold(&app, coupon, 1).await;
    discard_all(&app).await;
    let own = app.shard_of(coupon, 1).await;
    let mut keys = app.shard_keys(coupon).await;
    keys.retain(|key| *key != own);
    let _: String = app.redis(&["RENAME", &keys[0], &format!("{}:hidden", keys[0])]).await;
    assert_eq!((app.give_back().await, app.stock(coupon).await), (0, 999));
    assert_eq!(app.buyers(coupon).await[&1], order);
    assert_eq!(app.postponed().await, [format!("withdrawals {coupon} 1")]);
    app.let_postponed_wait().await;
    let _: String = app.redis(&["RENAME", &format!("{}:hidden", keys[0]), &keys[0]]).await;
    assert_eq!(app.give_back().await, 0, "it isn't due");
    app.let_postponed_be_due().await;
    assert_eq!((app.give_back().await, app.stock(coupon).await), (1, 1_000));
}

#[tokio::test]
async fn a_letter_of_a_sale_that_is_archived_by_then_only_ends() {
    let (app, coupon) = sold_out(1).await;
    forget(&app, coupon, 1).await;
    oversold(&app, coupon, 2).await;
    discard_all(&app).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    app.lose_sale(coupon).await;
    assert_eq!((app.give_back().await, app.give_back().await), (1, 0));
}

/// The process first tells the user of a forgotten order "sold out" from memory, since no process knows better.
#[tokio::test]
async fn a_process_that_remembers_the_sale_as_sold_out_learns_who_is_a_buyer_again() {
    let app = TestApp::start().await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(2).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    forget(&app, coupon, 2).await;
    app.app.memories.promised.forget_all();
    oversold(&app, coupon, 3).await;
    eventually("the process remembers that it is sold out", async || {
        let sold_out = app.claim(2, coupon).await;
        assert_eq!(sold_out.refusal(), (410, "sold_out"));
        app.app.memories.sold_out.refuses(coupon, user(2))
    })
    .await;
    discard_all(&app).await;
    assert_eq!(app.give_back().await, 1);
    // A refusal renews the memory of "sold out"; by chance one claim of user 2 may get through.
    eventually("the process knows user 2", async || {
        for _ in 0..10 {
            assert_eq!(app.claim(4, coupon).await.refusal(), (410, "sold_out"));
            if app.claim(2, coupon).await.refusal() != (409, "already_claimed") {
                return false;
            }
        }
        true
    })
    .await;
    assert_eq!(app.claim(2, coupon).await.order_id(), orders[1]);
}

/// Two processes at once, users who cancel forgotten orders, and users who claim the offered units.
#[tokio::test]
async fn places_are_passed_on_once_while_orders_are_closed_and_claimed() {
    const UNITS: i64 = 60;
    const FORGOTTEN: i64 = 40;
    let (app, coupon) = sold_out(UNITS).await;
    for n in 1..=FORGOTTEN {
        forget(&app, coupon, n).await;
    }
    for n in 101..=100 + FORGOTTEN {
        assert_eq!(app.claim(n, coupon).await.status, 202);
    }
    let mut worker = app.workers().remove(0);
    worker.ensure_group().bounded().await.expect("Redis answers");
    write_all(&mut worker).await;
    assert_eq!(discard_all(&app).await, usize::try_from(FORGOTTEN).expect("a few"));

    let another = app.another_instance().await;
    let cancels = join_all((1..=20).map(|n| {
        let app = &app;
        async move {
            let order = app.number(&format!("SELECT id FROM orders WHERE user_id = {n}")).await;
            assert_eq!(app.cancel(n, order).await.status, 200);
        }
    }));
    let claims = join_all((201..=230).map(|n| app.claim(n, coupon)));
    let passes = async {
        for _ in 0..10 {
            app.give_back().await;
        }
    };
    let others = async {
        for _ in 0..10 {
            another.stock_returns.pass().bounded().await.expect("both stores answer");
        }
    };
    tokio::join!(cancels, claims, passes, others);
    // A claim beyond the units is a letter, and makes up for an order that is still forgotten.
    eventually("nothing is left to do", async || {
        let written = write_all(&mut worker).await.positions;
        let discarded = discard_all(&app).await;
        written + discarded + app.give_back().await == 0
    })
    .await;
    let report = app.reconcile().await;
    let live = app.sold(coupon).await;
    assert_eq!(report.sales[0].buyers + app.stock(coupon).await, UNITS, "{report:#?}");
    let codes: Vec<&str> = report.disagreements.iter().map(|found| found.code()).collect();
    assert!(codes.iter().all(|code| *code == "buyer_missing"), "{report:#?}");
    // Every unit that Redis has forgotten and not sold is still offered; claims find each of them.
    for n in 301..=400 {
        app.claim(n, coupon).await;
    }
    eventually("all units are where they belong", async || {
        write_all(&mut worker).await;
        discard_all(&app).await;
        app.give_back().await;
        app.reconcile().await.agrees()
    })
    .await;
    assert_eq!((app.stock(coupon).await, app.sold(coupon).await), (0, UNITS), "from {live}");
}
