//! Scopes of tokens: what each may ask for, and what a listener answers that has no administrators; and their public keys.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use flash_sale::http;
use flash_sale::http::state::HttpState;
use flash_sale::kit::jwt::key_url::{KeyUrl, Pace};
use flash_sale::kit::jwt::{Scope, Tokens};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{code, door, request, state, told, with_body, with_header};
use crate::kit::public_keys::{Issuer, folder};
use crate::support::lines::number;
use crate::support::{SECRET, TestApp, admin_token, eventually, scoped_token, token};

/// Tokens by the words of the tables.
fn token_of(who: &str) -> String {
    match who {
        "user" => token(42),
        "other" => token(7),
        "clerk" => scoped_token(8, Scope::Clerk),
        "operator" => scoped_token(9, Scope::Operator),
        "admin" => admin_token(),
        _ => String::new(),
    }
}

const NO_CODE: &str = "/v1/redemptions/0000-0000-0000-0000";

#[tokio::test]
async fn each_operation_of_the_staff_needs_a_scope_and_all_above_it_have_it() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let archive = "/v1/coupons/1024/archive";
    let (no, unknown) = ("forbidden", "redemption_code_unknown");
    let nothing = "coupon_not_found";
    for (method, path, body, codes) in [
        ("GET", NO_CODE, Value::Null, [no, unknown, unknown, unknown]),
        ("GET", "/v1/jobs", Value::Null, [no, no, "", ""]),
        ("GET", "/v1/audit", Value::Null, [no, no, no, ""]),
        ("POST", archive, json!({"accept_loss": false}), [no, no, nothing, nothing]),
        ("POST", archive, json!({"accept_loss": true}), [no, no, no, nothing]),
        ("POST", "/v1/reconcile", json!({"repair": false}), [no, no, "", ""]),
        ("POST", "/v1/reconcile", json!({"repair": true}), [no, no, no, ""]),
        ("GET", "/v1/orders?user=7", Value::Null, [no, no, "", ""]),
        ("GET", "/v1/orders", Value::Null, ["", "", "", ""]),
    ] {
        for (who, expected) in ["user", "clerk", "operator", "admin"].iter().zip(codes) {
            let reply = told(&door, with_body(method, path, &token_of(who), &body)).await;
            assert_eq!(code(&reply), expected, "{who}: {method} {path} {body}");
        }
        let reply = told(&door, with_body(method, path, "", &body)).await;
        assert_eq!(reply.refusal(), (401, "invalid_token"), "{method} {path}");
    }
}

#[tokio::test]
async fn a_listener_without_administration_answers_clerks_and_no_one_above() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim_traced(42, coupon, "1").await.order_id();
    app.write_orders().await;
    assert_eq!(app.pay(42, order).await.status, 200);
    let http = state(&app, &app.config);
    let public = http::api(&http.without_administration(), false);
    let private = http::api(&http, true);
    let order = format!("/v1/orders/{order}");
    let trace = format!("{order}/trace");
    let (nothing, unknown) = ("not_found", "redemption_code_unknown");
    for (who, path, on_public, on_private) in [
        ("admin", "/v1/jobs", nothing, ""),
        ("operator", "/v1/jobs", nothing, ""),
        ("user", "/v1/jobs", nothing, "forbidden"),
        ("", "/v1/jobs", nothing, "invalid_token"),
        ("admin", "/v1/audit", nothing, ""),
        ("admin", NO_CODE, unknown, unknown),
        ("clerk", NO_CODE, unknown, unknown),
        ("user", NO_CODE, "forbidden", "forbidden"),
        ("", NO_CODE, "invalid_token", "invalid_token"),
        ("user", &order, "", ""),
        ("admin", &order, "order_not_found", ""),
        ("operator", &order, "order_not_found", ""),
        ("clerk", &order, "order_not_found", "order_not_found"),
        ("other", &order, "order_not_found", "order_not_found"),
        ("admin", "/v1/orders?user=42", "forbidden", ""),
        ("user", &trace, "", ""),
        ("operator", &trace, "not_traced", ""),
        ("clerk", &trace, "not_traced", "not_traced"),
        ("other", &trace, "not_traced", "not_traced"),
        ("", "/v1/coupons", "", ""),
        ("", "/livez", nothing, ""),
        ("", "/metrics", nothing, ""),
    ] {
        for (door, expected) in [(&public, on_public), (&private, on_private)] {
            let reply = told(door, request("GET", path, &token_of(who))).await;
            assert_eq!(code(&reply), expected, "{who}: {path}");
            if path == order && expected.is_empty() {
                // The code is as good as the goods.
                assert_eq!(reply.body["redemption_code"].is_string(), who == "user", "{who}");
            }
        }
    }
    // Here an administrator is a clerk, and the book says so.
    let redeemed = told(&public, request("POST", &format!("{order}/redeem"), &token_of("admin")));
    assert_eq!(redeemed.await.status, 200);
    let book = app.get("/v1/audit?action=redeem_order", &app.admin_token()).await;
    assert_eq!(
        (&book.body["entries"][0]["scope"], &book.body["entries"][0]["actor"]),
        (&json!("clerk"), &json!("1"))
    );
}

#[tokio::test]
async fn an_api_with_operations_has_them_and_one_without_has_not() {
    let app = TestApp::start().await;
    let http = state(&app, &app.config);
    for (with_operations, status) in [(true, 200), (false, 404)] {
        let door = http::api(&http, with_operations);
        for path in ["/livez", "/readyz", "/metrics"] {
            let reply = told(&door, request("GET", path, "")).await;
            assert_eq!(reply.status, status, "{with_operations} {path}");
        }
        assert_eq!(told(&door, request("GET", "/v1/coupons", "")).await.status, 200);
    }
}

#[tokio::test]
async fn a_listener_of_operations_has_nothing_of_the_api() {
    let app = TestApp::start().await;
    let door = http::operations(&state(&app, &app.config));
    for (path, status) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/metrics", 200),
        ("/docs/problems/sold_out", 200),
        ("/docs/problems", 200),
        ("/v1/coupons", 404),
        ("/openapi.json", 404),
        ("/docs/", 404),
    ] {
        assert_eq!(told(&door, request("GET", path, "")).await.status, status, "{path}");
    }
    assert_eq!(told(&door, request("GET", "/livez", "")).await.body, "ok\n");
}

#[tokio::test]
async fn a_request_has_one_token_in_one_header() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let good = format!("Bearer {}", token(42));
    let basic = good.replace("Bearer", "Basic");
    let (twice, send_one) = ("the token isn't the only one", "send the header `Authorization");
    for (values, words) in [
        (&[&*good][..], ""),
        (&[], send_one),
        (&[&*basic], send_one),
        (&["Bearer"], send_one),
        (&[&*good, &*good], twice),
        (&[&*good, "x"], twice),
        (&["x", &*good], twice),
    ] {
        let mut asked = request("GET", "/v1/orders", "");
        for value in values {
            asked = with_header(asked, "authorization", value);
        }
        let reply = told(&door, asked).await;
        if words.is_empty() {
            assert_eq!(reply.status, 200, "{values:?}");
            continue;
        }
        assert_eq!(reply.refusal(), (401, "invalid_token"), "{values:?}");
        assert!(reply.text("detail").starts_with(words), "{reply:?}");
    }
}

/// The state of HTTP has tasks for both: one reads the file, and one asks the issuer.
#[tokio::test]
async fn public_keys_are_read_again_and_fetched_by_tasks_of_the_state() {
    const QUICK: Duration = Duration::from_millis(10);
    let app = TestApp::start().await;
    let (folder, [first, second, _]) = (folder(), Issuer::all());
    let file = folder.join("keys.json");
    let write = |issuer: &Issuer| {
        let keys = json!({"keys": [issuer.public()]}).to_string();
        fs::write(&file, keys).expect("the folder is ours");
    };
    let mut tokens = Tokens::configured(&app.config.stores, &SecretString::from(SECRET));
    write(&first);
    tokens.accept_keys_of(&file).expect("a key");
    let pace = Pace { timeout: QUICK, period: QUICK, pause: QUICK, pause_without_keys: QUICK };
    // No issuer answers there.
    let nowhere = "http://127.0.0.1:1/keys".parse().expect("a URL");
    tokens.accept_keys_under(Arc::new(KeyUrl::new(nowhere, pace)));
    write(&second);
    let door = http::api(&HttpState::new(app.app.clone(), &app.config, tokens), true);
    let ask = async |issuer: &Issuer| {
        told(&door, request("GET", "/v1/orders", &issuer.token(None))).await.status
    };
    eventually("the file is read again", async || ask(&second).await == 200).await;
    assert_ne!(ask(&first).await, 200, "it is in the file no more");
    let failures = || number(&app.app, "flash_sale_key_set_failures_total");
    eventually("the issuer is asked again and again", async || failures() >= 2.0).await;
    fs::remove_dir_all(folder).expect("it is ours");
}
