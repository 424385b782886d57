//! Each status of an order, and a dead letter, against all code that counts or selects orders by their status.

use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::stock;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::order::dead_letter::LetterFilter;
use flash_sale::sale::order::model::OrderStatus;
use flash_sale::sale::person::erase::{Erasure, erase};
use flash_sale::sale::reconcile::repair;
use flash_sale::sale::reconcile::{Disagreement, Listing, Report};

use crate::faults::recovery::keep;
use crate::support::{Bounded, TestApp, lane, now, shared, user};

/// States of an accepted claim.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Status that its user is told.
    status: &'static str,
    /// Whether it holds a unit as an order.
    live: bool,
    /// Whether the sale may leave Redis, once it has ended.
    archivable: bool,
    /// True if it may move into the history, and its user may be erased, once the sale has left Redis.
    over: bool,
}

#[rustfmt::skip]
const ROWS: [Row; 8] = [
    Row { status: "unpaid",    live: true,  archivable: false, over: false },
    Row { status: "paid",      live: true,  archivable: true, over: false },
    Row { status: "redeemed",  live: true,  archivable: true, over: true },
    Row { status: "refunding", live: true,  archivable: true, over: false },
    Row { status: "cancelled", live: false, archivable: true, over: true },
    Row { status: "expired",   live: false, archivable: true, over: true },
    Row { status: "refunded",  live: false, archivable: true, over: true },
    // An open dead letter: a promise, and no order.
    Row { status: "in_review", live: false, archivable: false, over: false },
];

#[test]
fn each_status_of_an_order_has_a_row() {
    let rows = ROWS.map(|row| row.status);
    let missing = OrderStatus::ALL.map(OrderStatus::as_str);
    let missing: Vec<_> = missing.iter().filter(|status| !rows.contains(status)).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

/// Redis is asked about every claim, and an ended sale is archived at once.
const SETTINGS: [&str; 4] = ["--sold-out-memory-ms", "0", "--archive-after-ms", "0"];

async fn app() -> TestApp {
    TestApp::configured(&SETTINGS).await
}

impl Row {
    fn is_letter(self) -> bool {
        self.status == "in_review"
    }

    fn is_closed(self) -> bool {
        !self.live && !self.is_letter()
    }

    /// User 1's claim, in this status, on a sale of its own. Its unit has come back if it is closed.
    async fn make(self, app: &TestApp) -> (CouponId, i64) {
        let coupon = app.create_flash(9).await;
        if self.is_letter() {
            let sold = "UPDATE flash_sales SET sold =";
            app.execute(&format!("{sold} total WHERE coupon_id = {coupon}")).await;
            let order = app.claim(1, coupon).await.order_id();
            assert_eq!(app.write_orders().await.dead_letters, 1);
            app.execute(&format!("{sold} 0 WHERE coupon_id = {coupon}")).await;
            return (coupon, order);
        }
        let order = app.order(1, coupon).await;
        if ["paid", "redeemed", "refunding", "refunded"].contains(&self.status) {
            assert_eq!(app.pay(1, order).await.status, 200);
        }
        match self.status {
            "redeemed" => assert_eq!(app.redeem(order).await.status, 200),
            "cancelled" => assert_eq!(app.cancel(1, order).await.status, 200),
            "expired" => {
                app.let_time_pass_for(order).await;
                assert_eq!(app.expire().await, 1);
            }
            "refunding" | "refunded" => {
                assert_eq!(app.act(1, order, "refund").await.status, 200);
                if self.status == "refunded" {
                    assert_eq!(app.refund_payments().await, 1);
                }
                // Its gateway takes its time.
                app.execute("UPDATE payments SET gateway = 'external' WHERE status = 'refunding'")
                    .await;
            }
            _ => {}
        }
        app.give_back().await;
        assert_eq!(app.status(1, order).await, self.status);
        (coupon, order)
    }
}

/// Codes of the comparison's findings about this sale.
async fn found(app: &TestApp, coupon: CouponId) -> Vec<&'static str> {
    let found = app.reconcile().await.disagreements;
    let of_sale = found.iter().filter(|found| found.coupon() == Some(coupon));
    of_sale.map(Disagreement::code).collect()
}

async fn finds(app: &TestApp, coupon: CouponId, code: &str) -> bool {
    found(app, coupon).await.contains(&code)
}

async fn sale_is(app: &TestApp, coupon: CouponId, column: &str, value: i64) {
    app.execute(&format!("UPDATE flash_sales SET {column} = {value} WHERE coupon_id = {coupon}"))
        .await;
}

/// Redis goes back to before user 1 had claimed.
async fn forget(app: &TestApp, coupon: CouponId) {
    app.forget_buyer(coupon, 1).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
}

#[tokio::test]
async fn what_counts_as_sold() {
    let app = app().await;
    app.expect_disagreements();
    for row in ROWS {
        let (coupon, _) = row.make(&app).await;
        let live = i64::from(row.live);
        assert_eq!(found(&app, coupon).await, [""; 0], "{row:?}");
        assert_eq!(app.sold(coupon).await, live, "{row:?}");
        sale_is(&app, coupon, "sold", 1 - live).await;
        assert!(finds(&app, coupon, "sold_miscounted").await, "{row:?}");
        assert_eq!(app.compare(true).await.status, 200);
        assert_eq!(app.sold(coupon).await, live, "{row:?}: counted again");
        // Two orders for one unit.
        app.order(2, coupon).await;
        sale_is(&app, coupon, "sold", 1).await;
        sale_is(&app, coupon, "total", 1).await;
        assert_eq!(finds(&app, coupon, "oversold").await, row.live, "{row:?}");
    }
}

#[tokio::test]
async fn who_has_to_be_a_buyer() {
    let app = app().await;
    app.expect_disagreements();
    for row in ROWS {
        let (coupon, order) = row.make(&app).await;
        let is_buyer = app.buyers(coupon).await.contains_key(&1);
        assert_eq!(is_buyer, row.live || row.is_letter(), "{row:?}");
        app.set_buyer(coupon, 1, order).await;
        // A buyer whose order is closed has kept a unit that belongs to another.
        assert_eq!(finds(&app, coupon, "not_given_back").await, row.is_closed(), "{row:?}");
        app.forget_buyer(coupon, 1).await;
        assert_eq!(finds(&app, coupon, "buyer_missing").await, row.live, "{row:?}");
        assert!(!finds(&app, coupon, "order_lost").await, "{row:?}");
    }
}

#[tokio::test]
async fn who_may_have_another_order() {
    let app = app().await;
    app.expect_disagreements();
    for row in ROWS {
        let (coupon, _) = row.make(&app).await;
        let inserted = sqlx::query(sqlx::AssertSqlSafe(format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES ({coupon} * 1000, {coupon}, 'flash', 1, now())"
        )));
        let inserted = inserted.execute(&app.app.stores.pool).await;
        assert_eq!(inserted.is_err(), row.live, "{row:?}: one live order for each buyer");
    }
}

/// Asked of Redis, and of Postgres once the sale has left Redis.
#[tokio::test]
async fn what_a_user_is_told() {
    for row in ROWS {
        let app = app().await;
        let (coupon, order) = row.make(&app).await;
        let mine = app.my_claim(1, coupon).await;
        assert_eq!((mine.text("status"), mine.order_id()), (row.status, order));
        let live = app.app.orders.live_of(coupon, user(1)).await.expect("Postgres answers");
        assert_eq!(live.map(OrderId::get), row.live.then_some(order), "{row:?}");
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
        let archived = app.app.archive.pass().bounded().await.expect("both stores answer");
        assert_eq!(archived, usize::from(row.archivable), "{row:?}");
        let again = app.claim(1, coupon).await;
        match row.live || row.is_letter() {
            true => assert_eq!(again.refusal(), (409, "already_claimed"), "{row:?}"),
            false => assert_eq!(again.refusal(), (410, "sale_ended"), "{row:?}"),
        }
        assert_eq!(app.my_claim(1, coupon).await.text("status"), row.status);
    }
}

/// After a roll-back of Redis: the order that gets the place of a discarded dead letter.
#[tokio::test]
async fn who_inherits_a_place() {
    // The letter is the same user's, after a second claim, or another user's.
    for claims in [1, 2] {
        for row in ROWS.into_iter().filter(|row| !row.is_letter()) {
            let app = app().await;
            let (coupon, order) = row.make(&app).await;
            if row.live {
                forget(&app, coupon).await;
            }
            sale_is(&app, coupon, "sold", 9).await;
            assert_eq!(app.claim(claims, coupon).await.status, 202, "{row:?}");
            assert_eq!(app.write_orders().await.dead_letters, 1, "{row:?}");
            sale_is(&app, coupon, "sold", i64::from(row.live)).await;
            let letter = app
                .app
                .dead_letters
                .list(&LetterFilter::default(), None, 1)
                .await
                .expect("Postgres answers")
                .remove(0);
            app.app
                .dead_letters
                .discard(letter.id, &Actor::command_line())
                .await
                .expect("Postgres answers");
            assert_eq!(app.give_back().await, 1, "{row:?}");
            let (buyer, left) = if row.live { (Some(&order), 8) } else { (None, 9) };
            let buyers = app.buyers(coupon).await;
            assert_eq!((buyers.get(&1), buyers.len()), (buyer, buyer.iter().count()), "{row:?}");
            assert_eq!(app.stock(coupon).await, left, "{row:?}");
        }
    }
}

/// Effect of a repair after a unit, or a place, has never come back.
#[tokio::test]
async fn what_is_written_down_again() {
    let app = app().await;
    for row in ROWS {
        let (coupon, order) = row.make(&app).await;
        let user = user(1);
        let order = OrderId::new(order).expect("an order id");
        let unit = Disagreement::NotGivenBack { coupon, user, order };
        let was = Some((coupon, OrderStatus::Paid));
        let place =
            Disagreement::Listing(Listing::NotFreed { lane: lane(), user, order, row: was });
        for (found, expected) in
            [(unit, row.is_closed()), (place, row.status != "unpaid" && !row.is_letter())]
        {
            let report = Report { disagreements: vec![found], ..Report::default() };
            let repairs = repair::repair(&app.app.stores, &report, limits::PAY_TIME_MIN)
                .await
                .expect("Postgres answers");
            assert_eq!((repairs.len(), repairs[0].done), (1, expected), "{row:?}: {repairs:?}");
        }
        let stock = app.stock(coupon).await;
        let buyers = app.buyers(coupon).await;
        app.give_back().await;
        assert_eq!((app.stock(coupon).await, app.buyers(coupon).await), (stock, buyers), "{row:?}");
    }
}

/// A sale whose last claim is in this status, and which has ended.
#[tokio::test]
async fn what_keeps_a_sale_in_redis() {
    let app = app().await;
    for row in ROWS {
        let (coupon, _) = row.make(&app).await;
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
        if !row.archivable {
            // Postgres has the last word about each request.
            let noted =
                stock::archive(&app.app.stores.pool, coupon).await.expect("Postgres answers");
            assert!(!noted, "{row:?}");
        }
        let archived = app.app.archive.pass().bounded().await.expect("both stores answer");
        assert_eq!(archived, usize::from(row.archivable), "{row:?}");
        // The answer to an operator names the cause.
        let asked = app
            .app
            .archive
            .ask(coupon, false, &Actor::command_line())
            .await
            .expect("both stores answer");
        let refused = format!("{asked:?}").contains("NotSettled");
        assert_eq!(refused, !row.archivable, "{row:?}: {asked:?}");
    }
}

/// A sale that has left Redis, by Postgres alone; and no row has changed for long.
async fn has_left(app: &TestApp, coupon: CouponId) {
    app.execute(&format!(
        "UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = {coupon};
         UPDATE flash_sales SET archived_at = now(), removed_at = now() WHERE coupon_id = {coupon};
         UPDATE orders SET updated_at = now() - interval '300 days';
         UPDATE payments SET updated_at = now() - interval '300 days'"
    ))
    .await;
}

/// Order ids are as old as the rows.
#[tokio::test]
async fn what_moves_into_the_history() {
    for row in ROWS {
        let clock = Clock::manual(now() - TimeDelta::days(300));
        let app = TestApp::on(shared(), &SETTINGS, clock).await;
        app.expect_disagreements();
        let (coupon, order) = row.make(&app).await;
        // Only the status tells that money is on its way.
        app.execute("DELETE FROM payments WHERE status = 'refunding'").await;
        has_left(&app, coupon).await;
        let moved = app.app.history.pass().bounded().await.expect("Postgres answers");
        assert_eq!(moved, usize::from(row.over), "{row:?}");
        let history = format!("SELECT count(*) FROM order_history WHERE id = {order}");
        assert_eq!(app.number(&history).await, i64::from(row.over), "{row:?}");
    }
}

/// Asked while Redis has the sale, and once it has left.
#[tokio::test]
async fn who_may_be_erased() {
    for row in ROWS {
        let app = app().await;
        app.expect_disagreements();
        let (coupon, order) = row.make(&app).await;
        let erase = async || {
            let by = Actor::command_line();
            erase(&app.app.stores, user(1), &by).bounded().await.expect("both stores answer")
        };
        let obstacle = match row.is_letter() {
            true => "Dead letter ".to_owned(),
            false => format!("Order {order} is {}", row.status),
        };
        for may_be in [row.is_closed(), row.over] {
            match erase().await {
                Erasure::Done(erased) => {
                    assert!(may_be, "{row:?}");
                    assert_eq!(erased.orders, 1, "{row:?}");
                    break;
                }
                Erasure::Refused(refusals) => {
                    let is_named = refusals.iter().any(|refusal| refusal.starts_with(&obstacle));
                    assert!(!may_be && is_named, "{row:?}: {refusals:?}");
                }
                Erasure::Nothing => panic!("{row:?}: no order is found"),
            }
            has_left(&app, coupon).await;
        }
    }
}

/// Redis has lost the stock of each sale, so its buyers and units come from Postgres.
#[tokio::test]
async fn what_a_recovery_builds() {
    let app = app().await;
    let mut sales = Vec::new();
    for row in ROWS {
        sales.push((row, row.make(&app).await));
    }
    keep(&app).await;
    for (_, (coupon, _)) in &sales {
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(*coupon), "stock", "junk"]).await;
    }
    app.execute(
        "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1",
    )
    .await;
    app.recover().await;
    for (row, (coupon, order)) in sales {
        let buyer = (row.live || row.is_letter()).then_some(order);
        let buyers: Vec<i64> = app.buyers(coupon).await.into_values().collect();
        assert_eq!(buyers, Vec::from_iter(buyer), "{row:?}");
        assert_eq!(app.stock(coupon).await, if buyer.is_some() { 8 } else { 9 }, "{row:?}");
    }
}

/// Each open thing about an ended sale, alone: Postgres has the last word, whatever the first look found.
#[tokio::test]
async fn what_is_open_about_an_ended_sale() {
    for (open, closed) in [
        ("UPDATE stock_returns SET done_at = NULL WHERE what = 'unit'", "UPDATE stock_returns SET done_at = now()"),
        ("UPDATE stock_returns SET done_at = NULL WHERE what = 'place'", "UPDATE stock_returns SET done_at = now()"),
        ("UPDATE coupons SET revision = revision + 1", "UPDATE coupons SET revision = revision - 1"),
        ("UPDATE coupons SET state = 'paused', ended_at = NULL", "UPDATE coupons SET state = 'ended', ended_at = now()"),
        (
            "UPDATE orders SET status = 'unpaid', paid_at = NULL, pay_method = NULL WHERE user_id = 2",
            "UPDATE orders SET status = 'paid', paid_at = now(), pay_method = 'balance' WHERE user_id = 2",
        ),
        (
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
             SELECT 0, '1-1', '{}', 'conflict', '', id, 3, 3 FROM coupons",
            "UPDATE dead_letters SET resolved_at = now()",
        ),
    ] {
        let app = TestApp::configured(&["--unpaid-orders-max", "9"]).await;
        let coupon = app.create_flash(9).await;
        let cancelled = app.order(1, coupon).await;
        assert_eq!(app.cancel(1, cancelled).await.status, 200);
        app.paid_order(2, coupon).await;
        app.give_back().await;
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
        let archive =
            async || stock::archive(&app.app.stores.pool, coupon).await.expect("Postgres answers");
        app.execute(open).await;
        assert!(!archive().await, "{open}");
        app.execute(closed).await;
        assert!(archive().await, "{closed}");
        assert!(!archive().await, "it has been");
        app.expect_disagreements();
    }
}
