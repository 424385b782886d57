//! Bounds: each class of requests has its own, and what one client has used up costs no other.

use axum::body::Body;
use axum::http::Request;
use flash_sale::base::config::Config;
use flash_sale::base::limits;
use flash_sale::http::Door;
use flash_sale::kit::jwt::Scope;
use secrecy::SecretString;
use serde_json::json;

use super::{door, request, told, told_to, with_body, with_header, with_text};
use crate::http::hoarders::metric;
use crate::support::{SECRET, TestApp, admin_token, scoped_token, token};

/// Requests in a row of which a bound of one a second has to refuse some, however slow the machine is.
const MANY: usize = 50;

/// A bound among the settings.
type Setting = fn(&mut Config) -> &mut u32;

/// Name of the bound that a client meets who asks this so many times.
async fn bound(door: &Door, times: usize, asked: impl Fn() -> Request<Body>) -> Option<String> {
    for _ in 0..times {
        let reply = told(door, asked()).await;
        if reply.status == 429 {
            let policy = reply.header("ratelimit-policy");
            return policy.strip_prefix('"')?.split_once('"').map(|(name, _)| name.to_owned());
        }
    }
    None
}

/// Each request, with the bound that it counts for: it meets that one alone, and none of the others together.
#[tokio::test]
async fn each_request_counts_for_one_bound_and_no_other() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let claims = format!("/v1/coupons/{coupon}/claims");
    let me = format!("{claims}/me");
    let (user, clerk) = (token(42), scoped_token(8, Scope::Clerk));
    let operator = scoped_token(9, Scope::Operator);
    let large =
        || with_header(request("POST", "/v1/coupons", &admin_token()), "content-length", "65537");
    assert_eq!(limits::BODY_BYTES_MAX, 65_536);
    let rows: [(&str, &dyn Fn() -> Request<Body>); 16] = [
        ("user-claims", &|| request("POST", &claims, &user)),
        ("user-requests", &|| request("GET", &me, &user)),
        ("user-requests", &|| request("GET", "/v1/orders/7", &user)),
        ("user-requests", &|| request("GET", "/v1/audit", &user)),
        ("user-requests", &|| request("GET", "/v1/audit", &clerk)),
        ("anonymous-requests", &|| request("GET", "/v1/coupons", "")),
        ("anonymous-requests", &|| request("GET", "/v1/orders", "")),
        ("anonymous-requests", &|| request("GET", "/v1/nowhere", &user)),
        ("anonymous-requests", &|| request("DELETE", "/v1/orders", &user)),
        ("anonymous-requests", &|| {
            with_header(request("GET", "/v1/orders", ""), "authorization", "Basic x")
        }),
        ("anonymous-requests", &|| with_text("POST", "/v1/payments/callback", "", "{}")),
        ("anonymous-requests", &large),
        ("refused-tokens", &|| request("GET", "/v1/orders", "not.a.token")),
        ("", &|| request("GET", "/v1/jobs", &operator)),
        ("", &|| request("GET", "/livez", "")),
        ("", &|| with_body("POST", "/v1/dead-letters/retry", &operator, &json!({}))),
    ];
    let settings: [(&str, Setting); 4] = [
        ("user-claims", |config| &mut config.user_claims_per_second),
        ("user-requests", |config| &mut config.user_requests_per_second),
        ("anonymous-requests", |config| &mut config.anonymous_requests_per_second),
        ("refused-tokens", |config| &mut config.refused_tokens_per_second),
    ];
    for (number, (expected, asked)) in rows.iter().enumerate() {
        for (is_own, times) in [(true, MANY), (false, 8)] {
            let door = door(&app, |config| {
                config.payment_callback_secret = Some(SecretString::from(SECRET));
                for (_, setting) in settings.iter().filter(|(name, _)| (name == expected) == is_own)
                {
                    *setting(config) = 1;
                }
            });
            let own = (is_own && !expected.is_empty()).then_some(*expected);
            let times = if own.is_some() { times } else { times.min(8) };
            let met = bound(&door, times, asked).await;
            assert_eq!(met.as_deref(), own, "row {number}, its own bound: {is_own}");
        }
    }
}

#[tokio::test]
async fn a_refusal_by_a_bound_is_counted_and_others_go_on() {
    let app = TestApp::start().await;
    let door = door(&app, |config| config.anonymous_requests_per_second = 1);
    let refused =
        || metric(&app.app.metrics.page(), "rate_limited_total{bound=\"anonymous-requests\"}");
    let mut seen = 0;
    for _ in 0..MANY {
        let reply = told(&door, request("GET", "/v1/coupons", "")).await;
        seen += usize::from(reply.status == 429);
        assert_eq!(refused(), seen, "{reply:?}");
    }
    assert!(seen > 0, "none was refused");
    // Another address, and a user behind the same one.
    assert_eq!(told_to(&door, "192.0.2.8", request("GET", "/v1/coupons", "")).await.status, 200);
    for _ in 0..MANY {
        assert_eq!(told(&door, request("GET", "/v1/orders", &token(42))).await.status, 200);
    }
}

/// A request that was counted for its address as it came isn't counted for its refusal, too.
#[tokio::test]
async fn a_refusal_of_what_is_counted_already_is_not_counted_again() {
    let app = TestApp::start().await;
    let door = door(&app, |config| config.anonymous_requests_per_second = 2);
    for path in ["/nowhere", "/v1/orders"] {
        for _ in 0..2 {
            let client = if path == "/nowhere" { "192.0.2.9" } else { "192.0.2.10" };
            let reply = told_to(&door, client, request("GET", path, "")).await;
            assert_ne!(reply.status, 429, "{path}: {reply:?}");
        }
    }
}
