//! Lists of operators: audit, board's matters, coupons, dead letters, jobs, orders, payments, postponed items, recoveries
//! and comparisons, each page by page.

use flash_sale::http::Door;
use serde_json::Value;

use super::{code, door, request, told};
use crate::support::{Reply, TestApp, admin_token, token};

/// More than a page has.
const MANY: usize = 101;

/// Each list with the name of its items and of their ids, and a statement that makes many; the open matters are those of
/// the others.
const LISTS: [(&str, &str, &str, &str); 9] = [
    (
        "/v1/audit",
        "entries",
        "id",
        "INSERT INTO audit (actor, scope, action, subject_id) SELECT 1, 'admin', 'pause_coupon', 1024 FROM",
    ),
    (
        "/v1/dead-letters",
        "dead_letters",
        "id",
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail) SELECT 0, '1-' || n, '{}', 'undecodable', '' FROM",
    ),
    (
        "/v1/jobs",
        "jobs",
        "job_id",
        "INSERT INTO jobs (coupon_id, key, reason, finished_at) SELECT 1024, n, 'r', now() FROM",
    ),
    (
        "/v1/payments/owed",
        "payments",
        "payment_id",
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
         SELECT 7, 'external', 'p' || n, 'balance', 1, 'refunding', 'too_late' FROM",
    ),
    (
        "/v1/postponed",
        "postponed",
        "id",
        "INSERT INTO postponed (pass, item, error, next_try_at) SELECT 'expiry', n, '', now() FROM",
    ),
    (
        "/v1/recoveries",
        "recoveries",
        "id",
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at) SELECT 0, n, 'data_lost', now(), now() FROM",
    ),
    (
        "/v1/reconcile/runs",
        "runs",
        "run_id",
        "INSERT INTO reconcile_runs (asked_by, finished_at, failure) SELECT 'api', now(), 'x' FROM",
    ),
    (
        "/v1/coupons",
        "coupons",
        "id",
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
         SELECT nextval('coupon_sequence') << 10, 'regular', 't', '', '', 1, 2 FROM",
    ),
    (
        "/v1/orders",
        "orders",
        "order_id",
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT n, 1024, 'regular', 1, now(), 'cancelled', now() FROM",
    ),
];

/// Ids on a page, and the cursor of the next one.
fn page<'a>(reply: &'a Reply, items: &str, id: &str) -> (Vec<&'a str>, Option<&'a str>) {
    assert_eq!(reply.status, 200, "{reply:?}");
    let rows = reply.body[items].as_array().expect("a list").iter();
    let ids = rows.map(|row| row[id].as_str().expect("an id")).collect();
    (ids, reply.body["next_cursor"].as_str())
}

/// A page has as many items as its limit says, at most a hundred, and the next one goes on behind its last.
async fn assert_pages(door: &Door, path: &str, items: &str, id: &str) {
    let ask = async |query: &str| {
        let path = format!("{path}?{query}");
        told(door, request("GET", &path, &admin_token())).await
    };
    let all = ask("limit=100").await;
    let (ids, next) = page(&all, items, id);
    assert_eq!(ids.len(), 100, "{path}");
    let rest = ask(&format!("limit=100&cursor={}", next.expect("there is one more"))).await;
    let (last, end) = page(&rest, items, id);
    assert_eq!((last.len(), end), (MANY - 100, None), "{path}");
    let everything = [&ids[..], &last].concat();
    for (query, limit) in [("", 20), ("limit=1", 1), ("limit=2", 2), ("limit=99", 99)] {
        let some = ask(query).await;
        let (found, next) = page(&some, items, id);
        assert_eq!(found, everything[..limit], "{path}?{query}");
        let behind = ask(&format!("limit=1&cursor={}", next.expect("there are more"))).await;
        assert_eq!(page(&behind, items, id).0, everything[limit..=limit], "{path}?{query}, and on");
    }
    for query in ["limit=0", "limit=101", "limit=102", "limit=4294967295", "limit=x"] {
        assert_eq!(code(&ask(query).await), "invalid_query", "{path}?{query}");
    }
}

#[tokio::test]
async fn each_list_of_operators_has_pages_within_the_limit_and_leaves_nothing_out() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let door = door(&app, |_| {});
    for (path, items, id, insert) in LISTS {
        let empty = told(&door, request("GET", path, &admin_token())).await;
        assert_eq!(page(&empty, items, id), (vec![], None), "{path}");
        app.execute(&format!("{insert} generate_series(1, {MANY}) AS n")).await;
        assert_pages(&door, path, items, id).await;
    }
}

/// The matters of all kinds are one list; here, the letters.
#[tokio::test]
async fn the_list_of_all_that_is_waiting_has_pages_within_the_limit() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let door = door(&app, |_| {});
    let (_, _, _, letters) = LISTS[1];
    app.execute(&format!("{letters} generate_series(1, {MANY}) AS n")).await;
    assert_pages(&door, "/v1/operations", "matters", "id").await;
}

/// Operators search the orders of all users by each filter; a user's own list has no filter.
#[tokio::test]
async fn each_filter_of_the_list_of_orders_is_a_search() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let door = door(&app, |_| {});
    app.execute(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at) VALUES
         (1, 1024, 'regular', 1, '2026-01-01T00:00:00Z', 'cancelled', now()),
         (2, 2048, 'regular', 1, '2026-01-02T00:00:00Z', 'cancelled', now()),
         (3, 1024, 'regular', 2, '2026-01-03T00:00:00Z', 'cancelled', now())",
    )
    .await;
    for (query, expected) in [
        ("user=1", &["2", "1"][..]),
        ("user=3", &[]),
        ("coupon=1024", &["3", "1"]),
        ("status=cancelled", &["3", "2", "1"]),
        ("status=paid", &[]),
        ("from=2026-01-02T00:00:00Z", &["3", "2"]),
        ("to=2026-01-02T00:00:00Z", &["1"]),
        ("user=1&coupon=1024", &["1"]),
        // An administrator has orders, too: here, as user 1.
        ("limit=2", &["2", "1"]),
        ("", &["2", "1"]),
    ] {
        let path = format!("/v1/orders?{query}");
        let found = told(&door, request("GET", &path, &admin_token())).await;
        assert_eq!(page(&found, "orders", "order_id").0, expected, "{query}");
        let own = told(&door, request("GET", &path, &token(2))).await;
        let is_search = !query.is_empty() && query != "limit=2";
        assert_eq!(code(&own), if is_search { "forbidden" } else { "" }, "{query}");
        if !is_search {
            assert_eq!(page(&own, "orders", "order_id").0, ["3"], "{query}");
        }
    }
    assert_eq!(
        told(&door, request("GET", "/v1/orders", "")).await.body["code"],
        Value::from("invalid_token")
    );
}
