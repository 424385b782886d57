//! Clients that ask too often: each is told to wait, and costs the others nothing.

use flash_sale::kit::jwt::Scope;
use reqwest::{Method, Response, StatusCode};

use crate::support::process::Process;
use crate::support::{TestApp, scoped_token};

/// Requests at once, with a bound of two: some have to be refused, however slow the machine is.
const MANY: usize = 50;

#[tokio::test]
async fn a_user_who_asks_too_often_is_told_to_wait() {
    let app = TestApp::configured(&["--user-requests-per-second", "2"]).await;
    let replies = ask(&app, "/v1/orders", &app.token(1), |_| String::new()).await;
    assert_bounded(&app, &replies, StatusCode::OK, "user-requests");
    // Another user, an administrator, a claim of the same user, and probes are not concerned.
    assert_eq!(app.get("/v1/orders", &app.token(2)).await.status, 200);
    let admin = ask(&app, "/v1/operations", &app.admin_token(), |_| String::new()).await;
    assert!(admin.iter().all(|reply| reply.status() == 200));
    assert_eq!(app.claim(1, app.create_flash(1).await).await.status, 202);
}

#[tokio::test]
async fn claims_have_a_bound_of_their_own() {
    let app = TestApp::configured(&["--user-claims-per-second", "2"]).await;
    let coupon = app.create_flash(1).await;
    let claims = (0..MANY).map(|_| {
        let url = format!("{}/v1/coupons/{coupon}/claims", app.url);
        app.client().post(url).bearer_auth(app.token(1)).send()
    });
    let replies = futures_util::future::join_all(claims).await;
    let replies: Vec<Response> = replies.into_iter().map(|reply| reply.unwrap()).collect();
    let accepted = replies.iter().filter(|reply| reply.status() == StatusCode::ACCEPTED).count();
    assert_eq!(accepted, 1);
    assert_refusals(&app, &replies, "user-claims");
    let others = ask(&app, "/v1/orders", &app.token(1), |_| String::new()).await;
    assert!(others.iter().all(|reply| reply.status() == 200));
}

#[tokio::test]
async fn requests_without_a_user_count_for_their_address() {
    let app = TestApp::configured(&["--anonymous-requests-per-second", "2"]).await;
    for (token, path) in [("", "/v1/coupons"), ("any", "/v1/coupons"), ("", "/nowhere")] {
        let replies = ask(&app, path, token, |_| String::new()).await;
        assert_refusals(&app, &replies, "anonymous-requests");
    }
    // A header with any words in it is no user, where no token is looked at.
    for (method, path) in [(Method::GET, "/v1/nowhere"), (Method::DELETE, "/v1/orders")] {
        let requests = (0..MANY).map(|_| {
            let request = app.client().request(method.clone(), app.url.clone() + path);
            request.bearer_auth("any").send()
        });
        let replies = futures_util::future::join_all(requests).await;
        let replies: Vec<Response> = replies.into_iter().map(|reply| reply.unwrap()).collect();
        assert_refusals(&app, &replies, "anonymous-requests");
    }
    let probes = ask(&app, "/livez", "", |_| String::new()).await;
    assert!(probes.iter().all(|reply| reply.status() == 200));
    let user = ask(&app, "/v1/orders", &app.token(1), |_| String::new()).await;
    assert!(user.iter().all(|reply| reply.status() == 200));
}

#[tokio::test]
async fn refused_tokens_count_for_their_address() {
    let app = TestApp::configured(&["--anonymous-requests-per-second", "2"]).await;
    let replies = ask(&app, "/v1/orders", "not.a.token", |_| String::new()).await;
    assert_bounded(&app, &replies, StatusCode::UNAUTHORIZED, "anonymous-requests");
    // Good tokens from the same address are not concerned.
    assert_eq!(app.get("/v1/orders", &app.token(1)).await.status, 200);
}

/// With a header of another scheme, a request has no identity either.
#[tokio::test]
async fn a_header_that_is_no_token_counts_for_its_address() {
    let app = TestApp::configured(&["--anonymous-requests-per-second", "2"]).await;
    for header in ["Basic dXNlcjpzZWNyZXQ=", "Bearer", "any"] {
        let requests = (0..MANY).map(|_| {
            let request = app.client().get(app.url.clone() + "/v1/orders");
            request.header("authorization", header).send()
        });
        let replies = futures_util::future::join_all(requests).await;
        let replies: Vec<Response> = replies.into_iter().map(|reply| reply.unwrap()).collect();
        assert_refusals(&app, &replies, "anonymous-requests");
    }
}

/// Users and clerks at the routes of the staff, whatever these answer; operators and administrators have no bound.
#[tokio::test]
async fn the_routes_of_the_staff_bound_users_and_clerks() {
    let app = TestApp::configured(&["--user-requests-per-second", "2"]).await;
    let clerk = scoped_token(7, Scope::Clerk);
    let operator = scoped_token(8, Scope::Operator);
    for (token, path) in
        [(app.token(1), "/v1/audit"), (clerk, "/v1/redemptions/0000-0000-0000-0000")]
    {
        let replies = ask(&app, path, &token, |_| String::new()).await;
        assert_refusals(&app, &replies, "user-requests");
    }
    let replies = ask(&app, "/v1/operations", &operator, |_| String::new()).await;
    assert!(replies.iter().all(|reply| reply.status() == 200));
}

#[tokio::test]
async fn callbacks_with_a_wrong_signature_count_for_their_address() {
    let app = TestApp::configured(&[
        "--anonymous-requests-per-second",
        "2",
        "--payment-callback-secret",
        "a secret that no gateway has, for this test",
    ])
    .await;
    let requests = (0..MANY).map(|_| {
        let request = app.client().post(app.url.clone() + "/v1/payments/callback");
        request.header("x-signature", "00").body("{}").send()
    });
    let replies = futures_util::future::join_all(requests).await;
    let replies: Vec<Response> = replies.into_iter().map(|reply| reply.unwrap()).collect();
    assert_refusals(&app, &replies, "anonymous-requests");
}

/// Garbage of an algorithm whose keys only the issuer has costs a check, whether the issuer answers or not.
#[tokio::test]
async fn tokens_that_can_not_be_looked_at_count_for_their_address() {
    let app = TestApp::start().await;
    let service = Process::serve(
        &app,
        &["--token-jwks-url", "http://127.0.0.1:1/keys", "--anonymous-requests-per-second", "2"],
    );
    let url = service.url().await;
    // {"alg":"ES256"}.{"sub":"1"}.
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiIxIn0.AAAA";
    let requests =
        (0..MANY).map(|_| app.client().get(format!("{url}/v1/orders")).bearer_auth(token).send());
    assert_some_refused(requests).await;
}

#[tokio::test]
async fn no_route_of_the_staff_counts_for_its_address() {
    let app = TestApp::configured(&["--anonymous-requests-per-second", "2"]).await;
    let coupon = app.create_flash(1).await;
    let admin = app.admin_token();
    for (method, path) in [
        (Method::PATCH, format!("/v1/coupons/{coupon}")),
        (Method::GET, format!("/v1/coupons/{coupon}/progress")),
    ] {
        let requests = (0..MANY).map(|_| {
            let request = app.client().request(method.clone(), format!("{}{path}", app.url));
            request.bearer_auth(&admin).json(&serde_json::json!({"title": "t"})).send()
        });
        for reply in futures_util::future::join_all(requests).await {
            assert_ne!(reply.expect("the service answers").status(), 429, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn only_a_trusted_proxy_is_believed_about_its_clients() {
    let client = |number: usize| format!("203.0.113.1, 198.51.100.{number}");
    let bound = ["--anonymous-requests-per-second", "2"];
    let trusting = [&bound[..], &["--trusted-proxies", "127.0.0.1,::1"]].concat();
    let app = TestApp::configured(&trusting).await;
    let replies = ask(&app, "/v1/coupons", "", client).await;
    assert!(replies.iter().all(|reply| reply.status() == 200), "each is another client");
    // With a port, in brackets and in quotes, as RFC 7239 has them.
    for form in [
        |number: usize| format!("203.0.113.1, 198.51.101.{number}:{}", 4_000 + number),
        |number: usize| format!("[2001:db8:{number:x}::1]:4711"),
        |number: usize| format!("\"[2001:db8:1{number:x}::1]\""),
        |number: usize| format!("\"198.51.102.{number}:80\""),
    ] {
        let replies = ask(&app, "/v1/coupons", "", form).await;
        assert!(replies.iter().all(|reply| reply.status() == 200), "{}", form(1));
    }
    let replies = ask(&app, "/v1/coupons", "", |_| client(1)).await;
    assert_refusals(&app, &replies, "anonymous-requests");

    let app = TestApp::configured(&bound).await;
    let replies = ask(&app, "/v1/coupons", "", client).await;
    assert_refusals(&app, &replies, "anonymous-requests");
}

/// Many GETs at once; "" is no token, and no list of clients.
async fn ask(
    app: &TestApp,
    path: &str,
    token: &str,
    forwarded_for: impl Fn(usize) -> String,
) -> Vec<Response> {
    let requests = (0..MANY).map(|number| {
        let request = app.client().get(app.url.clone() + path);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        match forwarded_for(number) {
            clients if clients.is_empty() => request.send(),
            clients => request.header("x-forwarded-for", clients).send(),
        }
    });
    let replies = futures_util::future::join_all(requests).await;
    replies.into_iter().map(|reply| reply.expect("the service answers")).collect()
}

/// Of many requests at once, with a bound of two, some are told to wait.
async fn assert_some_refused(
    requests: impl Iterator<Item = impl Future<Output = reqwest::Result<Response>>>,
) {
    let replies = futures_util::future::join_all(requests).await;
    let statuses: Vec<StatusCode> =
        replies.into_iter().map(|reply| reply.expect("the service answers").status()).collect();
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS), "none was refused: {statuses:?}");
}

/// Some replies are as without a bound, the others are refusals by it.
fn assert_bounded(app: &TestApp, replies: &[Response], otherwise: StatusCode, bound: &str) {
    assert!(replies.iter().any(|reply| reply.status() == otherwise), "all were refused");
    assert_refusals(app, replies, bound);
}

/// Some replies are refusals by this bound, which allows two a second.
fn assert_refusals(app: &TestApp, replies: &[Response], bound: &str) {
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status() == 429).collect();
    assert!(!refused.is_empty(), "{bound}: none was refused");
    for reply in refused {
        let header = |name: &str| reply.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(header("retry-after"), "1");
        assert_eq!(header("content-type"), "application/problem+json");
    }
    let line = format!("flash_sale_rate_limited_total{{bound=\"{bound}\"}} 0");
    let page = app.app.metrics.page();
    assert!(!page.lines().any(|found| found == line), "not counted: {page}");
}
