//! Browsers: pages of other origins, headers that keep a page from harm, and what is on which listener.

use reqwest::{Method, Response};

use crate::support::TestApp;
use crate::support::process::{Process, flash_sale};

const SHOP: &str = "https://shop.example";

#[tokio::test]
async fn pages_of_listed_origins_may_use_the_api_and_no_others() {
    for (settings, origin, allowed) in [
        (&["--cors-origins", "https://shop.example,https://other.example"][..], SHOP, Some(SHOP)),
        (&["--cors-origins", "https://other.example"], SHOP, None),
        (&["--cors-origins", SHOP], "https://shop.example.evil", None),
        (&["--cors-origins", SHOP], "null", None),
        (&["--cors-origins", "*"], SHOP, Some("*")),
        (&[], SHOP, None),
    ] {
        let app = TestApp::configured(settings).await;
        // Also a refusal has to be readable for the page.
        for (path, status) in [("/v1/coupons", 200), ("/v1/orders", 401)] {
            let reply = of_page(&app, Method::GET, path, origin).await;
            assert_eq!(reply.status(), status);
            assert_eq!(header(&reply, "access-control-allow-origin"), allowed, "{settings:?}");
            let exposed = header(&reply, "access-control-expose-headers");
            assert_eq!(exposed, Some("*").filter(|_| !settings.is_empty()), "{settings:?}");
            // A cache must not give the reply for one origin to another one.
            let varies = header(&reply, "vary").is_some_and(|names| names.contains("origin"));
            assert_eq!(varies, !settings.is_empty() && allowed != Some("*"), "{settings:?}");
            assert_eq!(header(&reply, "access-control-allow-credentials"), None);
        }
    }
}

#[tokio::test]
async fn a_browser_that_asks_first_is_told() {
    let app = TestApp::configured(&["--cors-origins", SHOP]).await;
    let claims = format!("/v1/coupons/{}/claims", app.create_flash(1).await);
    let reply = of_page(&app, Method::OPTIONS, &claims, SHOP).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(header(&reply, "access-control-allow-origin"), Some(SHOP));
    assert_eq!(header(&reply, "access-control-allow-methods"), Some("GET,POST,PATCH,DELETE"));
    assert!(header(&reply, "access-control-allow-headers").unwrap().contains("authorization"));
    let reply = of_page(&app, Method::OPTIONS, &claims, "https://evil.example").await;
    assert_eq!(header(&reply, "access-control-allow-origin"), None);
    // Without origins, the question is a request like others.
    let app = TestApp::start().await;
    assert_eq!(of_page(&app, Method::OPTIONS, "/v1/coupons", SHOP).await.status(), 405);
}

#[tokio::test]
async fn every_reply_keeps_browsers_from_harm() {
    let app = TestApp::start().await;
    for (path, token, private) in [
        ("/v1/coupons", "", false),
        ("/v1/orders", &*app.token(1), true),
        ("/v1/orders", "", false),
        ("/v1/operations", &*app.admin_token(), true),
        ("/nowhere", "", false),
        ("/livez", "", false),
        ("/openapi.json", "", false),
        ("/docs", "", false),
        ("/docs/problems", "", false),
    ] {
        let request = app.client().get(app.url.clone() + path);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        let reply = request.send().await.expect("the service answers");
        assert_eq!(header(&reply, "x-content-type-options"), Some("nosniff"), "{path}");
        let policy = header(&reply, "content-security-policy").expect("a policy");
        for part in ["default-src 'none'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(policy.contains("script-src 'self'"), path.starts_with("/docs"), "{path}");
        let kept = header(&reply, "cache-control") != Some("no-store");
        assert_eq!(kept, !private, "{path}");
    }
}

#[tokio::test]
async fn administrators_may_be_answered_on_a_listener_of_their_own() {
    let app = TestApp::start().await;
    let service = Process::serve(&app, &["--admin-listen", "127.0.0.1:0"]);
    let public = service.url().await;
    let line =
        service.logged("administrators, /metrics, /livez and /readyz listen on http://").await;
    let (_, address) = line.split_once("http://").expect("the line has a URL");
    let private = format!("http://{address}");
    for path in ["/v1/operations", "/v1/recoveries", "/v1/reconcile/runs"] {
        let get = async |url: &str| {
            let request = app.client().get(url.to_owned() + path).bearer_auth(app.admin_token());
            request.send().await.expect("the service answers").status().as_u16()
        };
        assert_eq!((get(&public).await, get(&private).await), (404, 200), "{path}");
    }
    // The users' part, and probes.
    for (url, path, status) in [
        (&public, "/v1/coupons", 200),
        (&public, "/metrics", 404),
        (&private, "/v1/coupons", 200),
        (&private, "/metrics", 200),
        (&private, "/readyz", 200),
    ] {
        let reply = app.client().get(url.to_owned() + path).send().await.expect("a reply");
        assert_eq!(reply.status(), status, "{url}{path}");
    }
}

#[tokio::test]
async fn a_service_with_one_listener_says_what_is_public() {
    let app = TestApp::start().await;
    let service = Process::serve(&app, &[]);
    let line = service.logged("are answered where the API is").await;
    assert!(line.contains("on this machine alone") && line.contains("--admin-listen"), "{line}");
    let mut command = flash_sale(&["serve", "--listen", "0.0.0.0:0"]);
    command.args(app.store_arguments());
    let open = Process::spawn(command);
    let line = open.logged("are answered where the API is").await;
    assert!(line.contains("WARN") && line.contains("for all who can reach it"), "{line}");
}

/// A request as a browser makes it for a page of this origin.
async fn of_page(app: &TestApp, method: Method, path: &str, origin: &str) -> Response {
    let request = app.client().request(method.clone(), app.url.clone() + path);
    let request = request.header("origin", origin);
    let request = match method {
        Method::OPTIONS => request
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,x-trace"),
        _ => request,
    };
    request.send().await.expect("the service answers")
}

fn header<'a>(reply: &'a Response, name: &str) -> Option<&'a str> {
    reply.headers().get(name).map(|value| value.to_str().expect("text"))
}
