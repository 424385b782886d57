//! Each POST, sent twice: the second request gets the answer of the first and changes nothing, in either store.

use serde_json::{Value, json};

use super::answers::Snapshot;
use super::{Cell, OPERATIONS, OWNER, make, notice_of};
use crate::support::{Reply, SECRET, TestApp};

/// Operations that are safe to repeat under a key alone (the header Idempotency-Key).
const WITH_A_KEY: [&str; 4] =
    ["/v1/coupons", "/v1/orders/{id}/redeem", "/v1/reconcile", "/v1/redemptions"];

/// Answers to the second request that are not those to the first.
const OTHER_ANSWERS: [(&str, u16, &str, &str); 5] = [
    // No order is left.
    ("/v1/coupons/{id}/cancel-unpaid", 200, "/orders", "0"),
    // It was given up before, and not by this request.
    ("/v1/coupons/{id}/archive", 200, "/buyers_dropped", "null"),
    // The buyer is told the order.
    ("/v1/coupons/{id}/claims", 409, "/code", "already_claimed"),
    // No letter is left.
    ("/v1/dead-letters/retry", 200, "/orders", "0"),
    ("/v1/dead-letters/discard", 200, "/discarded", "0"),
];

#[tokio::test]
async fn a_post_that_is_sent_twice_takes_effect_once() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let document = app.get("/openapi.json", "").await.body;
    let mut keyed = Vec::new();
    for (statuses, method, path, of) in OPERATIONS.iter().filter(|row| row.1 == "post") {
        let takes_key = document["paths"][path]["post"]["parameters"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["name"] == "Idempotency-Key"));
        keyed.extend(takes_key.then_some(*path));
        let is_owner = statuses[3] < 400;
        let (role, token) = match is_owner {
            true => ("owner", app.token(OWNER)),
            false => ("admin", app.admin_token()),
        };
        let thing = make(&app, *of).await;
        let cell = Cell { app: &app, method, path, role, token: Some(token) };
        let body = cell.body(&thing);
        let id = thing.id.to_string();
        let ask = async || match *path {
            "/v1/payments/callback" => app.confirm(&notice_of(thing.id)).await,
            path => under_a_key(&cell, &path.replace("{id}", &id), takes_key, &body).await,
        };
        let first = ask().await;
        assert!(first.status < 300, "{path}: {first:?}");
        let before = Snapshot::of(&app, &thing).await;
        let second = ask().await;
        let changes = before.changes(&Snapshot::of(&app, &thing).await);
        assert!(changes.is_empty(), "{path}: {changes:#?}");
        match OTHER_ANSWERS.iter().find(|row| row.0 == *path) {
            Some((_, status, pointer, value)) => {
                let told = second.body.pointer(pointer).unwrap_or(&Value::Null);
                let told = told.as_str().map_or_else(|| told.to_string(), str::to_owned);
                assert_eq!((second.status, &*told), (*status, *value), "{path}: {second:?}");
            }
            None => {
                let (first, second) = ((first.status, first.body), (second.status, second.body));
                assert_eq!(second, first, "{path}");
            }
        }
    }
    keyed.sort_unstable();
    assert_eq!(keyed, WITH_A_KEY);
}

/// Without a key, these four are no repeats: each takes effect again, or is refused.
#[tokio::test]
async fn without_a_key_a_second_request_is_another_one() {
    let app = TestApp::start().await;
    for (_, method, path, of) in
        OPERATIONS.iter().filter(|row| row.1 == "post" && WITH_A_KEY.contains(&row.2))
    {
        let thing = make(&app, *of).await;
        let cell = Cell { app: &app, method, path, role: "admin", token: Some(app.admin_token()) };
        let body = cell.body(&thing);
        let first = cell.ask(&thing.id.to_string(), &body).await;
        let second = cell.ask(&thing.id.to_string(), &body).await;
        match second.status {
            409 => assert_eq!(second.text("code"), "already_redeemed", "{path}"),
            _ => assert_ne!(first.body, second.body, "{path}"),
        }
    }
}

async fn under_a_key(cell: &Cell<'_>, path: &str, takes_key: bool, body: &Value) -> Reply {
    let app = cell.app;
    let request = app.client().post(format!("{}{path}", app.url));
    let request = request.bearer_auth(cell.token.as_deref().unwrap_or_default());
    let request = if takes_key { request.header("idempotency-key", "twice") } else { request };
    let request = if body.is_null() { request } else { request.json(&json!(body)) };
    let reply = app.send(request, "POST", path).await;
    match (path, reply.status) {
        ("/v1/reconcile", 202) => app.finished(reply).await,
        _ => reply,
    }
}
