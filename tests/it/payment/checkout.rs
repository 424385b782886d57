//! The place where an order is paid: nowhere by default, at a gateway elsewhere, or here, where no money moves.

use flash_sale::order::moves::Asker;
use flash_sale::store::ids::OrderId;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::process::Process;
use crate::support::{Bounded, SECRET, TestApp, user};

const CALLBACKS: [&str; 2] = ["--payment-callback-secret", SECRET];

/// Confirms a payment of the right amount for this order.
async fn confirm(app: &TestApp, order: i64) -> String {
    let notice = json!({"kind": "payment", "payment_id": format!("g{order}"), "order_id": order.to_string(),
                        "method": 3, "amount_cents": 1});
    app.confirm(&notice).await.text("outcome").to_owned()
}

#[tokio::test]
async fn without_a_gateway_nothing_is_paid() {
    let app = TestApp::without_in_process_gateway(&[]).await;
    let coupon = app.create_flash(1).await;
    let regular = app.create_regular().await;
    for order in [app.order(1, coupon).await, app.order(1, regular).await] {
        for _ in 0..2 {
            let refused = app.pay(1, order).await;
            assert_eq!(refused.refusal(), (409, "no_gateway"));
            assert!(refused.text("detail").contains("--payment-callback-secret"), "{refused:?}");
        }
        assert_eq!(app.status(1, order).await, "unpaid");
    }
    assert_eq!(app.payments().await, [""; 0]);
}

#[tokio::test]
async fn with_a_gateway_elsewhere_only_that_one_makes_an_order_paid() {
    let app = TestApp::without_in_process_gateway(&CALLBACKS).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    for _ in 0..2 {
        assert_eq!(app.pay(1, order).await.refusal(), (409, "payment_elsewhere"));
    }
    assert_eq!((app.status(1, order).await, app.payments().await.len()), ("unpaid".into(), 0));

    assert_eq!(confirm(&app, order).await, "accepted");
    let again = app.pay(1, order).await;
    assert_eq!((again.status, again.text("pay_method")), (200, "wechat"), "it is paid");
    assert_eq!(app.payments().await, ["paid external accepted"]);
}

#[tokio::test]
async fn an_order_that_can_not_be_paid_anywhere_says_so_first() {
    for arguments in [&[][..], &CALLBACKS] {
        let app = TestApp::without_in_process_gateway(arguments).await;
        let coupon = app.create_flash(2).await;
        let cancelled = app.order(1, coupon).await;
        let other = app.order(2, coupon).await;
        app.cancel(1, cancelled).await;
        assert_eq!(app.pay(1, cancelled).await.refusal(), (409, "invalid_transition"));
        for unknown in [other, other + 1] {
            assert_eq!(app.pay(1, unknown).await.refusal(), (404, "order_not_found"));
        }
    }
}

#[tokio::test]
async fn the_gateway_for_trying_says_yes_at_once() {
    let app = TestApp::without_in_process_gateway(&["--in-process-gateway"]).await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(1, coupon).await;
    assert_eq!(app.payments().await, ["paid in_process accepted"]);
    let notice = json!({"kind": "refund", "payment_id": order.to_string()});
    assert_eq!(app.confirm(&notice).await.refusal(), (404, "callbacks_off"));
}

#[tokio::test]
async fn what_was_paid_here_before_is_refunded_without_the_setting_too() {
    let mut app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(1, coupon).await;
    app.config.in_process_gateway = false;
    let later = app.another_instance().await;
    let id = OrderId::new(order).expect("an order id");
    later.payments.refund(Asker::Buyer(user(1)), id).await.expect("Postgres answers");
    assert_eq!(app.status(1, order).await, "refunding");
    assert_eq!(later.payments.refund_job().bounded().await.expect("Postgres answers"), 1);
    assert_eq!(app.payments().await, ["refunded in_process refunded asked_for"]);
}

#[tokio::test]
async fn a_service_says_at_its_start_where_orders_are_paid() {
    let app = TestApp::start().await;
    for (arguments, level, words) in [
        (
            &["--in-process-gateway"][..],
            "WARN",
            "no money moves: whatever is on sale is given away",
        ),
        (&[], "WARN", "there is no gateway, so no order can be paid, and each expires"),
        (
            &CALLBACKS,
            "WARN",
            "a gateway elsewhere takes the money and confirms it by callback, and is asked for no refund",
        ),
        (
            &["--payment-callback-secret", SECRET, "--gateway-url", "http://127.0.0.1:1"],
            "INFO",
            "they are opened and refunded at the gateway of --gateway-url",
        ),
    ] {
        let mut service = Process::serve(&app, arguments);
        let line = service.logged("Payments: ").await;
        assert!(line.contains(words) && line.contains(level), "{line}");
        assert!(!line.contains(SECRET), "{line}");
        service.url().await;
        service.signal(Signal::SIGTERM);
        assert_eq!(service.ended().await.code(), Some(0));
    }
}
