//! Orders that are over move into the history, with all that belongs to them, and are found there; old months go. Whatever
//! comes later for such an order, from the log or from a gateway, finds out what became of it.

use chrono::TimeDelta;
use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::kit::id;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::log::LoggedClaim;
use flash_sale::sale::order::history::window;
use flash_sale::sale::order::insert::Written;
use flash_sale::sale::retention::months::{self, Month};
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, raw_sql};
use tokio_util::sync::CancellationToken;

use crate::support::process::Process;
use crate::support::{Bounded, SECRET, TestApp, bounded, eventually, lane, now, shared, user};

/// Age of the orders of these tests, by the time in their ids.
const DAYS: i64 = 200;

/// An app whose order ids are as old as [`DAYS`], and whose sales can be archived at once.
pub async fn old_app(arguments: &[&str]) -> TestApp {
    let clock = Clock::manual(now() - TimeDelta::days(DAYS));
    let own = ["--payment-callback-secret", SECRET, "--archive-after-ms", "0"];
    TestApp::on(shared(), &[&own[..], arguments].concat(), clock).await
}

/// Ends a sale, and has it leave Redis. All orders and payments are old afterwards.
pub async fn archive(app: &TestApp, coupon: CouponId) {
    app.give_back().await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    assert_eq!(app.app.archive.pass().bounded().await.expect("both stores answer"), 1);
    age(app).await;
}

/// Makes all orders and payments old.
pub(super) async fn age(app: &TestApp) {
    app.execute(&format!(
        "UPDATE orders SET updated_at = now() - interval '{DAYS} days';
         UPDATE payments SET updated_at = now() - interval '{DAYS} days'"
    ))
    .await;
}

pub async fn moved(app: &App) -> usize {
    app.history.pass().bounded().await.expect("Postgres answers")
}

/// A sale that is archived, and its orders: of user 1 redeemed, of 2 cancelled, of 3 refunded, of 4 paid.
struct OldSale {
    coupon: CouponId,
    redeemed: i64,
    cancelled: i64,
    refunded: i64,
    paid: i64,
    /// Redemption code of the redeemed order.
    code: String,
}

async fn old_sale(app: &TestApp) -> OldSale {
    let coupon = app.create_flash(9).await;
    let redeemed = app.paid_order(1, coupon).await;
    let code = app.code(1, redeemed).await;
    assert_eq!(app.redeem(redeemed).await.status, 200);
    let cancelled = app.order(2, coupon).await;
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    let refunded = app.paid_order(3, coupon).await;
    assert_eq!(app.act(3, refunded, "refund").await.status, 200);
    assert_eq!(app.refund_payments().await, 1);
    let paid = app.paid_order(4, coupon).await;
    archive(app, coupon).await;
    OldSale { coupon, redeemed, cancelled, refunded, paid, code }
}

/// Rows of these tables.
async fn rows<const N: usize>(app: &TestApp, tables: [&str; N]) -> [i64; N] {
    let mut rows = [0; N];
    for (count, table) in rows.iter_mut().zip(tables) {
        *count = app.number(&format!("SELECT count(*) FROM {table}")).await;
    }
    rows
}

/// Drops the months of all orders of these tests.
async fn drop_months(app: &TestApp, order: i64) {
    months::drop(&app.app.stores.pool, Month::of_order(order)).await.expect("Postgres does it");
}

/// Has the log read again from its start. Returns new rows, repeats and new dead letters.
async fn replay(app: &TestApp) -> (usize, usize, usize) {
    let log = app.log(lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, flash_sale::sale::log::GROUP]).await;
    let report = app.write_orders().await;
    (report.inserted, report.repeated, report.dead_letters)
}

#[tokio::test]
async fn orders_that_are_over_move_with_all_that_belongs_to_them_and_are_found_as_before() {
    let app = old_app(&[]).await;
    let OldSale { coupon, redeemed, cancelled, refunded, paid, code } = old_sale(&app).await;
    let regular = app.create_regular().await;
    let given_up = app.claim(1, regular).await.order_id();
    assert_eq!(app.cancel(1, given_up).await.status, 200);
    age(&app).await;
    // As a row of an older version.
    app.execute(&format!("UPDATE orders SET pay_cents = NULL, currency = NULL, updated_at = now() - interval '{DAYS} days' WHERE id = {redeemed}"))
        .await;
    let look = async || {
        let mut seen = Vec::new();
        for (buyer, order) in
            [(1, redeemed), (2, cancelled), (3, refunded), (4, paid), (1, given_up)]
        {
            let shown = app.show(buyer, order).await;
            let to_staff = app.get(&format!("/v1/orders/{order}"), &app.admin_token()).await;
            let to_another = app.show(buyer + 1, order).await.status;
            let list = app.get("/v1/orders", &app.token(buyer)).await.body;
            let claim = app.my_claim(buyer, coupon).await;
            seen.push((shown.status, shown.body, to_staff.body, to_another, list, claim.body));
        }
        let again = [1, 2, 4].map(|buyer| app.claim(buyer, coupon));
        for answer in futures_util::future::join_all(again).await {
            seen.push((
                answer.status,
                answer.body["code"].clone(),
                answer.body["order_id"].clone(),
                0,
                Value::Null,
                Value::Null,
            ));
        }
        let by_code = app.get(&format!("/v1/redemptions/{code}"), &app.admin_token()).await;
        let again = app.redeem(redeemed).await;
        seen.push((
            by_code.status,
            by_code.body,
            again.body["redeemed_by"].clone(),
            again.status,
            again.body["redeemed_at"].clone(),
            Value::Null,
        ));
        let repeats = [app.cancel(2, cancelled).await, app.act(3, refunded, "refund").await];
        for repeat in repeats {
            seen.push((repeat.status, repeat.body, Value::Null, 0, Value::Null, Value::Null));
        }
        seen
    };
    let before = (look().await, app.reconcile().await.orders);
    assert_eq!((moved(&app.app).await, moved(&app.app).await), (4, 0));
    let left = rows(&app, ["orders", "payments", "redemptions", "stock_returns"]).await;
    assert_eq!(left, [1, 1, 1, 0], "those of the paid order");
    let history =
        ["order_history", "payment_history", "redemption_history", "stock_return_history"];
    assert_eq!(rows(&app, history).await, [4, 2, 2, 2]);
    assert_eq!((look().await, app.reconcile().await.orders), before);
    assert!(app.reconcile().await.agrees());
    assert_eq!(app.metric("flash_sale_orders_moved_total").await, 4.0);
    assert!(app.metric("flash_sale_history_months").await >= 1.0);
}

#[tokio::test]
async fn an_order_stays_as_long_as_anything_of_it_is_young_or_under_way() {
    let app = old_app(&[]).await;
    let OldSale { coupon, redeemed, cancelled, .. } = old_sale(&app).await;
    let stays = async |why: &str, set: &str, set_back: &str| {
        app.execute(set).await;
        assert_eq!(moved(&app.app).await, 0, "{why}");
        app.execute(set_back).await;
    };
    let old = format!("now() - interval '{DAYS} days'");
    app.execute(&format!("DELETE FROM payments WHERE order_id NOT IN ({redeemed}, {cancelled}); UPDATE orders SET updated_at = now() WHERE id NOT IN ({redeemed}, {cancelled})"))
        .await;
    app.expect_disagreements();
    stays(
        "its sale is in Redis",
        "UPDATE flash_sales SET removed_at = NULL",
        "UPDATE flash_sales SET removed_at = now()",
    )
    .await;
    stays(
        "its sale isn't archived",
        "UPDATE flash_sales SET archived_at = NULL, removed_at = NULL",
        "UPDATE flash_sales SET archived_at = now(), removed_at = now()",
    )
    .await;
    stays(
        "it was changed a moment ago",
        "UPDATE orders SET updated_at = now()",
        &format!("UPDATE orders SET updated_at = {old} WHERE id IN ({redeemed}, {cancelled})"),
    )
    .await;
    app.execute(&format!("UPDATE orders SET updated_at = now() WHERE id = {cancelled}")).await;
    stays(
        "its payment was changed a moment ago",
        "UPDATE payments SET updated_at = now()",
        &format!("UPDATE payments SET updated_at = {old}"),
    )
    .await;
    stays(
        "its letter is open",
        &format!("INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
                      VALUES (0, '1-1', '{{}}', 'conflict', '', {coupon}, 1, {redeemed})"),
        "DELETE FROM dead_letters",
    )
    .await;
    stays(
        "the gateway is asked about a payment of it",
        &format!(
            "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at)
                      VALUES ({redeemed}, 'alipay', 1, 'CNY', now())"
        ),
        "DELETE FROM opened_payments",
    )
    .await;
    stays(
        "money of it goes back",
        &format!("INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, updated_at)
                      VALUES ({redeemed}, 'external', 'g', 'alipay', 1, 'refunding', 'paid_twice', {old})"),
        "DELETE FROM payments WHERE gateway_payment_id = 'g'",
    )
    .await;
    app.execute(&format!("UPDATE orders SET updated_at = {old} WHERE id = {cancelled}; UPDATE orders SET updated_at = now() WHERE id = {redeemed}")).await;
    stays(
        "its unit is on its way",
        "UPDATE stock_returns SET done_at = NULL",
        "UPDATE stock_returns SET done_at = now()",
    )
    .await;
    assert_eq!(moved(&app.app).await, 1, "nothing of it is under way");
}

#[tokio::test]
async fn a_log_that_is_read_again_writes_no_order_that_has_moved() {
    let app = old_app(&[]).await;
    let OldSale { coupon, redeemed, .. } = old_sale(&app).await;
    assert_eq!(moved(&app.app).await, 3);
    let mark = "SELECT count(*) FROM settings, order_history HAVING max(id) = max(orders_moved_to)";
    assert_eq!(app.number(mark).await, 3, "the mark is the newest order that has moved");
    let sold = app.sold(coupon).await;
    assert_eq!(replay(&app).await, (0, 4, 0), "the history has them");
    assert_eq!(rows(&app, ["orders", "order_history", "dead_letters"]).await, [1, 3, 0]);
    assert_eq!(app.sold(coupon).await, sold);
    assert!(app.reconcile().await.agrees());

    drop_months(&app, redeemed).await;
    assert_eq!(rows(&app, ["order_history", "payment_history"]).await, [0, 0]);
    assert!(app.reconcile().await.agrees(), "the counts know the orders of the dropped month");
    assert_eq!(replay(&app).await, (0, 1, 3), "nothing tells that these were orders");
    assert_eq!(replay(&app).await, (0, 4, 0), "once");
    let letters = "dead_letters WHERE reason = 'before_mark' AND resolved_at IS NULL";
    assert_eq!(rows(&app, ["orders", letters]).await, [1, 3]);
    assert_eq!(app.sold(coupon).await, sold);
    assert!(app.reconcile().await.agrees());
    let done = app
        .post("/v1/dead-letters/discard", &app.admin_token(), &json!({"reason": "before_mark"}))
        .await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(rows(&app, ["orders", letters]).await, [1, 0], "a discarded one is no row either");
    assert!(app.reconcile().await.agrees());
}

#[tokio::test]
async fn a_log_of_a_sale_that_was_sold_out_writes_no_order_that_has_moved() {
    a_log_of_moved_orders_alone_writes_none(1).await;
}

/// No row stands in the way of the first INSERT, and units are left.
#[tokio::test]
async fn a_log_of_moved_orders_alone_writes_no_order() {
    a_log_of_moved_orders_alone_writes_none(9).await;
}

async fn a_log_of_moved_orders_alone_writes_none(units: i64) {
    let app = old_app(&[]).await;
    let coupon = app.create_flash(units).await;
    let order = app.paid_order(1, coupon).await;
    assert_eq!(app.redeem(order).await.status, 200);
    archive(&app, coupon).await;
    assert_eq!(moved(&app.app).await, 1);
    assert_eq!(replay(&app).await, (0, 1, 0));
    drop_months(&app, order).await;
    assert_eq!(replay(&app).await, (0, 0, 1));
    let letters = ["orders", "dead_letters WHERE reason = 'before_mark'"];
    assert_eq!(rows(&app, letters).await, [0, 1]);
}

#[tokio::test]
async fn a_receipt_that_is_handed_in_late_writes_no_order_that_has_moved_and_any_other_order() {
    let app = old_app(&[]).await;
    let OldSale { coupon, cancelled, redeemed, .. } = old_sale(&app).await;
    let open = app.create_flash(9).await;
    assert_eq!(moved(&app.app).await, 3);
    drop_months(&app, redeemed).await;
    app.expect_disagreements();
    let epoch = app.number("SELECT epoch FROM lanes").await;
    let write = async |coupon, of, order: i64| {
        let order = OrderId::new(order).expect("an id");
        let claim = LoggedClaim::without_entry(coupon, user(of), order);
        let held = (coupon.lane(), epoch);
        app.app
            .orders
            .write(held, &[claim], &CancellationToken::new())
            .await
            .expect("Postgres answers")
    };
    let letter = Written { before_mark: 1, ..Written::default() };
    assert_eq!(write(coupon, 2, cancelled).await, letter);
    let written = Written { inserted: 1, ..Written::default() };
    let other = redeemed - 1;
    assert_eq!(write(open, 5, other).await, written, "no order of this sale has moved");
}

#[tokio::test]
async fn a_gateway_that_names_an_order_of_the_history_is_answered_as_before() {
    let app = old_app(&[]).await;
    let coupon = app.create_flash(9).await;
    let used = app.order(1, coupon).await;
    let pays = |id: &str, order: i64| json!({"kind": "payment", "payment_id": id, "order_id": order.to_string(), "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&pays("g1", used)).await.text("outcome"), "accepted");
    assert_eq!(app.redeem(used).await.status, 200);
    let cancelled = app.order(2, coupon).await;
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    archive(&app, coupon).await;
    let sold = app.sold(coupon).await;
    assert_eq!(moved(&app.app).await, 2);

    assert_eq!(app.confirm(&pays("g1", used)).await.text("outcome"), "accepted", "told again");
    assert_eq!(
        rows(&app, ["orders", "payments", "order_history", "payment_history"]).await,
        [1, 1, 1, 0]
    );
    age(&app).await;
    assert_eq!(moved(&app.app).await, 1);
    let back = app.confirm(&json!({"kind": "refund", "payment_id": "g1"})).await;
    assert_eq!(back.text("outcome"), "charged_back", "{back:?}");
    let reason = "payments WHERE status = 'held' AND refund_reason = 'charged_back'";
    assert_eq!(rows(&app, [reason, "orders", "redemptions"]).await, [1, 1, 1]);
    age(&app).await;
    assert_eq!(moved(&app.app).await, 0, "an administrator decides");
    let owed = app.get("/v1/payments/owed", &app.admin_token()).await;
    let held = owed.body["payments"][0]["payment_id"].as_str().expect("it waits").to_owned();
    let close = format!("/v1/payments/{held}/close");
    let closed = app.post(&close, &app.admin_token(), &json!({"note": "disputed"})).await;
    assert_eq!(closed.status, 204);
    assert_eq!(moved(&app.app).await, 0, "an operator sees it for as long as any other");
    assert_eq!(
        app.confirm(&pays("g2", cancelled)).await.text("outcome"),
        "handed_back",
        "too late"
    );
    let reason = "payments WHERE status = 'refunding' AND refund_reason = 'too_late'";
    assert_eq!(rows(&app, [reason, "order_history"]).await, [1, 0]);
    assert_eq!(app.sold(coupon).await, sold);
    let known = app.confirm(&json!({"kind": "refund", "payment_id": "g2"})).await;
    assert_eq!(known.text("outcome"), "refunded");
    age(&app).await;
    assert_eq!(moved(&app.app).await, 2);
    assert_eq!(
        app.confirm(&pays("g1", cancelled)).await.text("outcome"),
        "held",
        "an id that was used before"
    );
    assert!(app.reconcile().await.agrees());

    age(&app).await;
    app.execute("DELETE FROM held_payments; DELETE FROM payments WHERE status = 'held'").await;
    moved(&app.app).await;
    drop_months(&app, used).await;
    assert_eq!(
        app.confirm(&pays("g2", cancelled)).await.text("outcome"),
        "held",
        "an administrator decides"
    );
    app.refund_payments().await;
    assert_eq!(rows(&app, ["payments WHERE status = 'held'", "orders"]).await, [1, 0]);
}

#[tokio::test]
async fn a_payment_of_a_moved_order_is_found_by_its_id_and_in_the_list_of_settled_ones() {
    let app = old_app(&[]).await;
    let OldSale { redeemed, refunded, .. } = old_sale(&app).await;
    let gone_by = app.order(5, app.create_flash(9).await).await;
    let id = async |order: i64| {
        app.number(&format!("SELECT id FROM every_payment WHERE order_id = {order}")).await
    };
    let (accepted, back) = (id(redeemed).await, id(refunded).await);
    let by_hand = format!(
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, closed_at, note, updated_at)
             VALUES ({redeemed}, 'external', 'g9', 'alipay', 1, 'closed', 'too_late', now(), 'by hand', now() - interval '{DAYS} days')"
    );
    app.execute(&by_hand).await;
    let closed = app.number("SELECT id FROM payments WHERE gateway_payment_id = 'g9'").await;
    let act = async |payment: i64, verb: &str| {
        let path = format!("/v1/payments/{payment}/{verb}");
        let body = if verb == "close" { json!({"note": "by hand"}) } else { json!({}) };
        app.post(&path, &app.admin_token(), &body).await
    };
    let settled = async || app.get("/v1/payments/owed?settled=true", &app.admin_token()).await.body;
    let look = async || {
        let mut told = Vec::new();
        for payment in [accepted, back, closed, closed + 1] {
            for verb in ["close", "hand-back"] {
                let reply = act(payment, verb).await;
                told.push((reply.status, reply.body["code"].clone()));
            }
        }
        (told, settled().await)
    };
    let before = look().await;
    let known = before.0.iter().map(|(status, _)| *status).collect::<Vec<_>>();
    assert_eq!(known, [409, 409, 409, 204, 204, 409, 404, 404]);
    assert_eq!(moved(&app.app).await, 3);
    assert_eq!(rows(&app, ["payments WHERE refund_reason IS NOT NULL"]).await, [0]);
    assert_eq!(look().await, before);
    assert_eq!(app.cancel(5, gone_by).await.status, 200);
}

/// Orders of the history, by hand: one in each of these months, counted back from the present one, all of user 1 and one
/// coupon. Returns their ids, the newest first.
async fn in_months(app: &TestApp, coupon: CouponId, back: std::ops::Range<u32>) -> Vec<i64> {
    let mut ids = Vec::new();
    for month in back.map(|back| Month::of(now()).back(back)) {
        months::make(&app.app.stores.pool, month).await.expect("Postgres does it");
        let order = id::first_at(month.begins()) + 7;
        app.execute(&format!(
            "INSERT INTO order_history (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at, created_at, updated_at, pay_cents, currency)
                 VALUES ({order}, {coupon}, 'regular', 1, '{}', 'cancelled', now(), now(), now(), 1, 'CNY');
             INSERT INTO moved_order_counts VALUES ({coupon}, 'cancelled', 1)
                 ON CONFLICT ON CONSTRAINT moved_order_counts_once DO UPDATE SET orders = moved_order_counts.orders + 1",
            month.begins()
        ))
        .await;
        ids.push(order);
    }
    ids
}

/// Reads a list page by page to its end. Returns the ids of its orders, and the number of pages.
async fn read_all(app: &TestApp, path: &str, token: &str) -> (Vec<i64>, usize) {
    let (mut ids, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = app.get(&format!("{path}{cursor}"), token).await;
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let orders = page.body["orders"].as_array().expect("a list");
        let read = orders.iter().map(|order| order["order_id"].as_str().unwrap().parse().unwrap());
        ids.extend(read.collect::<Vec<i64>>());
        pages += 1;
        match &page.body["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => return (ids, pages),
        }
        assert!(pages < 99, "{path} never ends");
    }
}

#[tokio::test]
async fn a_list_reads_twelve_months_at_a_time_and_comes_to_its_end() {
    let app = TestApp::configured(&["--history-months", "0", "--orders-days", "0"]).await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    let mut all = in_months(&app, coupon, 1..31).await;
    let young = app.claim(1, coupon).await.order_id();
    // An order of another year that has stayed.
    let old = all[20] + 1;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, paid_at, pay_method)
             SELECT {old}, {coupon}, 'regular', 1, claimed_at + interval '1 second', 'paid', now(), 'balance'
             FROM order_history WHERE id = {}",
        all[20]
    ))
    .await;
    all.splice(0..0, [young]);
    all.insert(21, old);
    let (user, staff) = (app.token(1), app.admin_token());
    for limit in [1, 5, 20, 100] {
        let (own, _) = read_all(&app, &format!("/v1/orders?limit={limit}"), &user).await;
        assert_eq!(own, all, "by {limit}");
        for filter in [
            "user=1".to_owned(),
            format!("coupon={coupon}"),
            "from=2000-01-01T00:00:00Z".to_owned(),
        ] {
            let path = format!("/v1/orders?limit={limit}&{filter}");
            assert_eq!(read_all(&app, &path, &staff).await.0, all, "{path}");
        }
    }
    let (_, pages) = read_all(&app, "/v1/orders?limit=100", &user).await;
    assert_eq!(pages, 3, "30 months");
    let cancelled: Vec<i64> = all.iter().copied().filter(|id| ![young, old].contains(id)).collect();
    let path = "/v1/orders?limit=7&status=cancelled";
    assert_eq!(read_all(&app, path, &staff).await.0, cancelled);
    let (first, last) = (Month::of(now()).back(20).begins(), Month::of(now()).back(3).begins());
    let time = |time: chrono::DateTime<chrono::Utc>| time.format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let path =
        format!("/v1/orders?limit=7&status=cancelled&from={}&to={}", time(first), time(last));
    assert_eq!(read_all(&app, &path, &staff).await.0, cancelled[3..20], "{path}");
}

#[tokio::test]
async fn months_are_found_by_any_plan() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let orders = in_months(&app, coupon, 1..4).await;
    let options = app.app.stores.pool.connect_options();
    let plans = [[("enable_nestloop", "off"), ("enable_indexscan", "off")]];
    for plan in plans.into_iter().chain([[("enable_nestloop", "off"), ("enable_hashjoin", "off")]])
    {
        let pool = PgPoolOptions::new().connect_lazy_with((*options).clone().options(plan));
        let window = window::before(&pool, Some(orders[0])).await.expect("any plan will do");
        assert!(window.is_some_and(|window| !window.has_older), "{plan:?}");
        pool.close().await;
    }
}

#[tokio::test]
async fn a_page_touches_no_month_that_it_does_not_read() {
    let app = TestApp::configured(&["--history-months", "0", "--orders-days", "0"]).await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    in_months(&app, coupon, 1..31).await;
    let far = Month::of(now()).back(16).begins().format("%Y%m").to_string();
    // A reader of this month waits.
    let mut holder =
        holding(&app, &format!("LOCK TABLE order_history_{far} IN ACCESS EXCLUSIVE MODE")).await;
    let (user, staff) = (app.token(1), app.admin_token());
    for _ in 0..12 {
        // More often than a statement is planned for its values before its plan may be kept.
        assert_eq!(app.get("/v1/orders", &user).await.status, 200);
        for filter in
            ["user=1".to_owned(), format!("coupon={coupon}"), "status=cancelled".to_owned()]
        {
            let path = format!("/v1/orders?{filter}");
            assert_eq!(app.get(&path, &staff).await.status, 200, "{path}");
        }
        assert_eq!(app.my_claim(1, coupon).await.status, 200);
    }
    raw_sql("ROLLBACK").execute(&mut holder).await.expect("it was open");
}

#[tokio::test]
async fn a_code_and_a_payment_are_looked_for_a_year_of_months_at_a_time() {
    let own = ["--payment-callback-secret", SECRET, "--history-months", "0", "--orders-days", "0"];
    let app = TestApp::configured(&own).await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    let orders = in_months(&app, coupon, 1..31).await;
    app.execute(
        "UPDATE order_history SET status = 'redeemed', cancelled_at = NULL, pay_method = 'alipay', paid_at = now(),
                                  redeemed_at = now();
         INSERT INTO redemption_history (order_id, code)
             SELECT id, lpad((rank() OVER (ORDER BY id DESC))::text, 16, '0') FROM order_history;
         INSERT INTO payment_history (id, order_id, gateway, gateway_payment_id, method, amount_cents, status,
                                      created_at, updated_at)
             SELECT 1000 + rank() OVER (ORDER BY id DESC), id, 'external', 'g' || rank() OVER (ORDER BY id DESC), 'alipay',
                    1, 'accepted', now(), now() FROM order_history",
    )
    .await;
    let code = async |month: usize| {
        app.get(&format!("/v1/redemptions/{month:016}"), &app.admin_token()).await
    };
    let pays = |id: &str, order: i64| json!({"kind": "payment", "payment_id": id, "order_id": order.to_string(), "method": 2, "amount_cents": 1});
    let far = Month::of(now()).back(16).begins().format("%Y%m").to_string();
    let lock = format!(
        "LOCK TABLE order_history_{far}, payment_history_{far}, redemption_history_{far} IN ACCESS EXCLUSIVE MODE"
    );
    let mut holder = holding(&app, &lock).await;
    for _ in 0..2 {
        assert_eq!(code(3).await.text("order_id"), orders[2].to_string());
        // The first notice brings the order back; a payment that is known here is looked for nowhere else.
        assert_eq!(app.confirm(&pays("g4", orders[3])).await.text("outcome"), "accepted");
    }
    raw_sql("ROLLBACK").execute(&mut holder).await.expect("it was open");
    for month in [1, 4, 12, 13, 24, 25, 30] {
        assert_eq!(code(month).await.text("order_id"), orders[month - 1].to_string());
    }
    assert_eq!(code(31).await.refusal(), (404, "redemption_code_unknown"));
    // Ids of payments of months far back that are used once more.
    for month in [13, 30] {
        let again = app.confirm(&pays(&format!("g{month}"), orders[0])).await;
        assert_eq!(again.text("outcome"), "held", "an id that was used before: {again:?}");
    }
    assert_eq!(rows(&app, ["orders", "payments WHERE status = 'accepted'"]).await, [4, 4]);
}

#[tokio::test]
async fn moved_orders_are_searched_like_others() {
    let app = old_app(&[]).await;
    let OldSale { coupon, redeemed, .. } = old_sale(&app).await;
    let regular = app.create_regular().await;
    let other = app.claim(2, regular).await.order_id();
    let staff = app.admin_token();
    let at = id::time_of(redeemed).format("%Y-%m-%dT%H:%M:%SZ");
    let filters = [
        format!("coupon={coupon}"),
        "user=2".to_owned(),
        "user=2&status=cancelled".to_owned(),
        "status=redeemed".to_owned(),
        "status=unpaid".to_owned(),
        format!("coupon={coupon}&status=refunded"),
        format!("coupon={regular}"),
        "from=2022-01-01T00:00:00Z&to=2100-01-01T00:00:00Z".to_owned(),
        format!("user=1&to={at}"),
    ];
    let look = async || {
        let mut seen = Vec::new();
        for filter in &filters {
            for limit in [1, 100] {
                seen.push(
                    read_all(&app, &format!("/v1/orders?limit={limit}&{filter}"), &staff).await.0,
                );
            }
        }
        seen
    };
    let before = look().await;
    let found: Vec<usize> = before.iter().map(Vec::len).collect();
    assert!(found.iter().filter(|found| **found > 0).count() >= 14, "{found:?}");
    assert_eq!(moved(&app.app).await, 3);
    assert_eq!(look().await, before);
}

#[tokio::test]
async fn the_age_of_the_last_round_grows_while_no_run_succeeds() {
    let app = old_app(&[]).await;
    assert_eq!(moved(&app.app).await, 0);
    let age = async || app.metric("flash_sale_history_waiting_seconds").await;
    app.execute("ALTER TABLE order_history RENAME TO elsewhere").await;
    let mut ages = vec![age().await];
    for _ in 0..2 {
        assert!(app.app.history.pass().bounded().await.is_err());
        ages.push(age().await);
    }
    app.execute("ALTER TABLE elsewhere RENAME TO order_history").await;
    assert!(ages.windows(2).all(|two| two[0] < two[1]), "{ages:?}");
    assert_eq!(moved(&app.app).await, 0);
}

#[tokio::test]
async fn a_payment_that_moves_at_this_moment_is_not_taken_for_a_new_one() {
    let app = old_app(&[]).await;
    let coupon = app.create_flash(9).await;
    let order = app.order(1, coupon).await;
    let notice = json!({"kind": "payment", "payment_id": "g1", "order_id": order.to_string(), "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&notice).await.text("outcome"), "accepted");
    assert_eq!(app.redeem(order).await.status, 200);
    archive(&app, coupon).await;
    let unpaid = app.order(2, app.create_regular().await).await;
    let of_another = json!({"kind": "payment", "payment_id": "g1", "order_id": unpaid.to_string(), "method": 2, "amount_cents": 1});
    // The move stands still just before its end; the gateway tells of the payment meanwhile, for another order, too, and
    // of a chargeback.
    let mut holder = holding(&app, "LOCK TABLE moved_order_counts IN EXCLUSIVE MODE").await;
    let chargeback = json!({"kind": "refund", "payment_id": "g1"});
    let pass = async {
        assert_eq!(moved(&app.app).await, 1);
    };
    let told = async {
        eventually("the move waits", async || waits(&app).await).await;
        let again = app.confirm(&notice);
        let other = app.confirm(&of_another);
        let back = app.confirm(&chargeback);
        let release = async {
            eventually("all wait for the move", async || locks_waited_for(&app).await >= 4).await;
            raw_sql("ROLLBACK").execute(&mut holder).await.expect("it was open");
        };
        let (again, other, back, ()) = tokio::join!(again, other, back, release);
        [again.status, other.status, back.status]
    };
    let ((), told) = tokio::join!(pass, told);
    assert!(told.iter().all(|status| *status >= 500), "they have to tell again: {told:?}");
    assert_eq!(
        rows(&app, ["every_payment", "orders WHERE status = 'unpaid'", "orders"]).await,
        [1, 1, 1]
    );
    assert_eq!(app.confirm(&of_another).await.text("outcome"), "held");
    assert_eq!(app.confirm(&notice).await.text("outcome"), "accepted");
    assert_eq!(app.confirm(&chargeback).await.text("outcome"), "charged_back");
    assert_eq!(
        rows(&app, ["every_payment", "orders WHERE status = 'unpaid'", "orders"]).await,
        [2, 1, 2]
    );
}

/// A connection that holds something until it rolls back.
async fn holding(app: &TestApp, hold: &str) -> PgConnection {
    let mut connection =
        PgConnection::connect(&app.store_arguments()[3]).await.expect("Postgres answers");
    let hold = format!("BEGIN; {hold}");
    raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut connection).await.expect("Postgres does it");
    connection
}

async fn locks_waited_for(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
        .await
}

async fn waits(app: &TestApp) -> bool {
    locks_waited_for(app).await > 0
}

/// So many old orders of regular coupons, of which each has a payment, a redemption and a stock return.
async fn by_hand(app: &TestApp, orders: i64) -> i64 {
    let coupon = app.create_regular().await;
    let first = flash_sale::kit::id::first_at(now() - TimeDelta::days(DAYS));
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, pay_method, paid_at, redeemed_at, updated_at, pay_cents, currency)
             SELECT {first} + n, {coupon}, 'regular', n, now(), 'redeemed', 'balance', now(), now(),
                    now() - interval '{DAYS} days', 1, 'CNY' FROM generate_series(1, {orders}) AS n;
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, updated_at)
             SELECT {first} + n, 'external', 'g' || n, 'balance', 1, now() - interval '{DAYS} days' FROM generate_series(1, {orders}) AS n;
         INSERT INTO redemptions (order_id) SELECT {first} + n FROM generate_series(1, {orders}) AS n;
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at)
             SELECT {first} + n, 'place', {coupon}, n, now() FROM generate_series(1, {orders}) AS n"
    ))
    .await;
    first
}

/// Orders, payments, redemptions and returns: those here, those in the history, and the moved orders that are counted.
async fn everywhere(app: &TestApp) -> [i64; 9] {
    rows(
        app,
        [
            "orders",
            "payments",
            "redemptions",
            "stock_returns",
            "order_history",
            "payment_history",
            "redemption_history",
            "stock_return_history",
            "generate_series(1, coalesce((SELECT sum(orders)::bigint FROM moved_order_counts), 0))",
        ],
    )
    .await
}

#[tokio::test]
async fn a_process_that_is_killed_in_the_middle_has_moved_a_batch_or_nothing() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    by_hand(&app, 7).await;
    let month = Month::of(now() - TimeDelta::days(DAYS));
    months::make(&app.app.stores.pool, month).await.expect("Postgres does it");
    // A move waits for these, one after the other; for the last one with all done but the commit.
    app.execute(
        "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
         CREATE TRIGGER waits AFTER INSERT ON moved_order_counts FOR EACH ROW EXECUTE FUNCTION wait_for_lock()",
    )
    .await;
    let holds = [
        "LOCK TABLE payment_history IN EXCLUSIVE MODE",
        "LOCK TABLE stock_return_history IN EXCLUSIVE MODE",
        "LOCK TABLE redemption_history IN EXCLUSIVE MODE",
        "LOCK TABLE order_history IN EXCLUSIVE MODE",
        "SELECT pg_advisory_xact_lock(7)",
    ];
    let untouched = [7, 7, 7, 7, 0, 0, 0, 0, 0];
    assert_eq!(everywhere(&app).await, untouched);
    for hold in holds {
        let mut holder = holding(&app, hold).await;
        let mut process = Process::serve(&app, &["--roles", "worker", "--lanes", "1"]);
        let inside = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                      AND wait_event_type = 'Lock' AND query LIKE 'WITH gone AS%'";
        let in_it = async || app.number(inside).await > 0;
        eventually(&format!("the pass waits behind {hold}"), in_it).await;
        process.signal(nix::sys::signal::Signal::SIGKILL);
        process.ended().await;
        raw_sql("ROLLBACK").execute(&mut holder).await.expect("it was open");
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'
                      AND application_name = 'flash-sale calls' AND pid <> pg_backend_pid()";
        eventually("its sessions have ended", async || app.number(others).await == 0).await;
        let found = everywhere(&app).await;
        assert_eq!(found, untouched, "killed behind {hold}");
    }
    assert_eq!(moved(&app.app).await, 7);
    assert_eq!(everywhere(&app).await, [0, 0, 0, 0, 7, 7, 7, 7, 7]);
}

#[tokio::test]
async fn two_processes_at_once_move_each_order_once() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    by_hand(&app, 1_300).await;
    let another = app.another_instance().await;
    let mut sum = 0;
    bounded("all have moved", async {
        while sum < 1_300 {
            let (one, other) = tokio::join!(app.app.history.pass(), another.history.pass());
            // One of the two may find a month that the other is just making.
            sum += one.unwrap_or(0) + other.unwrap_or(0);
        }
    })
    .await;
    assert_eq!(everywhere(&app).await, [0, 0, 0, 0, 1_300, 1_300, 1_300, 1_300, 1_300]);
}

#[tokio::test]
async fn an_order_that_postgres_refuses_is_postponed_alone() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let bad = by_hand(&app, 9).await + 5;
    app.refuse("INSERT", "order_history", &format!("NEW.id = {bad}"), "23514").await;
    assert_eq!(moved(&app.app).await, 8);
    assert_eq!(rows(&app, ["orders", "payments", "redemptions", "stock_returns"]).await, [1; 4]);
    assert_eq!(app.postponed().await.len(), 1);
    assert_eq!(moved(&app.app).await, 0, "not due yet");
    app.let_postponed_be_due().await;
    assert_eq!((moved(&app.app).await, app.postponed().await.len()), (0, 1));
    app.accept("order_history").await;
    app.let_postponed_be_due().await;
    assert_eq!((moved(&app.app).await, app.postponed().await.len()), (1, 0));
}

#[tokio::test]
async fn months_are_dropped_after_their_time_and_never_before() {
    let app = old_app(&["--history-months", "7", "--orders-days", "30"]).await;
    let OldSale { redeemed, paid, .. } = old_sale(&app).await;
    assert_eq!(moved(&app.app).await, 3);
    assert_eq!(rows(&app, ["order_history"]).await, [3], "200 days are not more than seven months");
    let sooner = old_app(&["--history-months", "4", "--orders-days", "30"]).await;
    let OldSale { redeemed: gone, .. } = old_sale(&sooner).await;
    assert_eq!(moved(&sooner.app).await, 3);
    assert_eq!(rows(&sooner, ["order_history", "payment_history", "orders"]).await, [0, 0, 1]);
    assert_eq!((app.show(1, redeemed).await.status, sooner.show(1, gone).await.status), (200, 404));
    assert_eq!(app.status(4, paid).await, "paid");
    let known =
        "SELECT count(*) FROM settings WHERE payments_kept_from > now() - interval '200 days'";
    assert_eq!((app.number(known).await, sooner.number(known).await), (0, 1));
    assert!(sooner.reconcile().await.agrees());
}

#[tokio::test]
async fn nothing_moves_and_no_month_goes_where_that_is_set() {
    let app = old_app(&["--orders-days", "0", "--history-months", "0"]).await;
    let OldSale { redeemed, .. } = old_sale(&app).await;
    assert_eq!(moved(&app.app).await, 0);
    months::make(&app.app.stores.pool, Month::of_order(redeemed).back(12))
        .await
        .expect("Postgres does it");
    assert_eq!(moved(&app.app).await, 0);
    assert_eq!(months::all(&app.app.stores.pool).await.expect("Postgres answers").len(), 1);
}
