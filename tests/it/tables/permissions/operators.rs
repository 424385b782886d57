//! Things of operators by state: dead letters, postponed items, comparisons, recoveries.

use flash_sale::sale::pass::Pass;
use serde_json::{Value, json};

use super::answers::{
    Call, Row, Thing, ask, compare, comparison, in_review, listed, token_of, verb_and_role,
};
use super::{MISSING, OTHER, OWNER};
use crate::support::{Reply, TestApp, lane};

/// The first three are open: `promised` names an order that isn't there, `taken` the order of another user,
/// `unreadable` none. `discarded` was promised before.
const LETTERS: &[&str] = &["promised", "taken", "unreadable", "discarded", "none"];

pub const OF_LETTERS: &[Row] = &[
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

/// All open letters at once, of which there is one, or none. The answer names its fate.
pub const OF_ALL_LETTERS: &[Row] = &[
    (
        "retry all",
        &[
            ("200 orders", "promised"),
            ("200 letter_unreadable, unchanged", "unreadable"),
            ("200 order_id_taken, unchanged", "taken"),
            ("200, unchanged", "discarded none"),
        ],
    ),
    (
        "retry all oversold",
        &[("200 orders", "promised"), ("200, unchanged", "taken unreadable discarded none")],
    ),
    (
        "retry all conflict",
        &[
            ("200 order_id_taken, unchanged", "taken"),
            ("200, unchanged", "promised unreadable discarded none"),
        ],
    ),
    (
        "discard all oversold",
        &[("200 discarded", "promised"), ("200, unchanged", "taken unreadable discarded none")],
    ),
    (
        "discard all conflict",
        &[
            ("200 order_id_taken, unchanged", "taken"),
            ("200, unchanged", "promised unreadable discarded none"),
        ],
    ),
    (
        "discard all undecodable",
        &[("200 discarded", "unreadable"), ("200, unchanged", "promised taken discarded none")],
    ),
    ("retry all, by a clerk", &[("403 forbidden", "promised taken unreadable discarded none")]),
    (
        "discard all oversold, by a clerk",
        &[("403 forbidden", "promised taken unreadable discarded none")],
    ),
];

/// `waiting` is left alone by its pass for an hour, `due` is tried by its next run.
const ITEMS: &[&str] = &["waiting", "due", "none"];

pub const OF_ITEMS: &[Row] = &[
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

pub const OF_RUNS: &[Row] = &[
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

/// `unfinished` has not opened its lane, and `kept_all` has lost nothing. The buyers of `lost` and of `unknown`, whose
/// number alone is known, have not been told; those of `settled` have.
const RECOVERIES: &[&str] = &["unfinished", "kept_all", "lost", "unknown", "settled", "none"];

pub const OF_RECOVERIES: &[Row] = &[
    (
        "list of unsettled ones",
        &[
            ("200 listed, unchanged", "lost unknown"),
            ("200 not listed, unchanged", "unfinished kept_all settled none"),
        ],
    ),
    (
        "list of settled ones",
        &[
            ("200 listed, unchanged", "settled"),
            ("200 not listed, unchanged", "unfinished kept_all lost unknown none"),
        ],
    ),
    (
        "settle",
        &[
            ("204", "lost unknown"),
            ("204, unchanged", "settled"),
            ("404 recovery_not_found", "unfinished kept_all none"),
        ],
    ),
    (
        "settle, by an operator",
        &[("403 forbidden", "unfinished kept_all lost unknown settled none")],
    ),
    (
        "settle, by a caller without token",
        &[("401 invalid_token", "unfinished kept_all lost unknown settled none")],
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
async fn each_action_on_all_dead_letters_is_answered_by_their_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| {
        app.execute("DELETE FROM dead_letters").await;
        letter(&app, state).await
    };
    let act = async |thing, action: &str| fate(act(&app, "dead-letters", thing, action).await);
    compare(&app, LETTERS, OF_ALL_LETTERS, bring_to, act).await;
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

#[tokio::test]
async fn each_action_on_a_recovery_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| recovery(&app, state).await;
    let act = async |thing, action: &str| act(&app, "recoveries", thing, action).await;
    compare(&app, RECOVERIES, OF_RECOVERIES, bring_to, act).await;
}

/// Puts the fate of the one letter in the place of the status.
fn fate(mut reply: Reply) -> Reply {
    if reply.status == 200 {
        let kept = reply.body["kept"].as_object().and_then(|kept| kept.keys().next().cloned());
        let done = ["orders", "discarded"].into_iter().find(|name| reply.body[name] == 1);
        reply.body = json!({ "status": kept.or(done.map(str::to_owned)) });
    }
    reply
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

async fn recovery(app: &TestApp, state: &str) -> Thing {
    let lost = r#"[{"coupon_id": "1", "user_id": "1", "order_id": "1", "reason": "superseded"}]"#;
    let (opened_at, lost, unknown, settled) = match state {
        "unfinished" => ("NULL", "[]", "NULL", "NULL, NULL"),
        "kept_all" => ("now()", "[]", "0", "NULL, NULL"),
        "lost" => ("now()", lost, "0", "NULL, NULL"),
        "unknown" => ("now()", "[]", "1", "NULL, NULL"),
        "settled" => ("now()", lost, "0", "now(), 'told before'"),
        _ => return Thing { id: MISSING, coupon: None, order: None },
    };
    let insert = format!(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost, unknown, settled_at, note)
         VALUES (0, 1, 'an older file', now(), {opened_at}, '{lost}', {unknown}, {settled}) RETURNING id"
    );
    Thing { id: app.number(&insert).await, coupon: None, order: None }
}

/// The request behind an action on these things.
pub fn call(things: &str, action: &str) -> Call {
    let (verb, _) = verb_and_role(action, "an administrator");
    let list = format!("/v1/{things}?limit=100");
    if let Some(reason) = verb.strip_prefix("discard all ") {
        return ("post", format!("/v1/{things}/discard"), json!({ "reason": reason }));
    }
    if let Some(reason) = verb.strip_prefix("retry all ") {
        return ("post", format!("/v1/{things}/retry"), json!({ "reason": reason }));
    }
    match verb {
        "list" => ("get", list, Value::Null),
        "list of closed ones" => ("get", list + "&state=closed", Value::Null),
        "list of unsettled ones" => ("get", list + "&state=unsettled", Value::Null),
        "list of settled ones" => ("get", list + "&state=settled", Value::Null),
        "list of its pass" => ("get", list + "&pass=archive", Value::Null),
        "list of another pass" => ("get", list + "&pass=expiry", Value::Null),
        "show" => ("get", format!("/v1/{things}/{{id}}"), Value::Null),
        "compare" => ("post", "/v1/reconcile".to_owned(), json!({"repair": false})),
        "retry all" => ("post", format!("/v1/{things}/retry"), json!({})),
        "settle" => ("post", format!("/v1/{things}/{{id}}/settle"), json!({"note": "told"})),
        verb => ("post", format!("/v1/{things}/{{id}}/{verb}"), Value::Null),
    }
}

async fn act(app: &TestApp, things: &str, thing: Thing, action: &str) -> Reply {
    let (verb, by) = verb_and_role(action, "an administrator");
    let reply = ask(app, &thing, call(things, action), token_of(app, by).as_deref()).await;
    let name = match things {
        "dead-letters" => "dead_letters",
        "reconcile/runs" => "runs",
        things => things,
    };
    if verb.starts_with("list") { listed(reply, name, thing.id) } else { reply }
}
