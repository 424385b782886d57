//! A user's data: handed out from all tables that have any, and erased from all of them.

use std::collections::BTreeSet;

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::person::erase::{Erased, Erasure, erase};
use flash_sale::sale::person::export::export;
use serde_json::{Value, json};

use super::history::old_app;
use crate::support::{Bounded, SECRET, TestApp, lane, user};

/// A user whose number stands nowhere by chance.
const USER: i64 = 7_340_033_123_457;
/// Another one.
const OTHER: i64 = 7_340_033_123_458;

/// Columns that may hold a user's number, and its fate at an erasure. A new one belongs here, into the export and into
/// the erasure.
const COLUMNS: [(&str, &str); 23] = [
    ("audit.actor", "stays: the book names the staff"),
    ("audit.after", "loses notes about the user's payments and lost claims"),
    ("audit.before", "has none"),
    ("creation_keys.administrator", "stays for a day"),
    ("dead_letters.payload", "is deleted with the letter"),
    ("dead_letters.user_id", "is deleted with the letter"),
    ("every_order.user_id", "as in the two tables"),
    ("every_redemption.clerk", "as in the two tables"),
    ("every_stock_return.user_id", "as in the two tables"),
    ("order_history.user_id", "becomes the negative id of the order"),
    ("orders.user_id", "becomes the negative id of the order"),
    ("receipts.user_id", "stands in the way"),
    ("reconcile_runs.findings", "says `an erased user`"),
    ("reconcile_runs.repairs", "says `an erased user`"),
    ("recoveries.absent_processes", "names processes of the service"),
    ("recoveries.buyers", "is a count"),
    ("recoveries.lost", "loses the user's claims"),
    ("redemption_history.clerk", "stays: tells which clerk has redeemed"),
    ("redemptions.clerk", "stays: tells which clerk has redeemed"),
    ("stock_return_history.user_id", "is deleted with the return"),
    ("stock_returns.user_id", "is deleted with the return"),
];

#[tokio::test]
async fn each_column_that_may_name_a_user_is_accounted_for() {
    let app = TestApp::start().await;
    let query = "SELECT table_name || '.' || column_name FROM information_schema.columns
         WHERE table_schema = 'public' AND table_name NOT LIKE '\\_%'
           AND (column_name ~ '(user|buyer|clerk|actor|admin|owner|person|customer|shopper)'
                OR data_type IN ('json', 'jsonb', 'ARRAY', 'bytea') AND column_name <> 'fingerprint')
         ORDER BY 1";
    let columns: Vec<String> =
        sqlx::query_scalar(query).fetch_all(&app.app.stores.pool).await.expect("Postgres answers");
    let known: Vec<&str> = COLUMNS.iter().map(|(column, _)| *column).collect();
    assert_eq!(columns, known);
}

/// Names of the tables that have this number in any column.
async fn tables_with(app: &TestApp, number: i64) -> BTreeSet<String> {
    let tables = "SELECT table_name::text FROM information_schema.tables
                  WHERE table_schema = 'public' AND table_type = 'BASE TABLE'";
    let tables: Vec<String> =
        sqlx::query_scalar(tables).fetch_all(&app.app.stores.pool).await.expect("Postgres answers");
    let mut found = BTreeSet::new();
    // A payload is bytes, shown in hexadecimal digits.
    let hex: String = number.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
    for table in tables {
        let rows = format!(
            "SELECT count(*) FROM {table} AS row WHERE row::text ~ '\\m{number}\\M' OR row::text LIKE '%{hex}%'"
        );
        if app.number(&rows).await > 0 {
            found.insert(table);
        }
    }
    found
}

async fn exported(app: &TestApp, id: i64) -> Value {
    let export = export(&app.app.stores, user(id)).await.expect("both stores answer");
    serde_json::to_value(export).expect("it can be written as JSON")
}

async fn erased(app: &TestApp, id: i64) -> Erasure {
    erase(&app.app.stores, user(id), &Actor::command_line()).await.expect("both stores answer")
}

async fn refusals(app: &TestApp, id: i64) -> Vec<String> {
    match erased(app, id).await {
        Erasure::Refused(refusals) => refusals,
        other => panic!("erased: {other:?}"),
    }
}

/// An app whose sales can be archived at once, with a gateway that calls back.
pub async fn app() -> TestApp {
    TestApp::configured(&[
        "--payment-callback-secret",
        SECRET,
        "--archive-after-ms",
        "0",
        "--unpaid-orders-max",
        "5",
    ])
    .await
}

/// Ends a sale, and has it leave Redis.
pub async fn archive(app: &TestApp, coupon: CouponId) {
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    app.give_back().await;
    app.app.archive.pass().bounded().await.expect("both stores answer");
    app.execute("UPDATE flash_sales SET archived_at = archived_at - interval '1 day'").await;
    app.app.archive.pass().bounded().await.expect("both stores answer");
    let removed = "SELECT count(*) FROM flash_sales WHERE removed_at IS NOT NULL";
    assert!(app.number(removed).await > 0, "the sale has left Redis");
}

/// A discarded dead letter of this user.
async fn discarded_letter(app: &TestApp, id: i64, coupon: CouponId) {
    let sale = format!("WHERE coupon_id = {coupon}");
    let sold = app.number(&format!("SELECT sold FROM flash_sales {sale}")).await;
    app.execute(&format!("UPDATE flash_sales SET sold = total {sale}")).await;
    app.claim(id, coupon).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = {sold} {sale}")).await;
    let letter = app.number("SELECT max(id) FROM dead_letters").await;
    let path = format!("/v1/dead-letters/{letter}/discard");
    assert_eq!(app.post(&path, &app.admin_token(), &Value::Null).await.status, 204);
    app.give_back().await;
}

/// Rows of each kind for this user; all orders are over, and their sale is in Redis. Returns the sale and an order.
pub async fn history(app: &TestApp, id: i64) -> (CouponId, i64) {
    let first = app.create_flash(9).await;
    discarded_letter(app, id, first).await;
    let refunded = app.paid_order(id, first).await;
    assert_eq!(app.act(id, refunded, "refund").await.status, 200);
    app.refund_payments().await;
    app.give_back().await;
    let order = app.paid_order(id, first).await;
    assert_eq!(app.redeem(order).await.status, 200);
    app.give_back().await;
    let regular = app.create_regular().await;
    let cancelled = app.claim(id, regular).await.order_id();
    assert_eq!(app.cancel(id, cancelled).await.status, 200);
    // Another payment of the redeemed order, which an administrator has closed.
    let notice = json!({"kind": "payment", "payment_id": format!("g{id}"), "order_id": order.to_string(), "method": 2,
                        "amount_cents": 1});
    assert_eq!(app.confirm(&notice).await.text("outcome"), "handed_back");
    let payment = app.number("SELECT max(id) FROM payments").await;
    let note = json!({"note": format!("told user {id} by telephone")});
    let path = format!("/v1/payments/{payment}/close");
    assert!(app.post(&path, &app.admin_token(), &note).await.status < 300);
    app.execute(&format!(
        r#"INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
               VALUES (0, 1, 'a test', now(), now(), '[{{"user_id": "{id}", "order_id": "1", "coupon_id": "1", "reason": "superseded"}}, {{"user_id": "{OTHER}", "order_id": "2", "coupon_id": "1", "reason": "superseded"}}]');
           INSERT INTO reconcile_runs (asked_by, finished_at, at_rest, sales, in_flight, disagreements, findings)
               VALUES ('api', now(), true, 1, 0, 1,
                       '[{{"code": "order_lost", "coupon_id": "1", "detail": "coupon 1: user {id} was promised order 1"}}]')"#
    ))
    .await;
    let recovery = app.number("SELECT max(id) FROM recoveries").await;
    let path = format!("/v1/recoveries/{recovery}/settle");
    assert_eq!(app.post(&path, &app.admin_token(), &note).await.status, 204);
    (first, order)
}

#[tokio::test]
async fn an_export_has_each_table_in_which_the_user_is() {
    let app = app().await;
    let (_, order) = history(&app, USER).await;
    app.execute(&format!(
        "INSERT INTO receipts (order_id, coupon_id, user_id) VALUES (77, 1, {USER})"
    ))
    .await;
    let export = exported(&app, USER).await;
    assert_eq!(export["user_id"], USER.to_string());
    for (list, count) in [
        ("orders", 4),
        ("redemptions", 2),
        ("dead_letters", 1),
        ("payments", 3),
        ("opened_payments", 0),
        ("receipts", 1),
        ("changes", 3),
        ("changes_by_user", 0),
        ("findings", 1),
        ("lost_claims", 1),
        ("places_in_redis", 1),
        ("unpaid_in_redis", 0),
    ] {
        assert_eq!(export[list].as_array().map(Vec::len), Some(count), "{list}: {export:#}");
    }
    assert!(!export["stock_returns"].as_array().expect("a list").is_empty(), "{export:#}");
    assert_eq!(export["places_in_redis"][0]["order_id"], order.to_string());
    // No table was left out.
    let with_user = tables_with(&app, USER).await;
    let with_user: Vec<&str> = with_user.iter().map(String::as_str).collect();
    assert_eq!(
        with_user,
        [
            "audit",
            "dead_letters",
            "orders",
            "payments",
            "receipts",
            "reconcile_runs",
            "recoveries",
            "stock_returns"
        ]
    );
    let nothing = exported(&app, OTHER + 1).await;
    let lists = nothing.as_object().expect("an object").values().filter_map(Value::as_array);
    assert!(lists.into_iter().all(Vec::is_empty), "{nothing:#}");
    app.execute("DELETE FROM receipts; DELETE FROM reconcile_runs").await;
}

/// Its gateway has been quicker than the workers.
#[tokio::test]
async fn an_export_has_the_payment_of_a_claim_that_is_promised_and_no_row() {
    let app = app().await;
    let order = app.claim(USER, app.create_flash(9).await).await.order_id();
    let notice = json!({"kind": "payment", "payment_id": "g1", "order_id": order.to_string(), "method": 2,
                        "amount_cents": 1});
    assert_eq!(app.confirm(&notice).await.text("outcome"), "held");
    let export = exported(&app, USER).await;
    assert_eq!(export["orders"], json!([]));
    assert_eq!(export["places_in_redis"][0]["order_id"], order.to_string());
    let payments = export["payments"].as_array().expect("a list");
    assert_eq!(payments.len(), 1, "{export:#}");
    assert_eq!(payments[0]["order_id"], order.to_string());
}

#[tokio::test]
async fn an_erased_user_is_in_no_table_and_the_books_stay() {
    let app = app().await;
    let (coupon, order) = history(&app, USER).await;
    let sentences = refusals(&app, USER).await;
    assert!(
        sentences[0].contains(&format!("Order {order} is redeemed, and Redis still has its sale")),
        "{sentences:?}"
    );
    archive(&app, coupon).await;
    let sums = "SELECT (count(*) * 1000 + sum(coalesce(pay_cents, 0)))::bigint FROM orders";
    let taken = "SELECT (count(*) * 1000 + sum(amount_cents))::bigint FROM payments";
    let books = (app.number(sums).await, app.number(taken).await);
    let entries = app.number("SELECT count(*) FROM audit").await;

    let done = Erased { orders: 4, dead_letters: 1, notes: 1, comparisons: 1, recoveries: 1 };
    assert_eq!(erased(&app, USER).await, Erasure::Done(done));
    assert_eq!(tables_with(&app, USER).await, BTreeSet::new());
    assert_eq!((app.number(sums).await, app.number(taken).await), books, "the books");
    let kept = app
        .number(&format!("SELECT count(*) FROM recoveries WHERE lost::text LIKE '%{OTHER}%'"))
        .await;
    assert_eq!(kept, 1, "another user's claim");
    assert!(exported(&app, USER).await["orders"].as_array().is_some_and(Vec::is_empty));
    // Entered once, without the number, and a repeat changes nothing.
    assert_eq!(erased(&app, USER).await, Erasure::Nothing);
    assert_eq!(app.number("SELECT count(*) FROM audit").await, entries + 1);
    let book = app.get("/v1/audit?action=erase_user", &app.admin_token()).await;
    let entry = &book.body["entries"][0];
    assert_eq!((&entry["subject"], &entry["after"]["orders"]), (&Value::Null, &json!(4)));
    // An operator still reads the order, and its former buyer doesn't.
    let shown = app.get(&format!("/v1/orders/{order}"), &app.admin_token()).await;
    assert_eq!(
        (shown.status, &shown.body["user_id"], shown.text("status")),
        (200, &Value::Null, "redeemed")
    );
    assert_eq!(app.show(USER, order).await.status, 404);
    let found = app.get(&format!("/v1/orders?coupon={coupon}"), &app.admin_token()).await;
    assert!(found.body["orders"].as_array().is_some_and(|orders| orders.len() == 3), "{found:?}");
    assert!(app.reconcile().await.agrees());
    app.execute("DELETE FROM reconcile_runs").await;
}

#[tokio::test]
async fn a_user_whose_orders_have_moved_is_exported_and_erased_like_any_other() {
    let app = old_app(&["--unpaid-orders-max", "5"]).await;
    let (coupon, order) = history(&app, USER).await;
    let before = exported(&app, USER).await;
    super::history::archive(&app, coupon).await;
    // An order with an open return stays, so all of them are done by now.
    assert_eq!(super::history::moved(&app.app).await, 4);
    let after = exported(&app, USER).await;
    for list in ["orders", "redemptions", "stock_returns", "payments", "changes"] {
        let count = |export: &Value| export[list].as_array().map(Vec::len);
        assert_eq!(count(&after), count(&before), "{list}: {after:#}");
    }
    let taken = "SELECT (count(*) * 1000 + sum(amount_cents))::bigint FROM every_payment";
    let books = app.number(taken).await;
    let done = Erased { orders: 4, dead_letters: 1, notes: 1, comparisons: 1, recoveries: 1 };
    assert_eq!(erased(&app, USER).await, Erasure::Done(done));
    assert_eq!(tables_with(&app, USER).await, BTreeSet::new());
    assert_eq!(erased(&app, USER).await, Erasure::Nothing);
    assert_eq!(app.number(taken).await, books);
    let shown = app.get(&format!("/v1/orders/{order}"), &app.admin_token()).await;
    assert_eq!((shown.text("status"), &shown.body["user_id"]), ("redeemed", &Value::Null));
    app.execute("DELETE FROM reconcile_runs").await;
}

#[tokio::test]
async fn two_erased_users_may_both_have_redeemed_one_coupon() {
    let app = app().await;
    let coupon = app.create_flash(9).await;
    for id in [USER, OTHER] {
        let order = app.paid_order(id, coupon).await;
        assert_eq!(app.redeem(order).await.status, 200);
    }
    app.give_back().await;
    archive(&app, coupon).await;
    for id in [USER, OTHER] {
        assert!(matches!(erased(&app, id).await, Erasure::Done(Erased { orders: 1, .. })));
    }
    let buyers = "SELECT count(DISTINCT user_id) FROM orders WHERE user_id < 0";
    assert_eq!(app.number(buyers).await, 2, "nothing joins them");
}

#[tokio::test]
async fn what_is_under_way_keeps_a_user_and_is_named() {
    let app = app().await;
    let coupon = app.create_flash(9).await;
    let pending = app.claim(USER, coupon).await.order_id();
    let told = refusals(&app, USER).await;
    assert!(told[0].contains(&format!("is to become order {pending}")), "{told:?}");
    app.write_orders().await;
    let told = refusals(&app, USER).await;
    assert_eq!(
        told,
        [format!("Order {pending} is unpaid: it has to be cancelled, redeemed or refunded first.")]
    );
    assert_eq!(app.pay(USER, pending).await.status, 200);
    assert!(refusals(&app, USER).await[0].contains("is paid"));
    assert_eq!(app.act(USER, pending, "refund").await.status, 200);
    let told = refusals(&app, USER).await.join("\n");
    assert!(
        told.contains("is refunding: its gateway") && told.contains("`flash-sale payments`"),
        "{told}"
    );
    app.refund_payments().await;
    let told = refusals(&app, USER).await;
    assert!(told[0].contains("on its way out of Redis"), "{told:?}");
    app.give_back().await;
    app.execute(&format!(
        "INSERT INTO receipts (order_id, coupon_id, user_id) VALUES (77, 1, {USER})"
    ))
    .await;
    let told = refusals(&app, USER).await;
    assert_eq!(told, ["A recovery has not settled the promise of order 77 yet."]);
    app.execute("DELETE FROM receipts").await;
    app.execute(&format!("INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at) VALUES ({pending}, 'alipay', 1, 'CNY', now())"))
        .await;
    assert!(refusals(&app, USER).await[0].contains("still asked about a payment"));
    app.execute("UPDATE opened_payments SET closed_at = now()").await;
    assert!(matches!(erased(&app, USER).await, Erasure::Done(Erased { orders: 1, .. })));
    assert_eq!(tables_with(&app, USER).await, BTreeSet::new());
    assert_eq!(app.number("SELECT count(*) FROM opened_payments").await, 0);
}

/// The staff writes whatever it likes into a reason, the buyer's name included.
#[tokio::test]
async fn the_reason_of_a_move_for_a_buyer_goes_with_the_buyer() {
    let app = app().await;
    let coupon = app.create_flash(9).await;
    let (mine, other) = (app.order(USER, coupon).await, app.order(OTHER, coupon).await);
    for order in [mine, other] {
        let path = format!("/v1/orders/{order}/cancel-for-buyer");
        let because = json!({"reason": "asked for at the till"});
        assert_eq!(app.post(&path, &app.admin_token(), &because).await.status, 200);
    }
    app.give_back().await;
    assert!(matches!(erased(&app, USER).await, Erasure::Done(_)));
    let with_reason = |order| {
        format!("SELECT count(*) FROM audit WHERE subject_id = {order} AND after ? 'reason'")
    };
    assert_eq!(app.number(&with_reason(mine)).await, 0);
    assert_eq!(app.number(&with_reason(other)).await, 1);
}

#[tokio::test]
async fn an_open_dead_letter_keeps_its_user() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    app.claim(USER, coupon).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    let told = refusals(&app, USER).await.join("\n");
    assert!(told.contains("is open: retry or discard it."), "{told}");
    app.execute("UPDATE flash_sales SET sold = 0").await;
}

#[tokio::test]
async fn a_log_that_is_read_again_does_not_bring_an_erased_user_back() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(USER, coupon).await;
    assert_eq!(app.cancel(USER, order).await.status, 200);
    app.give_back().await;
    assert!(matches!(erased(&app, USER).await, Erasure::Done(_)));
    let (coupon, order, id) = (coupon.to_string(), order.to_string(), USER.to_string());
    app.append(lane(), &["coupon", &coupon, "user", &id, "order", &order]).await;
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.dead_letters, report.repeated), (0, 0, 1), "{report:?}");
    // Where more claims come than units are left, too.
    app.execute("UPDATE flash_sales SET sold = 1").await;
    app.append(lane(), &["coupon", &coupon, "user", &id, "order", &order]).await;
    app.append(lane(), &["coupon", &coupon, "user", "3", "order", "3"]).await;
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.dead_letters), (0, 1), "user 3 alone: {report:?}");
    assert_eq!(tables_with(&app, USER).await, BTreeSet::new());
    // The log has entries that were no claims.
    app.expect_disagreements();
}

#[tokio::test]
async fn a_letter_under_the_order_of_another_user_touches_nothing_of_that_order() {
    let app = app().await;
    let coupon = app.create_flash(9).await;
    let order = app.paid_order(OTHER, coupon).await;
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
             VALUES (0, '1-1', '{{}}', 'conflict', '', {coupon}, {USER}, {order}, now());
         INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at)
             VALUES ({order}, 'alipay', 1, 'CNY', now(), now())"
    ))
    .await;
    let export = exported(&app, USER).await;
    let counts = ["dead_letters", "payments", "opened_payments"]
        .map(|list| export[list].as_array().map(Vec::len));
    assert_eq!(counts, [Some(1), Some(0), Some(0)], "{export:#}");
    let before = tables_with(&app, OTHER).await;
    let letter = Erased { dead_letters: 1, ..Erased::default() };
    assert_eq!(erased(&app, USER).await, Erasure::Done(letter));
    assert_eq!(tables_with(&app, OTHER).await, before);
    assert_eq!(app.number("SELECT count(*) FROM opened_payments").await, 1);
    app.give_back().await;
}
