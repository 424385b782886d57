//! `forget`, `forget_opened`, `erase`, `leave` and `recall`: payments that are over.

use chrono::{DateTime, Utc};
use flash_sale::kit::id;
use flash_sale::kit::postgres::{self, Page};
use flash_sale::sale::payment::past;
use serde_json::json;

use super::opened::opened;
use super::{app_with, lines, orders, payments, states, statuses};
use crate::support::{TestApp, now};

/// A time of ten days ago, in whole seconds.
fn ten_days_ago() -> DateTime<Utc> {
    DateTime::from_timestamp(now().timestamp() - 864_000, 0).expect("a time")
}

async fn kept_from(app: &TestApp) -> String {
    let query = "SELECT extract(epoch FROM payments_kept_from)::bigint::text FROM settings";
    lines(app, query).await.concat()
}

#[tokio::test]
async fn forget_deletes_payments_that_were_over_before_a_time_page_by_page() {
    let (app, time) = (app_with(&[]).await, ten_days_ago());
    let (pool, first) = (&app.app.stores.pool, id::first_at(time));
    payments(
        &app,
        &[
            (101, 1, "refunded", "too_late"),
            (102, 2, "closed", "too_late"),
            (103, 3, "accepted", ""),
            (104, 4, "refunding", "too_late"),
            (105, 5, "held", "unknown_order"),
            (106, 6, "refunded", "too_late"),
            (107, first, "refunded", "too_late"),
            (108, first - 1, "refunded", "too_late"),
            (109, 9, "refunded", "too_late"),
        ],
    )
    .await;
    let seconds = time.timestamp();
    app.execute(&format!(
        "UPDATE payments SET created_at = to_timestamp({seconds}) - CASE id WHEN 109 THEN 0 ELSE 1 END * interval '1 day',
                             updated_at = to_timestamp({seconds} - CASE id WHEN 106 THEN 0 ELSE 1 END)"
    ))
    .await;
    let before = kept_from(&app).await;
    let forgets = async |behind: i64, limit: u32| {
        past::forget(pool, behind, time, limit).await.expect("Postgres answers")
    };
    assert_eq!(forgets(103, 3).await, Page { last: Some(106), deleted: 0 });
    assert_eq!(kept_from(&app).await, before, "nothing is deleted");
    assert_eq!(forgets(0, 3).await, Page { last: Some(103), deleted: 2 });
    assert_eq!(kept_from(&app).await, seconds.to_string());
    assert_eq!(forgets(106, 3).await, Page { last: None, deleted: 1 });
    let left = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM payments";
    assert_eq!(lines(&app, left).await, ["103 104 105 106 107 109"]);
    assert_eq!(forgets(109, 3).await, Page { last: None, deleted: 0 });
}

#[tokio::test]
async fn forget_opened_deletes_payments_that_are_asked_about_no_more_page_by_page() {
    let (app, time) = (app_with(&[]).await, ten_days_ago());
    let ids: Vec<i64> = (101..=108).collect();
    let rows: Vec<_> = ids.iter().map(|id| (*id, *id, "", 0)).collect();
    opened(&app, &rows).await;
    let seconds = time.timestamp();
    app.execute(&format!(
        "UPDATE opened_payments SET
             created_at = to_timestamp({seconds}) - CASE id WHEN 108 THEN 0 ELSE 1 END * interval '1 day',
             closed_at = CASE id WHEN 102 THEN to_timestamp({seconds}) WHEN 101 THEN to_timestamp({seconds} - 1)
                                 WHEN 106 THEN to_timestamp({seconds} - 1) WHEN 108 THEN to_timestamp({seconds} - 1) END,
             next_look_at = to_timestamp({seconds} - CASE id WHEN 107 THEN 0 ELSE 1 END);
         INSERT INTO postponed (pass, item, error, next_try_at)
             VALUES ('openings', 104, 'x', now()), ('expiry', 105, 'x', now()), ('openings', 106, 'x', now())"
    ))
    .await;
    let forgets = async |behind: i64, limit: u32| {
        let page = past::forget_opened(&app.app.stores.pool, behind, time, limit).await;
        page.expect("Postgres answers")
    };
    assert_eq!(forgets(0, 4).await, Page { last: Some(104), deleted: 2 });
    let left = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM opened_payments";
    assert_eq!(lines(&app, left).await, ["102 104 105 106 107 108"]);
    assert_eq!(forgets(104, 4).await, Page { last: None, deleted: 2 });
    assert_eq!(lines(&app, left).await, ["102 104 107 108"]);
}

#[tokio::test]
async fn erase_takes_notes_and_pages_off_the_payments_of_these_orders() {
    let app = app_with(&[]).await;
    payments(
        &app,
        &[(101, 1, "closed", "too_late"), (102, 2, "closed", "too_late"), (103, 1, "accepted", "")],
    )
    .await;
    opened(&app, &[(201, 1, "g1", 0), (202, 2, "g2", 0)]).await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    assert_eq!(past::erase(&mut tx, &[1, 3]).await.expect("Postgres answers"), [101]);
    assert_eq!(
        past::erase(&mut tx, &[1, 3]).await.expect("Postgres answers"),
        [0; 0],
        "it is done"
    );
    tx.commit().await.expect("Postgres answers");
    let noted = "SELECT id::text FROM payments WHERE note = 'by hand'";
    assert_eq!(lines(&app, noted).await, ["102"]);
    assert_eq!(lines(&app, "SELECT id::text FROM opened_payments").await, ["202"]);
}

/// The months of the history for small order ids.
pub(super) const MONTHS: &str = "
    CREATE TABLE order_history_202201 PARTITION OF order_history FOR VALUES FROM (0) TO (1000);
    CREATE TABLE payment_history_202201 PARTITION OF payment_history FOR VALUES FROM (0) TO (1000);
    CREATE TABLE redemption_history_202201 PARTITION OF redemption_history FOR VALUES FROM (0) TO (1000);
    CREATE TABLE stock_return_history_202201 PARTITION OF stock_return_history FOR VALUES FROM (0) TO (1000)";

/// Moves orders into the history, and all of their payments.
pub(super) async fn leave(app: &TestApp, orders: &str) {
    app.execute(&format!(
        "INSERT INTO moved_order_counts SELECT coupon_id, status, count(*) FROM orders WHERE id IN ({orders}) GROUP BY 1, 2;
         WITH gone AS (DELETE FROM orders WHERE id IN ({orders}) RETURNING *) INSERT INTO order_history SELECT * FROM gone;
         WITH gone AS (DELETE FROM payments WHERE order_id IN ({orders}) RETURNING *) INSERT INTO payment_history SELECT * FROM gone"
    ))
    .await;
}

#[tokio::test]
async fn leave_moves_settled_payments_of_these_orders() {
    let app = app_with(&[]).await;
    app.execute(MONTHS).await;
    payments(
        &app,
        &[
            (101, 1, "accepted", ""),
            (102, 1, "refunded", "too_late"),
            (103, 1, "closed", "too_late"),
            (104, 1, "refunding", "too_late"),
            (105, 1, "held", "unknown_order"),
            (106, 2, "accepted", ""),
            (107, 3, "refunded", "too_late"),
        ],
    )
    .await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    past::leave(&mut tx, &[1, 3]).await.expect("Postgres answers");
    let (here, opened) = past::rows(&mut tx, &[1, 2]).await.expect("Postgres answers");
    let mode = sqlx::query_scalar("SELECT current_setting('plan_cache_mode')");
    let mode: String = mode.fetch_one(&mut *tx).await.expect("Postgres answers");
    assert_eq!(mode, "force_custom_plan", "a plan for these orders reads their months alone");
    tx.commit().await.expect("Postgres answers");
    let ids: Vec<_> = here.iter().map(|row| row["id"].as_i64().expect("a number")).collect();
    assert_eq!((ids, opened.len()), (vec![101, 102, 103, 104, 105, 106], 0), "wherever they are");
    let moved = "SELECT concat_ws(' ', id, status, refund_reason) FROM payment_history ORDER BY id";
    assert_eq!(
        lines(&app, moved).await,
        ["101 accepted", "102 refunded too_late", "103 closed too_late", "107 refunded too_late"]
    );
    assert_eq!(
        states(&app).await,
        ["104 refunding too_late", "105 held unknown_order", "106 accepted"]
    );
}

#[tokio::test]
async fn recall_brings_back_the_order_whose_payment_is_named_and_no_other_one() {
    let app = app_with(&[]).await;
    app.execute(MONTHS).await;
    let coupon = app.create_regular().await;
    orders(
        &app,
        coupon,
        &[(1, "cancelled"), (2, "cancelled"), (3, "cancelled"), (4, "cancelled"), (5, "paid")],
    )
    .await;
    payments(
        &app,
        &[
            (101, 1, "refunded", "too_late"),
            (102, 2, "refunded", "too_late"),
            (103, 3, "refunded", "too_late"),
            (104, 4, "refunded", "too_late"),
            (105, 5, "accepted", ""),
        ],
    )
    .await;
    // The service itself has used a name of the gateway, and the gateway the name of a payment that is here.
    app.execute("UPDATE payments SET gateway = 'in_process' WHERE id = 103; UPDATE payments SET gateway_payment_id = 'g4' WHERE id = 104").await;
    leave(&app, "1, 2, 3, 4").await;
    payments(&app, &[(106, 6, "refunded", "too_late")]).await;
    app.execute("UPDATE payments SET gateway_payment_id = 'g4' WHERE id = 106").await;

    let refund =
        async |name: &str| app.confirm(&json!({"kind": "refund", "payment_id": name})).await.status;
    assert_eq!((refund("g4").await, refund("g103").await, refund("g110").await), (200, 404, 404));
    assert_eq!(statuses(&app).await, ["5 paid"], "none is brought back for these");
    assert_eq!(refund("g102").await, 200);
    assert_eq!(statuses(&app).await, ["2 cancelled", "5 paid"]);
    assert_eq!(
        states(&app).await,
        ["102 refunded too_late", "105 accepted", "106 refunded too_late"]
    );
    let counts = "SELECT string_agg(orders::text, ' ') FROM moved_order_counts";
    assert_eq!(lines(&app, counts).await, ["3"]);

    // A notice of a payment names an order, too.
    let notice = json!({"kind": "payment", "payment_id": "g7", "order_id": "1", "method": 2, "amount_cents": 1});
    let told = app.confirm(&notice).await;
    assert_eq!((told.text("outcome"), told.text("reason")), ("handed_back", "too_late"));
    assert_eq!(statuses(&app).await, ["1 cancelled", "2 cancelled", "5 paid"]);
    let moved = "SELECT id::text FROM payment_history ORDER BY id";
    assert_eq!(lines(&app, moved).await, ["103", "104"]);
}

/// Nearly all are here, and none of their notices waits for a lock of the history.
#[tokio::test]
async fn recall_order_writes_nothing_into_the_history_that_has_not_the_order() {
    let app = app_with(&[]).await;
    app.execute(MONTHS).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "unpaid")]).await;
    for table in ["order_history", "payment_history"] {
        app.count_statements("DELETE", table).await;
    }
    let notice = json!({"kind": "payment", "payment_id": "g1", "order_id": "1", "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&notice).await.text("outcome"), "accepted");
    assert_eq!(app.statements().await, 0);
}

/// A payment of the service itself has the same name, and is here.
#[tokio::test]
async fn is_known_tells_a_gateway_from_the_service_itself() {
    let app = app_with(&[]).await;
    app.execute(MONTHS).await;
    let coupon = app.create_regular().await;
    orders(&app, coupon, &[(1, "cancelled"), (2, "paid")]).await;
    payments(&app, &[(101, 1, "refunded", "too_late"), (102, 2, "accepted", "")]).await;
    app.execute("UPDATE payments SET gateway = 'in_process', gateway_payment_id = 'g101' WHERE id = 102; UPDATE payments SET gateway_payment_id = 'g101' WHERE id = 101").await;
    leave(&app, "1").await;
    let refund = app.confirm(&json!({"kind": "refund", "payment_id": "g101"})).await;
    assert_eq!(refund.text("outcome"), "refunded");
    assert_eq!(statuses(&app).await, ["1 cancelled", "2 paid"]);
    assert_eq!(states(&app).await, ["101 refunded too_late", "102 accepted"]);
}
