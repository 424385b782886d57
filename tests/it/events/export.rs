//! Exports: each order once, in pages that nobody sees.

use flash_sale::base::limits::EXPORT_PAGE;

use crate::support::TestApp;

#[tokio::test]
async fn all_orders_are_exported_and_texts_are_no_formulas() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let orders = i64::from(2 * EXPORT_PAGE + 7);
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by, pay_cents, currency, status, cancelled_at, cancel_reason)
         SELECT n, {coupon}, 'flash', n, now(), now(), 5, 'CNY', 'cancelled', now(), '=HYPERLINK(\"x\"), sorry'
         FROM generate_series(1, {orders}) AS n"
    ))
    .await;
    let lines = app.integrate("/v1/orders.ndjson").await;
    assert_eq!((lines.status, lines.header("content-type")), (200, "application/x-ndjson"));
    let lines: Vec<serde_json::Value> = lines
        .body
        .as_str()
        .expect("many lines are no JSON")
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let users: Vec<i64> =
        lines.iter().map(|order| order["user_id"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(users, (1..=orders).rev().collect::<Vec<_>>());

    let one = app.integrate("/v1/orders.csv?user=7&status=cancelled").await;
    assert_eq!(one.header("content-type"), "text/csv; charset=utf-8; header=present");
    let csv = one.body.as_str().expect("a text");
    let (head, row) = csv.split_once("\r\n").expect("two lines");
    assert!(
        head.starts_with("order_id,coupon_id,user_id,status,pay_method,pay_cents,currency,"),
        "{head}"
    );
    assert!(row.starts_with(&format!("7,{coupon},7,cancelled,,5,CNY,")), "{row}");
    assert!(
        row.contains(",\"'=HYPERLINK(\"\"x\"\"), sorry\",") && row.ends_with(",,\r\n"),
        "{row}"
    );
    assert_eq!(app.integrate("/v1/orders.csv?user=0").await.refusal(), (400, "invalid_query"));
    let none = app.integrate("/v1/orders.csv?status=paid").await;
    assert_eq!(none.body.as_str().expect("a text"), format!("{head}\r\n"));
}
