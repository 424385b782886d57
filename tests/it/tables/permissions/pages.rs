//! Routes that are not in `/openapi.json`, with the status for each role: pages, their files, and parts of a demo.

use std::collections::BTreeSet;

use flash_sale::http::pages;
use serde_json::{Value, json};

use super::answers::{Snapshot, Thing};
use super::{MISSING, ROLES, tokens};
use crate::support::{CODE, Reply, TestApp, http_state};

/// Status for each role, in the order of [`ROLES`], and the code of refusals that don't depend on the token.
///
/// * Pages and their files are public: they hold nothing, and all that they show comes from the API.
/// * A session is had for the code of the printed link. A token, of an administrator even, is no substitute.
/// * Storms are an administrator's. These requests get as far as the plan, which isn't one, or the storm, which isn't
///   there, so no answer changes anything.
const ROUTES: &[([u16; 8], &str, &str, &str)] = &[
    ([200; 8], "get", "/", ""),
    ([200; 8], "get", "/assets/{version}/{*name}", ""),
    ([200; 8], "get", "/board", ""),
    ([200; 8], "get", "/claim/{order}", ""),
    ([403; 8], "post", "/demo/sessions", "invalid_code"),
    ([200; 8], "post", "/demo/shoppers", ""),
    ([401, 401, 401, 403, 403, 403, 403, 422], "post", "/demo/storms", "invalid_body"),
    ([401, 401, 401, 403, 403, 403, 403, 404], "delete", "/demo/storms/current", "no_storm"),
    ([401, 401, 401, 403, 403, 403, 403, 200], "get", "/demo/storms/current", ""),
    ([401, 401, 401, 403, 403, 403, 403, 404], "post", "/demo/storms/current/troubles", "no_storm"),
    ([401, 401, 401, 403, 403, 403, 403, 200], "get", "/demo/storms/last", ""),
    ([200; 8], "get", "/pages", ""),
    ([200; 8], "get", "/redeem", ""),
    ([200; 8], "get", "/sale/{coupon}", ""),
    ([200; 8], "get", "/storm", ""),
    // Of the API, with and without pages.
    ([200; 8], "get", "/docs", ""),
    ([200; 8], "get", "/docs/", ""),
    ([200; 8], "get", "/docs/problems", ""),
    ([200; 8], "get", "/openapi.json", ""),
];

/// axum tells the paths of a router in its words for debugging alone, and the methods of a path with the refusal of
/// another one.
#[tokio::test]
async fn the_table_has_the_routes_of_the_pages_with_their_methods() {
    let app = TestApp::demo().await;
    let routes = format!("{:?}", pages::routes(&http_state(app.app.clone(), &app.config)));
    let (routes, _) = routes.split_once("fallback_router").expect("the words name its parts");
    let quoted = routes.split('"').skip(1).step_by(2);
    let served: BTreeSet<&str> = quoted.filter(|text| text.starts_with('/')).collect();
    let tabled: BTreeSet<&str> = ROUTES.iter().map(|row| row.2).collect();
    let mut of_pages = tabled.clone();
    of_pages.remove("/openapi.json");
    assert_eq!(of_pages, served, "left: the table; right: the router");
    for path in tabled {
        let refused = ask(&app, "patch", path, None).await;
        assert_eq!(refused.refusal(), (405, "method_not_allowed"), "{path}");
        let allowed: BTreeSet<&str> = refused.header("allow").split(',').map(str::trim).collect();
        let rows = ROUTES.iter().filter(|row| row.2 == path);
        let methods: BTreeSet<String> = rows.map(|row| row.1.to_uppercase()).collect();
        let mut methods: BTreeSet<&str> = methods.iter().map(String::as_str).collect();
        methods.extend(methods.contains("GET").then_some("HEAD"));
        assert_eq!(methods, allowed, "{path}; left: the table; right: the service");
    }
}

#[tokio::test]
async fn each_role_is_answered_by_the_pages_as_the_table_says() {
    let app = TestApp::demo().await;
    let nothing = Thing { id: MISSING, coupon: None, order: None };
    let before = Snapshot::of(&app, &nothing).await;
    let mut wrong = Vec::new();
    for (statuses, method, path, of_request) in ROUTES {
        for (status, role) in statuses.iter().zip(ROLES) {
            for token in tokens(&app, role) {
                let reply = ask(&app, method, path, token.as_deref()).await;
                let code = match status {
                    401 => "invalid_token",
                    403 if of_request.is_empty() || path.starts_with("/demo/storms") => "forbidden",
                    _ => of_request,
                };
                let told = reply.body["code"].as_str().unwrap_or_default();
                if (reply.status, told) != (*status, code) {
                    wrong.push(format!("{method} {path}, {role}: {status} {code}, got {reply:?}"));
                }
                if *path == "/demo/shoppers" {
                    let token = reply.text("token");
                    let refused = app.get("/v1/board", token).await;
                    assert_eq!(refused.refusal(), (403, "forbidden"), "a shopper's, for {role}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    let changes = before.changes(&Snapshot::of(&app, &nothing).await);
    assert!(changes.is_empty(), "{changes:#?}");
    let last = ask(&app, "get", "/demo/storms/last", Some(&app.admin_token())).await;
    assert_eq!(last.body, Value::Null, "a storm has begun");
    // The code that opens a session was not used up by those that named another one.
    let code = json!({"code": CODE});
    let session = app.client().post(format!("{}/demo/sessions", app.url)).json(&code);
    assert_eq!(app.send(session, "POST", "/demo/sessions").await.status, 200);
}

/// A request by this method, with a body where the route takes one.
async fn ask(app: &TestApp, method: &str, path: &str, token: Option<&str>) -> Reply {
    let (method, url) = (method.to_uppercase(), path.replace("{version}/{*name}", "v/js/desk.js"));
    let url = url.replace("{coupon}", "7").replace("{order}", "7").replace("{code}", "forbidden");
    let request = app.client().request(method.parse().expect("a method"), app.url.clone() + &url);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let request = match path {
        "/demo/sessions" => request.json(&json!({"code": "another"})),
        "/demo/storms" => request.json(&json!({"shoppers": "no number"})),
        "/demo/storms/current/troubles" => request.json(&json!({"trouble": "kill_worker"})),
        _ => request,
    };
    app.send(request, &method, &url).await
}
