//! Permissions as a table: each operation of `/openapi.json` with the status for each role.
//!
//! A refusal changes nothing in either store, and reveals no more about a thing than its role may know: a missing
//! thing gets the same answer.

mod answers;
mod pages;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::kit::jwt::{Grants, Scope, Tokens};
use flash_sale::store::ids::CouponId;
use flash_sale::store::job::Job;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::http::bad_input::flash;
use crate::support::process::Process;
use crate::support::{Reply, SECRET, TestApp, now, scoped_token};
use answers::{Snapshot, Thing, comparison, in_review, notice_of, request};

/// The user of the things below.
const OWNER: i64 = 1_007;
/// Another user.
const OTHER: i64 = 1_008;
/// Valid as every kind of id, and the id of no thing.
const MISSING: i64 = i64::MAX;

/// Roles, in the order of the columns. `expired` and `forged` are tokens of the owner, as a user and with each scope, past
/// their `exp` or signed with another secret.
const ROLES: [&str; 9] =
    ["no token", "expired", "forged", "owner", "other", "clerk", "operator", "admin", "integrator"];

/// Status for each role, operation, and the thing that its `{id}` names.
///
/// * Coupons and the operations of the process are public, so the answer to any of them may tell whether they exist.
/// * An order exists for its user only: 404 for all others, the staff's own `/v1/orders` included. Operators and
///   administrators read any order by its id.
/// * An operation of the staff is 403 for a user, and for a scope below its own, before any look-up. What an operator may
///   not ask for by a body is in `an_operator_may_not_give_up_what_is_lost`.
/// * A payment gateway proves itself by its signature; a token is no substitute.
const OPERATIONS: &[([u16; 9], &str, &str, Of)] = &[
    ([200, 200, 200, 200, 200, 200, 200, 200, 200], "get", "/livez", Of::Nothing),
    ([200, 200, 200, 200, 200, 200, 200, 200, 200], "get", "/metrics", Of::Nothing),
    ([200, 200, 200, 200, 200, 200, 200, 200, 200], "get", "/readyz", Of::Nothing),
    ([401, 401, 401, 403, 403, 403, 403, 200, 403], "get", "/v1/audit", Of::Nothing),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/board", Of::Nothing),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/board/live", Of::Nothing),
    ([200, 200, 200, 200, 200, 200, 200, 200, 200], "get", "/v1/coupons", Of::Sale),
    ([401, 401, 401, 403, 403, 403, 403, 201, 403], "post", "/v1/coupons", Of::Nothing),
    ([200, 200, 200, 200, 200, 200, 200, 200, 200], "get", "/v1/coupons/{id}", Of::Sale),
    ([401, 401, 401, 403, 403, 403, 403, 200, 403], "patch", "/v1/coupons/{id}", Of::Sale),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "post",
        "/v1/coupons/{id}/archive",
        Of::EndedSale,
    ),
    (
        [401, 401, 401, 403, 403, 403, 403, 200, 403],
        "post",
        "/v1/coupons/{id}/cancel-unpaid",
        Of::ClaimedSale,
    ),
    ([401, 401, 401, 202, 202, 202, 202, 202, 202], "post", "/v1/coupons/{id}/claims", Of::Sale),
    (
        [401, 401, 401, 200, 404, 404, 404, 404, 404],
        "get",
        "/v1/coupons/{id}/claims/me",
        Of::ClaimedSale,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "post", "/v1/coupons/{id}/end", Of::Sale),
    ([200, 200, 200, 200, 200, 200, 200, 200, 200], "get", "/v1/coupons/{id}/live", Of::Sale),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "post", "/v1/coupons/{id}/pause", Of::Sale),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "get",
        "/v1/coupons/{id}/progress",
        Of::ClaimedSale,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "post", "/v1/coupons/{id}/restock", Of::Sale),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "post",
        "/v1/coupons/{id}/resume",
        Of::PausedSale,
    ),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "post",
        "/v1/dead-letters/discard",
        Of::DeadLetter,
    ),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "post",
        "/v1/dead-letters/retry",
        Of::DeadLetter,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/dead-letters/{id}", Of::DeadLetter),
    (
        [401, 401, 401, 403, 403, 403, 204, 204, 403],
        "post",
        "/v1/dead-letters/{id}/discard",
        Of::DeadLetter,
    ),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "post",
        "/v1/dead-letters/{id}/retry",
        Of::DeadLetter,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 200], "get", "/v1/events", Of::Nothing),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/operations", Of::DeadLetter),
    ([401, 401, 401, 200, 200, 200, 200, 200, 200], "get", "/v1/orders", Of::PaidOrder),
    ([401, 401, 401, 403, 403, 403, 200, 200, 200], "get", "/v1/orders.csv", Of::PaidOrder),
    ([401, 401, 401, 403, 403, 403, 200, 200, 200], "get", "/v1/orders.ndjson", Of::PaidOrder),
    ([401, 401, 401, 200, 404, 404, 200, 200, 404], "get", "/v1/orders/{id}", Of::UnpaidOrder),
    (
        [401, 401, 401, 200, 404, 404, 404, 404, 404],
        "post",
        "/v1/orders/{id}/cancel",
        Of::UnpaidOrder,
    ),
    (
        [401, 401, 401, 403, 403, 403, 403, 200, 403],
        "post",
        "/v1/orders/{id}/cancel-for-buyer",
        Of::UnpaidOrder,
    ),
    ([401, 401, 401, 200, 404, 404, 404, 404, 404], "post", "/v1/orders/{id}/pay", Of::UnpaidOrder),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "get",
        "/v1/orders/{id}/payments",
        Of::PaidOrder,
    ),
    ([401, 401, 401, 200, 404, 404, 404, 404, 404], "get", "/v1/orders/{id}/qr", Of::PaidOrder),
    // An id can be guessed: a clerk redeems by the code alone.
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "post",
        "/v1/orders/{id}/redeem",
        Of::PaidOrder,
    ),
    (
        [401, 401, 401, 200, 404, 404, 404, 404, 404],
        "post",
        "/v1/orders/{id}/refund",
        Of::PaidOrder,
    ),
    (
        [401, 401, 401, 200, 404, 404, 200, 200, 404],
        "get",
        "/v1/orders/{id}/trace",
        Of::TracedOrder,
    ),
    (
        [401, 401, 401, 403, 403, 403, 403, 200, 403],
        "post",
        "/v1/orders/{id}/refund-for-buyer",
        Of::PaidOrder,
    ),
    (
        [403, 403, 403, 403, 403, 403, 403, 403, 403],
        "post",
        "/v1/payments/callback",
        Of::UnpaidOrder,
    ),
    (
        [401, 401, 401, 403, 403, 403, 403, 204, 403],
        "post",
        "/v1/payments/{id}/close",
        Of::HeldPayment,
    ),
    (
        [401, 401, 401, 403, 403, 403, 204, 204, 403],
        "post",
        "/v1/payments/{id}/hand-back",
        Of::HeldPayment,
    ),
    (
        [401, 401, 401, 403, 403, 403, 204, 204, 403],
        "post",
        "/v1/postponed/{id}/retry",
        Of::PostponedItem,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "post", "/v1/reconcile", Of::Nothing),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/reconcile/runs", Of::Comparison),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "get",
        "/v1/reconcile/runs/{id}",
        Of::Comparison,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/recoveries", Of::Nothing),
    (
        [401, 401, 401, 403, 403, 403, 403, 204, 403],
        "post",
        "/v1/recoveries/{id}/settle",
        Of::Recovery,
    ),
    ([401, 401, 401, 403, 403, 200, 200, 200, 403], "post", "/v1/redemptions", Of::CodedOrder),
    (
        [401, 401, 401, 403, 403, 200, 200, 200, 403],
        "get",
        "/v1/redemptions/{code}",
        Of::CodedOrder,
    ),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/webhooks", Of::Webhook),
    ([401, 401, 401, 403, 403, 403, 403, 201, 403], "post", "/v1/webhooks", Of::Nothing),
    ([401, 401, 401, 403, 403, 403, 200, 200, 403], "get", "/v1/webhooks/{id}", Of::Webhook),
    ([401, 401, 401, 403, 403, 403, 403, 200, 403], "patch", "/v1/webhooks/{id}", Of::Webhook),
    ([401, 401, 401, 403, 403, 403, 403, 204, 403], "delete", "/v1/webhooks/{id}", Of::Webhook),
    ([401, 401, 401, 403, 403, 403, 403, 200, 403], "post", "/v1/webhooks/{id}/test", Of::Webhook),
    (
        [401, 401, 401, 403, 403, 403, 200, 200, 403],
        "get",
        "/v1/webhooks/{id}/deliveries",
        Of::Webhook,
    ),
];

/// The kind of thing that an operation is tried on. Each row has one of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Nothing,
    /// On sale; the owner has claimed nothing.
    Sale,
    /// A coupon with an unpaid order of the owner.
    ClaimedSale,
    PausedSale,
    /// A coupon with a paid order of the owner.
    EndedSale,
    /// The owner's.
    UnpaidOrder,
    /// The owner's.
    PaidOrder,
    /// The owner's, of a claim that is followed.
    TracedOrder,
    /// The owner's, paid, with the digits of its id as its code.
    CodedOrder,
    /// The owner's promise, in review.
    DeadLetter,
    /// A payment for an order that isn't there.
    HeldPayment,
    PostponedItem,
    Comparison,
    /// A recovery with a claim that could not be kept.
    Recovery,
    /// One that can't be reached.
    Webhook,
}

#[tokio::test]
async fn the_table_has_the_operations_of_the_document() {
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let paths = document["paths"].as_object().expect("a document has paths");
    let methods = |item: &Value| -> Vec<String> {
        let members = item.as_object().expect("an item has members").keys();
        members.filter(|member| *member != "parameters").cloned().collect()
    };
    let mut documented: Vec<(String, String)> = Vec::new();
    for (path, item) in paths {
        documented.extend(methods(item).into_iter().map(|method| (path.clone(), method)));
    }
    documented.sort();
    let mut tabled: Vec<(String, String)> = OPERATIONS
        .iter()
        .map(|(_, method, path, _)| ((*path).to_owned(), (*method).to_owned()))
        .collect();
    tabled.sort();
    assert_eq!(tabled, documented, "left: the table; right: the document");
}

#[tokio::test]
async fn each_role_is_answered_as_the_table_says() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET, "--events"]).await;
    let mut wrong = Vec::new();
    for (statuses, method, path, of) in OPERATIONS {
        let mut thing = make(&app, *of).await;
        // Refusals first: an answer that changes the thing comes after all that must not, and the next one has another.
        let mut columns: Vec<(u16, &str)> = statuses.iter().copied().zip(ROLES).collect();
        columns.sort_by_key(|(status, _)| *status < 400);
        for (status, role) in columns {
            for token in tokens(&app, role) {
                let cell = Cell { app: &app, method, path, role, token };
                let complaints = cell.try_on(&thing, status).await;
                wrong.extend(
                    complaints.into_iter().map(|it| format!("{method} {path}, {role}: {it}")),
                );
            }
            if status < 400 && *method != "get" {
                thing = make(&app, *of).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    // The body that was refused from every role is one that the gateway may send.
    let thing = make(&app, Of::UnpaidOrder).await;
    assert_eq!(app.confirm(&notice_of(thing.id)).await.status, 200);
}

/// With `--admin-listen`, the public listener has no operation of the staff but those of clerks, whatever the token.
#[tokio::test]
async fn operations_of_the_staff_are_on_the_other_listener_alone() {
    let app = TestApp::start().await;
    let service = Process::serve(&app, &["--admin-listen", "127.0.0.1:0"]);
    let public = service.url().await;
    let line = service.logged("administrators, /metrics, /livez and /readyz listen on ").await;
    let (_, private) = line.split_once(" listen on ").expect("the line has a URL");
    let mut walked = 0;
    for (statuses, method, path, _) in OPERATIONS {
        // Those that a user is refused, and those of the process.
        let of_staff = statuses[3] == 403 && statuses[7] < 400;
        if !of_staff && !["/metrics", "/readyz", "/livez"].contains(path) {
            continue;
        }
        walked += 1;
        let of_clerks = of_staff && statuses[5] < 400;
        let path = path.replace("{id}", "7").replace("{code}", "7");
        let code = async |url: &str, token: Option<String>| {
            let url = url.to_owned() + &path;
            let method = method.to_uppercase().parse().expect("a method");
            let request = app.client().request(method, url).json(&json!({}));
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            let reply = request.send().await.expect("it answers");
            let status = reply.status().as_u16();
            // A stream of the board has no end.
            let text = if status < 400 { String::new() } else { reply.text().await.expect("text") };
            let problem: Value = serde_json::from_str(&text).unwrap_or_default();
            (status, problem["code"].as_str().unwrap_or_default().to_owned())
        };
        for role in ROLES {
            for token in tokens(&app, role) {
                let told = code(&public, token).await;
                let is_there = told != (404, "not_found".to_owned());
                assert_eq!(is_there, of_clerks, "{method} {path}, {role}: {told:?}");
            }
        }
        let told = code(private, tokens(&app, "admin").remove(0)).await;
        assert_ne!(told.1, "not_found", "{method} {path}: {told:?}");
        assert_ne!(told.0, 401, "{method} {path}");
    }
    assert!(walked > 30, "{walked} operations");
}

#[tokio::test]
async fn an_operator_may_not_give_up_what_is_lost() {
    let app = TestApp::start().await;
    let thing = make(&app, Of::EndedSale).await;
    let token = scoped_token(OTHER, Scope::Operator);
    let before = Snapshot::of(&app, &thing).await;
    let archive = format!("/v1/coupons/{}/archive", thing.id);
    let reply = request(&app, "post", &archive, Some(&token), &json!({"accept_loss": true})).await;
    assert_eq!(reply.refusal(), (403, "forbidden"));
    assert!(reply.text("detail").contains("`admin`"), "{reply:?}");
    let changes = before.changes(&Snapshot::of(&app, &thing).await);
    assert!(changes.is_empty(), "{changes:#?}");
}

/// One operation, asked for by one role.
struct Cell<'a> {
    app: &'a TestApp,
    method: &'a str,
    path: &'a str,
    role: &'a str,
    token: Option<String>,
}

impl Cell<'_> {
    /// Fault of the answer, if there is one.
    async fn try_on(&self, thing: &Thing, status: u16) -> Vec<String> {
        let mut wrong = Vec::new();
        let before = Snapshot::of(self.app, thing).await;
        let reply = self.ask(&thing.id.to_string(), &self.body(thing)).await;
        let changes = before.changes(&Snapshot::of(self.app, thing).await);
        if reply.status != status {
            wrong.push(format!("expected {status}, got {reply:?}"));
        }
        let may_change = status < 400 && self.method != "get";
        if !may_change && !changes.is_empty() {
            wrong.push(format!("{} has changed {changes:#?}", reply.status));
        }
        if let Some(code) = self.code(reply.status)
            && reply.text("code") != code
        {
            wrong.push(format!("expected {code}, got {reply:?}"));
        }
        if self.is_stranger() && thing.order.is_some_and(|order| names(&reply.body, order)) {
            wrong.push(format!("another user's order is told: {reply:?}"));
        }
        wrong.extend(self.tells_nothing(thing, &reply).await);
        wrong
    }

    /// A refusal of a role is the same whether the thing is there or not. A refusal that depends on the token alone
    /// comes before the rest of the request is read.
    async fn tells_nothing(&self, thing: &Thing, reply: &Reply) -> Option<String> {
        // Coupons are public, so a user without a claim may know whether the coupon is there.
        let by_token = [401, 403].contains(&reply.status);
        let by_thing = reply.status == 404 && !self.path.ends_with("claims/me");
        if !self.path.contains("{id}") || !by_token && !by_thing {
            return None;
        }
        let missing = self.ask(&MISSING.to_string(), &self.body(thing)).await;
        if essence(&missing) != essence(reply) {
            return Some(format!("a missing thing is told apart: {reply:?}, {missing:?}"));
        }
        let mistaken = self.ask("x", &json!("no such body")).await;
        (by_token && essence(&mistaken) != essence(reply))
            .then(|| format!("mistakes are told before {reply:?}: {mistaken:?}"))
    }

    async fn ask(&self, id: &str, body: &Value) -> Reply {
        let path = self.path.replace("{id}", id).replace("{code}", id);
        request(self.app, self.method, &path, self.token.as_deref(), body).await
    }

    fn body(&self, thing: &Thing) -> Value {
        match (self.method, self.path.rsplit('/').next().unwrap_or_default()) {
            ("post", "coupons") => flash(),
            ("post", "webhooks") => json!({"url": "https://example.com/"}),
            ("patch", _) if self.path.contains("webhooks") => json!({"state": "paused"}),
            ("patch", _) => json!({"title": "another title"}),
            ("post", "archive") => json!({"accept_loss": self.role != "operator"}),
            ("post", "retry") if self.path == "/v1/dead-letters/retry" => json!({}),
            ("post", "discard") if self.path == "/v1/dead-letters/discard" => {
                json!({"reason": "oversold"})
            }
            ("post", "cancel-unpaid") => json!({"reason": "wrong price"}),
            ("post", "cancel-for-buyer" | "refund-for-buyer") => json!({"reason": "asked to"}),
            ("post", "settle") => json!({"note": "told"}),
            ("post", "redemptions") => json!({"code": thing.id.to_string()}),
            ("post", "restock") => json!({"units": 1, "key": "k"}),
            ("post", "pay") => json!({"method": "balance"}),
            ("post", "close") => json!({"note": "sent by hand"}),
            ("post", "callback") => notice_of(thing.id),
            _ => Value::Null,
        }
    }

    /// Whether the role must not know the thing: neither its owner, nor one of the staff with business there.
    fn is_stranger(&self) -> bool {
        let is_staff = ["clerk", "operator", "admin"].contains(&self.role);
        let exports = self.role == "integrator" && self.path.starts_with("/v1/orders.");
        self.role != "owner" && !exports && (!is_staff || self.path == "/v1/orders")
    }

    fn code(&self, status: u16) -> Option<&'static str> {
        match status {
            401 => Some("invalid_token"),
            403 if self.path.ends_with("callback") => Some("invalid_signature"),
            403 => Some("forbidden"),
            404 if self.path.ends_with("claims/me") => Some("not_claimed"),
            404 if self.path.ends_with("trace") => Some("not_traced"),
            404 => Some("order_not_found"),
            _ => None,
        }
    }
}

/// A reply without the parts that differ from request to request.
fn essence(reply: &Reply) -> (u16, Value) {
    let mut body = reply.body.clone();
    body["request_id"] = Value::Null;
    (reply.status, body)
}

fn names(body: &Value, order: i64) -> bool {
    body.to_string().contains(&order.to_string())
}

/// The tokens of a role; `None` for no token.
fn tokens(app: &TestApp, role: &str) -> Vec<Option<String>> {
    let in_an_hour = now() + TimeDelta::hours(1);
    match role {
        "no token" => vec![None],
        "expired" => of_each_scope(SECRET, now() - TimeDelta::minutes(1)),
        "forged" => of_each_scope("another secret that is only good for tests", in_an_hour),
        "owner" => vec![Some(app.token(OWNER))],
        "other" => vec![Some(app.token(OTHER))],
        "clerk" => vec![Some(scoped_token(OTHER, Scope::Clerk))],
        "operator" => vec![Some(scoped_token(OTHER, Scope::Operator))],
        "integrator" => vec![Some(scoped_token(OTHER, Scope::Integrator))],
        "admin" => vec![Some(app.admin_token())],
        role => panic!("no role {role}"),
    }
}

/// Tokens of the owner: as a user, and with each scope.
fn of_each_scope(secret: &str, expires_at: DateTime<Utc>) -> Vec<Option<String>> {
    let tokens = Tokens::new(&SecretString::from(secret));
    let scopes = [None].into_iter().chain(Scope::ALL.map(Some));
    let grants = scopes.map(|scope| Grants { subject: OWNER, scope });
    grants.map(|grants| Some(tokens.issue(grants, expires_at))).collect()
}

async fn make(app: &TestApp, of: Of) -> Thing {
    match of {
        Of::Nothing => Thing { id: MISSING, coupon: None, order: None },
        Of::HeldPayment => {
            let held = app
                .confirm(&notice_of(app.number("SELECT count(*) FROM payments").await + 1))
                .await;
            assert_eq!(held.text("outcome"), "held");
            let id = app.number("SELECT max(id) FROM payments").await;
            Thing { id, coupon: None, order: None }
        }
        Of::PostponedItem => {
            let noted = app.app.postponed.note(Job::Archive, &[MISSING], "an error").await;
            noted.expect("Postgres answers");
            let id = app.number("SELECT max(id) FROM postponed").await;
            Thing { id, coupon: None, order: None }
        }
        Of::Comparison => comparison(app).await,
        Of::Recovery => {
            let insert = "INSERT INTO recoveries (lane, epoch, reason, closed_at, lost)
                          VALUES (0, 1, 'an older file', now(), '[{\"coupon_id\": \"1\", \"user_id\": \"1\",
                          \"order_id\": \"1\", \"reason\": \"superseded\"}]') RETURNING id";
            Thing { id: app.number(insert).await, coupon: None, order: None }
        }
        Of::Webhook => {
            let insert = "INSERT INTO webhooks (url, types, secret)
                          VALUES ('https://localhost:1/', '{}', 'whsec_') RETURNING id";
            Thing { id: app.number(insert).await, coupon: None, order: None }
        }
        of => of_a_sale(app, of, app.create_flash(5).await).await,
    }
}

async fn of_a_sale(app: &TestApp, of: Of, coupon: CouponId) -> Thing {
    let order = match of {
        Of::UnpaidOrder | Of::ClaimedSale => Some(app.order(OWNER, coupon).await),
        Of::PaidOrder | Of::CodedOrder | Of::EndedSale => Some(app.paid_order(OWNER, coupon).await),
        Of::DeadLetter => Some(in_review(app, OWNER, coupon).await),
        Of::TracedOrder => {
            let order = app.claim_traced(OWNER, coupon, "1").await.order_id();
            app.write_orders().await;
            Some(order)
        }
        _ => None,
    };
    match of {
        Of::PausedSale => assert_eq!(app.r#move(coupon, "pause").await.status, 200),
        Of::EndedSale => assert_eq!(app.r#move(coupon, "end").await.status, 200),
        Of::CodedOrder => {
            let order = order.expect("it is paid");
            app.execute(&format!(
                "UPDATE redemptions SET code = '{order}' WHERE order_id = {order}"
            ))
            .await;
        }
        _ => {}
    }
    let id = match (of, order) {
        (Of::DeadLetter, _) => app.number("SELECT max(id) FROM dead_letters").await,
        (Of::UnpaidOrder | Of::PaidOrder | Of::CodedOrder | Of::TracedOrder, Some(order)) => order,
        _ => coupon.get(),
    };
    Thing { id, coupon: Some(coupon), order }
}
