//! `opened_due` and `look_at`: the opened payments that the pass asks about, and what an answer does.

use flash_sale::base::limits::{CENTS_MAX, GATEWAY_REPLY_BYTES_MAX, OPENED_BATCH};

use super::scripted::{Scripted, shop};
use super::{lines, orders, payments, statuses};
use crate::support::TestApp;

/// An opened payment: its id, its order, its id at the gateway, and the seconds until its next look.
type Opened<'a> = (i64, i64, &'a str, i64);

/// Writes opened payments of 1 cent (CNY) by hand. Without an id at the gateway, its answer got lost.
pub(super) async fn opened(app: &TestApp, rows: &[Opened<'_>]) {
    let line = |(id, order, payment, seconds): &Opened<'_>| {
        format!("({id}, {order}, nullif('{payment}', ''), {seconds})")
    };
    let rows: Vec<_> = rows.iter().map(line).collect();
    app.execute(&format!(
        "INSERT INTO opened_payments (id, order_id, method, amount_cents, currency, gateway_payment_id, pay_url, next_look_at)
         OVERRIDING SYSTEM VALUE
         SELECT id, order_id, 'wechat', 1, 'CNY', payment, CASE WHEN payment IS NOT NULL THEN 'https://pay' END,
                now() + seconds * interval '1 s'
         FROM (VALUES {}) AS row (id, order_id, payment, seconds)",
        rows.join(", ")
    ))
    .await;
}

/// Runs the pass. Returns what the gateway was asked about.
pub(super) async fn asked(app: &TestApp, gateway: &Scripted) -> Vec<String> {
    let _ = app.app.payments.refund_pass().await;
    gateway.asked()
}

#[tokio::test]
async fn opened_due_finds_those_that_are_due_in_the_order_of_their_looks() {
    let (app, gateway) = shop().await;
    let rows = [
        (101, 1, "open///a", -10),
        (102, 2, "open///b", -30),
        (103, 3, "open///c", -20),
        (104, 4, "open///not-due", 1_800),
        (105, 5, "open///closed", -40),
        (106, 6, "open///postponed", -50),
        (107, 7, "open///postponed-elsewhere", -60),
        (108, 8, "open///postponed-until-now", 1_800),
        (109, 9, "open///closed-and-postponed-until-now", -70),
    ];
    opened(&app, &rows).await;
    app.execute(
        "UPDATE opened_payments SET closed_at = now() WHERE id IN (105, 109);
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES
             ('openings', 6, 'x', now() + interval '1 hour'), ('expiry', 7, 'x', now() + interval '1 hour'),
             ('openings', 8, 'x', now() - interval '1 s'), ('openings', 9, 'x', now() - interval '1 s')",
    )
    .await;
    let next = "SELECT next_look_at::text FROM opened_payments WHERE id = 108";
    let before = lines(&app, next).await;
    assert_eq!(
        asked(&app, &gateway).await,
        [
            "open///postponed-elsewhere",
            "open///b",
            "open///c",
            "open///a",
            "open///postponed-until-now"
        ]
    );
    let looked = "SELECT id::text FROM opened_payments WHERE looks = 1 ORDER BY id";
    assert_eq!(lines(&app, looked).await, ["101", "102", "103", "107"]);
    assert_eq!(lines(&app, next).await, before, "a look that was not due doesn't count");
    assert_eq!(app.postponed().await, ["expiry 7 1", "openings 6 1"]);
}

#[tokio::test]
async fn opened_due_takes_a_batch_of_open_ones_that_wait_longest() {
    let (app, gateway) = shop().await;
    let batch = i64::from(OPENED_BATCH);
    let ids: Vec<_> = (0..batch + 2).map(|n| format!("open///{n}")).collect();
    // The last ones became due first; and as many that are closed became due before them.
    let rows: Vec<_> =
        (0..).zip(&ids).map(|(n, id)| (100 + n, 100 + n, id.as_str(), -100 - n)).collect();
    opened(&app, &rows).await;
    let closed: Vec<_> =
        (0..batch).map(|n| (200 + n, 200 + n, "open///closed", -200 - n)).collect();
    opened(&app, &closed).await;
    app.execute("UPDATE opened_payments SET closed_at = now() WHERE id >= 200").await;
    let expected: Vec<_> = ids.iter().skip(2).rev().cloned().collect();
    assert_eq!(asked(&app, &gateway).await, expected);
    assert_eq!(asked(&app, &gateway).await, ["open///1", "open///0"]);
}

/// Payments, in the order in which they are due, and what is written about each then: number of looks, number of the
/// payment, its id at the gateway, and whether it is closed.
const ANSWERED: [(i64, &str, i32, &str); 17] = [
    (101, "open/1/CNY/a", 0, "1 1 open/1/CNY/a f"),
    (102, "fails/b", 7, "7 1 fails/b f"),
    (103, "open/1/CNY/c", 75, "76 1 open/1/CNY/c f"),
    (104, "open/1/CNY/d", 76, "77 1 open/1/CNY/d t"),
    (105, "refunding/1/CNY/e", 76, "77 1 refunding/1/CNY/e f"),
    // Its payment is in the books.
    (106, "fails/f", 0, "0 1 fails/f t"),
    (107, "unknown/g", 76, "77 1 unknown/g t"),
    (108, "unknown/h", 3, "4 1 unknown/h f"),
    // Without an answer for 31 days, and for 29.
    (109, "fails/i", 0, "0 1 fails/i t"),
    (110, "closed/1/CNY/j", 3, "0 5 - t"),
    (111, "fails/k", 0, "0 1 fails/k f"),
    (112, "paid/1/CNY/l", 2, "2 1 paid/1/CNY/l t"),
    (113, "paid/7//m", 0, "0 1 paid/7//m t"),
    (114, "paid///n", 0, "0 1 paid///n t"),
    (115, "refunded/1/CNY/o", 0, "0 1 refunded/1/CNY/o t"),
    // Their answers got lost.
    (116, "", 0, "1 1 open/pay-116-wechat f"),
    (117, "", 0, "1 3 open/pay-117-wechat-3 f"),
];

/// Neighbours of those that are looked at: they are closed, and nothing is written about them.
const NEIGHBOURS: &str = "
    INSERT INTO opened_payments (id, order_id, method, amount_cents, currency, gateway_payment_id, pay_url, next_look_at,
                                 closed_at, number)
    OVERRIDING SYSTEM VALUE VALUES
        (201, 201, 'wechat', 1, 'CNY', 'closed/1/CNY/j', 'https://pay', now(), '2026-01-01', 4),
        (202, 116, 'alipay', 1, 'CNY', NULL, NULL, now(), '2026-01-01', 1),
        (203, 203, 'wechat', 1, 'CNY', NULL, NULL, now(), '2026-01-01', 1)";

#[tokio::test]
async fn look_at_an_opened_payment_does_what_the_answer_says() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(112, "unpaid"), (113, "unpaid"), (114, "unpaid"), (115, "unpaid")])
        .await;
    let rows: Vec<_> =
        ANSWERED.iter().map(|(id, payment, ..)| (*id, *id, *payment, *id - 200)).collect();
    opened(&app, &rows).await;
    for (id, _, looks, _) in ANSWERED {
        app.execute(&format!("UPDATE opened_payments SET looks = {looks} WHERE id = {id}")).await;
    }
    payments(&app, &[(301, 106, "held", "unknown_order")]).await;
    app.execute(
        "UPDATE opened_payments SET number = 4 WHERE id = 110; UPDATE opened_payments SET number = 3 WHERE id = 117;
         UPDATE opened_payments SET updated_at = now() - interval '31 days' WHERE id = 109;
         UPDATE opened_payments SET updated_at = now() - interval '29 days' WHERE id = 111;
         UPDATE payments SET gateway_payment_id = 'fails/f'",
    )
    .await;
    app.execute(NEIGHBOURS).await;
    let neighbours = "SELECT opened_payments::text FROM opened_payments WHERE id > 200 ORDER BY id";
    let before = lines(&app, neighbours).await;
    asked(&app, &gateway).await;

    let rows = "SELECT concat_ws(' ', id, looks, number, coalesce(gateway_payment_id, '-'), left((closed_at IS NOT NULL)::text, 1))
                FROM opened_payments WHERE id < 200 ORDER BY id";
    let expected: Vec<_> = ANSWERED.iter().map(|(id, .., after)| format!("{id} {after}")).collect();
    assert_eq!(lines(&app, rows).await, expected);
    assert_eq!(lines(&app, neighbours).await, before);
    let pauses = "SELECT id || ' ' || extract(epoch FROM next_look_at - updated_at)::bigint FROM opened_payments
                  WHERE id IN (101, 103, 105, 108) ORDER BY id";
    assert_eq!(lines(&app, pauses).await, ["101 120", "103 3600", "105 3600", "108 960"]);
    let taken = "SELECT concat_ws(' ', order_id, status, refund_reason, amount_cents, currency, gateway_payment_id)
                 FROM payments WHERE id < 300 ORDER BY order_id";
    assert_eq!(
        lines(&app, taken).await,
        [
            "112 accepted 1 CNY paid/1/CNY/l",
            "113 refunding wrong_amount 7 CNY paid/7//m",
            "114 accepted 1 CNY paid///n",
            "115 refunded charged_back 1 CNY refunded/1/CNY/o"
        ]
    );
    assert_eq!(statuses(&app).await, ["112 paid", "113 unpaid", "114 paid", "115 refunded"]);
    let late = "SELECT count(*) FROM opened_payments WHERE closed_at > clock_timestamp()";
    assert_eq!(app.number(late).await, 0, "each is closed at once");
}

#[tokio::test]
async fn an_answer_that_can_not_be_is_none() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    let most = format!("paid/{CENTS_MAX}/CNY/");
    let (more, whole) =
        (format!("paid/{}/CNY/", CENTS_MAX + 1), format!("long/{GATEWAY_REPLY_BYTES_MAX}"));
    let long = format!("long/{}", GATEWAY_REPLY_BYTES_MAX + 1);
    let rows = [
        (101, &*most, "refunding 1000000000000 CNY"),
        (102, "paid/0/CNY/", "refunding 0 CNY"),
        (103, &*more, ""),
        (104, "paid//USD/", "refunding 1 USD"),
        (105, "paid/-1/CNY/", ""),
        (106, "paid/1/cny/", ""),
        (107, &*whole, "looked at"),
        (108, "paid/1/EURO/", ""),
        (109, &*long, ""),
        (110, "paid/1/CNY/", "accepted 1 CNY"),
    ];
    for (id, payment, _) in rows {
        orders(&app, coupon, &[(id, "unpaid")]).await;
        opened(&app, &[(id, id, payment, id - 200)]).await;
    }
    app.app.payments.refund_pass().await.expect_err("some have no answer");
    let told = "SELECT CASE WHEN looks > 0 THEN 'looked at' ELSE concat_ws(' ', payments.status, payments.amount_cents, payments.currency) END
                FROM opened_payments LEFT JOIN payments USING (order_id) ORDER BY opened_payments.id";
    assert_eq!(lines(&app, told).await, rows.map(|(.., told)| told));
    assert_eq!(gateway.asked().len(), rows.len() + 3, "and three refunds");
}

#[tokio::test]
async fn http_gateway_of_a_config_takes_replies_of_so_many_bytes_at_most() {
    let (app, gateway) = shop().await;
    let coupon = app.create_regular().await;
    for (id, bytes) in [(101, GATEWAY_REPLY_BYTES_MAX), (102, GATEWAY_REPLY_BYTES_MAX + 1)] {
        orders(&app, coupon, &[(id, "unpaid")]).await;
        opened(&app, &[(id, id, &format!("long/{bytes}"), id - 200)]).await;
    }
    app.app.payments.refund_pass().await.expect_err("one has no answer");
    let looked = "SELECT (looks > 0)::text FROM opened_payments ORDER BY id";
    assert_eq!(lines(&app, looked).await, ["true", "false"]);
    assert_eq!(gateway.asked().len(), 2);
}
