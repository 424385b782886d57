//! `may_be_forgotten`, `settle`, `unpaid_bounded` and `refund_pass`: payments that are known, or may have been, and small
//! decisions.

use chrono::DateTime;
use flash_sale::kit::id;
use serde_json::json;

use super::opened::{asked, opened};
use super::past::{MONTHS, leave};
use super::scripted::shop;
use super::{CLOCK, app_with, lines, orders, payments, states, statuses};
use crate::support::lines::Lines;
use crate::support::{TestApp, now};

#[tokio::test]
async fn may_be_forgotten_is_a_payment_of_an_order_before_the_time_from_which_they_are_kept() {
    let app = app_with(&[]).await;
    let time = DateTime::from_timestamp(now().timestamp() - 864_000, 0).expect("a time");
    app.execute(&format!(
        "UPDATE settings SET payments_kept_from = to_timestamp({})",
        time.timestamp()
    ))
    .await;
    let first = id::first_at(time);
    for order in [first - 1, first] {
        let notice = json!({"kind": "payment", "payment_id": format!("g{order}"), "order_id": order.to_string(),
                            "method": 2, "amount_cents": 1});
        assert_eq!(app.confirm(&notice).await.text("outcome"), "held");
    }
    let by_hand = "SELECT (next_look_at = 'infinity')::text FROM held_payments
                   JOIN payments ON payments.id = payment_id ORDER BY order_id";
    assert_eq!(lines(&app, by_hand).await, ["true", "false"], "an administrator decides the first");
}

#[tokio::test]
async fn new_payments_of_a_config_with_unpaid_orders_max_give_a_place_back_for_each_order() {
    for (most, places) in [("0", 0), ("1", 1)] {
        let app = TestApp::configured(&["--unpaid-orders-max", most]).await;
        let coupon = app.create_flash(5).await;
        app.paid_order(1, coupon).await;
        let noted = "SELECT count(*) FROM stock_returns WHERE what = 'place'";
        assert_eq!(app.number(noted).await, places, "{most}");
        app.give_back().await;
    }
}

/// Rows of a payment that Postgres has already change nothing, whatever they could pay.
#[tokio::test]
async fn settle_pays_no_order_with_a_payment_that_is_there_already() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    payments(&app, &[(101, 1, "refunded", "too_late")]).await;
    app.execute("UPDATE payments SET gateway = 'in_process', gateway_payment_id = '1'").await;
    let told = app.pay(1, 1).await;
    assert_ne!(told.status, 200, "{told:?}");
    assert_eq!(
        (statuses(&app).await, states(&app).await),
        (vec!["1 unpaid".to_owned()], vec!["101 refunded too_late".to_owned()])
    );
}

/// As if another session had been quick: the refund is asked for before the payer is answered.
#[tokio::test]
async fn settle_tells_its_payer_of_an_order_that_has_gone_on_already() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    app.execute(
        "CREATE FUNCTION ask_back() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE orders SET status = 'refunding', refunding_at = now() WHERE id = NEW.order_id;
             RETURN NULL;
         END $$;
         CREATE TRIGGER ask_back AFTER INSERT ON payments FOR EACH ROW EXECUTE FUNCTION ask_back()",
    )
    .await;
    let told = app.pay(1, 1).await;
    assert_eq!((told.status, told.text("status")), (200, "refunding"), "{told:?}");
}

#[tokio::test]
async fn received_of_a_known_name_for_an_old_order_has_the_currency_of_that_order() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "paid"), (2, "unpaid")]).await;
    payments(&app, &[(101, 1, "accepted", "")]).await;
    app.execute(
        "UPDATE orders SET currency = 'EUR'; UPDATE settings SET payments_kept_from = now()",
    )
    .await;
    let notice = json!({"kind": "payment", "payment_id": "g101", "order_id": "2", "method": 2, "amount_cents": 1});
    let told = app.confirm(&notice).await;
    assert_eq!((told.text("outcome"), told.text("reason")), ("held", "id_used_twice"));
    let noted = "SELECT concat_ws(' ', gateway_payment_id, currency) FROM payments WHERE id <> 101";
    assert_eq!(lines(&app, noted).await, ["g101 for 2 EUR"]);
}

#[tokio::test]
async fn refund_pass_postpones_a_held_payment_that_postgres_refuses_and_the_next_one_is_settled() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid"), (2, "unpaid")]).await;
    payments(&app, &[(101, 1, "held", "unknown_order"), (102, 2, "held", "unknown_order")]).await;
    app.execute("INSERT INTO held_payments SELECT id, now() FROM payments").await;
    app.refuse("UPDATE", "payments", "NEW.id = 101", "23514").await;
    assert_eq!(app.refund_payments().await, 0);
    assert_eq!(states(&app).await, ["101 held unknown_order", "102 accepted"]);
    assert_eq!(app.postponed().await, ["refunds 101 1"]);
    app.accept("payments").await;
    app.let_postponed_be_due().await;
    assert_eq!(app.refund_payments().await, 0);
    assert_eq!(states(&app).await, ["101 accepted", "102 accepted"]);
    assert_eq!(app.postponed().await, [] as [String; 0]);
}

/// The service's own refund says nothing about the gateway.
#[tokio::test]
async fn end_row_is_for_answers_of_the_gateway_alone() {
    let (app, gateway) = shop().await;
    let rows: Vec<_> = (101..=107).map(|id| (id, id, "refunding", "too_late")).collect();
    payments(&app, &rows).await;
    app.execute(
        "UPDATE payments SET gateway_payment_id = 'fails/' || id;
         UPDATE payments SET gateway = 'in_process' WHERE id IN (103, 107)",
    )
    .await;
    assert!(app.app.payments.refund_pass().await.is_err());
    assert_eq!(gateway.asked(), ["fails/101", "fails/102", "fails/104"], "three in a row");
    let back = "SELECT id FROM payments WHERE status = 'refunded' ORDER BY id";
    assert_eq!(app.numbers(back).await, [103, 107]);
}

#[tokio::test]
async fn refund_accepted_begins_the_refund_of_the_payment_that_has_paid_and_of_no_other_one() {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "paid"), (2, "paid"), (3, "paid")]).await;
    payments(
        &app,
        &[
            (101, 1, "refunded", "paid_twice"),
            (102, 1, "accepted", ""),
            (103, 1, "refunding", "wrong_amount"),
            (104, 2, "accepted", ""),
        ],
    )
    .await;
    app.execute("UPDATE payments SET refunding_at = now() - interval '1 day'").await;
    app.let_rows_age("payments").await;
    assert_eq!(app.act(1, 1, "refund").await.text("status"), "refunding");
    assert_eq!(
        states(&app).await,
        [
            "101 refunded paid_twice",
            "102 refunding asked_for",
            "103 refunding wrong_amount",
            "104 accepted"
        ]
    );
    assert_eq!(app.touched("payments", "id").await, [102]);
    let begun = "SELECT id FROM payments WHERE refunding_at > now() - interval '12 hours'";
    assert_eq!(app.numbers(begun).await, [102]);
    // Neither amount nor holder of a refund would be known.
    let failed = app.act(3, 3, "refund").await;
    assert!(failed.status >= 500, "{failed:?}");
    assert_eq!(statuses(&app).await, ["1 refunding", "2 paid", "3 paid"]);
}

#[tokio::test]
async fn look_at_opened_asks_again_after_a_pause_when_postgres_refuses_a_payment() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid"), (2, "unpaid")]).await;
    opened(&app, &[(101, 1, "paid/1/CNY/a", -50), (102, 2, "paid/1/CNY/b", -40)]).await;
    app.refuse("INSERT", "payments", "NEW.order_id = 1", "23514").await;
    let began = app.number(CLOCK).await;
    assert_eq!(asked(&app, &gateway).await.len(), 2);
    assert_eq!(app.postponed().await, ["openings 1 1"]);
    assert_eq!(statuses(&app).await, ["1 unpaid", "2 paid"]);
    let later = format!(
        "SELECT concat_ws(' ', id, closed_at IS NULL, next_look_at >= to_timestamp({began} + 58))
         FROM opened_payments ORDER BY id"
    );
    assert_eq!(lines(&app, &later).await[0], "101 t t");
    assert!(lines(&app, &later).await[1].starts_with("102 f"));
}

/// The gateway fails at these rows, and Postgres refuses each change of them.
#[tokio::test]
async fn refund_pass_puts_rows_aside_that_take_no_change_and_goes_on() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid"), (2, "unpaid"), (3, "unpaid")]).await;
    opened(&app, &[(101, 1, "fails/a", -50), (102, 2, "fails/b", -45)]).await;
    opened(&app, &[(103, 3, "paid/1/CNY/c", -40)]).await;
    let back = |id| (id, id, "refunding", "too_late");
    payments(&app, &[back(201), back(202), (203, 2, "held", "unknown_order")]).await;
    app.execute(
        "UPDATE payments SET gateway_payment_id = 'fails/201' WHERE id = 201;
         UPDATE payments SET gateway_payment_id = 'refunded/202' WHERE id = 202;
         UPDATE payments SET gateway_payment_id = 'fails/b' WHERE id = 203",
    )
    .await;
    app.refuse("UPDATE", "opened_payments", "NEW.id < 103", "23514").await;
    app.refuse("UPDATE", "payments", "NEW.id = 201", "23514").await;
    let all = ["fails/a", "fails/b", "paid/1/CNY/c", "fails/201", "refunded/202"];
    assert_eq!(asked(&app, &gateway).await, all);
    assert_eq!(statuses(&app).await, ["1 unpaid", "2 unpaid", "3 paid"]);
    let there = ["1 accepted", "201 refunding too_late", "202 refunded too_late"];
    assert_eq!(states(&app).await[..3], there);
    assert_eq!(app.postponed().await, ["openings 1 1", "openings 2 1", "refunds 201 1"]);
    app.let_postponed_be_due().await;
    assert_eq!(asked(&app, &gateway).await, ["fails/a", "fails/b", "fails/201"]);
    assert_eq!(app.postponed().await, ["openings 1 2", "openings 2 2", "refunds 201 2"]);
    app.accept("opened_payments").await;
    app.accept("payments").await;
    app.let_postponed_be_due().await;
    assert_eq!(asked(&app, &gateway).await, ["fails/a", "fails/b", "fails/201"]);
    // The books have the second one, and the others have no answer yet.
    assert_eq!(app.postponed().await, ["openings 1 3", "refunds 201 3"]);
}

/// A note is of an order: one of its payments can be dealt with, and another can't.
#[tokio::test]
async fn look_at_opened_keeps_the_note_of_an_order_until_all_its_payments_are_dealt_with() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    opened(&app, &[(101, 1, "open/1/CNY/a", 0)]).await;
    app.execute("UPDATE opened_payments SET method = 'alipay'").await;
    opened(&app, &[(102, 1, "paid/1/CNY/b", 0)]).await;
    app.refuse("INSERT", "payments", "true", "23514").await;
    let heard = Lines::heard();
    let pass = async || {
        app.let_postponed_be_due().await;
        let first = "UPDATE opened_payments SET next_look_at = now() - (200 - id) * interval '1 s'";
        app.execute(first).await;
        assert_eq!(asked(&app, &gateway).await, ["open/1/CNY/a", "paid/1/CNY/b"]);
        app.postponed().await
    };
    for tries in 1..=3 {
        assert_eq!(pass().await, [format!("openings 1 {tries}")]);
    }
    assert_eq!(heard.with("ALARM: an item can't be dealt with").len(), 1);
    app.accept("payments").await;
    assert_eq!(pass().await, [""; 0]);
    assert_eq!(statuses(&app).await, ["1 paid"]);
}

/// The gateway may have taken money, under an id that is not known here.
#[tokio::test]
async fn is_in_the_books_no_payment_whose_opening_has_no_answer() {
    let (app, gateway) = shop().await;
    gateway.opens(None);
    opened(&app, &[(101, 1, "", -50)]).await;
    let began = app.number(CLOCK).await;
    assert_eq!(asked(&app, &gateway).await, ["pay-1-wechat"]);
    let waits = format!(
        "SELECT concat_ws(' ', closed_at IS NULL, next_look_at >= to_timestamp({began} + 58)) FROM opened_payments"
    );
    assert_eq!(lines(&app, &waits).await, ["t t"], "it is asked about again after a pause");
}

#[tokio::test]
async fn recall_order_tells_the_log_of_an_order_that_is_brought_back() {
    let app = app_with(&[]).await;
    app.execute(MONTHS).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "cancelled"), (2, "cancelled")]).await;
    payments(&app, &[(101, 1, "refunded", "too_late"), (102, 2, "refunded", "too_late")]).await;
    leave(&app, "1").await;
    let heard = Lines::heard();
    for (payment, told) in [("g102", 0), ("g101", 1), ("g101", 1)] {
        let notice = json!({"kind": "refund", "payment_id": payment});
        assert_eq!(app.confirm(&notice).await.status, 200);
        let lines = heard.with("a gateway names an order of the history");
        assert_eq!(lines.len(), told, "{payment}: {lines:?}");
        assert!(lines.iter().all(|line| line.contains("order=1")), "{lines:?}");
    }
}
