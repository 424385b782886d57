//! Things of operators by state: dead letters, postponed items, comparisons.

use flash_sale::sale::pass::Pass;
use serde_json::{Value, json};

use super::answers::{Row, Thing, compare, comparison, in_review, listed, request};
use super::{MISSING, OTHER, OWNER};
use crate::support::{Reply, TestApp, lane};

/// The first three are open: `promised` names an order that isn't there, `taken` the order of another user,
/// `unreadable` none. `discarded` was promised before.
const LETTERS: &[&str] = &["promised", "taken", "unreadable", "discarded", "none"];

const OF_LETTERS: &[Row] = &[
    (
        "list",
        &[
            ("200 listed, unchanged", "promised taken unreadable"),
            ("200 not listed, unchanged", "discarded none"),
        ],
    ),
    (
        "list of closed ones",
        &[
            ("200 listed, unchanged", "discarded"),
            ("200 not listed, unchanged", "promised taken unreadable none"),
        ],
    ),
    (
        "show",
        &[
            ("200 oversold, unchanged", "promised discarded"),
            ("200 conflict, unchanged", "taken"),
            ("200 undecodable, unchanged", "unreadable"),
            ("404 dead_letter_not_found", "none"),
        ],
    ),
    ("show, by a user", &[("403 forbidden", "promised taken unreadable discarded none")]),
    (
        "show, by a caller without token",
        &[("401 invalid_token", "promised taken unreadable discarded none")],
    ),
    (
        "discard",
        &[
            ("204", "promised unreadable"),
            ("204, unchanged", "discarded"),
            ("409 order_id_taken", "taken"),
            ("404 dead_letter_not_found", "none"),
        ],
    ),
    (
        "retry",
        &[
            ("200", "promised"),
            ("409 letter_unreadable", "unreadable"),
            ("409 order_id_taken", "taken"),
            ("409 dead_letter_closed", "discarded"),
            ("404 dead_letter_not_found", "none"),
        ],
    ),
    ("retry, by a user", &[("403 forbidden", "promised taken unreadable discarded none")]),
    (
        "retry, by a caller without token",
        &[("401 invalid_token", "promised taken unreadable discarded none")],
    ),
    ("list, by a user", &[("403 forbidden", "promised taken unreadable discarded none")]),
    ("discard, by a user", &[("403 forbidden", "promised taken unreadable discarded none")]),
    (
        "list, by a caller without token",
        &[("401 invalid_token", "promised taken unreadable discarded none")],
    ),
    (
        "discard, by a caller without token",
        &[("401 invalid_token", "promised taken unreadable discarded none")],
    ),
];

/// `waiting` is left alone by its pass for an hour, `due` is tried by its next run.
const ITEMS: &[&str] = &["waiting", "due", "none"];

const OF_ITEMS: &[Row] = &[
    ("list", &[("200 listed, unchanged", "waiting due"), ("200 not listed, unchanged", "none")]),
    (
        "list of its pass",
        &[("200 listed, unchanged", "waiting due"), ("200 not listed, unchanged", "none")],
    ),
    ("list of another pass", &[("200 not listed, unchanged", "waiting due none")]),
    (
        "retry",
        &[("204", "waiting"), ("204, unchanged", "due"), ("404 postponed_not_found", "none")],
    ),
    ("list, by a user", &[("403 forbidden", "waiting due none")]),
    ("retry, by a user", &[("403 forbidden", "waiting due none")]),
    ("list, by a caller without token", &[("401 invalid_token", "waiting due none")]),
    ("retry, by a caller without token", &[("401 invalid_token", "waiting due none")]),
];

/// `unfinished` runs, or its process has died; `failed` met a store that didn't answer.
const RUNS: &[&str] = &["finished", "unfinished", "failed", "none"];

const OF_RUNS: &[Row] = &[
    (
        "list",
        &[
            ("200 listed, unchanged", "finished unfinished failed"),
            ("200 not listed, unchanged", "none"),
        ],
    ),
    ("show", &[("200, unchanged", "finished unfinished failed"), ("404 run_not_found", "none")]),
    // Another comparison is no obstacle.
    ("compare", &[("200", "finished unfinished failed none")]),
    ("list, by a user", &[("403 forbidden", "finished unfinished failed none")]),
    ("show, by a user", &[("403 forbidden", "finished unfinished failed none")]),
    ("compare, by a user", &[("403 forbidden", "finished unfinished failed none")]),
    (
        "list, by a caller without token",
        &[("401 invalid_token", "finished unfinished failed none")],
    ),
    (
        "show, by a caller without token",
        &[("401 invalid_token", "finished unfinished failed none")],
    ),
    (
        "compare, by a caller without token",
        &[("401 invalid_token", "finished unfinished failed none")],
    ),
];

#[tokio::test]
async fn each_action_on_a_dead_letter_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| letter(&app, state).await;
    let act = async |thing, action: &str| act(&app, "dead-letters", thing, action).await;
    compare(&app, LETTERS, OF_LETTERS, bring_to, act).await;
    // The entry with a taken order id is one entry more than there were claims.
    app.expect_disagreements();
}

#[tokio::test]
async fn each_action_on_a_postponed_item_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| item(&app, state).await;
    let act = async |thing, action: &str| act(&app, "postponed", thing, action).await;
    compare(&app, ITEMS, OF_ITEMS, bring_to, act).await;
}

#[tokio::test]
async fn each_action_on_a_comparison_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| run(&app, state).await;
    let act = async |thing, action: &str| act(&app, "reconcile/runs", thing, action).await;
    compare(&app, RUNS, OF_RUNS, bring_to, act).await;
}

async fn letter(app: &TestApp, state: &str) -> Thing {
    if state == "none" {
        return Thing { id: MISSING, coupon: None, order: None };
    }
    let coupon = app.create_flash(3).await;
    match state {
        "promised" | "discarded" => drop(in_review(app, OWNER, coupon).await),
        "taken" => {
            let order = app.order(OTHER, coupon).await.to_string();
            let coupon = coupon.to_string();
            let user = OWNER.to_string();
            app.append(lane(), &["coupon", &coupon, "user", &user, "order", &order]).await;
            assert_eq!(app.write_orders().await.dead_letters, 1);
        }
        _ => {
            app.append(lane(), &["coupon", "none"]).await;
            assert_eq!(app.write_orders().await.dead_letters, 1);
        }
    }
    let id = app.number("SELECT max(id) FROM dead_letters").await;
    let letter = Thing { id, coupon: Some(coupon), order: None };
    if state == "discarded" {
        assert_eq!(act(app, "dead-letters", letter, "discard").await.status, 204);
    }
    letter
}

async fn item(app: &TestApp, state: &str) -> Thing {
    if state == "none" {
        return Thing { id: MISSING, coupon: None, order: None };
    }
    let coupon = app.create_flash(1).await;
    let noted = app.app.postponed.note(Pass::Archive, &[coupon.get()], "an error").await;
    noted.expect("Postgres answers");
    let due_in = if state == "due" { "-1 second" } else { "1 hour" };
    let due = format!("UPDATE postponed SET next_try_at = now() + interval '{due_in}'");
    app.execute(&format!("{due} WHERE item = {coupon}")).await;
    let id = app.number(&format!("SELECT id FROM postponed WHERE item = {coupon}")).await;
    Thing { id, coupon: Some(coupon), order: None }
}

async fn run(app: &TestApp, state: &str) -> Thing {
    let insert = "INSERT INTO reconcile_runs (asked_by, finished_at, failure) VALUES";
    let id = match state {
        "none" => MISSING,
        "unfinished" => app.number(&format!("{insert} ('api', NULL, NULL) RETURNING id")).await,
        "failed" => app.number(&format!("{insert} ('api', now(), 'away') RETURNING id")).await,
        _ => return comparison(app).await,
    };
    Thing { id, coupon: None, order: None }
}

async fn act(app: &TestApp, things: &str, thing: Thing, action: &str) -> Reply {
    let (verb, by) = action.split_once(", by ").unwrap_or((action, "an administrator"));
    let token = match by {
        "an administrator" => Some(app.admin_token()),
        "a user" => Some(app.token(OWNER)),
        _ => None,
    };
    let list = format!("/v1/{things}?limit=100");
    let (method, path, body) = match verb {
        "list" => ("get", list, Value::Null),
        "list of closed ones" => ("get", list + "&state=closed", Value::Null),
        "list of its pass" => ("get", list + "&pass=archive", Value::Null),
        "list of another pass" => ("get", list + "&pass=expiry", Value::Null),
        "show" => ("get", format!("/v1/{things}/{}", thing.id), Value::Null),
        "compare" => ("post", "/v1/reconcile".to_owned(), json!({"repair": false})),
        verb => ("post", format!("/v1/{things}/{}/{verb}", thing.id), Value::Null),
    };
    let reply = request(app, method, &path, token.as_deref(), &body).await;
    let name = match things {
        "dead-letters" => "dead_letters",
        "reconcile/runs" => "runs",
        things => things,
    };
    if verb.starts_with("list") { listed(reply, name, thing.id) } else { reply }
}
