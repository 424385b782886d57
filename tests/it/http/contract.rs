//! The contract: `/openapi.json` beyond its routes, the pages of problems, and refusals that name every fault.

use std::collections::HashSet;

use flash_sale::base::limits;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bad_input::flash;
use crate::support::TestApp;

/// Ids of operations. Generated clients call their functions by these, so none changes.
const OPERATIONS: [&str; 51] = [
    "archiveCoupon",
    "cancelOrder",
    "cancelOrderForBuyer",
    "cancelUnpaidOrders",
    "claimCoupon",
    "closePayment",
    "compareStores",
    "createCoupon",
    "discardDeadLetter",
    "discardDeadLetters",
    "editCoupon",
    "endCoupon",
    "followClaim",
    "getComparison",
    "getCoupon",
    "getDayStatistics",
    "getDeadLetter",
    "getJob",
    "getLiveness",
    "getMetrics",
    "getMyClaim",
    "getOrder",
    "getOrderOfCode",
    "getOrderQrCode",
    "getReadiness",
    "handPaymentBack",
    "listAudit",
    "listComparisons",
    "listCoupons",
    "listDeadLetters",
    "listJobs",
    "listOperations",
    "listOrders",
    "listOwedPayments",
    "listPostponed",
    "listRecoveries",
    "pauseCoupon",
    "payOrder",
    "receivePaymentNotice",
    "redeemCode",
    "redeemOrder",
    "refundOrder",
    "refundOrderForBuyer",
    "restockCoupon",
    "resumeCoupon",
    "retryDeadLetter",
    "retryDeadLetters",
    "retryPostponed",
    "settleRecovery",
    "watchBoard",
    "watchSale",
];

async fn document(app: &TestApp) -> Value {
    app.get("/openapi.json", "").await.body
}

fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    let items = document["paths"].as_object().expect("a document has paths").values();
    items.flat_map(|item| item.as_object().expect("an item has operations").values())
}

#[tokio::test]
async fn operation_ids_stay() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    let mut ids: Vec<&str> =
        operations(&document).map(|operation| operation["operationId"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, OPERATIONS);
}

/// The text `null` in a header is another value, and a client that is generated would send it.
#[tokio::test]
async fn a_parameter_may_be_missing_and_is_never_null() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    let mut optional = 0;
    for operation in operations(&document) {
        assert!(operation.get("parameters").is_none_or(Value::is_array), "{operation}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let schema = &parameter["schema"];
            assert!(
                !schema.to_string().contains("null"),
                "{}: {parameter}",
                operation["operationId"]
            );
            assert!(schema["type"].is_string() || schema["$ref"].is_string(), "{parameter}");
            optional += usize::from(parameter["required"] != true);
        }
    }
    assert!(optional > 20, "{optional} parameters may be missing");
}

#[tokio::test]
async fn the_document_speaks_of_no_rust() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    for text in texts(&document) {
        for rust in ["crate::", "[`", "u64", "i64::", "Option<", "Vec<"] {
            assert!(!text.contains(rust), "{text}");
        }
    }
    for operation in operations(&document) {
        let summary = operation["summary"].as_str().expect("a summary");
        // It is shown as it is written.
        assert!(!summary.contains('`') && summary.len() < 80, "{summary}");
        assert!(operation["description"].is_string(), "{summary} has no description");
    }
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn every_reply_has_an_example() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    for (name, response) in document["components"]["responses"].as_object().expect("responses") {
        let problem = &response["content"]["application/problem+json"];
        let codes = problem["schema"]["allOf"][1]["properties"]["code"]["enum"].as_array();
        for code in codes.expect("codes") {
            let example = &problem["examples"][code.as_str().expect("a text")]["value"];
            assert_eq!(&example["code"], code, "{name}");
        }
    }
    for operation in operations(&document) {
        let responses = operation["responses"].as_object().expect("it has responses");
        for (status, response) in responses {
            let json = &response["content"]["application/json"];
            let id = &operation["operationId"];
            assert!(json.is_null() || json["example"].is_object(), "{id} {status} has no example");
        }
    }
}

#[tokio::test]
async fn every_kind_of_problem_has_a_page() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    let codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].clone();
    let codes: HashSet<&str> =
        codes.as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect::<HashSet<_>>();
    assert!(codes.contains("sold_out") && codes.len() > 40, "{codes:?}");
    let list = app.get("/docs/problems", "").await;
    for code in codes {
        let path = format!("/docs/problems/{code}");
        let page = app.get(&path, "").await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.header("content-type").starts_with("text/html"), "{path}");
        let text = page.body.as_str().expect("a text");
        assert!(text.contains(code) && text.contains("What a client does"), "{text}");
        assert!(list.body.as_str().expect("a text").contains(&path), "{path} is not listed");
    }
    assert_eq!(app.get("/docs/problems/sold", "").await.refusal(), (404, "not_found"));
}

#[tokio::test]
async fn all_wrong_members_are_named() {
    let app = TestApp::start().await;
    let window =
        |opens: &str, closes: &str| json!({"total": 1, "opens_at": opens, "closes_at": closes});
    let (early, late) = ("2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z");
    let rows = [
        (json!({}), vec!["/kind"]),
        (json!(["flash"]), vec![""]),
        (json!({"kind": "flash"}), vec!["/pay_cents", "/sale", "/title", "/value_cents"]),
        (
            json!({"kind": "flash", "title": "", "pay_cents": "1", "value_cents": 1.5, "colour": "red",
                   "rules": "a\u{202e}b", "sale": {"total": 0, "opens_at": "soon", "durability": "disk"}}),
            vec![
                "/colour",
                "/pay_cents",
                "/rules",
                "/sale/closes_at",
                "/sale/durability",
                "/sale/opens_at",
                "/sale/total",
                "/title",
                "/value_cents",
            ],
        ),
        (
            json!({"kind": "regular", "title": " ", "pay_cents": -1, "value_cents": 1, "sale": window(early, late)}),
            vec!["/pay_cents", "/sale", "/title"],
        ),
        (
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 1, "sale": window(late, early)}),
            vec!["/sale/closes_at"],
        ),
        (
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 1,
                   "sale": {"stock": 0, "opens_at": early, "closes_at": late}}),
            vec!["/sale/stock"],
        ),
        (
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 1, "a/b~": 1,
                   "sale": {"stock": 1, "total": 1, "opens_at": early, "closes_at": late}}),
            vec!["/a~1b~0", "/sale/stock"],
        ),
    ];
    for (body, pointers) in rows {
        let reply = app.post("/v1/coupons", &app.admin_token(), &body).await;
        assert_eq!(reply.refusal(), (422, "invalid_body"), "{body}");
        let errors = reply.body["errors"].as_array().expect("errors");
        let mut named: Vec<&str> = errors.iter().map(|e| e["pointer"].as_str().unwrap()).collect();
        named.sort_unstable();
        assert_eq!(named, pointers, "{body}: {reply:?}");
        for error in errors {
            let detail = error["detail"].as_str().expect("a detail");
            assert!(!detail.contains("struct") && !detail.contains("expected"), "{detail}");
        }
    }
    let edit = json!({"title": 1, "revision": 0, "sale": {"total": null}});
    let coupon = app.create_flash(1).await;
    let patch = app.client().patch(format!("{}/v1/coupons/{coupon}", app.url)).json(&edit);
    let reply = app.send(patch.bearer_auth(app.admin_token()), "PATCH", "/v1/coupons/1").await;
    assert_eq!(reply.body["errors"].as_array().map(Vec::len), Some(3), "{reply:?}");
}

/// Only serde sees this one.
#[tokio::test]
async fn a_member_that_stands_there_twice_is_refused() {
    let app = TestApp::start().await;
    let body = flash().to_string().replacen('{', r#"{"title":"twice","#, 1);
    let request = app.client().post(format!("{}/v1/coupons", app.url)).body(body);
    let request = request.header("content-type", "application/json").bearer_auth(app.admin_token());
    let reply = app.send(request, "POST", "/v1/coupons").await;
    assert_eq!(reply.refusal(), (422, "invalid_body"));
    assert_eq!(reply.body["errors"][0]["pointer"], "");
    assert!(reply.text("detail").contains("duplicate field `title`"), "{reply:?}");
    // Found by fuzzing: the first value is of another type, and serde would say so in words of Rust.
    let body = flash().to_string().replacen('{', r#"{"pay_cents":"1","#, 1);
    let request = app.client().post(format!("{}/v1/coupons", app.url)).body(body);
    let request = request.header("content-type", "application/json").bearer_auth(app.admin_token());
    let reply = app.send(request, "POST", "/v1/coupons").await;
    assert_eq!(reply.refusal(), (422, "invalid_body"));
    assert_eq!(reply.body["errors"][0]["detail"], "can't be read: a member stands there twice");
}

#[tokio::test]
async fn a_reply_that_comes_later_says_when_to_ask() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let accepted = app.claim(1, coupon).await;
    assert_eq!((accepted.status, accepted.header("retry-after")), (202, "1"));
    assert_eq!(accepted.body["retry_after_ms"], 200);
    let opens_at = crate::support::now() + chrono::TimeDelta::hours(1);
    let later = app.create_sale(1, opens_at, opens_at + chrono::TimeDelta::hours(1)).await;
    let refused = app.claim(1, later).await;
    assert_eq!(refused.refusal(), (409, "sale_not_started"));
    let seconds: u64 = refused.header("retry-after").parse().expect("a number");
    let ms = refused.body["retry_after_ms"].as_u64().expect("a number");
    assert_eq!(ms.div_ceil(1_000), seconds, "{refused:?}");
}

#[tokio::test]
async fn a_reply_that_the_client_has_is_not_sent_again() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    let token = app.token(1);
    for path in [
        format!("/v1/coupons/{coupon}"),
        "/v1/coupons".to_owned(),
        format!("/v1/orders/{order}"),
        "/v1/orders".to_owned(),
    ] {
        let ask = async |tags: &str| {
            let request = app.client().get(app.url.clone() + &path).bearer_auth(&token);
            app.send(request.header("if-none-match", tags), "GET", &path).await
        };
        let first = ask("\"another\"").await;
        assert_eq!(first.status, 200, "{path}");
        // Coupons are the same for all users, orders for one alone.
        let kept = if path.contains("coupons") { "public, no-cache" } else { "no-store" };
        assert_eq!(first.header("cache-control"), kept, "{path}");
        let tag = first.header("etag");
        for tags in [tag, &format!("W/{tag}"), &format!("\"another\", {tag}"), "*"] {
            let again = ask(tags).await;
            assert_eq!((again.status, &again.body), (304, &Value::String(String::new())), "{tags}");
            assert_eq!(again.header("etag"), tag);
        }
        // A change of what the reply says is another tag.
        if path.contains(&coupon.to_string()) {
            app.claim(2, coupon).await;
            sleep(limits::LEFT_SHOWN_MAX).await;
            let later = ask(tag).await;
            assert_eq!((later.status, &later.body["sale"]["left"]), (200, &json!(0)));
        }
    }
}
