//! `waiting`, `settled`, `of_order` and `count`, `hand_back` and `close`: payments that wait, and their ends by hand.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{OrderId, PaymentId};
use flash_sale::sale::payment::model::{PaymentReason, PaymentStatus};
use flash_sale::sale::payment::owed::{self, OwedFilter, PaymentPart, Settled};

use super::{app_with, lines, orders, payments, states, statuses};
use crate::support::TestApp;

fn payment(id: i64) -> PaymentId {
    PaymentId::new(id).expect("a positive number")
}

/// Payments by id, order, status and reason.
const ROWS: [(i64, i64, &str, &str); 10] = [
    (101, 1, "refunding", "asked_for"),
    (102, 2, "refunding", "too_late"),
    (103, 3, "held", "unknown_order"),
    (104, 4, "held", "unknown_order"),
    (105, 1, "held", "charged_back"),
    (106, 2, "accepted", ""),
    (107, 3, "refunded", "too_late"),
    (108, 1, "closed", "charged_back"),
    (109, 2, "held", "id_used_twice"),
    (110, 4, "refunded", "unknown_order"),
];

/// An app with these payments: ages in hours, and other currencies.
async fn prepared() -> TestApp {
    let app = app_with(&[]).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "refunding"), (2, "paid"), (3, "unpaid")]).await;
    payments(&app, &ROWS).await;
    app.execute(
        "UPDATE orders SET currency = 'EUR' WHERE id = 1;
         UPDATE payments SET currency = NULL WHERE order_id IN (1, 4);
         UPDATE payments SET created_at = now() - (id - 95) * interval '1 hour', updated_at = now() - interval '1 hour',
                             refunding_at = refunding_at - interval '4 hours', closed_at = closed_at - interval '2 hours',
                             refunded_at = refunded_at - interval '2 hours',
                             refund_asked_at = CASE id WHEN 101 THEN now() - interval '3 hours' END;
         UPDATE payments SET refunding_at = NULL WHERE id IN (102, 110);
         INSERT INTO held_payments VALUES (103, now()), (104, 'infinity'), (105, 'infinity'), (109, 'infinity'),
                                          (108, 'infinity')",
    )
    .await;
    app
}

/// Ids of the payments that are listed.
async fn ids(app: &TestApp, filter: OwedFilter, before: Option<i64>, limit: u32) -> Vec<i64> {
    let list = app.app.payments.owed.list(&filter, before.map(payment), limit).await;
    list.expect("Postgres answers").iter().map(|one| one.payment_id.get()).collect()
}

#[tokio::test]
async fn waiting_and_settled_payments_are_listed_by_part_reason_and_order() {
    use PaymentPart::{Held, Refunding, Settled, Waiting};
    let app = prepared().await;
    let too_late = Some(PaymentReason::TooLate);
    let unknown = Some(PaymentReason::UnknownOrder);
    for (part, reason, order, before, limit, expected) in [
        (Waiting, None, 0, None, 9, &[109, 105, 104, 103, 102, 101][..]),
        (Held, None, 0, None, 9, &[109, 105, 104, 103]),
        (Refunding, None, 0, None, 9, &[102, 101]),
        (Settled, None, 0, None, 9, &[110, 108, 107]),
        (Waiting, None, 0, None, 5, &[109, 105, 104, 103, 102]),
        (Waiting, None, 0, None, 1, &[109]),
        (Waiting, None, 0, Some(105), 2, &[104, 103]),
        (Waiting, None, 0, Some(102), 2, &[101]),
        (Held, None, 0, Some(109), 2, &[105, 104]),
        (Refunding, None, 0, Some(102), 2, &[101]),
        (Refunding, None, 0, None, 1, &[102]),
        (Settled, None, 0, Some(110), 9, &[108, 107]),
        (Settled, None, 0, None, 2, &[110, 108]),
        (Waiting, too_late, 0, None, 9, &[102]),
        (Waiting, unknown, 0, None, 9, &[104, 103]),
        (Waiting, None, 1, None, 9, &[105, 101]),
        (Waiting, None, 2, None, 9, &[109, 102]),
        (Waiting, too_late, 1, None, 9, &[]),
        (Settled, too_late, 0, None, 9, &[107]),
        (Settled, None, 1, None, 9, &[108]),
        (Settled, too_late, 1, None, 9, &[]),
    ] {
        let filter = OwedFilter { part, reason, order: OrderId::new(order).ok() };
        assert_eq!(
            ids(&app, filter, before, limit).await,
            expected,
            "{filter:?} {before:?} {limit}"
        );
    }
    let list = owed::waiting(&app.app.stores.pool, &OwedFilter::default(), None, 9).await;
    let list = list.expect("Postgres answers");
    let may_be_back: Vec<_> = list.iter().filter(|one| one.may_be_back).collect();
    assert_eq!(may_be_back.len(), 1);
    assert_eq!(may_be_back[0].payment_id.get(), 104);
}

/// The payments lie in no order on the disk, so it is dear to follow an index through all of them.
#[tokio::test]
async fn a_list_of_waiting_payments_reads_none_behind_its_page() {
    let app = app_with(&[]).await;
    app.expect_disagreements();
    app.execute(
        "INSERT INTO payments (id, order_id, gateway, gateway_payment_id, method, amount_cents, currency, status,
                               refund_reason, refunding_at)
         OVERRIDING SYSTEM VALUE
         SELECT n, n, 'external', 'g' || n, 'wechat', 1, 'CNY', CASE WHEN n > 2000 THEN 'held' ELSE 'refunding' END,
                'too_late', CASE WHEN n <= 2000 THEN now() END
         FROM generate_series(1, 4000) AS n ORDER BY md5(n::text);
         INSERT INTO held_payments SELECT id, 'infinity' FROM payments WHERE id > 2000 ORDER BY md5(id::text);
         ANALYZE payments; ANALYZE held_payments",
    )
    .await;
    app.forbid_reading("payments", "id <= 1990").await;
    app.forbid_reading("held_payments", "payment_id <= 3990").await;
    app.set_for_connections(&[("random_page_cost", "40")]).await;
    let other = app.another_instance().await;
    for (part, newest) in [(PaymentPart::Refunding, 2000), (PaymentPart::Held, 4000)] {
        let filter = OwedFilter { part, ..OwedFilter::default() };
        let listed = other.payments.owed.list(&filter, None, 1).await;
        let listed = listed.expect("no row is read that is of no use");
        assert_eq!(listed.iter().map(|one| one.payment_id.get()).collect::<Vec<_>>(), [newest]);
        let refused = other.payments.owed.list(&filter, None, 20).await;
        assert!(refused.is_err(), "a longer page reads such a row: {filter:?}");
    }
}

/// Of each payment in the lists: hours since when it waits, since when its gateway was asked, and since its end; its
/// currency, and its advice.
const LISTED: [(i64, &str, &str, &str); 9] = [
    (109, "14 - -", "CNY", "The gateway has used one id for two payments"),
    (105, "1 - -", "EUR", "The gateway has taken the money back."),
    (104, "9 - -", "-", "The order is so old that payments"),
    (103, "8 - -", "CNY", "No order has this id yet."),
    (102, "7 - -", "CNY", "The gateway hasn't confirmed the refund yet."),
    (101, "4 3 -", "EUR", "The gateway hasn't confirmed the refund yet."),
    (110, "15 - 2", "-", "Nothing is left to do."),
    (108, "13 - 2", "EUR", "Nothing is left to do."),
    (107, "4 - 2", "CNY", "Nothing is left to do."),
];

#[tokio::test]
async fn waiting_and_settled_payments_are_listed_with_times_currency_and_advice() {
    let app = prepared().await;
    let owed = &app.app.payments.owed;
    let waiting = owed.list(&OwedFilter::default(), None, 9).await.expect("Postgres answers");
    let part = OwedFilter { part: PaymentPart::Settled, ..OwedFilter::default() };
    let settled = owed.list(&part, None, 9).await.expect("Postgres answers");
    let now = crate::support::now();
    let hours = |time: Option<chrono::DateTime<chrono::Utc>>| match time {
        Some(time) => (now - time).num_hours().to_string(),
        None => "-".to_owned(),
    };
    for (one, (id, times, currency, advice)) in waiting.iter().chain(&settled).zip(LISTED) {
        assert_eq!(one.payment_id.get(), id);
        let told = [Some(one.since), one.asked_at, one.settled_at].map(hours).join(" ");
        assert_eq!(
            (told.as_str(), one.currency.as_deref().unwrap_or("-")),
            (times, currency),
            "{id}"
        );
        assert!(one.what_to_do.starts_with(advice), "{id}: {}", one.what_to_do);
        assert_eq!(one.note.is_some(), id == 108);
    }
    assert_eq!(waiting.len() + settled.len(), LISTED.len());
    assert_eq!(
        (waiting[0].amount(), waiting[2].amount()),
        ("1 cents (CNY)".into(), "1 cents".into())
    );

    let of_order = async |order: i64, limit: u32| {
        let found = owed.of_order(OrderId::new(order).expect("an id"), limit).await;
        let found = found.expect("Postgres answers");
        let line =
            |one: &owed::OrderPayment| format!("{} {}", one.payment_id, hours(one.settled_at));
        found.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(of_order(1, 9).await, ["101 -", "105 -", "108 2"]);
    assert_eq!(of_order(3, 9).await, ["103 -", "107 2"]);
    assert_eq!(of_order(1, 2).await, ["101 -", "105 -"]);
    assert_eq!(of_order(9, 9).await, [""; 0]);
}

#[tokio::test]
async fn count_tells_the_number_and_the_age_of_those_that_wait() {
    let app = prepared().await;
    let counted = async || {
        let counted = owed::count(&app.app.stores.pool).await.expect("Postgres answers");
        // An hour is longer than any test.
        counted.map(|one| (one.status, one.payments, (one.oldest_seconds / 3_600.0).floor()))
    };
    let (held, refunding) = (PaymentStatus::Held, PaymentStatus::Refunding);
    app.execute("DELETE FROM held_payments WHERE payment_id = 108").await;
    assert_eq!(counted().await, [(held, 4, 14.0), (refunding, 2, 7.0)]);
    app.execute(
        "DELETE FROM held_payments WHERE payment_id = 109; DELETE FROM payments WHERE id = 102",
    )
    .await;
    assert_eq!(counted().await, [(held, 3, 9.0), (refunding, 1, 4.0)]);
    app.execute("DELETE FROM held_payments WHERE payment_id < 105").await;
    assert_eq!(
        counted().await,
        [(held, 1, 1.0), (refunding, 1, 4.0)],
        "a chargeback counts from its notice"
    );
    app.execute("DELETE FROM held_payments; DELETE FROM payments").await;
    assert_eq!(counted().await, [(held, 0, 0.0), (refunding, 0, 0.0)]);
}

/// Payments by id; then the answers to handing them back and to closing them, and their states after each.
const DECIDED: [(i64, Settled, &str, Settled, &str); 10] = [
    (101, Settled::Done, "refunding asked_for", Settled::Done, "closed asked_for"),
    (102, Settled::Done, "refunding too_late", Settled::Done, "closed too_late"),
    (103, Settled::Done, "refunding unknown_order", Settled::Done, "closed unknown_order"),
    (104, Settled::Done, "refunding unknown_order", Settled::Done, "closed unknown_order"),
    (105, Settled::ChargedBack, "held charged_back", Settled::Done, "closed charged_back"),
    (106, Settled::DoesNotWait, "accepted", Settled::DoesNotWait, "accepted"),
    (107, Settled::Done, "refunded too_late", Settled::DoesNotWait, "refunded too_late"),
    (108, Settled::DoesNotWait, "closed charged_back", Settled::Done, "closed charged_back"),
    (109, Settled::IdUsedTwice, "held id_used_twice", Settled::Done, "closed id_used_twice"),
    (110, Settled::Done, "refunded unknown_order", Settled::DoesNotWait, "refunded unknown_order"),
];

/// All payments but this one, and their holds, without the times of their last changes.
async fn others(app: &TestApp, id: i64) -> Vec<String> {
    let others = format!(
        "SELECT (to_jsonb(payments) - 'updated_at')::text FROM payments WHERE id <> {id} ORDER BY id"
    );
    let holds = format!(
        "SELECT held_payments::text FROM held_payments WHERE payment_id <> {id} ORDER BY 1"
    );
    [lines(app, &others).await, lines(app, &holds).await].concat()
}

#[tokio::test]
async fn hand_back_and_close_end_the_wait_of_one_payment() {
    let app = prepared().await;
    let (owed, by) = (&app.app.payments.owed, Actor::command_line());
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(5, "refunding"), (6, "refunding")]).await;
    app.execute(
        "DELETE FROM held_payments WHERE payment_id = 108; UPDATE payments SET order_id = 5 WHERE id = 105;
         UPDATE payments SET order_id = 6 WHERE id = 102",
    )
    .await;
    for (id, handed, state, ..) in DECIDED {
        let before = others(&app, id).await;
        assert_eq!(
            owed.hand_back(payment(id), &by).await.expect("Postgres answers"),
            handed,
            "{id}"
        );
        assert!(states(&app).await.contains(&format!("{id} {state}")), "{id}");
        assert_eq!(others(&app, id).await, before, "{id}");
    }
    let holds = "SELECT payment_id::text FROM held_payments ORDER BY 1";
    assert_eq!(lines(&app, holds).await, ["105", "109"]);
    let times = "SELECT count(*) FROM payments WHERE id IN (103, 104) AND refunding_at <= now()";
    assert_eq!(app.number(times).await, 2);
    for (id, .., closed, state) in DECIDED {
        let before = others(&app, id).await;
        let told = owed.close(payment(id), "told".into(), &by).await.expect("Postgres answers");
        assert_eq!(told, closed, "{id}");
        assert!(states(&app).await.contains(&format!("{id} {state}")), "{id}");
        assert_eq!(others(&app, id).await, before, "{id}");
    }
    assert_eq!(lines(&app, holds).await, [""; 0]);
    // Orders whose refund was asked for, or whose payment was charged back.
    assert_eq!(
        statuses(&app).await,
        ["1 refunded", "2 paid", "3 unpaid", "5 refunded", "6 refunding"]
    );
    let noted = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM payments WHERE note = 'told' AND closed_at <= now()";
    assert_eq!(lines(&app, noted).await, ["101 102 103 104 105 109"]);
    for id in [99, 111] {
        assert_eq!(
            owed.hand_back(payment(id), &by).await.expect("Postgres answers"),
            Settled::NotFound
        );
        let closed = owed.close(payment(id), "told".into(), &by).await;
        assert_eq!(closed.expect("Postgres answers"), Settled::NotFound);
    }
    let book = "SELECT concat_ws(' ', action, subject_id, before->>'status', after->>'status', after->>'note') FROM audit
                WHERE subject_id > 100 AND action LIKE '%payment%' ORDER BY id";
    assert_eq!(
        lines(&app, book).await,
        [
            "hand_payment_back 103 held refunding",
            "hand_payment_back 104 held refunding",
            "close_payment 101 refunding closed told",
            "close_payment 102 refunding closed told",
            "close_payment 103 refunding closed told",
            "close_payment 104 refunding closed told",
            "close_payment 105 held closed told",
            "close_payment 109 held closed told"
        ]
    );
}
