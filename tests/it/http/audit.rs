//! The book of changes: each change by the staff once, with its values; and the lists of it.

use std::collections::BTreeSet;

use flash_sale::kit::jwt::Scope;
use flash_sale::store::audit::Action;
use flash_sale::store::job::Job;
use serde_json::{Value, json};

use crate::support::process::{flash_sale, run};
use crate::support::{Reply, SECRET, TestApp, admin_token_of, bounded, lane, scoped_token};

/// The book, newest first.
async fn entries(app: &TestApp, filter: &str) -> Vec<Value> {
    let reply = app.get(&format!("/v1/audit?limit=100{filter}"), &app.admin_token()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body["entries"].as_array().expect("a list").clone()
}

async fn post(app: &TestApp, path: &str, body: Value) -> Reply {
    let reply = app.post(path, &admin_token_of(7), &body).await;
    assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
    reply
}

fn id_of(thing: &Value) -> i64 {
    thing.as_str().and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("no id: {thing}"))
}

/// An open dead letter of this user. Returns its id.
async fn letter(app: &TestApp, user: i64, coupon: i64) -> i64 {
    let sale = format!("WHERE coupon_id = {coupon}");
    let sold = app.number(&format!("SELECT sold FROM flash_sales {sale}")).await;
    app.execute(&format!("UPDATE flash_sales SET sold = total {sale}")).await;
    app.claim(user, coupon.to_string().parse().expect("an id")).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = {sold} {sale}")).await;
    app.number("SELECT max(id) FROM dead_letters").await
}

#[tokio::test]
async fn each_change_by_the_staff_is_entered_once() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let coupon = app.create_flash(9).await;
    let order = app.paid_order(1, coupon).await;
    let (discarded, retried) =
        (letter(&app, 2, coupon.get()).await, letter(&app, 3, coupon.get()).await);
    let (handed_back, closed) = (held(&app, "g1").await, held(&app, "g2").await);
    let item = postponed(&app).await;
    let of = format!("/v1/coupons/{coupon}");
    let steps = [
        ("pause_coupon", coupon.get(), format!("{of}/pause"), Value::Null),
        ("resume_coupon", coupon.get(), format!("{of}/resume"), Value::Null),
        ("restock_coupon", coupon.get(), format!("{of}/restock"), json!({"units": 1, "key": "k"})),
        (
            "discard_dead_letter",
            discarded,
            format!("/v1/dead-letters/{discarded}/discard"),
            Value::Null,
        ),
        ("retry_dead_letter", retried, format!("/v1/dead-letters/{retried}/retry"), Value::Null),
        (
            "hand_payment_back",
            handed_back,
            format!("/v1/payments/{handed_back}/hand-back"),
            Value::Null,
        ),
        (
            "close_payment",
            closed,
            format!("/v1/payments/{closed}/close"),
            json!({"note": "by hand"}),
        ),
        ("end_coupon", coupon.get(), format!("{of}/end"), Value::Null),
        ("archive_coupon", coupon.get(), format!("{of}/archive"), json!({"accept_loss": true})),
    ];
    let mut before = entries(&app, "").await.len();
    assert_eq!(before, 1, "the creation");
    for (action, subject, path, body) in steps {
        post(&app, &path, body.clone()).await;
        let book = entries(&app, "").await;
        assert_eq!(book.len(), before + 1, "{action}");
        let entry = &book[0];
        assert_eq!((&entry["action"], id_of(&entry["subject"])), (&json!(action), subject));
        assert_eq!((&entry["actor"], &entry["scope"]), (&json!("7"), &json!("admin")), "{action}");
        // A repeat changes nothing.
        post(&app, &path, body).await;
        assert_eq!(entries(&app, "").await.len(), before + 1, "{action}, repeated");
        before += 1;
    }
    // A retry makes an item due that is not.
    post(&app, &format!("/v1/postponed/{item}/retry"), Value::Null).await;
    let clerk = scoped_token(9, Scope::Clerk);
    let code = app.code(1, order).await;
    for status in [200, 409] {
        assert_eq!(
            app.post("/v1/redemptions", &clerk, &json!({ "code": code })).await.status,
            status
        );
    }
    let book = entries(&app, "").await;
    let actions: Vec<&str> =
        book.iter().take(2).map(|it| it["action"].as_str().expect("a word")).collect();
    assert_eq!(actions, ["redeem_order", "retry_postponed"]);
    assert_eq!(book.len(), before + 2);
    assert_eq!((&book[0]["actor"], &book[0]["scope"]), (&json!("9"), &json!("clerk")));
    assert_eq!(book[0]["before"], json!({"status": "paid"}));
    assert_eq!(book[0]["after"], json!({"status": "redeemed", "key": null}));
    app.expect_disagreements();
}

/// A postponed item. Returns its id.
async fn postponed(app: &TestApp) -> i64 {
    app.app.postponed.note(Job::StockReturns, &[1], "an error").await.expect("Postgres answers");
    app.execute("UPDATE postponed SET next_try_at = now() + interval '1 hour'").await;
    app.number("SELECT max(id) FROM postponed").await
}

/// A payment that no order can take. Returns its id.
async fn held(app: &TestApp, payment: &str) -> i64 {
    let notice = json!({"kind": "payment", "payment_id": payment, "order_id": "1", "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&notice).await.text("outcome"), "held");
    app.number("SELECT max(id) FROM payments").await
}

/// Creates an endpoint of events, changes it and deletes it.
async fn endpoint(app: &TestApp) {
    post(app, "/v1/webhooks", json!({"url": "https://example.com/"})).await;
    let path = format!("/v1/webhooks/{}", app.number("SELECT id FROM webhooks").await);
    let url = app.url.clone() + &path;
    let request = app.client().patch(&url).bearer_auth(app.admin_token());
    let request = request.json(&json!({"rotate_secret": true}));
    assert_eq!(app.send(request, "PATCH", &path).await.status, 200);
    let request = app.client().delete(&url).bearer_auth(app.admin_token());
    assert_eq!(app.send(request, "DELETE", &path).await.status, 204);
}

/// True if an entry has values before and after. A thing that begins has none before.
fn values_of(action: Action) -> (bool, bool) {
    match action {
        Action::CreateCoupon
        | Action::CreateWebhook
        | Action::CancelUnpaidOrders
        | Action::RecoverLane => (false, true),
        Action::DeleteWebhook => (true, false),
        Action::EditCoupon
        | Action::PauseCoupon
        | Action::ResumeCoupon
        | Action::EndCoupon
        | Action::ChangeWebhook
        | Action::RestockCoupon
        | Action::ArchiveCoupon
        | Action::CancelOrder
        | Action::RefundOrder
        | Action::RedeemOrder
        | Action::DiscardDeadLetter
        | Action::RetryDeadLetter
        | Action::HandPaymentBack
        | Action::ClosePayment
        | Action::RetryPostponed
        | Action::SettleRecovery => (true, true),
    }
}

#[tokio::test]
async fn each_action_is_entered_with_its_values() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET, "--events"]).await;
    let coupon = app.create_flash(9).await;
    let of = format!("/v1/coupons/{coupon}");
    assert_eq!(app.edit(coupon, &json!({"pay_cents": 7})).await.status, 200);
    for verb in ["pause", "resume"] {
        post(&app, &format!("{of}/{verb}"), Value::Null).await;
    }
    post(&app, &format!("{of}/restock"), json!({"units": 1, "key": "k"})).await;
    let because = json!({"reason": "asked to"});
    let unpaid = app.order(1, coupon).await;
    post(&app, &format!("/v1/orders/{unpaid}/cancel-for-buyer"), because.clone()).await;
    let paid = app.paid_order(2, coupon).await;
    post(&app, &format!("/v1/orders/{paid}/refund-for-buyer"), because).await;
    app.order(7, coupon).await;
    post(&app, &format!("{of}/cancel-unpaid"), json!({"reason": "rain"})).await;
    let redeemed = app.paid_order(3, coupon).await;
    assert_eq!(app.redeem(redeemed).await.status, 200);
    let (discarded, retried) =
        (letter(&app, 4, coupon.get()).await, letter(&app, 5, coupon.get()).await);
    post(&app, &format!("/v1/dead-letters/{discarded}/discard"), Value::Null).await;
    post(&app, &format!("/v1/dead-letters/{retried}/retry"), Value::Null).await;
    let (back, closed) = (held(&app, "g1").await, held(&app, "g2").await);
    post(&app, &format!("/v1/payments/{back}/hand-back"), Value::Null).await;
    post(&app, &format!("/v1/payments/{closed}/close"), json!({"note": "by hand"})).await;
    let item = postponed(&app).await;
    post(&app, &format!("/v1/postponed/{item}/retry"), Value::Null).await;
    app.execute(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, lost)
         VALUES (0, 1, 'an older file', now(), '[{\"coupon_id\": \"1\", \"user_id\": \"1\", \"order_id\": \"1\",
                                                   \"reason\": \"superseded\"}]')",
    )
    .await;
    endpoint(&app).await;
    let recovery = app.number("SELECT max(id) FROM recoveries").await;
    post(&app, &format!("/v1/recoveries/{recovery}/settle"), json!({"note": "told"})).await;
    post(&app, &format!("{of}/end"), Value::Null).await;
    post(&app, &format!("{of}/archive"), json!({"accept_loss": true})).await;
    let regular = app.create_regular().await;
    let lost = app.order(7, regular).await.to_string();
    for notice in [
        json!({"kind": "payment", "payment_id": "g3", "order_id": lost, "method": 3, "amount_cents": 1}),
        json!({"kind": "refund", "payment_id": "g3"}),
    ] {
        assert_eq!(app.confirm(&notice).await.status, 200);
    }
    let theirs = app.order(6, regular).await;
    assert_eq!(app.cancel(6, theirs).await.status, 200);
    let _: i64 = app.redis(&["HDEL", &app.keys().lane(lane()), "accepted"]).await;
    let mut command = flash_sale(&["recover"]);
    command.args(app.store_arguments());
    let done = run(command).await;
    assert_eq!(done.code, Some(0), "{done:?}");

    let book = entries(&app, "").await;
    let names: BTreeSet<&str> = book.iter().filter_map(|entry| entry["action"].as_str()).collect();
    assert_eq!(names.len(), 21, "{names:?}");
    for name in names {
        let action: Action = serde_json::from_value(name.into()).expect("an action");
        let entry = book.iter().find(|entry| entry["action"] == name);
        let entry = entry.expect("it is one of them");
        let has = |values: &Value| values.is_object();
        let told = (has(&entry["before"]), has(&entry["after"]));
        assert_eq!(told, values_of(action), "{entry:#}");
        assert_ne!((has(&entry["before"]), &entry["before"]), (true, &entry["after"]), "{name}");
    }
    app.expect_disagreements();
}

#[tokio::test]
async fn a_recovery_is_entered_with_its_lane_and_so_is_its_settlement() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    let recover = async |trust: &str| {
        let mut command = flash_sale(&["recover", "--lane", "0", "--trust", trust]);
        command.args(app.store_arguments());
        assert_eq!(run(command).await.code, Some(0), "{trust}");
        entries(&app, "&action=recover_lane").await.remove(0)
    };
    let epoch = app.number("SELECT epoch FROM lanes WHERE lane = 0").await;
    let first = recover("postgres").await;
    let after = &first["after"];
    assert_eq!((&after["lane"], &after["trusts"]), (&json!(0), &json!("postgres")));
    assert!(after["epoch"].as_i64() > Some(epoch), "{after}");
    // The lane is still closed, and the operator has thought better of it.
    assert_eq!(recover("redis").await["after"]["trusts"], "redis");
    app.recover().await;

    app.execute(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
         VALUES (0, 9, 'an older file', now(), now(), '[{\"coupon_id\": \"1\", \"user_id\": \"77\", \"order_id\": \"1\",
                                                         \"reason\": \"superseded\"}]')",
    )
    .await;
    let recovery = app.number("SELECT max(id) FROM recoveries").await;
    post(&app, &format!("/v1/recoveries/{recovery}/settle"), json!({"note": "told"})).await;
    let settled = &entries(&app, "&action=settle_recovery").await[0];
    let unsettled = json!({"state": "unsettled", "lane": 0, "epoch": 9, "reason": "an older file",
                           "claims_lost": 1, "claims_unknown": 0});
    assert_eq!(settled["before"], unsettled);
    assert_eq!(settled["after"], json!({"state": "settled", "note": "told"}));
}

#[tokio::test]
async fn an_edit_is_entered_with_the_values_before_and_after() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.edit(coupon, &json!({"pay_cents": 7, "sale": {"total": 6}})).await.status, 200);
    assert_eq!(app.edit(coupon, &json!({"sale": {"total": 1}})).await.status, 409, "refused");
    let book = entries(&app, &format!("&action=edit_coupon&subject={coupon}")).await;
    assert_eq!(book.len(), 1, "{book:#?}");
    let (before, after) = (&book[0]["before"], &book[0]["after"]);
    assert_eq!((&before["pay_cents"], &after["pay_cents"]), (&json!(1), &json!(7)));
    assert_eq!((&before["sale"]["total"], &after["sale"]["total"]), (&json!(5), &json!(6)));
    assert_eq!((&before["revision"], &after["revision"]), (&json!(1), &json!(2)));
    assert_eq!(before["title"], after["title"]);
    let created = &entries(&app, "&action=create_coupon").await[0];
    assert_eq!((&created["before"], &created["after"]["sale"]["total"]), (&Value::Null, &json!(5)));
}

#[tokio::test]
async fn buyers_passes_and_gateways_are_not_in_the_book() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let coupon = app.create_flash(5).await;
    let cancelled = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, cancelled).await.status, 200);
    let refunded = app.paid_order(2, coupon).await;
    assert_eq!(app.act(2, refunded, "refund").await.status, 200);
    app.refund_payments().await;
    app.order(3, coupon).await;
    app.let_time_pass().await;
    app.expire().await;
    app.release().await;
    let charged_back = app.order(4, coupon).await.to_string();
    for notice in [
        json!({"kind": "payment", "payment_id": "g1", "order_id": charged_back, "method": 3, "amount_cents": 1}),
        json!({"kind": "refund", "payment_id": "g1"}),
    ] {
        for _ in 0..2 {
            assert_eq!(app.confirm(&notice).await.status, 200);
        }
    }
    let past = "UPDATE flash_sales SET closes_at = now() - interval '1 day', opens_at = now() - interval '2 days'";
    app.execute(past).await;
    app.app.archive.run_once().await.expect("both stores answer");
    let book = entries(&app, "").await;
    let actions: Vec<&Value> = book.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["create_coupon"]);
    app.expect_disagreements();
}

#[tokio::test]
async fn the_book_is_filtered_and_paged() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO audit (at, actor, scope, action, subject_id)
         SELECT '2026-03-01'::timestamptz + n * interval '1 minute', n % 2 + 1, 'admin',
                CASE n % 3 WHEN 0 THEN 'pause_coupon' ELSE 'redeem_order' END, n % 5 + 1
         FROM generate_series(0, 29) AS n",
    )
    .await;
    for (filter, count) in [
        ("", 30),
        ("&action=pause_coupon", 10),
        ("&subject=2", 6),
        ("&subject=2&action=pause_coupon", 2),
    ] {
        assert_eq!(entries(&app, filter).await.len(), count, "{filter}");
    }
    // Page by page, also through entries of one moment.
    app.execute("UPDATE audit SET at = '2026-03-01' WHERE id <= 10").await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    bounded("the last page", async {
        loop {
            let reply = app.get(&format!("/v1/audit?limit=4{cursor}"), &app.admin_token()).await;
            let page = reply.body["entries"].as_array().expect("a list");
            seen.extend(page.iter().map(|entry| id_of(&entry["id"])));
            let Some(next) = reply.body["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
    })
    .await;
    assert_eq!(seen, (1..=30).rev().collect::<Vec<i64>>());
    for wrong in [
        "actor=1",
        "action=cook",
        "action=",
        "subject=-1",
        "limit=0",
        "limit=101",
        "cursor=0",
        "colour=red",
    ] {
        let refused = app.get(&format!("/v1/audit?{wrong}"), &app.admin_token()).await;
        assert_eq!(refused.refusal(), (400, "invalid_query"), "{wrong}");
    }
}
