//! Pages for people, by what their listener serves; and the tokens of a demo.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flash_sale::base::config::Page;
use flash_sale::base::limits;
use flash_sale::http;
use serde_json::{Value, json};

use super::{request, state, told, with_body, with_header};
use crate::support::{CODE, TestApp, admin_token, eventually, now};

#[tokio::test]
async fn a_listener_serves_the_pages_that_are_asked_for_and_the_board_where_administrators_are() {
    let app = TestApp::start().await;
    let (shop, board) = (Page::Shop, Page::Board);
    for (pages, private, public) in [
        (vec![], &[][..], &[][..]),
        (vec![shop], &["/"], &["/"]),
        (vec![board], &["/board"], &[]),
        (vec![shop, board], &["/", "/board"], &["/"]),
    ] {
        let mut config = app.config.clone();
        config.pages.clone_from(&pages);
        let http = state(&app, &config);
        for (door, served) in [
            (http::api(&http, true), private),
            (http::api(&http.without_administration(), false), public),
        ] {
            let has_any = !served.is_empty();
            let list = told(&door, request("GET", "/pages", "")).await;
            assert_eq!(list.status, if has_any { 200 } else { 404 }, "{pages:?}");
            if has_any {
                assert_eq!(list.body, json!({"pages": served}), "{pages:?}");
                assert_eq!(list.header("cache-control"), "no-store");
            }
            for page in ["/", "/board", "/storm", "/claim/1024", "/demo/storms/last"] {
                let status = if served.contains(&page) { 200 } else { 404 };
                let reply = told(&door, request("GET", page, &admin_token())).await;
                assert_eq!(reply.status, status, "{page} of {pages:?}");
            }
            let sale = told(&door, request("GET", "/sale/1024", "")).await;
            assert_eq!(sale.status, if served.contains(&"/") { 200 } else { 404 }, "{pages:?}");
            let style = told(&door, request("GET", "/assets/another/shop.css", "")).await;
            assert_eq!(style.status, if has_any { 200 } else { 404 }, "{pages:?}");
        }
    }
}

/// The payload of a token.
fn payload(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("a payload");
    let payload = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    serde_json::from_slice(&payload).expect("JSON")
}

#[tokio::test]
async fn tokens_of_a_demo_are_good_for_their_time_and_their_user() {
    let app = TestApp::demo().await;
    let door = http::api(&state(&app, &app.config), true);
    let enter = async |path: &str, body: Value| {
        told(&door, with_header(with_body("POST", path, "", &body), "host", "localhost:8080")).await
    };
    let wrong = enter("/demo/sessions", json!({"code": "another"})).await;
    assert_eq!(wrong.refusal(), (403, "invalid_code"));
    let before = now().timestamp();
    let session = enter("/demo/sessions", json!({"code": CODE})).await;
    assert_eq!(session.status, 200, "{session:?}");
    let token = payload(session.text("token"));
    assert_eq!((&token["sub"], &token["role"]), (&json!("1"), &json!("admin")));
    let lasts = |token: &Value, time: std::time::Duration| {
        let time = i64::try_from(time.as_secs()).expect("hours");
        let end = token["exp"].as_i64().expect("seconds");
        (before + time..=now().timestamp() + time).contains(&end)
    };
    assert!(lasts(&token, limits::SESSION_TOKEN_TIME), "{token}");
    let again = enter("/demo/sessions", json!({"code": CODE})).await;
    assert_eq!(again.refusal(), (403, "invalid_code"));
    let shoppers =
        [enter("/demo/shoppers", Value::Null).await, enter("/demo/shoppers", Value::Null).await];
    assert_ne!(shoppers[0].text("user_id"), shoppers[1].text("user_id"));
    for shopper in &shoppers {
        let token = payload(shopper.text("token"));
        assert_eq!((&token["sub"], &token["role"]), (&shopper.body["user_id"], &Value::Null));
        assert!(lasts(&token, limits::SHOPPER_TOKEN_TIME), "{token}");
    }
    // A site whose own name leads here is no part of the demo.
    let foreign = with_header(request("POST", "/demo/shoppers", ""), "host", "example.org");
    assert_eq!(told(&door, foreign).await.refusal(), (421, "wrong_host"));
}

#[tokio::test]
async fn a_demo_without_a_storm_has_none_to_stop_and_none_to_show() {
    let app = TestApp::demo().await;
    let door = http::api(&state(&app, &app.config), true);
    let ask = async |method: &str, path: &str| {
        let asked = with_header(request(method, path, &admin_token()), "host", "127.0.0.1:80");
        told(&door, asked).await
    };
    assert_eq!(ask("DELETE", "/demo/storms/current").await.refusal(), (404, "no_storm"));
    let last = ask("GET", "/demo/storms/last").await;
    assert_eq!((last.status, last.body), (200, Value::Null));
    assert_eq!(ask("GET", "/storm").await.status, 200);
    assert_eq!(ask("GET", "/pages").await.body, json!({"pages": ["/", "/board", "/storm"]}));
}

/// A file is kept for ever under the path of its build, and under that of another one not at all.
#[tokio::test]
async fn a_file_is_kept_under_the_path_of_its_own_build() {
    let app = TestApp::start().await;
    let mut config = app.config.clone();
    config.pages = vec![Page::Shop];
    let door = http::api(&state(&app, &config), true);
    let page = told(&door, request("GET", "/", "")).await;
    assert_eq!((page.status, page.header("cache-control")), (200, "no-cache"));
    let text = page.body.as_str().expect("a page");
    let (_, rest) = text.split_once("/assets/").expect("it has files");
    let (version, _) = rest.split_once('/').expect("a build");
    let forever = "public, max-age=31536000, immutable";
    for (version, kept) in [(version, forever), ("00000000", "no-store"), ("x", "no-store")] {
        let path = format!("/assets/{version}/shop.css");
        let reply = told(&door, request("GET", &path, "")).await;
        assert_eq!((reply.status, reply.header("cache-control")), (200, kept), "{path}");
    }
    for path in ["/assets/x/none.css", "/assets/x/shop.html"] {
        assert_eq!(
            told(&door, request("GET", path, "")).await.refusal(),
            (404, "not_found"),
            "{path}"
        );
    }
}

/// The files of Swagger UI are embedded compressed, and unpacked for a client that doesn't name gzip.
#[tokio::test]
async fn the_docs_are_sent_as_they_are_taken() {
    let app = TestApp::start().await;
    let door = http::api(&state(&app, &app.config), true);
    let mut lengths = Vec::new();
    for (path, method, coding, is_packed) in [
        ("/docs/", "GET", "", false),
        ("/docs/", "GET", "br, gzip;q=0", false),
        ("/docs/", "GET", "gzip, br", true),
        ("/docs/", "HEAD", "", false),
        ("/docs/", "HEAD", "gzip", true),
        ("/docs/swagger-ui.css", "GET", "", false),
    ] {
        let asked = request(method, path, "");
        let asked = match coding {
            "" => asked,
            coding => with_header(asked, "accept-encoding", coding),
        };
        let client = "192.0.2.7".parse().expect("an address");
        let (head, body) = door.answer(client, asked, || false).await.into_parts();
        let told = |name| head.headers.get(name).map_or("", |value| value.to_str().expect("text"));
        assert_eq!(head.status, 200, "{method} {path}");
        assert_eq!(told("content-encoding"), if is_packed { "gzip" } else { "" }, "{coding:?}");
        assert_eq!(told("vary"), "accept-encoding", "{coding:?}");
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("the body comes");
        let length = told("content-length").parse::<usize>().ok();
        if method == "HEAD" {
            assert!(body.is_empty());
            lengths.push((is_packed, length));
            continue;
        }
        assert!(length.is_none_or(|length| length == body.len()), "{length:?}");
        assert_eq!(body.starts_with(&[0x1f, 0x8b]), is_packed, "{coding:?}");
        if !is_packed && path == "/docs/" {
            assert!(String::from_utf8_lossy(&body).contains("<title>Swagger UI</title>"));
        }
        if path == "/docs/" {
            lengths.push((is_packed, Some(body.len())));
        }
    }
    // HEAD tells the length of what GET would send, if it tells any.
    for (is_packed, length) in &lengths {
        let (_, of_get) = lengths.iter().find(|(packed, _)| packed == is_packed).expect("GET");
        assert!(length.is_none() || length == of_get, "{lengths:?}");
    }
    let none = told(&door, request("GET", "/docs/none.js", "")).await;
    assert_eq!((none.status, none.header("vary")), (404, ""));
}

#[tokio::test]
async fn a_demo_starts_one_storm_at_a_time_if_it_has_a_crowd() {
    let app = TestApp::demo().await;
    let plan = json!({"shoppers": 2, "stock": 1, "over_s": 0, "twice_percent": 0});
    // The crowd is sent to the address that the page has asked at.
    let host = app.url.strip_prefix("http://").expect("a URL");
    let ask = async |door: &http::Door, method: &str, path: &str, body: &Value| {
        let asked = with_body(method, path, &admin_token(), body);
        told(door, with_header(asked, "host", host)).await
    };
    let mut config = app.config.clone();
    let demo = config.demo.as_mut().expect("it is a demo");
    let crowd = demo.crowd.take();
    let without = http::api(&state(&app, &config), true);
    let refused = ask(&without, "POST", "/demo/storms", &plan).await;
    assert_eq!(refused.refusal(), (404, "not_found"));
    config.demo.as_mut().expect("it is a demo").crowd = crowd;
    let door = http::api(&state(&app, &config), true);
    let long = json!({"shoppers": 2, "stock": 1, "over_s": 60, "twice_percent": 0});
    let began = now().timestamp_millis();
    let started = ask(&door, "POST", "/demo/storms", &long).await;
    let id: i64 = started.text("id").parse().expect("a number");
    assert!(started.status == 202 && (began..=now().timestamp_millis()).contains(&id));
    let told = started.text("id").to_owned();
    let refused = ask(&door, "POST", "/demo/storms", &plan).await;
    assert_eq!(refused.refusal(), (409, "storm_under_way"));
    let stopped = ask(&door, "DELETE", "/demo/storms/current", &Value::Null).await;
    assert_eq!((stopped.status, stopped.body), (202, json!("")));
    eventually("it is over", async || {
        let last = ask(&door, "GET", "/demo/storms/last", &Value::Null).await;
        last.body["id"] == told.as_str() && last.body["stage"] == "done"
    })
    .await;
}
