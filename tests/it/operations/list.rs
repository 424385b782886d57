//! The list of all that waits: each kind of matter stands in it, with steps that settle it.

use flash_sale::sale::pass::Pass;
use serde_json::{Value, json};

use crate::support::process::{Finished, flash_sale, run};
use crate::support::{Bounded, Reply, SECRET, TestApp, bounded, lane};

async fn list(app: &TestApp, query: &str) -> (Vec<Value>, Value) {
    let reply = app.get(&format!("/v1/operations?{query}"), &app.admin_token()).await;
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    let matters = reply.body["matters"].as_array().expect("a list").clone();
    (matters, reply.body["next_cursor"].clone())
}

fn kinds(matters: &[Value]) -> Vec<&str> {
    matters.iter().map(|matter| matter["kind"].as_str().expect("a word")).collect()
}

fn claim(order: i64) -> Value {
    json!({"coupon_id": "1024", "user_id": "7", "order_id": order.to_string(), "reason": "superseded"})
}

/// One matter of each kind, in the order of the list.
const KINDS: [&str; 8] =
    ["lane", "finding", "recovery", "dead_letter", "held_payment", "refund", "postponed", "job"];

/// Kinds whose steps are commands only.
const BY_COMMAND: [&str; 2] = ["lane", "job"];

async fn with_one_of_each() -> TestApp {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let coupon = app.create_flash(3).await;
    let order = app.order(1, coupon).await;
    let paid = json!({"kind": "payment", "payment_id": "g1", "order_id": order.to_string(),
                      "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&paid).await.text("outcome"), "accepted");
    assert_eq!(app.act(1, order, "refund").await.status, 200);
    app.refund_payments().await;
    let unknown = json!({"kind": "payment", "payment_id": "g2", "order_id": (order + 9).to_string(),
                         "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&unknown).await.text("outcome"), "held");
    app.append(lane(), &["nothing", "here"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.app.postponed.note(Pass::Places, &[coupon.get()], "an error").await.expect("it answers");
    app.execute(&format!(
        "UPDATE flash_sales SET sold = 2 WHERE coupon_id = {coupon};
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
             VALUES (0, 1, 'an older file', now(), now(), '[{}]'), (0, 2, 'all were kept', now(), now(), '[]');
         INSERT INTO jobs (coupon_id, key, reason, created_at)
             VALUES ({coupon}, 'before', 'wrong price', now() - interval '11 min');
         -- As if the keeper had been refused for a while.
         UPDATE lane_beats SET beat = beat + 1, beat_at = now() - interval '10 min'",
        claim(order)
    ))
    .await;
    app.compare(false).await;
    app.expect_disagreements();
    app
}

#[tokio::test]
async fn each_kind_of_matter_has_its_age_its_harm_and_steps() {
    let app = with_one_of_each().await;
    let (matters, next) = list(&app, "limit=100").await;
    assert_eq!((kinds(&matters), next), (KINDS.to_vec(), Value::Null), "{matters:#?}");
    for matter in &matters {
        let harm = matter["harm"].as_str().expect("a text");
        assert!(harm.ends_with('.') && !harm[..harm.len() - 1].contains(". "), "{harm}");
        assert!(matter["age_s"].as_i64().is_some_and(|age| (0..1_800).contains(&age)), "{matter}");
        let steps = matter["steps"].as_array().expect("a list");
        assert!(!steps.is_empty(), "{matter}");
        for step in steps {
            assert!(step["command"].as_str().expect("a text").starts_with("flash-sale "), "{step}");
            let by_command = BY_COMMAND.contains(&matter["kind"].as_str().expect("a word"));
            let request = step["request"].as_str();
            assert_eq!(request.is_none(), by_command, "{step}");
            assert!(request.is_none_or(|request| request.starts_with("POST /v1/")), "{step}");
        }
    }
    app.execute("UPDATE postponed SET since = now() - interval '1 hour'").await;
    let (postponed, _) = list(&app, "kind=postponed").await;
    assert!(postponed[0]["age_s"].as_i64().is_some_and(|age| age >= 3_600), "{postponed:?}");
    // By another clock, or by one that was set back.
    app.execute("UPDATE postponed SET since = now() + interval '1 hour'").await;
    let (postponed, _) = list(&app, "kind=postponed").await;
    assert_eq!(postponed[0]["age_s"], 0, "{postponed:?}");
    // A page without room for more asks for no further kind.
    app.execute("DROP TABLE jobs CASCADE").await;
    let (first, _) = list(&app, "limit=1").await;
    assert_eq!(kinds(&first), KINDS[..1]);
}

#[tokio::test]
async fn findings_are_those_of_the_last_comparison_that_has_ended_from_behind_a_position_on() {
    let app = TestApp::start().await;
    app.execute(
        r#"INSERT INTO reconcile_runs (asked_by, finished_at, at_rest, sales, in_flight, orders, disagreements, findings)
               SELECT 'api', now(), true, 1, 0, '{}', 2,
                      '[{"code": "order_lost", "coupon_id": "1", "detail": "x"}, {"code": "oversold", "coupon_id": "1", "detail": "x"}]'
               FROM generate_series(1, 2);
           INSERT INTO reconcile_runs (asked_by) VALUES ('api')"#,
    )
    .await;
    let runs = app.numbers("SELECT id FROM reconcile_runs ORDER BY id").await;
    let [before, last, under_way] = runs[..] else { panic!("{runs:?}") };
    let all = [format!("{last}.1"), format!("{last}.2")];
    for (behind, found) in [
        (String::new(), &all[..]),
        (format!("&cursor=finding-{last}.1"), &all[1..]),
        (format!("&cursor=finding-{last}.2"), &[]),
        (format!("&cursor=finding-{before}.1"), &all),
        (format!("&cursor=finding-{before}.2"), &all),
        (format!("&cursor=finding-{under_way}.2"), &all),
    ] {
        let (matters, _) = list(&app, &format!("kind=finding{behind}")).await;
        let ids: Vec<_> = matters.iter().map(|matter| matter["id"].as_str()).collect();
        assert_eq!(ids, found.iter().map(|id| Some(&**id)).collect::<Vec<_>>(), "{behind}");
    }
    app.execute("DELETE FROM reconcile_runs").await;
}

#[tokio::test]
async fn the_list_comes_in_pages_over_all_kinds_and_by_kind() {
    let app = with_one_of_each().await;
    for _ in 0..2 {
        app.append(lane(), &["nothing", "here"]).await;
    }
    app.write_orders().await;
    let (all, _) = list(&app, "limit=100").await;
    assert_eq!(all.len(), 10);
    for limit in 1..=10 {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        bounded("the last page", async {
            loop {
                let (page, next) = list(&app, &format!("limit={limit}{cursor}")).await;
                assert!(page.len() <= limit);
                let ids = page.iter().map(|matter| (matter["kind"].clone(), matter["id"].clone()));
                seen.extend(ids);
                let Some(next) = next.as_str() else { break };
                cursor = format!("&cursor={next}");
            }
        })
        .await;
        let whole: Vec<_> =
            all.iter().map(|matter| (matter["kind"].clone(), matter["id"].clone())).collect();
        assert_eq!(seen, whole, "pages of {limit}");
    }
    for kind in KINDS {
        let (matters, _) = list(&app, &format!("kind={kind}")).await;
        assert!(!matters.is_empty() && kinds(&matters).iter().all(|found| *found == kind));
    }
    for bad in [
        "kind=cook",
        "kind=",
        "kind=DeadLetter",
        "limit=0",
        "limit=101",
        "cursor=1",
        "cursor=dead_letter",
        "cursor=dead_letter-0",
        "cursor=cook-1",
        "cursor=lane-01",
        "cursor=lane--1",
        "cursor=",
        "settled=true",
        "colour=red",
    ] {
        let refused = app.get(&format!("/v1/operations?{bad}"), &app.admin_token()).await;
        assert_eq!(refused.refusal(), (400, "invalid_query"), "{bad}");
    }
}

/// Each request stands in the list itself.
#[tokio::test]
async fn a_matter_leaves_the_list_by_the_steps_that_it_names_and_stays_as_history() {
    let app = with_one_of_each().await;
    let (matters, _) = list(&app, "limit=100").await;
    for matter in &matters {
        let kind = matter["kind"].as_str().expect("a word");
        if BY_COMMAND.contains(&kind) {
            continue;
        }
        let steps = matter["steps"].as_array().expect("a list").iter();
        let requests: Vec<&str> =
            steps.map(|step| step["request"].as_str().expect("a text")).collect();
        // A letter without a claim can't be tried again.
        let wanted = if kind == "dead_letter" { "/discard" } else { "" };
        let request = requests.iter().find(|it| it.contains(wanted)).expect("there is a step");
        let done = ask(&app, request).await;
        assert!((200..300).contains(&done.status), "{request}: {done:?}");
    }
    assert_eq!(say(&app, &["recover", "--lane", "0", "--trust", "redis"]).await.code, Some(0));
    app.recover().await;
    app.app.keeper.pass().bounded().await.expect("both stores answer");
    app.cancel_for_jobs().await;
    // A postponed item leaves with the next run of its pass, money that goes back with the gateway's word, and a finding
    // with the next comparison.
    app.give_back().await;
    let refund = |id: &str| json!({"kind": "refund", "payment_id": id});
    assert_eq!(app.confirm(&refund("g2")).await.status, 200);
    app.compare(false).await;
    let (rest, _) = list(&app, "limit=100").await;
    assert_eq!(kinds(&rest), [""; 0], "{rest:#?}");

    let count = async |path: &str, name: &str| {
        let reply = app.get(path, &app.admin_token()).await;
        reply.body[name].as_array().map(Vec::len)
    };
    assert_eq!(count("/v1/dead-letters?state=closed", "dead_letters").await, Some(1));
    assert_eq!(count("/v1/payments/owed?settled=true", "payments").await, Some(2));
    assert_eq!(count("/v1/recoveries", "recoveries").await, Some(3));
    assert_eq!(count("/v1/recoveries?reason=operator", "recoveries").await, Some(1));
    assert!(count("/v1/reconcile/runs", "runs").await >= Some(2));
}

/// Runs a command on the data of this app.
async fn say(app: &TestApp, words: &[&str]) -> Finished {
    let mut command = flash_sale(words);
    command.args(app.store_arguments());
    run(command).await
}

/// Postgres went back in time, so Redis has a newer epoch, and the keeper leaves the lane alone.
#[tokio::test]
async fn a_lane_of_which_redis_has_a_newer_epoch_waits_for_an_operators_word() {
    let app = TestApp::start().await;
    app.create_flash(1).await;
    for _ in 0..2 {
        app.app.keeper.pass().bounded().await.expect("both stores answer");
    }
    assert_eq!(list(&app, "").await.0, [] as [Value; 0]);
    let _: i64 = app.redis(&["HINCRBY", &app.keys().lane(lane()), "epoch", "7"]).await;
    app.app.keeper.pass().bounded().await.expect("both stores answer");
    app.execute("UPDATE lanes SET closed_at = now() - interval '31 s'").await;
    let (matters, _) = list(&app, "kind=lane").await;
    assert_eq!((kinds(&matters), &matters[0]["id"]), (vec!["lane"], &json!("0")));
    let commands: Vec<&str> = matters[0]["steps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|step| step["command"].as_str().expect("a text"))
        .collect();
    let of_all = |end: &str| format!("flash-sale recover {end}");
    assert_eq!(
        commands,
        [of_all("--dry-run"), of_all("--trust redis"), of_all("--trust postgres")]
    );
    let shown = say(&app, &["operations", "--behind", "lane-1"]).await;
    assert!(shown.stdout.contains("`flash-sale recover --dry-run`"), "{shown:?}");
    for command in &commands[..2] {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        assert_eq!(say(&app, &words).await.code, Some(0), "{command}");
    }
    let (closed, _) = list(&app, "").await;
    assert_eq!(closed, [] as [Value; 0], "it has been closed a moment ago");
    app.execute("UPDATE lanes SET closed_at = now() - interval '31 s'").await;
    let (closed, _) = list(&app, "").await;
    assert!(closed[0]["detail"].as_str().is_some_and(|it| it.contains("closed: an operator")));
    app.recover().await;
    app.app.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(list(&app, "").await.0, [] as [Value; 0]);
}

/// Sends a request that a step names: method, path, and the body if there is one.
async fn ask(app: &TestApp, request: &str) -> Reply {
    let mut words = request.splitn(3, ' ');
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    assert_eq!(method, "POST");
    let body = words.next().map_or(json!({}), |body| serde_json::from_str(body).expect("JSON"));
    app.post(path, &app.admin_token(), &body).await
}

#[tokio::test]
async fn claims_that_were_not_kept_are_settled_by_an_administrator_with_a_note() {
    let app = with_one_of_each().await;
    let id = app.number("SELECT min(id) FROM recoveries").await;
    let path = format!("/v1/recoveries/{id}/settle");
    for body in [
        json!({}),
        json!({"note": ""}),
        json!({"note": " "}),
        json!({"note": "a\u{0}"}),
        json!({"note": 1}),
        json!({"note": "x".repeat(1_001)}),
        json!({"note": "x", "to": "y"}),
    ] {
        let refused = app.post(&path, &app.admin_token(), &body).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{body}");
    }
    for note in ["told by telephone", "another"] {
        let settled = app.post(&path, &app.admin_token(), &json!({"note": note})).await;
        assert_eq!(settled.status, 204);
    }
    let recoveries = app.get("/v1/recoveries", &app.admin_token()).await;
    let settled = &recoveries.body["recoveries"][1];
    assert_eq!(
        (&settled["note"], settled["settled_at"].is_string()),
        (&json!("told by telephone"), true)
    );
    let book = app.get("/v1/audit?action=settle_recovery", &app.admin_token()).await;
    assert_eq!(book.body["entries"].as_array().map(Vec::len), Some(1));
    for none in [id + 1, id + 2] {
        let path = format!("/v1/recoveries/{none}/settle");
        let refused = app.post(&path, &app.admin_token(), &json!({"note": "x"})).await;
        assert_eq!(refused.refusal(), (404, "recovery_not_found"));
    }
}

#[tokio::test]
async fn the_command_line_lists_and_settles_the_same() {
    let app = with_one_of_each().await;
    let say = async |words: &[&str]| say(&app, words).await;
    let all = say(&["operations", "--json"]).await;
    let told: Vec<Value> =
        all.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(kinds(&told), KINDS, "{all:?}");
    let id_of = |kind: &str| {
        let matter = told.iter().find(|matter| matter["kind"] == kind).expect("one of each");
        matter["id"].as_str().expect("an id")
    };
    let letter = id_of("dead_letter");
    let in_words = say(&["operations", "--kind", "dead_letter"]).await;
    let command = format!("`flash-sale dead-letters discard {letter}`");
    assert!(in_words.stdout.contains(&command), "{in_words:?}");
    assert_eq!(say(&["dead-letters", "discard", letter]).await.code, Some(0));
    let none = say(&["operations", "--kind", "dead_letter"]).await;
    assert_eq!((none.code, &*none.stdout), (Some(0), "Nothing waits for an operator."));
    let closed = say(&["dead-letters", "--state", "closed"]).await;
    assert!(closed.stdout.contains("closed at"), "{closed:?}");
    let shown = say(&["dead-letters", "show", letter]).await;
    assert!(shown.stdout.contains("\"closed_at\""), "{shown:?}");

    let settled = say(&["recoveries", "settle", id_of("recovery"), "--note", "told"]).await;
    assert_eq!(settled.code, Some(0), "{settled:?}");
    let coupon = app.create_flash(1).await;
    let order = app.order(2, coupon).await.to_string();
    let cancelled = say(&["orders", "cancel", &order, "--reason", "asked to"]).await;
    assert!(cancelled.stdout.contains("is cancelled"), "{cancelled:?}");
    let coupon = coupon.to_string();
    let begun = ["orders", "cancel-unpaid", &coupon, "--key", "k", "--reason", "wrong price"];
    assert_eq!(say(&begun).await.code, Some(0));
    let jobs = say(&["orders", "jobs", "--coupon", &coupon, "--json"]).await;
    assert_eq!((jobs.stdout.lines().count(), jobs.stdout.contains("wrong price")), (1, true));
    assert_eq!(say(&["orders", "jobs", "--json"]).await.stdout.lines().count(), 2);
    assert_eq!(say(&["orders", "refund", &order, "--reason", "x"]).await.code, Some(1));
}

#[tokio::test]
async fn the_command_line_lists_hands_back_and_closes_payments() {
    let app = with_one_of_each().await;
    let say = async |words: &[&str]| say(&app, words).await;
    let listed = say(&["payments"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("1 cents (CNY) for order "), "{listed:?}");
    assert!(listed.stdout.contains(": held, unknown_order"), "{listed:?}");
    let told = say(&["payments", "--json", "--reason", "unknown_order"]).await;
    let held: Value = serde_json::from_str(&told.stdout).expect("one object");
    let (id, order) = (&held["payment_id"], &held["order_id"]);
    let (id, order) = (id.as_str().expect("an id"), order.as_str().expect("an id"));
    let of_order = say(&["payments", "--json", "--order", order]).await;
    assert_eq!(of_order.stdout, told.stdout);
    let back = say(&["payments", "hand-back", id]).await;
    assert_eq!((back.code, back.stdout.contains("It goes back")), (Some(0), true), "{back:?}");
    let refunding = say(&["payments", "--order", order]).await;
    assert!(refunding.stdout.contains(": refunding, unknown_order"), "{refunding:?}");
    let closed = say(&["payments", "close", id, "--note", "sent by hand"]).await;
    assert_eq!((closed.code, closed.stdout.contains("It is closed")), (Some(0), true));
    let none = say(&["payments", "--order", order]).await;
    assert_eq!((none.code, &*none.stdout), (Some(0), "No payment waits."));
    let history = say(&["payments", "--settled", "--json"]).await;
    assert!(history.stdout.contains("sent by hand"), "{history:?}");
}

#[tokio::test]
async fn the_command_line_retries_and_discards_dead_letters() {
    let app = with_one_of_each().await;
    let say = async |words: &[&str]| say(&app, words).await;
    let coupon = app.create_flash(2).await;
    let mut letters = Vec::new();
    for user in [3, 4] {
        let sale = format!("WHERE coupon_id = {coupon}");
        app.execute(&format!("UPDATE flash_sales SET sold = total {sale}")).await;
        let order = app.claim(user, coupon).await.order_id();
        assert_eq!(app.write_orders().await.dead_letters, 1);
        app.execute(&format!("UPDATE flash_sales SET sold = {} {sale}", user - 3)).await;
        let letter = app.number("SELECT max(id) FROM dead_letters").await.to_string();
        letters.push((user, order, letter));
        if user == 3 {
            let (_, _, letter) = &letters[0];
            let retried = say(&["dead-letters", "retry", letter]).await;
            assert_eq!(retried.code, Some(0), "{retried:?}");
            assert_eq!(app.status(3, order).await, "unpaid");
        }
    }
    let discarded = say(&["dead-letters", "discard", "--reason", "oversold"]).await;
    assert_eq!(discarded.code, Some(0), "{discarded:?}");
    let (user, order, _) = letters[1];
    assert_eq!(app.status(user, order).await, "cancelled");
    let open = say(&["dead-letters", "--json"]).await;
    assert_eq!(open.stdout.lines().count(), 1, "that of another reason stays: {open:?}");
}
