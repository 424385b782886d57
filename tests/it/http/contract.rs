//! The contract: `/openapi.json` beyond its routes, the pages of problems, and refusals that name every fault.

use std::collections::{BTreeSet, HashMap};

use flash_sale::base::limits;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Reply, SECRET, TestApp, resolved};

/// Ids of operations. Generated clients call their functions by these, so none changes.
const OPERATIONS: [&str; 58] = [
    "archiveCoupon",
    "cancelOrder",
    "cancelOrderForBuyer",
    "cancelUnpaidOrders",
    "changeWebhook",
    "claimCoupon",
    "closePayment",
    "compareStores",
    "createCoupon",
    "createWebhook",
    "deleteWebhook",
    "discardDeadLetter",
    "discardDeadLetters",
    "editCoupon",
    "endCoupon",
    "exportOrders",
    "exportOrdersAsCsv",
    "followClaim",
    "getBoard",
    "getComparison",
    "getCoupon",
    "getDeadLetter",
    "getLiveness",
    "getMetrics",
    "getMyClaim",
    "getOrder",
    "getOrderOfCode",
    "getOrderQrCode",
    "getReadiness",
    "getSaleProgress",
    "getWebhook",
    "handPaymentBack",
    "listAudit",
    "listComparisons",
    "listCoupons",
    "listOperations",
    "listOrderPayments",
    "listOrders",
    "listRecoveries",
    "listWebhookDeliveries",
    "listWebhooks",
    "pauseCoupon",
    "payOrder",
    "readEvents",
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
    "testWebhook",
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

#[tokio::test]
async fn the_document_names_its_service_its_tags_and_its_schemes() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], "/");
    // In the order in which people need them.
    let tags = document["tags"].as_array().expect("tags").iter();
    let tags: Vec<_> = tags.filter_map(|tag| tag["name"].as_str()).collect();
    let first = ["claims", "orders", "coupons", "payments", "dead letters", "operations"];
    assert_eq!(tags, first);
    let schemes = &document["components"]["securitySchemes"];
    for role in ["user", "clerk", "operator", "admin"] {
        assert_eq!(schemes[role]["scheme"], "bearer", "{role}");
    }
    assert_eq!(schemes["signature"]["name"], "X-Signature");
    for operation in operations(&document) {
        let known = operation["tags"].as_array().is_some_and(|its| {
            its.iter().all(|tag| first.contains(&tag.as_str().unwrap_or_default()))
        });
        assert!(known, "{operation}");
    }
}

/// Refusals that any request may meet, and the headers of each.
#[tokio::test]
async fn each_operation_has_the_refusals_that_do_not_depend_on_it() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    for operation in operations(&document) {
        let id = operation["operationId"].as_str().expect("an id");
        let responses = operation["responses"].as_object().expect("it has responses");
        let asks_stores = !["getLiveness", "getMetrics"].contains(&id);
        let is_bounded = asks_stores && !["getReadiness", "receivePaymentNotice"].contains(&id);
        for (status, expected) in
            [("405", true), ("413", true), ("500", true), ("503", asks_stores), ("429", is_bounded)]
        {
            assert_eq!(responses.contains_key(status), expected, "{id} {status}");
        }
        for (status, response) in responses {
            let headers: &[&str] = match status.as_str() {
                "401" => &["WWW-Authenticate"],
                "405" => &["Allow"],
                "429" => &["Retry-After"],
                "503" => &["Retry-After"],
                _ => &[],
            };
            for header in headers.iter().chain(&["x-request-id"]) {
                assert!(response["headers"][header].is_object(), "{id} {status} {header}");
            }
        }
    }
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
async fn every_kind_of_problem_has_its_place_in_one_document() {
    let app = TestApp::start().await;
    let rows = include_str!("../../../docs/problems.md").lines();
    let rows: Vec<&str> = rows.filter_map(|row| row.strip_prefix("| `")).collect();
    assert!(rows.len() > 40, "{rows:?}");
    let page = app.get("/docs/problems", "").await;
    assert!(page.header("content-type").starts_with("text/html"), "{page:?}");
    let page = page.body.as_str().expect("a text");
    let document = app.get("/openapi.json", "").await.body;
    let required = document["components"]["schemas"]["Problem"]["allOf"][1]["required"].as_array();
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let &[code, status, title, _, remedy] = &cells[..] else { panic!("{row}") };
        assert!(remedy.ends_with('.') && remedy.starts_with(char::is_uppercase), "{remedy}");
        let code = code.trim_end_matches('`');
        let (_, place) = page
            .split_once(&format!("<article class=\"panel\" id=\"{code}\">"))
            .unwrap_or_else(|| panic!("{code} has no place"));
        let (_, example) = place.split_once("<pre>").expect("it has an example");
        let (example, _) = example.split_once("</pre>").expect("an end");
        let body: Value = serde_json::from_str(example).expect("an example is JSON");
        assert_eq!(body["type"], format!("/docs/problems#{code}"));
        assert_eq!(body["status"].to_string(), status);
        assert_eq!((&body["code"], &body["title"]), (&json!(code), &json!(title)));
        for member in required.expect("members of each problem") {
            assert!(!body[member.as_str().expect("a name")].is_null(), "{code}: {member}");
        }
    }
}

/// A fault of the form is told alone, broken rules all together.
#[tokio::test]
async fn wrong_members_are_named() {
    let app = TestApp::start().await;
    let (early, late) = ("2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z");
    let sale = json!({"total": 0, "opens_at": late, "closes_at": early});
    for (body, pointers) in [
        (json!({}), vec!["/kind"]),
        (json!(["flash"]), vec![""]),
        (json!({"kind": "flash", "colour": "red"}), vec!["/colour"]),
        (json!({"kind": "flash", "title": 1}), vec!["/title"]),
        (json!({"kind": "flash", "a/b~": 1}), vec!["/a~1b~0"]),
        (
            json!({"kind": "flash", "title": "", "pay_cents": -1, "value_cents": 1, "sale": sale}),
            vec!["/pay_cents", "/sale/closes_at", "/sale/total", "/title"],
        ),
        (
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 1, "sale": null}),
            vec!["/kind"],
        ),
    ] {
        let reply = app.post("/v1/coupons", &app.admin_token(), &body).await;
        assert_eq!(reply.refusal(), (422, "invalid_body"), "{body}");
        let errors = reply.body["errors"].as_array().expect("it names the members");
        let named: BTreeSet<&str> =
            errors.iter().filter_map(|error| error["pointer"].as_str()).collect();
        assert_eq!(named, pointers.into_iter().collect(), "{body}: {reply:?}");
    }
}

/// A body that each operation takes, by its id: the request and its members. None of the things exists.
const BODIES: [(&str, &str, &str, &str); 19] = [
    ("archiveCoupon", "POST", "/v1/coupons/1024/archive", r#"{"accept_loss":true}"#),
    ("cancelOrderForBuyer", "POST", "/v1/orders/7/cancel-for-buyer", r#"{"reason":"ill"}"#),
    ("cancelUnpaidOrders", "POST", "/v1/coupons/1024/cancel-unpaid", r#"{"reason":"ill"}"#),
    ("changeWebhook", "PATCH", "/v1/webhooks/7", r#"{"state":"paused","rotate_secret":true}"#),
    ("closePayment", "POST", "/v1/payments/7/close", r#"{"note":"by hand"}"#),
    ("createCoupon", "POST", "/v1/coupons", COUPON),
    ("createWebhook", "POST", "/v1/webhooks", r#"{"url":"https://example.com/"}"#),
    ("discardDeadLetters", "POST", "/v1/dead-letters/discard", r#"{"reason":"invalid"}"#),
    (
        "editCoupon",
        "PATCH",
        "/v1/coupons/1024",
        r#"{"revision":1,"title":"t","pay_cents":5,"sale":{"total":9}}"#,
    ),
    ("endCoupon", "POST", "/v1/coupons/1024/end", r#"{"revision":1}"#),
    ("pauseCoupon", "POST", "/v1/coupons/1024/pause", r#"{"revision":1}"#),
    ("payOrder", "POST", "/v1/orders/7/pay", r#"{"method":"wechat","expected_cents":5}"#),
    (
        "receivePaymentNotice",
        "POST",
        "/v1/payments/callback",
        r#"{"kind":"payment","payment_id":"g1","order_id":"7","method":3,"amount_cents":5,"currency":"CNY"}"#,
    ),
    ("redeemCode", "POST", "/v1/redemptions", r#"{"code":"7K3M-Q9TX-2B8D-HV4N"}"#),
    ("refundOrderForBuyer", "POST", "/v1/orders/7/refund-for-buyer", r#"{"reason":"ill"}"#),
    ("restockCoupon", "POST", "/v1/coupons/1024/restock", r#"{"units":5,"key":"spring"}"#),
    ("resumeCoupon", "POST", "/v1/coupons/1024/resume", r#"{"revision":1}"#),
    ("retryDeadLetters", "POST", "/v1/dead-letters/retry", r#"{"reason":"oversold"}"#),
    ("settleRecovery", "POST", "/v1/recoveries/7/settle", r#"{"note":"told"}"#),
];

const COUPON: &str = r#"{"kind":"flash","title":"t","pay_cents":1,"value_cents":2,"sale":{"total":5,"opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-01-02T00:00:00Z"}}"#;

/// Sends a body to an operation that has one.
async fn send(app: &TestApp, operation: &str, method: &str, path: &str, body: &str) -> Reply {
    if operation == "receivePaymentNotice" {
        return app.confirm_text(body.to_owned()).await;
    }
    let url = app.url.clone() + path;
    let request = app.client().request(method.parse().expect("a method"), url);
    let request = request.header("content-type", "application/json").body(body.to_owned());
    app.send(request.bearer_auth(app.admin_token()), method, path).await
}

/// Bodies with a member that stands there twice, and its pointer: in an object, as it is, with an escaped name, and beside
/// numbers that are written with a fraction.
fn with_a_member_twice(body: &str) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(body).expect("JSON");
    let mut objects = vec![(String::new(), value.clone())];
    let members = value.as_object().expect("an object");
    let inner = members.iter().filter(|(_, member)| member.is_object());
    objects.extend(inner.map(|(name, member)| (format!("/{name}"), member.clone())));
    let mut bodies = Vec::new();
    for (pointer, object) in objects {
        for (name, member) in object.as_object().expect("an object") {
            let escaped = format!("\\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..]);
            for spelled in [name, &escaped] {
                let text = object.to_string();
                let twice = text.replacen('{', &format!("{{\"{spelled}\":{member},"), 1);
                let twice = value.to_string().replacen(&text, &twice, 1);
                let place = format!("{pointer}/{name}");
                bodies.push((place, twice));
            }
        }
    }
    bodies
}

#[tokio::test]
async fn one_rule_reads_the_bodies_of_all_operations() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let document = document(&app).await;
    let with_a_body = operations(&document).filter(|it| it["requestBody"].is_object());
    let mut ids: Vec<&str> = with_a_body.filter_map(|it| it["operationId"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, BODIES.map(|(operation, ..)| operation), "each has a body in the table");
    for (operation, method, path, body) in BODIES {
        let reply = send(&app, operation, method, path, body).await;
        assert!(![400, 415, 422].contains(&reply.status), "{operation}: {reply:?}");
        // What a gateway has signed is held (tests/it/payment/callbacks.rs).
        if operation == "receivePaymentNotice" {
            continue;
        }
        for (pointer, twice) in with_a_member_twice(body) {
            let reply = send(&app, operation, method, path, &twice).await;
            assert_eq!(reply.refusal(), (422, "invalid_body"), "{operation}: {twice}");
            let wrong = json!([{"pointer": pointer, "detail": "stands there twice"}]);
            assert_eq!(reply.body["errors"], wrong, "{operation}: {twice}");
        }
        for list in [format!("[{body}]"), body.replacen('{', "{\"list\":[],", 1)] {
            let reply = send(&app, operation, method, path, &list).await;
            assert_eq!(reply.refusal(), (422, "invalid_body"), "{operation}: {list}");
        }
        for none in ["{", "{\"a\":1}}", "1e999"] {
            let reply = send(&app, operation, method, path, none).await;
            assert_eq!(reply.refusal(), (400, "malformed_json"), "{operation}: {none}");
        }
    }
}

/// The pages of a demo have requests of their own.
#[tokio::test]
async fn the_same_rule_reads_bodies_of_the_demo() {
    let app = TestApp::demo().await;
    let storm = r#"{"shoppers":5,"stock":5,"over_s":0,"twice_percent":0}"#;
    for (path, body) in [("/demo/storms", storm), ("/demo/sessions", r#"{"code":"none"}"#)] {
        for (pointer, twice) in with_a_member_twice(body) {
            let reply = send(&app, "", "POST", path, &twice).await;
            assert_eq!(reply.refusal(), (422, "invalid_body"), "{path}: {twice}");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{path}: {twice}");
        }
    }
}

#[tokio::test]
async fn words_of_blanks_are_none() {
    let app = TestApp::start().await;
    let rows = [
        ("/v1/orders/7/cancel-for-buyer", "reason"),
        ("/v1/orders/7/refund-for-buyer", "reason"),
        ("/v1/payments/7/close", "note"),
        ("/v1/recoveries/7/settle", "note"),
    ];
    for (path, member) in rows {
        for words in ["", " ", "\u{3000}\n", "a\0", &"x".repeat(1_001)] {
            let reply = app.post(path, &app.admin_token(), &json!({member: words})).await;
            assert_eq!(reply.refusal(), (422, "invalid_body"), "{path}: {words:?}");
            let wrong = &reply.body["errors"][0];
            assert_eq!(wrong["pointer"], format!("/{member}"), "{path}: {words:?}");
        }
    }
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

/// Each test that gets one sees that the reply keeps this word (`support::client`).
#[tokio::test]
async fn each_202_says_when_to_ask_again() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    let mut later = Vec::new();
    for operation in operations(&document) {
        let response = &operation["responses"]["202"];
        if response.is_null() {
            continue;
        }
        let id = operation["operationId"].as_str().expect("an id");
        assert!(response["headers"]["Retry-After"].is_object(), "{id}");
        let json = &response["content"]["application/json"]["schema"];
        let schema = resolved(&document, json);
        assert!(schema.to_string().contains("retry_after_ms"), "{id}: {schema}");
        later.push(id);
    }
    later.sort_unstable();
    let all = [
        "claimCoupon",
        "compareStores",
        "editCoupon",
        "endCoupon",
        "pauseCoupon",
        "payOrder",
        "restockCoupon",
        "resumeCoupon",
    ];
    assert_eq!(later, all);
}

#[tokio::test]
async fn a_reply_that_the_client_has_is_not_sent_again() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    let (user, admin) = (app.token(1), app.admin_token());
    let run = app.compare().await.text("run_id").to_owned();
    for (token, path) in [
        (&user, format!("/v1/coupons/{coupon}")),
        (&user, "/v1/coupons".to_owned()),
        (&user, format!("/v1/coupons/{coupon}/claims/me")),
        (&user, format!("/v1/orders/{order}")),
        (&user, "/v1/orders".to_owned()),
        (&admin, format!("/v1/reconcile/runs/{run}")),
    ] {
        let ask = async |tags: &str| {
            let request = app.client().get(app.url.clone() + &path).bearer_auth(token);
            app.send(request.header("if-none-match", tags), "GET", &path).await
        };
        let first = ask("\"another\"").await;
        assert_eq!(first.status, 200, "{path}");
        // Coupons are the same for all users, orders for one alone.
        let is_public = path.contains("coupons") && !path.ends_with("/me");
        let kept = if is_public { "public, no-cache" } else { "no-store" };
        assert_eq!(first.header("cache-control"), kept, "{path}");
        let tag = first.header("etag");
        for tags in [tag, &format!("W/{tag}"), &format!("\"another\", {tag}"), "*"] {
            let again = ask(tags).await;
            assert_eq!((again.status, &again.body), (304, &Value::String(String::new())), "{tags}");
            assert_eq!(again.header("etag"), tag);
        }
        // A change of what the reply says is another tag.
        if path == format!("/v1/coupons/{coupon}") {
            app.claim(2, coupon).await;
            sleep(limits::LEFT_SHOWN_MAX).await;
            let later = ask(tag).await;
            assert_eq!((later.status, &later.body["sale"]["left"]), (200, &json!(0)));
        }
    }
    let endpoint =
        app.number("INSERT INTO webhooks (url, types, secret) VALUES ('', '{}', '') RETURNING id");
    let (order, endpoint) = (order.to_string(), endpoint.await.to_string());
    let coupon = coupon.to_string();
    let ids = [("coupons", coupon), ("orders", order), ("reconcile", run), ("webhooks", endpoint)];
    each_read_has_a_tag(&app, &ids.into()).await;
}

/// So it is with each read of the document whose reply is JSON; `ids` are those of things, by the second part of the path.
async fn each_read_has_a_tag(app: &TestApp, ids: &HashMap<&str, String>) {
    let document = document(app).await;
    let mut absent_reads: BTreeSet<&str> = BTreeSet::new();
    let paths = document["paths"].as_object().expect("a document has paths");
    for (path, item) in paths {
        let replies = &item["get"]["responses"];
        if !replies["200"]["content"]["application/json"].is_object() {
            continue;
        }
        assert!(replies["304"].is_object(), "{path}");
        let id = path.split('/').nth(2).and_then(|thing| ids.get(thing));
        let asked = path.replace("{id}", id.map_or("", String::as_str));
        let request = app.client().get(app.url.clone() + &asked).bearer_auth(app.admin_token());
        let reply = app.send(request.header("if-none-match", "*"), "GET", &asked).await;
        match reply.status {
            404 => _ = absent_reads.insert(path),
            304 => assert!(!reply.header("etag").is_empty(), "{path}"),
            status => panic!("{path}: {status}"),
        }
    }
    // Those of things that are not there.
    let absent = ["/v1/dead-letters/{id}", "/v1/orders/{id}/trace", "/v1/redemptions/{code}"];
    assert_eq!(absent_reads, BTreeSet::from(absent));
}
