//! Requests of users and administrators: refused by Postgres, each is answered 503 and changes nothing.

use std::collections::BTreeSet;

use flash_sale::sale::ids::CouponId;
use sample_gateway::Faults;
use serde_json::{Value, json};

use super::{CLASSES, Patience, Poison, classes, decide, meaning_of, oversell};
use crate::payment::gateway::shop_with;
use crate::support::{Reply, SECRET, TestApp};

/// A request over HTTP, and one of its writes that is refused.
const ASKED: [(&str, &str, &str); 70] = [
    ("regular claim", "INSERT", "orders"),
    ("pay", "UPDATE", "orders"),
    ("pay", "INSERT", "payments"),
    ("pay", "INSERT", "redemptions"),
    ("pay", "INSERT", "stock_returns"),
    ("cancel", "UPDATE", "orders"),
    ("cancel", "INSERT", "stock_returns"),
    ("cancel", "UPDATE", "flash_sales"),
    ("refund", "UPDATE", "orders"),
    ("refund", "UPDATE", "payments"),
    ("redeem", "UPDATE", "orders"),
    ("redeem", "UPDATE", "redemptions"),
    ("redeem", "INSERT", "audit"),
    ("discard", "UPDATE", "dead_letters"),
    ("discard", "INSERT", "orders"),
    ("discard", "INSERT", "audit"),
    ("discard", "INSERT", "stock_returns"),
    ("pause", "UPDATE", "coupons"),
    ("end", "UPDATE", "coupons"),
    ("edit", "UPDATE", "coupons"),
    ("edit", "UPDATE", "flash_sales"),
    ("edit", "INSERT", "audit"),
    ("pause", "INSERT", "audit"),
    ("restock", "UPDATE", "coupons"),
    ("restock", "UPDATE", "flash_sales"),
    ("restock", "INSERT", "restocks"),
    ("create", "INSERT", "coupons"),
    ("create", "INSERT", "flash_sales"),
    ("create", "INSERT", "audit"),
    ("confirm", "INSERT", "payments"),
    ("confirm", "UPDATE", "orders"),
    ("archive", "UPDATE", "flash_sales"),
    ("archive", "INSERT", "orders"),
    ("archive", "INSERT", "audit"),
    ("archive", "UPDATE", "dead_letters"),
    ("cancel-unpaid", "INSERT", "jobs"),
    ("cancel-unpaid", "INSERT", "audit"),
    ("cancel-for-buyer", "UPDATE", "orders"),
    ("cancel-for-buyer", "INSERT", "stock_returns"),
    ("cancel-for-buyer", "UPDATE", "flash_sales"),
    ("cancel-for-buyer", "INSERT", "audit"),
    ("refund-for-buyer", "UPDATE", "orders"),
    ("refund-for-buyer", "UPDATE", "payments"),
    ("refund-for-buyer", "INSERT", "audit"),
    ("hand-back", "UPDATE", "payments"),
    ("hand-back", "DELETE", "held_payments"),
    ("hand-back", "INSERT", "audit"),
    ("close", "UPDATE", "payments"),
    ("close", "DELETE", "held_payments"),
    ("close", "INSERT", "audit"),
    ("settle", "UPDATE", "recoveries"),
    ("settle", "INSERT", "audit"),
    ("resume", "UPDATE", "coupons"),
    ("resume", "INSERT", "audit"),
    ("redeem the code", "UPDATE", "orders"),
    ("redeem the code", "UPDATE", "redemptions"),
    ("redeem the code", "INSERT", "audit"),
    ("create under a key", "INSERT", "creation_keys"),
    ("create under a key", "INSERT", "coupons"),
    ("confirm what is held", "INSERT", "payments"),
    ("confirm what is held", "INSERT", "held_payments"),
    ("confirm what is handed back", "INSERT", "payments"),
    ("confirm a refund", "UPDATE", "payments"),
    ("confirm a refund", "UPDATE", "orders"),
    ("confirm a refund", "INSERT", "stock_returns"),
    ("confirm a refund", "UPDATE", "flash_sales"),
    ("confirm a chargeback", "UPDATE", "payments"),
    ("confirm a chargeback", "UPDATE", "orders"),
    ("confirm a chargeback", "INSERT", "stock_returns"),
    ("confirm a chargeback", "UPDATE", "flash_sales"),
];

/// The things that a request names.
struct Asked {
    regular: CouponId,
    flash: CouponId,
    /// Its sale has ended, with a unit that hasn't come back and a dead letter.
    ended: CouponId,
    unpaid: i64,
    paid: i64,
    /// Order of a dead letter.
    letter: i64,
    /// A payment that waits for its order, or a recovery that has lost claims; 0 for other requests.
    kept: i64,
}

/// Tables beside those of `TestApp::tables` that requests write to.
const MORE: [&str; 6] =
    ["audit", "creation_keys", "jobs", "opened_payments", "recoveries", "redemptions"];

/// All rows of these tables.
async fn rows(app: &TestApp) -> Vec<String> {
    let all = MORE.map(|table| {
        format!("SELECT '{table} ' || to_jsonb(row)::text AS line FROM {table} AS row")
    });
    app.texts(&format!("{} ORDER BY line", all.join(" UNION ALL "))).await
}

impl Asked {
    async fn prepare(app: &TestApp, what: &str) -> Self {
        let regular = app.create_regular().await;
        let flash = app.create_flash(9).await;
        let unpaid = app.order(1, flash).await;
        let paid = app.paid_order(2, flash).await;
        let ended = app.create_flash(9).await;
        let order = app.order(1, ended).await;
        assert_eq!(app.cancel(1, order).await.status, 200);
        app.changes_pass().await;
        oversell(app, 3, ended, 0).await;
        let letter = oversell(app, 3, flash, 2).await;
        assert_eq!(app.r#move(ended, "end").await.status, 200);
        let mut asked = Self { regular, flash, ended, unpaid, paid, letter, kept: 0 };
        match what {
            "hand-back" | "close" => {
                assert_eq!(
                    app.confirm(&asked.notice(flash.get(), 1)).await.text("outcome"),
                    "held"
                );
                asked.kept = app.number("SELECT max(id) FROM payments").await;
            }
            "settle" => {
                let insert = "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
                              VALUES (0, 1, 'an older file', now(), now(), '[{\"coupon_id\": \"1\", \"user_id\": \"1\",
                              \"order_id\": \"1\", \"reason\": \"superseded\"}]') RETURNING id";
                asked.kept = app.number(insert).await;
            }
            "resume" => assert_eq!(app.r#move(flash, "pause").await.status, 200),
            "confirm a refund" | "confirm a chargeback" => {
                let paid = app.confirm(&asked.notice(unpaid, 1)).await;
                assert_eq!(paid.text("outcome"), "accepted");
                if what == "confirm a refund" {
                    assert_eq!(app.act(1, unpaid, "refund").await.status, 200);
                }
            }
            _ => {}
        }
        asked
    }

    /// The gateway says that it has taken this amount for an order.
    fn notice(&self, order: i64, amount_cents: i64) -> Value {
        json!({"kind": "payment", "payment_id": format!("g{}", self.flash), "order_id": order.to_string(),
               "method": 2, "amount_cents": amount_cents})
    }

    /// A request of the staff, or of the gateway.
    async fn ask_as_staff(&self, app: &TestApp, what: &str) -> Reply {
        let post =
            async |path: String, body: Value| app.post(&path, &app.admin_token(), &body).await;
        let because = json!({"key": "k", "reason": "the buyer has called"});
        let Self { flash, unpaid, paid, kept, .. } = self;
        match what {
            "cancel-unpaid" => post(format!("/v1/coupons/{flash}/{what}"), because).await,
            "cancel-for-buyer" => {
                post(format!("/v1/orders/{unpaid}/{what}"), json!({"reason": "it was asked for"}))
                    .await
            }
            "refund-for-buyer" => {
                post(format!("/v1/orders/{paid}/{what}"), json!({"reason": "it was asked for"}))
                    .await
            }
            "hand-back" => post(format!("/v1/payments/{kept}/{what}"), Value::Null).await,
            "close" => {
                post(format!("/v1/payments/{kept}/{what}"), json!({"note": "sent by hand"})).await
            }
            "settle" => {
                post(format!("/v1/recoveries/{kept}/settle"), json!({"note": "told"})).await
            }
            "redeem the code" => {
                let code = app
                    .texts(&format!("SELECT code FROM redemptions WHERE order_id = {paid}"))
                    .await;
                post("/v1/redemptions".to_owned(), json!({"code": code[0]})).await
            }
            "create under a key" => {
                let coupon =
                    json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2});
                let request = app.client().post(format!("{}/v1/coupons", app.url)).json(&coupon);
                let request = request.bearer_auth(app.admin_token());
                app.send(request.header("idempotency-key", "k"), "POST", "/v1/coupons").await
            }
            // There is no such order.
            "confirm what is held" => app.confirm(&self.notice(flash.get(), 1)).await,
            "confirm what is handed back" => app.confirm(&self.notice(*unpaid, 7)).await,
            "confirm a refund" | "confirm a chargeback" => {
                app.confirm(&json!({"kind": "refund", "payment_id": format!("g{flash}")})).await
            }
            verb => app.r#move(*flash, verb).await,
        }
    }

    async fn ask(&self, app: &TestApp, what: &str) -> Reply {
        let admin = app.admin_token();
        let sale = json!({"total": 9, "opens_at": "2030-01-01T00:00:00Z", "closes_at": "2031-01-01T00:00:00Z"});
        let coupon =
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
        let larger: Value = json!({"title": "new", "sale": {"total": 10}});
        match what {
            "regular claim" => app.claim(1, self.regular).await,
            "pay" => app.pay(1, self.unpaid).await,
            "cancel" => app.cancel(1, self.unpaid).await,
            "refund" => app.act(2, self.paid, "refund").await,
            "redeem" => app.redeem(self.paid).await,
            "discard" => decide(app, self.letter, "discard").await,
            "edit" => app.edit(self.flash, &larger).await,
            "restock" => app.restock(self.flash, 1, "key").await,
            "create" => app.post("/v1/coupons", &admin, &coupon).await,
            "confirm" => app.confirm(&self.notice(self.unpaid, 1)).await,
            "archive" => {
                let path = format!("/v1/coupons/{}/archive", self.ended);
                app.post(&path, &admin, &json!({"accept_loss": true})).await
            }
            what => self.ask_as_staff(app, what).await,
        }
    }
}

/// Refusals change nothing, so all of one request find the same things, and the request is done at last.
#[tokio::test]
async fn what_is_asked_over_http() {
    let settings = ["--unpaid-orders-max", "1000", "--payment-callback-secret", SECRET];
    let app = TestApp::configured(&settings).await;
    let requests: BTreeSet<&str> = ASKED.iter().map(|(what, ..)| *what).collect();
    for what in requests {
        let asked = Asked::prepare(&app, what).await;
        let (before, rows_before) = (app.tables().await, rows(&app).await);
        for (_, write, table) in ASKED.into_iter().filter(|row| row.0 == what) {
            for state in CLASSES {
                let case = format!("{what}: {state} on {write} {table}");
                app.refuse(write, table, "true", state).await;
                let refused = asked.ask(&app, what).await;
                assert_eq!(refused.refusal(), (503, "unavailable"), "{case}");
                app.accept(table).await;
            }
            let changed = app.changed_since(&before).await;
            assert_eq!(changed, [""; 0], "{what}: {write} {table}: nothing has changed");
            assert_eq!(rows(&app).await, rows_before, "{what}: {write} {table}");
        }
        let done = asked.ask(&app, what).await;
        assert!((200..300).contains(&done.status), "{what}: {done:?}");
        let changed = app.changed_since(&before).await;
        let is_more = rows(&app).await != rows_before;
        assert!(is_more || !changed.is_empty(), "{what}: it wasn't for nothing");
        app.give_back().await;
    }
}

#[tokio::test]
async fn a_retry_of_a_postponed_item() {
    let app = TestApp::start().await;
    app.execute("INSERT INTO postponed (pass, item, error, tries, next_try_at) VALUES ('expiry', '1', 'e', 1, 'infinity')").await;
    let id = app.number("SELECT id FROM postponed").await;
    let path = format!("/v1/postponed/{id}/retry");
    let ask = async || app.post(&path, &app.admin_token(), &Value::Null).await;
    let waiting = "SELECT count(*) FROM postponed WHERE next_try_at = 'infinity'";
    for state in CLASSES {
        app.refuse("UPDATE", "postponed", "true", state).await;
        assert_eq!(ask().await.refusal(), (503, "unavailable"), "{state}");
        assert_eq!(app.number(waiting).await, 1, "{state}: nothing has changed");
        app.accept("postponed").await;
    }
    assert_eq!(ask().await.status, 204);
    assert_eq!(app.number(waiting).await, 0);
}

/// All letters at once: one that Postgres refuses stays, and holds up no other.
#[tokio::test]
async fn all_letters_at_once() {
    let app = TestApp::configured(&["--unpaid-orders-max", "1000"]).await;
    let open =
        async || app.numbers("SELECT order_id FROM dead_letters WHERE resolved_at IS NULL").await;
    let letters = async || {
        let (bad, good) = (app.create_flash(9).await, app.create_flash(9).await);
        let bad = oversell(&app, 1, bad, 0).await;
        oversell(&app, 1, good, 0).await;
        bad
    };
    for (verb, write, table, when) in [
        ("discard", "INSERT", "orders", "NEW.id = {bad}"),
        ("discard", "UPDATE", "dead_letters", "NEW.order_id = {bad}"),
        ("retry", "INSERT", "orders", "NEW.id = {bad}"),
        ("retry", "UPDATE", "dead_letters", "NEW.order_id = {bad}"),
    ] {
        let path = format!("/v1/dead-letters/{verb}");
        let all = json!({"reason": "oversold"});
        let ask = async || app.post(&path, &app.admin_token(), &all).await;
        let mut bad = letters().await;
        for state in classes(Patience).chain(classes(Poison)) {
            let case = format!("{verb}: {state} on {write} {table}");
            let is_poison = meaning_of(state) == Poison;
            if is_poison {
                assert_eq!(
                    (ask().await.status, open().await),
                    (200, vec![]),
                    "{case}: all are done"
                );
                bad = letters().await;
            }
            app.refuse(write, table, &when.replace("{bad}", &bad.to_string()), state).await;
            let reply = ask().await;
            app.accept(table).await;
            match is_poison {
                true => assert_eq!((reply.status, open().await), (200, vec![bad]), "{case}"),
                false => {
                    assert_eq!(reply.refusal(), (503, "unavailable"), "{case}");
                    assert!(open().await.contains(&bad), "{case}");
                }
            }
        }
        assert_eq!((ask().await.status, open().await), (200, vec![]), "{verb}, {table}");
        app.give_back().await;
    }
}

/// Both writes of a payment that is opened at the gateway: there is one payment, however often it was refused.
#[tokio::test]
async fn a_payment_that_is_opened() {
    let (app, gateway) = shop_with(&[], Faults::default()).await;
    let coupon = app.create_flash(9).await;
    let order = app.order(1, coupon).await;
    for (write, opened) in [("INSERT", 0), ("UPDATE", 1)] {
        for state in CLASSES {
            app.refuse(write, "opened_payments", "true", state).await;
            let refused = app.pay(1, order).await;
            assert_eq!(refused.refusal(), (503, "unavailable"), "{state} on {write}");
            assert_eq!(gateway.books().len(), opened, "{state} on {write}");
            app.accept("opened_payments").await;
        }
    }
    assert_eq!(app.pay(1, order).await.status, 202);
    assert_eq!((app.status(1, order).await.as_str(), gateway.books().len()), ("unpaid", 1));
    gateway.stop().await;
}
