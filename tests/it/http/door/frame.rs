//! The frame of every request: limits of its body, its name, and the headers of its reply.

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, Version};
use flash_sale::base::limits;
use futures_util::stream::iter;
use serde_json::{Value, json};

use super::{code, door, request, told, with_body, with_header};
use crate::http::bad_input::flash;
use crate::support::{Bounded, TestApp, admin_token, patience, token};

const CLAIMS: &str = "/v1/coupons/1024/claims";

/// A new coupon in so many bytes; without a length they come in one piece and end sometime.
fn coupon_of(bytes: usize, declared: Option<&str>) -> Request<Body> {
    let mut text = flash().to_string();
    text += &" ".repeat(bytes - text.len());
    let (mut parts, _) = with_body("POST", "/v1/coupons", &admin_token(), &json!({})).into_parts();
    if let Some(declared) = declared {
        parts.headers.insert("content-length", declared.parse().expect("a value"));
        return Request::from_parts(parts, Body::from(text));
    }
    Request::from_parts(parts, Body::from_stream(iter([Ok::<_, Infallible>(text)])))
}

#[tokio::test]
async fn a_body_has_at_most_its_limit_of_bytes_declared_or_not() {
    const MAX: usize = limits::BODY_BYTES_MAX;
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let (most, more) = (MAX.to_string(), (MAX + 1).to_string());
    for (bytes, declared, expected) in [
        (1_000, None, ""),
        (MAX, None, ""),
        (MAX + 1, None, "body_too_large"),
        (2 * MAX, None, "body_too_large"),
        (MAX, Some(&*most), ""),
        // What is declared is believed before the bytes come.
        (1_000, Some(&*more), "body_too_large"),
        (1_000, Some("99999999999"), "body_too_large"),
    ] {
        let reply = told(&door, coupon_of(bytes, declared)).await;
        assert_eq!(code(&reply), expected, "{bytes} bytes, declared {declared:?}");
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 3);
    // Also where no body is looked at.
    let claim = with_header(request("POST", CLAIMS, &token(42)), "content-length", &more);
    assert_eq!(told(&door, claim).await.refusal(), (413, "body_too_large"));
}

#[tokio::test]
async fn the_id_of_a_request_stands_in_its_reply_and_in_the_book_of_changes() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    for name in ["a-name_7", ""] {
        let created = with_body("POST", "/v1/coupons", &admin_token(), &flash());
        let created =
            if name.is_empty() { created } else { with_header(created, "x-request-id", name) };
        let reply = told(&door, created).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let id = reply.header("x-request-id");
        assert!(id == name || name.is_empty() && id.len() == 36, "{id}");
        let book = app.get("/v1/audit?action=create_coupon&limit=1", &admin_token()).await;
        assert_eq!(book.body["entries"][0]["request_id"], id);
        // A refusal has it in its body, too.
        let refused =
            told(&door, with_header(request("GET", "/nowhere", ""), "x-request-id", id)).await;
        assert_eq!((refused.text("request_id"), refused.header("x-request-id")), (id, id));
    }
}

#[tokio::test]
async fn a_reply_to_a_request_with_authorization_is_kept_by_no_cache() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let coupon = app.create_flash(2).await;
    let claims = format!("/v1/coupons/{coupon}/claims");
    for (method, path, token, kept) in [
        ("GET", "/v1/orders", &*token(42), "no-store"),
        ("GET", "/v1/orders", "", ""),
        ("PATCH", "/v1/coupons/1024", &*admin_token(), "no-store"),
        ("POST", &*claims, &*token(42), ""),
        ("GET", "/v1/coupons", &*token(42), "public, no-cache"),
        ("GET", "/v1/coupons", "", "public, no-cache"),
        ("GET", "/livez", "", ""),
    ] {
        let reply = told(&door, request(method, path, token)).await;
        assert_eq!(reply.header("cache-control"), kept, "{method} {path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{method} {path}");
        let policy = reply.header("content-security-policy");
        assert_eq!(policy, "default-src 'none'; frame-ancestors 'none'", "{method} {path}");
    }
    let docs = told(&door, request("GET", "/docs/", "")).await;
    assert!(docs.header("content-security-policy").contains("script-src 'self'"), "{docs:?}");
}

#[tokio::test]
async fn a_tag_that_is_held_shortens_the_reply_to_a_read() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let read =
        |tags: &str| with_header(request("GET", "/v1/orders", &token(42)), "if-none-match", tags);
    let first = told(&door, read("\"another\"")).await;
    assert_eq!((first.status, &first.body["orders"]), (200, &json!([])));
    let tag = first.header("etag");
    for (tags, status) in [(tag, 304), ("*", 304), ("\"another\"", 200)] {
        let again = told(&door, read(tags)).await;
        assert_eq!((again.status, again.header("etag")), (status, tag));
        assert_eq!(again.body == Value::String(String::new()), status == 304, "{again:?}");
    }
    // A change is no read, whatever the client has.
    let compare = with_body("POST", "/v1/reconcile", &admin_token(), &json!({"repair": false}));
    let compared = told(&door, with_header(compare, "if-none-match", "*")).await;
    assert_eq!((compared.status, compared.header("etag")), (200, ""));
}

#[tokio::test]
async fn a_problem_of_what_is_not_found_is_told_in_the_words_of_its_route() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    for (method, path, refusal, allow) in [
        ("GET", "/v1/orders/7", (404, "order_not_found"), ""),
        ("GET", "/v1/coupons/1024", (404, "coupon_not_found"), ""),
        ("GET", "/v1/nowhere", (404, "not_found"), ""),
        ("GET", "/docs/none.js", (404, "not_found"), ""),
        ("POST", "/livez", (405, "method_not_allowed"), "GET,HEAD"),
        ("DELETE", "/v1/orders", (405, "method_not_allowed"), "GET,HEAD"),
    ] {
        let reply = told(&door, request(method, path, &token(42))).await;
        assert_eq!(reply.refusal(), refusal, "{method} {path}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{method} {path}");
        assert_eq!(reply.header("allow").replace(' ', ""), allow, "{method} {path}");
    }
    // A claim that is refused tells its times, if it is measured.
    let coupon = app.create_flash(1).await;
    app.claim(1, coupon).await;
    let claim = request("POST", &format!("/v1/coupons/{coupon}/claims"), &token(2));
    let refused = told(&door, with_header(claim, "x-trace", "1")).await;
    assert_eq!(refused.refusal(), (410, "sold_out"));
    assert!(refused.header("server-timing").starts_with("queue;dur="), "{refused:?}");
}

#[tokio::test]
async fn cors_allows_pages_of_listed_origins_and_answers_their_preflight() {
    const SHOP: &str = "https://shop.example";
    let app = TestApp::start().await;
    for (origins, allowed) in [(&[SHOP][..], SHOP), (&["https://other.example"], ""), (&[], "")] {
        let door = door(&app, |config| {
            config.cors_origins = origins.iter().map(ToString::to_string).collect();
        });
        for path in ["/v1/coupons", "/nowhere"] {
            let reply = told(&door, with_header(request("GET", path, ""), "origin", SHOP)).await;
            assert_eq!(reply.header("access-control-allow-origin"), allowed, "{origins:?}");
            assert_eq!(reply.header("vary"), if origins.is_empty() { "" } else { "origin" });
        }
        let asks = with_header(request("OPTIONS", "/v1/coupons", ""), "origin", SHOP);
        let asks = with_header(asks, "access-control-request-method", "POST");
        let reply = told(&door, asks).await;
        assert_eq!(reply.status, if origins.is_empty() { 405 } else { 204 }, "{origins:?}");
        assert_eq!(reply.header("access-control-allow-origin"), allowed, "{origins:?}");
    }
}

/// Their next requests go to another process. HTTP/2 announces that in a frame of its own.
#[tokio::test]
async fn connections_of_http1_end_with_their_replies_once_a_stop_is_announced() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    for is_announced in [false, true] {
        if is_announced {
            app.app.shutdown.announce();
        }
        for (version, closes) in
            [(Version::HTTP_10, true), (Version::HTTP_11, true), (Version::HTTP_2, false)]
        {
            for path in ["/livez", "/nowhere"] {
                let mut asked = request("GET", path, "");
                *asked.version_mut() = version;
                let reply = told(&door, asked).await;
                let expected = if closes && is_announced { "close" } else { "" };
                assert_eq!(reply.header("connection"), expected, "{version:?} {path}");
            }
        }
    }
    assert!(app.app.shutdown.stop(patience()).await, "a task hangs");
}

/// Bytes that are no request get a whole reply, which no route has seen.
#[tokio::test]
async fn a_refusal_of_bytes_is_a_whole_reply() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    for (status, code) in
        [(400, "malformed_request"), (414, "uri_too_long"), (431, "head_too_large")]
    {
        let bytes = door.refusal_of_bytes(StatusCode::from_u16(status).expect("a status"));
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.split("\r\n");
        assert!(
            lines.next().is_some_and(|line| line.starts_with(&format!("HTTP/1.1 {status} "))),
            "{head}"
        );
        let mut headers: Vec<(&str, &str)> =
            lines.map(|line| line.split_once(": ").expect("a header")).collect();
        headers.sort_unstable();
        let problem: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)));
        let id = problem["request_id"].as_str().expect("a name");
        let length = body.len().to_string();
        let expected = [
            ("connection", "close"),
            ("content-length", &*length),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("content-type", "application/problem+json"),
            ("x-content-type-options", "nosniff"),
            ("x-request-id", id),
        ];
        assert_eq!(headers, expected, "{status}");
    }
}

/// Each network has half of the places, by the address that the listener tells.
#[tokio::test]
async fn watchers_have_places_by_their_addresses() {
    let app = TestApp::configured(&["--watchers-max", "4"]).await;
    let coupon = app.create_flash(1).await;
    let door = door(&app, |_| {});
    let path = format!("/v1/coupons/{coupon}/live");
    let mut watching = Vec::new();
    for (client, is_there) in [
        ("2001:db8::1", true),
        ("2001:db8::2", true),
        ("2001:db8::3", false),
        ("198.51.100.7", true),
        ("2001:db8:0:1::1", true),
    ] {
        let address = client.parse().expect("an address");
        let reply = door.answer(address, request("GET", &path, ""), || false).bounded().await;
        // The body of a stream has no end.
        assert_eq!(reply.status(), if is_there { 200 } else { 503 }, "{client}");
        if !is_there {
            let body = to_bytes(reply.into_body(), limits::BODY_BYTES_MAX).bounded().await;
            let body = body.expect("a body");
            let problem: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(problem["code"], "too_many_watchers", "{client}");
            continue;
        }
        watching.push(reply);
    }
}
