//! An opened payment that its payer comes back to, and one about which its gateway goes on giving no answer.

use flash_sale::base::limits::OPENED_BATCH;
use serde_json::json;

use super::opened::{asked, opened};
use super::scripted::shop;
use super::{lines, orders};
use crate::support::{Bounded, TestApp};

const ROW: &str = "SELECT concat_ws(' ', looks, left((closed_at IS NULL)::text, 1),
        extract(epoch FROM next_look_at - updated_at)::bigint) FROM opened_payments";

#[tokio::test]
async fn begin_opening_opens_a_payment_once_and_asks_about_it_soon() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    let order = app.order(1, coupon).await;
    let first = app.pay(1, order).await;
    let key = format!("pay-{order}-balance");
    assert_eq!((first.status, first.text("payment_id")), (202, &*format!("open/{key}")));
    assert_eq!(first.text("pay_url"), format!("https://pay/{key}"));
    assert_eq!(gateway.asked(), [&*key]);
    let pause = "SELECT extract(epoch FROM next_look_at - created_at)::bigint FROM opened_payments";
    assert_eq!(app.number(pause).await, 60);

    gateway.opens(None);
    assert_eq!(app.pay(1, order).await.body, first.body, "no second request");
    assert_eq!(gateway.asked(), [""; 0]);
    app.execute("UPDATE opened_payments SET closed_at = now(), looks = 5, next_look_at = now() + interval '1 day'")
        .await;
    assert_eq!(app.pay(1, order).await.body, first.body);
    assert_eq!(lines(&app, ROW).await, ["0 t 60"], "the payer is here again");
    app.execute("UPDATE opened_payments SET next_look_at = '2026-01-01'").await;
    app.pay(1, order).await;
    let sooner = "SELECT count(*) FROM opened_payments WHERE next_look_at = '2026-01-01'";
    assert_eq!(app.number(sooner).await, 1, "no look is put off by a payer");

    let path = format!("/v1/orders/{order}/pay");
    let other = async || app.post(&path, &app.token(1), &json!({"method": "alipay"})).await;
    assert_eq!(other().await.refusal(), (503, "unavailable"), "no answer");
    gateway.opens(Some(("open/KEY", "https://pay/KEY")));
    assert_eq!(other().await.text("payment_id"), format!("open/pay-{order}-alipay"));
    let again = format!("pay-{order}-alipay");
    assert_eq!(gateway.asked(), [again.clone(), again], "under the same key");
    let ids = "SELECT gateway_payment_id FROM opened_payments ORDER BY id";
    let kept = [format!("open/{key}"), format!("open/pay-{order}-alipay")];
    assert_eq!(lines(&app, ids).await, kept);
}

#[tokio::test]
async fn an_id_or_a_page_that_can_not_be_kept_opens_nothing() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    let order = app.order(1, coupon).await;
    let (id, page) = ("x".repeat(201), "x".repeat(2_049));
    for (id, page) in [
        ("a b", "https://x"),
        ("", "https://x"),
        (id.as_str(), "https://x"),
        ("a", ""),
        ("a", "https://x/ä"),
        ("a", page.as_str()),
    ] {
        gateway.opens(Some((id, page)));
        assert_eq!(app.pay(1, order).await.refusal(), (503, "unavailable"), "{id:?} {page:?}");
    }
    gateway.opens(Some((&id[1..], &page[1..])));
    let opened = app.pay(1, order).await;
    assert_eq!((opened.status, opened.text("payment_id")), (202, &id[1..]));
}

/// Payments without an answer: looks so far, seconds since the last answer, and whether an operator has to know. The
/// time counts from the moment at which the look was due, after a pause that grows with the looks.
const UNHEARD: [(i64, i32, i32, bool); 6] = [
    (1, 0, 601, false),
    (2, 0, 720, true),
    (3, 12, 4_100, false),
    (4, 12, 4_300, true),
    (5, 3, 1_000, false),
    (6, 3, 1_200, true),
];

#[tokio::test]
async fn unheard_payments_wait_for_an_operator_while_others_are_heard() {
    let (app, gateway) = shop().await;
    for (order, looks, seconds, _) in UNHEARD {
        let (fails, heard) = (format!("fails/{order}"), format!("open///{order}"));
        opened(
            &app,
            &[
                (order, order, fails.as_str(), 2 * order - 100),
                (order + 10, order + 10, heard.as_str(), 2 * order - 99),
            ],
        )
        .await;
        app.execute(&format!(
            "UPDATE opened_payments SET looks = {looks}, updated_at = now() - {seconds} * interval '1 s' WHERE id = {order}"
        ))
        .await;
    }
    // One that an operator knows of already.
    opened(&app, &[(7, 7, "fails/7", -50)]).await;
    app.execute(
        "UPDATE opened_payments SET updated_at = now() - interval '12 min' WHERE id = 7;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('openings', 7, 'x', now())",
    )
    .await;
    let failures = r#"flash_sale_pass_failures_total{pass="openings"}"#;
    assert_eq!(asked(&app, &gateway).await.len(), 13, "none is held up by those before it");
    let noted = UNHEARD.iter().filter(|row| row.3).map(|row| format!("openings {} 1", row.0));
    let noted: Vec<_> = noted.chain(["openings 7 2".to_owned()]).collect();
    assert_eq!(app.postponed().await, noted);
    assert_eq!(app.metric(failures).await, 4.0, "each is counted once");
    let words = "SELECT count(*) FROM postponed WHERE error LIKE '%opened payment of order ' || item || ':%'";
    assert_eq!(app.number(words).await, 4);
}

#[tokio::test]
async fn a_gateway_that_is_away_settles_no_payment_that_it_was_not_asked_about() {
    let (app, gateway) = shop().await;
    let rows = [
        (1, 1, "fails/1", -50),
        (2, 2, "fails/2", -40),
        (3, 3, "fails/3", -30),
        (4, 4, "open///4", -20),
        (5, 5, "open///5", 1_800),
    ];
    opened(&app, &rows).await;
    app.execute(
        "UPDATE opened_payments SET updated_at = now() - interval '23 h' WHERE id < 3;
         UPDATE opened_payments SET updated_at = now() - interval '26 h' WHERE id = 3;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('openings', 5, 'x', now())",
    )
    .await;
    assert_eq!(asked(&app, &gateway).await, ["fails/1", "fails/2", "fails/3"]);
    assert_eq!(app.postponed().await, ["openings 3 1", "openings 5 1"], "the others have a day");
    app.execute("UPDATE postponed SET next_try_at = now() + interval '1 hour' WHERE item = 3")
        .await;
    assert_eq!(asked(&app, &gateway).await, ["open///4", "open///5"]);
    assert_eq!(app.postponed().await, ["openings 3 1"]);
}

#[tokio::test]
async fn a_payment_that_was_heard_before_the_gateway_went_away_is_settled() {
    let (app, gateway) = shop().await;
    let rows = [
        (1, 1, "open///1", -50),
        (2, 2, "fails/2", -40),
        (3, 3, "fails/3", -30),
        (4, 4, "fails/4", -20),
        (5, 5, "open///5", 1_800),
    ];
    opened(&app, &rows).await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
         VALUES ('openings', 1, 'x', now()), ('openings', 5, 'x', now())",
    )
    .await;
    assert_eq!(asked(&app, &gateway).await, ["open///1", "fails/2", "fails/3", "fails/4"]);
    assert_eq!(app.postponed().await, ["openings 5 1"]);
}

/// Postgres refuses to note that the first one is paid. It also refuses, for a reason of that payment or of its own, to
/// note the pause until the next look.
#[tokio::test]
async fn a_failure_that_concerns_all_payments_ends_the_looks_at_them() {
    for (code, is_heard) in [("23514", true), ("57014", false)] {
        let (app, gateway) = shop().await;
        let coupon = app.create_regular().await;
        orders(&app, coupon, &[(1, "unpaid")]).await;
        opened(&app, &[(1, 1, "paid/1/CNY/1", -20), (2, 2, "open///2", -10)]).await;
        app.refuse("INSERT", "payments", "true", "23514").await;
        app.refuse("UPDATE", "opened_payments", "OLD.order_id = 1", code).await;
        let ran = app.app.payments.refund_pass().bounded().await;
        assert_eq!(ran.is_ok(), is_heard, "{code}: {ran:?}");
        let second = gateway.asked().iter().any(|payment| payment == "open///2");
        assert_eq!(second, is_heard, "{code}");
        assert_eq!(app.numbers("SELECT item FROM postponed").await, [1], "{code}");
    }
}

/// Counts of stuck payments in front of a good one.
const STUCK: [i64; 4] = [0, 1, OPENED_BATCH as i64, OPENED_BATCH as i64 + 1];

/// Ids at the gateway, of payments of these orders.
fn ids(state: &str, stuck: i64) -> Vec<String> {
    (1..=stuck).map(|order| format!("{state}/1/CNY/{order}")).collect()
}

/// Opened payments of orders from 1 on that are due, in this order, and one of order 100 behind them.
async fn opened_in_front(app: &TestApp, ids: &[String], good: &str) {
    let mut rows: Vec<_> = (1..).zip(ids).map(|(n, id)| (n, n, id.as_str(), n - 100)).collect();
    rows.push((100, 100, good, -10));
    opened(app, &rows).await;
}

/// Postgres refuses to note that those in front are paid.
#[tokio::test]
async fn a_payment_behind_a_batch_of_stuck_ones() {
    for stuck in STUCK {
        let (app, gateway) = shop().await;
        let coupon = app.create_regular().await;
        let unpaid: Vec<_> = (1..=stuck).chain([100, 101]).map(|order| (order, "unpaid")).collect();
        orders(&app, coupon, &unpaid).await;
        app.refuse("INSERT", "payments", "(NEW.order_id < 100)", "23514").await;
        let in_front = ids("paid", stuck);
        opened_in_front(&app, &in_front, "paid/1/CNY/good").await;
        let paid = async |order: i64| {
            app.number(&format!(
                "SELECT count(*) FROM orders WHERE id = {order} AND status = 'paid'"
            ))
            .await
        };
        for _ in 0..2 {
            asked(&app, &gateway).await;
            app.let_postponed_wait().await;
        }
        assert_eq!(paid(100).await, 1, "behind {stuck}, once they are put aside");
        assert_eq!(i64::try_from(app.postponed().await.len()), Ok(stuck));
        app.let_postponed_be_due().await;
        opened(&app, &[(101, 101, "paid/1/CNY/next", -10)]).await;
        asked(&app, &gateway).await;
        assert_eq!(paid(101).await, 1, "also when all {stuck} are due again");

        app.accept("payments").await;
        app.let_postponed_be_due().await;
        for left in [(stuck - i64::from(OPENED_BATCH)).max(0), 0] {
            asked(&app, &gateway).await;
            let waiting = app.postponed().await;
            assert_eq!(i64::try_from(waiting.len()), Ok(left), "20 in a run: {waiting:?}");
        }
        let closed = "SELECT count(*) FROM opened_payments WHERE closed_at IS NOT NULL";
        assert_eq!(app.number(closed).await, stuck + 2);
    }
}

/// Three without an answer end a run.
#[tokio::test]
async fn a_payment_behind_unanswered_ones() {
    for stuck in STUCK {
        let (app, gateway) = shop().await;
        let in_front = ids("fails", stuck);
        opened_in_front(&app, &in_front, "open///good").await;
        let mut said = Vec::new();
        for _ in 0..=stuck / 3 {
            said.extend(asked(&app, &gateway).await);
            let pause = "UPDATE opened_payments SET next_look_at = now() + interval '1 hour' WHERE next_look_at > now()";
            app.execute(pause).await;
        }
        let expected: Vec<_> = in_front.into_iter().chain(["open///good".to_owned()]).collect();
        assert_eq!(said, expected, "each once");
    }
}
