//! A gateway that takes requests: the sample one, over HTTP, with its faults.

use chrono::TimeDelta;
use flash_sale::kit::signature::Signatures;
use sample_gateway::{Entry, Faults, Opening, Sample, Settings, State};
use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Bounded, Reply, SECRET, TestApp, eventually, now};

/// A gateway, and a service that opens its payments there.
async fn shop(faults: Faults) -> (TestApp, Sample) {
    shop_with(&[], faults).await
}

/// The same, with further arguments of the service.
pub async fn shop_with(more: &[&str], faults: Faults) -> (TestApp, Sample) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (secret, callback_url) = (SECRET.to_owned(), String::new());
    let settings = Settings { secret, callback_url, books: None, faults };
    let gateway = Sample::start(listener, settings).expect("it has an address");
    let url = gateway.url();
    let arguments = [
        "--payment-callback-secret",
        SECRET,
        "--gateway-url",
        &url,
        "--gateway-timeout-ms",
        "30000",
    ];
    let app = TestApp::without_in_process_gateway(&[&arguments[..], more].concat()).await;
    gateway.call_back(format!("{}/v1/payments/callback", app.url));
    (app, gateway)
}

/// Opens the payment of an order. Returns its id at the gateway.
pub async fn open(app: &TestApp, user: i64, order: i64) -> String {
    let opened = app.pay(user, order).await;
    assert_eq!((opened.status, opened.text("status")), (202, "opened"), "{opened:?}");
    opened.text("payment_id").to_owned()
}

async fn becomes(app: &TestApp, user: i64, order: i64, status: &str) {
    eventually(status, async || app.status(user, order).await == status).await;
}

/// Runs the job as if each opened and each refunding payment were due.
async fn run_once(app: &TestApp) -> Result<usize, String> {
    app.execute("UPDATE opened_payments SET next_check_at = now()").await;
    app.execute("UPDATE payments SET refund_asked_at = now() - interval '1 hour' WHERE refund_asked_at IS NOT NULL").await;
    app.app.payments.refund_job().bounded().await.map_err(|failure| failure.to_string())
}

/// Ends the checks of opened payments, one of which may find that a refund has been done.
async fn check_no_more(app: &TestApp) {
    app.execute("UPDATE opened_payments SET closed_at = now()").await;
}

fn states(gateway: &Sample) -> Vec<State> {
    gateway.books().iter().map(|entry| entry.state).collect()
}

#[tokio::test]
async fn a_payer_is_sent_to_the_gateway_and_its_word_completes_the_payment() {
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let opened = app.pay(1, order).await;
    assert_eq!((opened.status, &opened.body["amount_cents"]), (202, &json!(1)));
    assert_eq!((opened.text("currency"), opened.text("order_id")), ("CNY", &*order.to_string()));
    assert_eq!(opened.text("pay_by"), app.show(1, order).await.text("pay_by"));
    assert_eq!(app.pay(1, order).await.body, opened.body, "a repeat opens no second payment");
    assert_eq!(app.status(1, order).await, "unpaid");

    let page = app.client().get(opened.text("pay_url")).send().await.expect("the payer's page");
    assert_eq!(page.status(), 200);
    becomes(&app, 1, order, "paid").await;
    assert_eq!(app.payments().await, ["paid external accepted"]);
    assert_eq!(app.pay(1, order).await.status, 200, "it is paid");
    gateway.stop().await;
}

#[tokio::test]
async fn a_refund_is_asked_for_and_confirmed_at_once_or_later() {
    for refunds_later in [false, true] {
        let (app, gateway) = shop(Faults { refunds_later, ..Faults::default() }).await;
        let coupon = app.create_flash(1).await;
        let order = app.order(1, coupon).await;
        gateway.pay(&open(&app, 1, order).await);
        becomes(&app, 1, order, "paid").await;
        assert_eq!(app.act(1, order, "refund").await.text("status"), "refunding");
        assert_eq!(run_once(&app).await, Ok(if refunds_later { 0 } else { 1 }));
        becomes(&app, 1, order, "refunded").await;
        assert_eq!(run_once(&app).await, Ok(0));
        assert_eq!((app.release().await, app.stock(coupon).await), (1, 1));
        assert_eq!(states(&gateway), [State::Refunded]);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn an_answer_that_gets_lost_is_asked_for_again() {
    let lost = Faults { loses_answers: true, ..Faults::default() };
    let (app, gateway) = shop(lost).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    for _ in 0..2 {
        assert_eq!(app.pay(1, order).await.refusal(), (503, "unavailable"));
    }
    gateway.set_faults(Faults::default());
    gateway.pay(&open(&app, 1, order).await);
    becomes(&app, 1, order, "paid").await;
    assert_eq!(gateway.books().len(), 1, "one payment, however often it was asked for");

    gateway.set_faults(lost);
    check_no_more(&app).await;
    app.act(1, order, "refund").await;
    let failed = run_once(&app).await.expect_err("there is no answer");
    assert!(failed.contains("the payment gateway"), "{failed}");
    gateway.set_faults(Faults::default());
    assert_eq!(run_once(&app).await, Ok(1));
    assert_eq!(
        (app.status(1, order).await, states(&gateway)),
        ("refunded".into(), vec![State::Refunded])
    );
    gateway.stop().await;
}

/// Another program on the way answers in the gateway's place.
#[tokio::test]
async fn an_answer_that_the_gateway_has_not_signed_is_not_believed() {
    let foreign = Faults { confirms_nothing: true, signs_wrongly: true, ..Faults::default() };
    let signed = Faults { signs_wrongly: false, ..foreign };
    let (app, gateway) = shop(foreign).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.pay(1, order).await.refusal(), (503, "unavailable"));
    gateway.set_faults(Faults { refuses: true, ..foreign });
    assert_eq!(app.pay(1, order).await.refusal(), (503, "unavailable"), "no refusal either");
    gateway.set_faults(signed);
    gateway.pay(&open(&app, 1, order).await);

    gateway.set_faults(foreign);
    let failed = run_once(&app).await.expect_err("its word that it was paid is not believed");
    assert!(failed.contains("without a signature of the common secret"), "{failed}");
    assert_eq!(app.status(1, order).await, "unpaid");
    gateway.set_faults(signed);
    assert_eq!(run_once(&app).await, Ok(0));
    assert_eq!(app.status(1, order).await, "paid");

    gateway.set_faults(foreign);
    app.act(1, order, "refund").await;
    run_once(&app).await.expect_err("nor that the money is back");
    assert_eq!(app.status(1, order).await, "refunding");
    gateway.set_faults(signed);
    assert_eq!((run_once(&app).await, states(&gateway)), (Ok(1), vec![State::Refunded]));
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_refuses_is_told_of() {
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(2).await;
    let (one, two) = (app.order(1, coupon).await, app.order(2, coupon).await);
    gateway.pay(&open(&app, 1, one).await);
    becomes(&app, 1, one, "paid").await;
    gateway.set_faults(Faults { refuses: true, ..Faults::default() });
    let refused: Reply = app.pay(2, two).await;
    assert_eq!(refused.refusal(), (409, "payment_refused"));
    assert!(refused.text("detail").contains("not today"), "{refused:?}");
    app.act(1, one, "refund").await;
    assert_eq!(run_once(&app).await, Ok(0));
    let error = "SELECT count(*) FROM postponed WHERE job = 'refunds' AND error LIKE '%not today%'";
    assert_eq!(app.number(error).await, 1, "an operator finds it");
    gateway.set_faults(Faults::default());
    app.let_postponed_be_due().await;
    assert_eq!(run_once(&app).await, Ok(1));
    assert_eq!(app.number("SELECT count(*) FROM postponed").await, 0);
    gateway.stop().await;
}

#[tokio::test]
async fn money_whose_confirmation_gets_lost_is_found_by_asking() {
    let (app, gateway) = shop(Faults { confirms_nothing: true, ..Faults::default() }).await;
    let coupon = app.create_flash(2).await;
    let (in_time, late) = (app.order(1, coupon).await, app.order(2, coupon).await);
    let payments = [open(&app, 1, in_time).await, open(&app, 2, late).await];
    assert_eq!(run_once(&app).await, Ok(0), "both are open");
    payments.iter().for_each(|payment| gateway.pay(payment));
    app.cancel(2, late).await;
    assert_eq!(run_once(&app).await, Ok(1), "the late one goes back at once");
    assert_eq!(
        (app.status(1, in_time).await, app.status(2, late).await),
        ("paid".into(), "cancelled".into())
    );
    assert_eq!(states(&gateway), [State::Paid, State::Refunded]);
    assert_eq!(app.number("SELECT count(*) FROM opened_payments WHERE closed_at IS NULL").await, 0);
    gateway.stop().await;
}

/// The gateway takes the money before it answers, its answer gets lost, its callback gets lost, and the payer doesn't
/// come back.
#[tokio::test]
async fn money_behind_an_answer_that_got_lost_is_found_without_the_payer() {
    let (app, gateway) = shop(Faults {
        loses_answers: true,
        confirms_early: true,
        confirms_nothing: true,
        ..Faults::default()
    })
    .await;
    let coupon = app.create_flash(2).await;
    let (unpaid, over) = (app.order(1, coupon).await, app.order(2, coupon).await);
    for (user, order) in [(1, unpaid), (2, over)] {
        assert_eq!(app.pay(user, order).await.refusal(), (503, "unavailable"));
    }
    app.cancel(2, over).await;
    assert_eq!(states(&gateway), [State::Paid, State::Paid]);
    let failed = run_once(&app).await.expect_err("the answers get lost again");
    assert!(failed.contains("the payment gateway"), "{failed}");

    gateway.set_faults(Faults { confirms_nothing: true, ..Faults::default() });
    assert_eq!(run_once(&app).await, Ok(1), "the money for the cancelled order goes back");
    let mut payments = app.payments().await;
    payments.sort();
    assert_eq!(payments, ["cancelled external refunded too_late", "paid external accepted"]);
    assert_eq!(states(&gateway), [State::Paid, State::Refunded], "no payment is opened twice");
    assert_eq!(app.number("SELECT count(*) FROM opened_payments WHERE closed_at IS NULL").await, 0);
    gateway.stop().await;
}

/// Its money may have been taken, and nothing else would tell that it has no answer.
#[tokio::test]
async fn an_opened_payment_about_which_the_gateway_never_answers_waits_for_an_operator() {
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(2).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    for (user, order) in [(1, orders[0]), (2, orders[1])] {
        open(&app, user, order).await;
    }
    gateway.set_faults(Faults { fails_at: Some(1), ..Faults::default() });
    run_once(&app).await.expect_err("one payment has no answer");
    app.execute("UPDATE opened_payments SET updated_at = now() - interval '50 min'").await;
    run_once(&app).await.expect_err("it has none yet");
    assert_eq!(app.postponed().await, [] as [String; 0], "it may be paid for at this moment");
    app.execute("UPDATE opened_payments SET updated_at = now() - interval '61 min'").await;
    for tries in 1..=2 {
        app.let_postponed_be_due().await;
        run_once(&app).await.expect_err("it has none yet");
        assert_eq!(app.postponed().await, [format!("openings {} {tries}", orders[0])]);
        let error = "SELECT count(*) FROM postponed WHERE error LIKE '%opened payment of order%'";
        assert_eq!(app.number(error).await, 1, "it says why");
    }
    gateway.set_faults(Faults::default());
    app.let_postponed_be_due().await;
    assert_eq!((run_once(&app).await, app.postponed().await), (Ok(0), vec![]));

    gateway.stop().await;
    app.execute("UPDATE opened_payments SET updated_at = now() - interval '31 days'").await;
    app.let_postponed_be_due().await;
    run_once(&app).await.expect_err("the gateway is away");
    app.let_postponed_be_due().await;
    assert_eq!((run_once(&app).await, app.postponed().await), (Ok(0), vec![]), "they are given up");
}

#[tokio::test]
async fn a_gateway_that_is_away_holds_up_nothing_that_needs_no_gateway() {
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(2).await;
    let (there, here) = (app.order(1, coupon).await, app.order(2, coupon).await);
    gateway.pay(&open(&app, 1, there).await);
    becomes(&app, 1, there, "paid").await;
    app.execute(&format!(
        "UPDATE orders SET status = 'paid', pay_method = 'balance', paid_at = now() WHERE id = {here};
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents)
             VALUES ({here}, 'in_process', '{here}', 'balance', 1)"
    ))
    .await;
    gateway.stop().await;
    for (user, order) in [(1, there), (2, here)] {
        app.act(user, order, "refund").await;
    }
    let failed = run_once(&app).await.expect_err("the gateway is away");
    assert!(failed.contains("the payment gateway"), "{failed}");
    assert_eq!(
        (app.status(1, there).await, app.status(2, here).await),
        ("refunding".into(), "refunded".into())
    );
    assert_eq!(app.number("SELECT count(*) FROM postponed").await, 0, "no item is at fault");
}

/// A gateway may fail at one payment for ever.
#[tokio::test]
async fn a_payment_that_the_gateway_fails_at_holds_up_no_other() {
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(2).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    for (user, order) in [(1, orders[0]), (2, orders[1])] {
        gateway.pay(&open(&app, user, order).await);
        becomes(&app, user, order, "paid").await;
        app.act(user, order, "refund").await;
    }
    gateway.set_faults(Faults { fails_at: Some(1), ..Faults::default() });
    let failed = run_once(&app).await.expect_err("one payment has no answer");
    let bad = app.number(&format!("SELECT id FROM payments WHERE order_id = {}", orders[0])).await;
    assert!(failed.contains(&format!("payment {bad}: ")), "{failed}");
    assert_eq!(
        (app.status(1, orders[0]).await, app.status(2, orders[1]).await),
        ("refunding".into(), "refunded".into())
    );
    assert_eq!(
        app.app.payments.refund_job().bounded().await.ok(),
        Some(0),
        "it is asked about later"
    );
    let asked = "SELECT count(*) FROM payments WHERE status = 'refunding' AND refund_asked_at > '-infinity'";
    assert_eq!(app.number(asked).await, 1, "the list of payments that wait says when");
    gateway.set_faults(Faults::default());
    check_no_more(&app).await;
    assert_eq!(run_once(&app).await, Ok(1));
    assert_eq!(app.status(1, orders[0]).await, "refunded");
    gateway.stop().await;
}

/// Postgres refuses the row of one payment, for whatever reason.
#[tokio::test]
async fn an_opened_payment_that_postgres_refuses_is_postponed_alone() {
    let (app, gateway) = shop(Faults { confirms_nothing: true, ..Faults::default() }).await;
    let coupon = app.create_flash(3).await;
    let (bad, good, back) =
        (app.order(1, coupon).await, app.order(2, coupon).await, app.order(3, coupon).await);
    gateway.pay(&open(&app, 3, back).await);
    assert_eq!(run_once(&app).await, Ok(0));
    app.act(3, back, "refund").await;
    for (user, order) in [(1, bad), (2, good)] {
        gateway.pay(&open(&app, user, order).await);
    }
    app.refuse("INSERT", "payments", &format!("NEW.order_id = {bad}"), "23514").await;
    assert_eq!(run_once(&app).await, Ok(1), "the refund is done");
    let statuses =
        async || (app.status(1, bad).await, app.status(2, good).await, app.status(3, back).await);
    assert_eq!(statuses().await, ("unpaid".into(), "paid".into(), "refunded".into()));
    let noted = format!("SELECT count(*) FROM postponed WHERE job = 'openings' AND item = {bad}");
    assert_eq!(app.number(&noted).await, 1, "an operator finds it");
    app.accept("payments").await;
    app.let_postponed_be_due().await;
    assert_eq!(run_once(&app).await, Ok(0));
    assert_eq!((app.status(1, bad).await, app.number(&noted).await), ("paid".into(), 0));
    gateway.stop().await;
}

#[tokio::test]
async fn a_payment_that_the_gateway_has_closed_is_opened_anew_for_its_payer() {
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let mut closed = Vec::new();
    for _ in 0..2 {
        let payment = open(&app, 1, order).await;
        gateway.close(&payment);
        assert_eq!(run_once(&app).await, Ok(0));
        let waiting = "SELECT count(*) FROM opened_payments WHERE closed_at IS NULL";
        assert_eq!(app.number(waiting).await, 0, "nothing is opened without the payer");
        closed.push(payment);
    }
    let payment = open(&app, 1, order).await;
    assert!(!closed.contains(&payment), "{payment} is closed");
    assert_eq!(open(&app, 1, order).await, payment, "a repeat opens no further one");
    gateway.pay(&payment);
    becomes(&app, 1, order, "paid").await;
    // Money for an older page after all goes back.
    let late = json!({"kind": "payment", "payment_id": closed[0], "order_id": order.to_string(), "method": 1,
                      "amount_cents": 1});
    let stamp = Signatures::new(&SecretString::from(SECRET));
    let stamp = stamp.stamp(late.to_string().as_bytes(), now());
    let told = app.post_signed(late.to_string(), &stamp).await;
    assert_eq!((told.text("outcome"), told.text("reason")), ("handed_back", "paid_twice"));
    assert_eq!(
        app.payments().await,
        ["paid external accepted", "paid external refunding paid_twice"]
    );
    gateway.stop().await;
}

/// The callbacks of the payment and of the chargeback get lost.
#[tokio::test]
async fn money_that_has_gone_back_at_the_gateway_pays_no_order() {
    for arguments in [&[][..], &["--chargeback-keeps-unit"]] {
        let silent = Faults { confirms_nothing: true, ..Faults::default() };
        let (app, gateway) = shop_with(arguments, silent).await;
        let coupon = app.create_flash(1).await;
        let order = app.order(1, coupon).await;
        let payment = open(&app, 1, order).await;
        gateway.pay(&payment);
        gateway.charge_back(&payment);
        assert_eq!(run_once(&app).await, Ok(0));
        let (order_is, payment_is) = match arguments {
            [] => ("refunded", "refunded external refunded charged_back"),
            _ => ("refunding", "refunding external held charged_back"),
        };
        assert_eq!(app.status(1, order).await, order_is);
        assert_eq!(app.payments().await, [payment_is]);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn money_for_an_order_that_is_not_written_yet_pays_it_once_it_is() {
    let (app, gateway) = shop(Faults { takes_unopened: true, ..Faults::default() }).await;
    let coupon = app.create_flash(1).await;
    let order = app.claim(1, coupon).await.order_id();
    let key = "directly".to_owned();
    let (order_id, method, currency) = (order.to_string(), "wechat".to_owned(), "CNY".to_owned());
    gateway.pay_unopened(&Opening { key, order_id, method, amount_cents: 1, currency });
    let held =
        "SELECT count(*) FROM payments WHERE status = 'held' AND refund_reason = 'unknown_order'";
    eventually("the callback has come", async || app.number(held).await == 1).await;
    app.write_orders().await;
    app.execute("UPDATE payments SET next_check_at = now() WHERE next_check_at IS NOT NULL").await;
    assert_eq!(run_once(&app).await, Ok(0));
    assert_eq!(app.payments().await, ["paid external accepted"]);
    gateway.stop().await;
}

/// The secret of the callbacks is being changed: the service has both.
#[tokio::test]
async fn stamps_by_the_present_secret_and_by_the_one_before_are_believed_for_five_minutes() {
    let (before, third) =
        ("the secret before, which is long enough", "a secret of a stranger, long enough");
    let arguments = [
        "--payment-callback-secret",
        SECRET,
        "--payment-callback-secret-before",
        before,
        "--gateway-url",
        "http://127.0.0.1:9",
    ];
    let app = TestApp::without_in_process_gateway(&arguments).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let send = async |secret: &str, age_s: i64| {
        let notice = json!({"kind": "payment", "payment_id": "g1", "order_id": order.to_string(), "method": 3,
                            "amount_cents": 1});
        let body = notice.to_string();
        let signatures = Signatures::new(&SecretString::from(secret));
        let stamp = signatures.stamp(body.as_bytes(), now() - TimeDelta::seconds(age_s));
        app.post_signed(body, &stamp).await
    };
    for (secret, age_s) in [(third, 0), (before, 301), (SECRET, 301)] {
        let refused = send(secret, age_s).await;
        assert_eq!(refused.refusal(), (403, "invalid_signature"), "{secret}, {age_s} s old");
    }
    assert_eq!((app.status(1, order).await, app.payments().await.len()), ("unpaid".into(), 0));
    for (secret, age_s) in [(before, 0), (before, 200), (SECRET, 0)] {
        let accepted = send(secret, age_s).await;
        assert_eq!((accepted.status, accepted.text("outcome")), (200, "accepted"), "{secret}");
    }
    assert_eq!(app.payments().await, ["paid external accepted"]);
}

/// Every cent that was taken is the accepted payment of one order, or back; and nothing is refunded twice, whatever
/// goes wrong on the way.
#[tokio::test]
async fn no_cent_is_lost_whatever_the_gateway_does() {
    const USERS: i64 = 24;
    let (app, gateway) = shop(Faults::default()).await;
    let coupon = app.create_flash(USERS).await;
    let mut orders = Vec::new();
    for user in 1..=USERS {
        orders.push((user, app.order(user, coupon).await));
    }
    let none = Faults::default();
    let faults = [
        none,
        Faults { loses_answers: true, ..none },
        Faults { takes_twice: true, ..none },
        Faults { confirms_early: true, ..none },
        Faults { confirms_twice: true, refunds_later: true, ..none },
        Faults { confirms_nothing: true, ..none },
        Faults { slow_ms: 20, confirms_early: true, takes_twice: true, ..none },
        Faults { refuses: true, ..none },
    ];
    for round in 0..3 {
        for (number, (user, order)) in orders.iter().enumerate() {
            gateway.set_faults(faults[(number + round) % faults.len()]);
            let (user, order) = (*user, *order);
            let (first, second) = tokio::join!(app.pay(user, order), app.pay(user, order));
            for opened in [first, second].iter().filter(|reply| reply.status == 202) {
                gateway.pay(opened.text("payment_id"));
            }
            match (number + 2 * round) % 5 {
                0 => drop(app.cancel(user, order).await),
                1 => drop(app.act(user, order, "refund").await),
                2 => {
                    // The notice of a chargeback that never comes can't be missed by anybody.
                    gateway.set_faults(none);
                    gateway.books().iter().for_each(|entry| charge_back(&gateway, entry, order));
                }
                _ => {}
            }
            let _ = run_once(&app).await;
        }
    }
    gateway.set_faults(none);
    eventually("the end of all refunds", async || {
        app.let_postponed_be_due().await;
        let _ = run_once(&app).await;
        let is_taken = |entry: &&Entry| entry.state.was_paid();
        let taken = gateway.books().iter().filter(is_taken).count();
        let noted = app.number("SELECT count(*) FROM payments").await;
        let waiting = "SELECT count(*) FROM payments WHERE status IN ('refunding', 'held')";
        usize::try_from(noted) == Ok(taken) && app.number(waiting).await == 0
    })
    .await;
    for Entry { payment_id, order_id, state, .. } in gateway.books() {
        let accepted = app
            .number(&format!(
                "SELECT count(*) FROM payments JOIN orders ON orders.id = order_id
                 WHERE gateway_payment_id = '{payment_id}' AND order_id = {order_id}
                   AND payments.status = 'accepted' AND orders.status = 'paid'"
            ))
            .await;
        assert_eq!(accepted, i64::from(state == State::Paid), "{payment_id} is {state:?}");
    }
    let twice = "SELECT count(*) FROM (SELECT order_id FROM payments WHERE status = 'accepted'
                                       GROUP BY order_id HAVING count(*) > 1) AS twice";
    assert_eq!(app.number(twice).await, 0);
    gateway.stop().await;
}

fn charge_back(gateway: &Sample, entry: &Entry, order: i64) {
    if entry.order_id == order.to_string() {
        gateway.charge_back(&entry.payment_id);
    }
}
