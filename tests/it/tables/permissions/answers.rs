//! Tables of answers by state: reading, comparing, and the check that a refusal leaves both stores as they were.

use std::collections::{BTreeMap, BTreeSet};

use flash_sale::kit::jwt::Scope;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};

use super::{OTHER, OWNER};
use crate::support::{Reply, TestApp, lane, scoped_token};

/// An action, its answers, and behind each answer the states in which it is given, with blanks between.
///
/// An answer is the HTTP status; then the problem's code, or the status of the order or coupon in the body, and the reason
/// if there is one; then `, unchanged` if a success leaves both stores as they were. A refusal always does.
pub type Row = (&'static str, &'static [(&'static str, &'static str)]);

/// The request of an action: its method, its path as `/openapi.json` names it, and its body.
pub type Call = (&'static str, String, Value);

/// A thing on which an action is tried.
#[derive(Clone, Copy, Debug)]
pub struct Thing {
    /// The id in the path.
    pub id: i64,
    /// The coupon whose keys are watched.
    pub coupon: Option<CouponId>,
    /// The order that only its user may see.
    pub order: Option<i64>,
}

/// Tries each action in each state, and fails with all cells that differ from the table. A changed thing is made
/// anew.
pub async fn compare(
    app: &TestApp,
    states: &[&str],
    table: &[Row],
    bring_to: impl AsyncFn(&str) -> Thing,
    act: impl AsyncFn(Thing, &str) -> Reply,
) {
    assert_complete(states, table);
    let mut wrong = Vec::new();
    for state in states {
        let mut thing = bring_to(state).await;
        let mut before = Snapshot::of(app, &thing).await;
        for (action, answers) in table {
            let reply = act(thing, action).await;
            let changes = before.changes(&Snapshot::of(app, &thing).await);
            let expected = expected(answers, state);
            let got = answer(&reply, &changes);
            if got != expected {
                wrong.push(format!("{action}, {state}: expected {expected}, got {got}\n{reply:?}"));
            }
            if !changes.is_empty() {
                thing = bring_to(state).await;
                before = Snapshot::of(app, &thing).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn expected(answers: &[(&'static str, &str)], state: &str) -> &'static str {
    let found = answers.iter().find(|(_, states)| states.split(' ').any(|one| one == state));
    found.expect("the table is complete").0
}

/// Each action names each state once, and no other.
fn assert_complete(states: &[&str], table: &[Row]) {
    for (action, answers) in table {
        let mut named: Vec<&str> =
            answers.iter().flat_map(|(_, states)| states.split(' ')).collect();
        let mut states = states.to_vec();
        named.sort_unstable();
        states.sort_unstable();
        assert_eq!(named, states, "{action}");
    }
}

fn answer(reply: &Reply, changes: &BTreeSet<String>) -> String {
    let is_refusal = reply.status >= 400;
    let words = match is_refusal {
        true => reply.body["code"].as_str(),
        false => ["status", "state", "outcome"].iter().find_map(|name| reply.body[name].as_str()),
    };
    let words = [words, reply.body["reason"].as_str()].into_iter().flatten();
    let words: String = words.map(|word| format!(" {word}")).collect();
    match (is_refusal, changes.is_empty()) {
        (true, false) => format!("{}{words}, and these have changed: {changes:#?}", reply.status),
        (false, true) => format!("{}{words}, unchanged", reply.status),
        _ => format!("{}{words}", reply.status),
    }
}

/// All rows in Postgres, and the keys of one sale and its lane in Redis, without the times of the last write.
pub struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Rows of all tables, and keys of the thing's sale.
    pub async fn of(app: &TestApp, thing: &Thing) -> Self {
        let mut all: BTreeSet<String> = rows(app).await.into_iter().collect();
        if let Some(coupon) = thing.coupon {
            let sale: BTreeMap<String, String> =
                app.redis(&["HGETALL", &app.keys().coupon(coupon)]).await;
            all.extend(sale.into_iter().map(|(name, value)| format!("in Redis: {name} = {value}")));
            let buyers = app.buyers(coupon).await.into_iter();
            all.extend(buyers.map(|(user, order)| format!("in Redis: user {user} = {order}")));
        }
        let entries: i64 = app.redis(&["XLEN", &app.log(lane())]).await;
        all.insert(format!("in Redis: {entries} entries"));
        Self(all)
    }

    /// Lines of only one of the two.
    pub fn changes(&self, after: &Self) -> BTreeSet<String> {
        self.0.symmetric_difference(&after.0).cloned().collect()
    }
}

/// The rows of all tables, each behind the name of its table.
async fn rows(app: &TestApp) -> Vec<String> {
    let queries = "SELECT format('SELECT %L || (to_jsonb(line) - ''updated_at'')::text FROM %I AS line',
                                 relname || ' ', relname)
                   FROM pg_class
                   WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition";
    app.texts(&app.texts(queries).await.join(" UNION ALL ")).await
}

/// The verb of an action, and the role that asks for it.
pub fn verb_and_role<'a>(action: &'a str, by_default: &'a str) -> (&'a str, &'a str) {
    action.split_once(", by ").unwrap_or((action, by_default))
}

/// The token of a role.
pub fn token_of(app: &TestApp, role: &str) -> Option<String> {
    match role {
        "the owner" | "a user" => Some(app.token(OWNER)),
        "another user" => Some(app.token(OTHER)),
        "a clerk" => Some(scoped_token(OTHER, Scope::Clerk)),
        "an operator" => Some(scoped_token(OTHER, Scope::Operator)),
        "an administrator" => Some(app.admin_token()),
        "a caller without token" => None,
        role => panic!("no role {role}"),
    }
}

/// Asks for an action on a thing: its coupon, where the path is that of a coupon.
pub async fn ask(
    app: &TestApp,
    thing: &Thing,
    (method, path, body): Call,
    token: Option<&str>,
) -> Reply {
    let id = match path.starts_with("/v1/coupons/") {
        true => thing.coupon.expect("the path is that of a coupon").get(),
        false => thing.id,
    };
    request(app, method, &path.replace("{id}", &id.to_string()), token, &body).await
}

/// One request. The body `null` means none.
pub async fn request(
    app: &TestApp,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> Reply {
    let method = method.to_uppercase();
    let request = app.client().request(method.parse().expect("a method"), app.url.clone() + path);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let request = if body.is_null() { request } else { request.json(body) };
    let reply = app.send(request, &method, path).await;
    match (path, reply.status) {
        ("/v1/reconcile", 202) => app.finished(reply).await,
        _ => reply,
    }
}

/// A gateway's notice of a payment for this order; each payment has an id of its own.
pub fn notice_of(order: i64) -> Value {
    let order_id = order.to_string();
    let payment_id = format!("payment-of-{order}");
    json!({"kind": "payment", "payment_id": payment_id, "order_id": order_id, "method": 3, "amount_cents": 1})
}

/// A promise of a unit that Postgres doesn't have at that moment: an open dead letter. Returns the order id that the
/// claim was told.
pub async fn in_review(app: &TestApp, user: i64, coupon: CouponId) -> i64 {
    let sale = format!("WHERE coupon_id = {coupon}");
    let sold = app.sold(coupon).await;
    app.execute(&format!("UPDATE flash_sales SET sold = total {sale}")).await;
    let order = app.claim(user, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = {sold} {sale}")).await;
    order
}

/// The record of a new comparison.
pub async fn comparison(app: &TestApp) -> Thing {
    let run = app.compare(false).await;
    Thing { id: run.text("run_id").parse().expect("an id"), coupon: None, order: None }
}

/// Puts "listed" or "not listed" in the place of the status.
pub fn listed(mut list: Reply, name: &str, id: i64) -> Reply {
    if list.status == 200 {
        let id = Value::from(id.to_string());
        let things = list.body[name].as_array().expect("a list").iter();
        let names = ["id", "run_id", "job_id"];
        let is_there = things.flat_map(|thing| names.map(|name| &thing[name])).any(|it| *it == id);
        let status = if is_there { "listed" } else { "not listed" };
        list.body = json!({ "status": status });
    }
    list
}
