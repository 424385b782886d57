//! Moves of orders: which rows each changes.

// Orders that are due.
mod due;

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::DeadLetterId;
use flash_sale::sale::order::discard::Discarded;
use flash_sale::sale::order::model::OrderStatus;
use flash_sale::sale::order::moves::Moved;
use serde_json::json;

use super::{begin, insert_by_hand, move_rows, order, write_letters};
use crate::support::{SECRET, TestApp, admin_token_of, bounded};

/// Letters of claims that are discarded, by what became of their order ids.
#[tokio::test]
async fn cancel_unwritten_makes_a_cancelled_order_unless_the_claim_may_have_been_one() {
    let app = TestApp::with_sales(2).await;
    app.execute(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
         VALUES (3 << 10, 'regular', '', '', '', 1, 1);
         UPDATE settings SET orders_moved_to = 50;
         UPDATE flash_sales SET archived_at = now() WHERE coupon_id = 2048",
    )
    .await;
    app.write_rows(&[
        (104, 1, "flash", 4, "redeemed"),
        (106, 2, "flash", 6, "unpaid"),
        (107, 1, "flash", 77, "unpaid"),
        (108, 1, "flash", 8, "expired"),
    ])
    .await;
    move_rows(&app, &[104]).await;
    let letters = [
        // A claim that is no row; one of no coupon, and one of a coupon without a sale.
        (1, 1, 101, true),
        (9, 2, 102, true),
        (3, 3, 103, true),
        // An order that has moved, and ids up to the retention mark and behind it, of an archived sale and another.
        (1, 4, 104, true),
        (2, 5, 40, true),
        (2, 5, 50, true),
        (2, 5, 51, true),
        (1, 5, 41, true),
        // Orders of another coupon, of another user, and its own.
        (1, 6, 106, true),
        (1, 7, 107, true),
        (1, 8, 108, true),
    ];
    write_letters(&app, &letters).await;
    let mut taken = Vec::new();
    for (number, (_, _, order, _)) in (1..).zip(letters) {
        let letter = DeadLetterId::new(number).expect("a positive number");
        let discarded = app.app.dead_letters.discard(letter, &Actor::command_line()).await;
        if discarded.expect("Postgres answers") == Discarded::OrderIdTaken {
            taken.push(order);
        }
    }
    assert_eq!(taken, [106, 107]);
    let new = "SELECT concat_ws(' ', id, coupon_id >> 10, user_id) FROM orders
               WHERE status = 'cancelled' AND kind = 'flash' ORDER BY id";
    assert_eq!(app.texts(new).await, ["41 1 5", "51 2 5", "101 1 1"]);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 3 + 3);
    let returns = "SELECT order_id FROM stock_returns ORDER BY order_id";
    assert_eq!(app.numbers(returns).await, [41, 51, 101]);
}

/// An operator archives an ended sale with open letters, and accepts the loss.
#[tokio::test]
async fn cancel_letters_makes_cancelled_orders_of_the_open_letters_of_one_sale() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (coupon, other) = (app.create_flash(9).await, app.create_flash(9).await);
    let order = app.order(1, coupon).await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    let (of_sale, of_other) = (coupon.sequence(), other.sequence());
    let letters = [
        (of_sale, 2, 12, true),
        (of_sale, 3, 13, false),
        (of_other, 4, 14, true),
        (of_sale, 5, 15, true),
        // The claim is an order.
        (of_sale, 1, order, true),
    ];
    write_letters(&app, &letters).await;
    // Another process is about to insert the first of them, and gives up.
    let mut other = begin(&app).await;
    assert!(insert_by_hand(&mut other, 12, coupon).await);
    let path = format!("/v1/coupons/{coupon}/archive");
    let (token, body) = (app.admin_token(), json!({ "accept_loss": true }));
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let mut third = begin(&app).await;
        let second = insert_by_hand(&mut third, 15, coupon).await;
        third.rollback().await.expect("Postgres answers");
        other.rollback().await.expect("Postgres answers");
        second
    };
    let (asked, second) = tokio::join!(app.post(&path, &token, &body), looking);
    assert!(second, "it waits for the first, and has not come to the second");
    assert_eq!(asked.status, 200, "{asked:?}");
    let rows =
        "SELECT concat_ws(' ', id, kind, user_id, status) FROM orders WHERE id < 100 ORDER BY id";
    assert_eq!(app.texts(rows).await, ["12 flash 2 cancelled", "15 flash 5 cancelled"]);
    assert_eq!(app.numbers("SELECT id FROM dead_letters WHERE resolved_at IS NULL").await, [3]);
    assert_eq!(app.status(1, order).await, "unpaid");
}

/// An order of another user is locked elsewhere, and doesn't matter; a code that is there already stays.
#[tokio::test]
async fn pay_holds_one_order_alone_and_keeps_a_code_that_is_there() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let (own, others) = (app.order(1, coupon).await, app.order(2, coupon).await);
    app.execute(&format!(
        "INSERT INTO redemptions (order_id, code) VALUES ({own}, '0000000000000013')"
    ))
    .await;
    let mut other = begin(&app).await;
    let lock = format!("SELECT FROM orders WHERE id = {others} FOR UPDATE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *other).await.expect("Postgres does it");
    assert_eq!(app.pay(1, own).await.status, 200);
    other.rollback().await.expect("Postgres answers");
    assert_eq!(app.code(1, own).await, "0000-0000-0000-0013");
    let paid =
        "SELECT concat_ws(' ', status, pay_method, paid_at <= now()) FROM orders ORDER BY user_id";
    assert_eq!(app.texts(paid).await, ["paid balance t", "unpaid"]);
}

/// Each move changes the order that it is about, and no other in the same status.
#[tokio::test]
async fn each_move_changes_one_order() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let coupon = app.create_flash(9).await;
    let mut orders = Vec::new();
    for buyer in 1..=8 {
        orders.push(app.order(buyer, coupon).await);
    }
    for buyer in 1..=6 {
        assert_eq!(
            app.pay(buyer, orders[usize::try_from(buyer).expect("few") - 1]).await.status,
            200
        );
    }
    let statuses = async || app.texts("SELECT status FROM orders ORDER BY user_id").await.join(" ");
    assert_eq!(statuses().await, "paid paid paid paid paid paid unpaid unpaid");
    assert_eq!(app.redeem_under(&admin_token_of(7), orders[0], Some("a")).await.status, 200);
    assert_eq!(app.redeem_under(&admin_token_of(8), orders[1], Some("b")).await.status, 200);
    assert_eq!(app.cancel(7, orders[6]).await.status, 200);
    assert_eq!(app.act(3, orders[2], "refund").await.status, 200);
    assert_eq!(app.act(4, orders[3], "refund").await.status, 200);
    assert_eq!(
        statuses().await,
        "redeemed redeemed refunding refunding paid paid cancelled unpaid"
    );
    // One of them goes back now.
    app.execute(&format!(
        "UPDATE payments SET gateway = 'external' WHERE order_id = {}",
        orders[3]
    ))
    .await;
    assert_eq!(app.refund_payments().await, 1);
    assert_eq!(statuses().await, "redeemed redeemed refunded refunding paid paid cancelled unpaid");
    assert_eq!(app.sold(coupon).await, 6);
    let times = "SELECT concat_ws(' ', redeemed_at <= now(), cancelled_at <= now(), refunding_at <= refunded_at)
                 FROM orders ORDER BY user_id";
    assert_eq!(app.texts(times).await, ["t", "t", "t", "", "", "", "t", ""]);
    // A repeat is told who was first at its own order.
    for (clerk, at, status) in [(7, 0, 200), (8, 1, 200), (8, 0, 409), (7, 1, 409)] {
        let key = if at == 0 { "a" } else { "b" };
        let again = app.redeem_under(&admin_token_of(clerk), orders[at], Some(key)).await;
        assert_eq!(again.status, status, "clerk {clerk} and order {at}");
    }
}

/// Another process moves the order in the same moment, and is faster.
#[tokio::test]
async fn a_move_that_comes_second_finds_the_order_in_another_status() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    for (buyer, is_paid, first, second) in [
        (1, false, "status = 'paid', paid_at = now(), pay_method = 'balance'", "cancel"),
        (2, false, "status = 'cancelled', cancelled_at = now()", "pay"),
        (3, true, "status = 'redeemed', redeemed_at = now()", "refund"),
        (4, true, "status = 'refunding', refunding_at = now()", "redeem"),
    ] {
        let order = match is_paid {
            true => app.paid_order(buyer, coupon).await,
            false => app.order(buyer, coupon).await,
        };
        let mut other = begin(&app).await;
        let first = format!("UPDATE orders SET {first}, updated_at = now() WHERE id = {order}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(first.clone()))
            .execute(&mut *other)
            .await
            .expect("Postgres does it");
        let moving = async {
            match second {
                "pay" => app.pay(buyer, order).await,
                "redeem" => app.redeem(order).await,
                _ => app.act(buyer, order, second).await,
            }
        };
        let ending = async {
            app.a_session_waits_for_a_row().await;
            other.commit().await.expect("Postgres answers");
        };
        let (reply, ()) = tokio::join!(moving, ending);
        assert_eq!(reply.status, 409, "{second}: {reply:?}");
        let status = app.status(buyer, order).await;
        assert!(first.contains(&format!("status = '{status}'")), "{second}: {status}");
    }
}

/// The gateway takes the money of some orders back, and ends the refund of another.
#[tokio::test]
async fn charge_back_and_refunded_end_one_order() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let coupon = app.create_flash(9).await;
    app.order(9, coupon).await;
    let mut orders = Vec::new();
    for buyer in 1..=5 {
        let order = app.order(buyer, coupon).await;
        let notice = json!({"kind": "payment", "payment_id": format!("g{buyer}"), "order_id": order.to_string(),
                            "method": 2, "amount_cents": 1});
        assert_eq!(app.confirm(&notice).await.text("outcome"), "accepted");
        orders.push(order);
    }
    assert_eq!(app.redeem(orders[2]).await.status, 200);
    for buyer in [4, 5] {
        assert_eq!(
            app.act(buyer, orders[usize::try_from(buyer).expect("few") - 1], "refund").await.status,
            200
        );
    }
    for payment in ["g1", "g3", "g4"] {
        let notice = json!({"kind": "refund", "payment_id": payment});
        assert_eq!(app.confirm(&notice).await.status, 200, "{payment}");
    }
    let payments = [
        "refunded external refunded charged_back",
        "paid external accepted",
        "redeemed external held charged_back",
        "refunded external refunded asked_for",
        "refunding external refunding asked_for",
    ];
    assert_eq!(app.payments().await, payments);
    let times = "SELECT user_id FROM orders WHERE refunding_at <= refunded_at AND refunded_at <= now() ORDER BY user_id";
    assert_eq!(app.numbers(times).await, [1, 4]);
    assert_eq!(app.sold(coupon).await, 4);
}

/// The buyer pays while an administrator is about to cancel.
#[tokio::test]
async fn cancel_that_comes_second_is_not_entered_in_the_book() {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[(1, 1, "flash", 1, "unpaid")]).await;
    let paying = "UPDATE orders SET status = 'paid', paid_at = now(), pay_method = 'balance', updated_at = now()";
    let other = app.holding(paying).await;
    let ending = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let by = Actor::command_line();
    let cancelling =
        app.app.order_moves.cancel_for_buyer(order(1), "the buyer has called".to_owned(), &by);
    let (moved, ()) = tokio::join!(bounded("the answer", cancelling), ending);
    let expected = Moved::Impossible { from: OrderStatus::Paid, to: OrderStatus::Cancelled };
    assert_eq!(moved.expect("Postgres answers"), expected);
    assert_eq!(app.number("SELECT count(*) FROM audit").await, 0);
}

/// The refund begins in the moment in which the order is paid.
#[tokio::test]
async fn answer_tells_that_an_order_was_moved_though_it_has_gone_on_since() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let order = app.order(1, coupon).await;
    app.execute(
        "CREATE FUNCTION go_on() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 UPDATE orders SET status = 'refunding', refunding_at = now(), updated_at = now() WHERE id = NEW.id;
                 RETURN NULL;
             END $$;
         CREATE CONSTRAINT TRIGGER goes_on AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.status = 'paid') EXECUTE FUNCTION go_on()",
    )
    .await;
    let paid = app.pay(1, order).await;
    assert_eq!((paid.status, paid.text("status")), (200, "refunding"));
}

/// Payments are accepted whose orders are in other states than they should be.
#[tokio::test]
async fn charge_back_ends_paid_and_refunding_orders_and_no_closed_one() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    app.expect_disagreements();
    app.write_sales(1).await;
    app.write_rows(&[
        (1, 1, "flash", 1, "paid"),
        (2, 1, "flash", 2, "refunding"),
        (3, 1, "flash", 3, "cancelled"),
        (4, 1, "flash", 4, "expired"),
    ])
    .await;
    app.execute(
        "UPDATE flash_sales SET sold = 50;
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents)
         SELECT id, 'external', 'g' || id, 'alipay', 1 FROM orders",
    )
    .await;
    for payment in ["g1", "g2", "g3", "g4"] {
        let notice = json!({"kind": "refund", "payment_id": payment});
        let told = app.confirm(&notice).await;
        assert_eq!((told.status, told.text("outcome")), (200, "charged_back"), "{payment}");
    }
    let statuses = app.texts("SELECT status FROM orders ORDER BY id").await;
    assert_eq!(statuses, ["refunded", "refunded", "cancelled", "expired"]);
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 48);
}
