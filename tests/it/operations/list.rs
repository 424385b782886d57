//! The list of all that waits for a person: each kind stands in it, and leaves it when it is dealt with.

use flash_sale::store::job::Job;
use serde_json::{Value, json};

use crate::support::process::{Finished, flash_sale, run};
use crate::support::{Bounded, SECRET, TestApp, bounded, lane};

async fn list(app: &TestApp, query: &str) -> (Vec<Value>, Value) {
    let reply = app.get(&format!("/v1/operations?{query}"), &app.admin_token()).await;
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    let items = reply.body["items"].as_array().expect("a list").clone();
    (items, reply.body["next_cursor"].clone())
}

fn kinds(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["kind"].as_str().expect("a word")).collect()
}

fn claim(order: i64) -> Value {
    json!({"coupon_id": "1024", "user_id": "7", "order_id": order.to_string(), "reason": "superseded"})
}

/// One thing of each kind, in the order of the list.
const KINDS: [&str; 8] = [
    "lane",
    "finding",
    "recovery",
    "dead_letter",
    "held_payment",
    "refund",
    "webhook",
    "postponed",
];

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
    app.app
        .postponed
        .note(Job::StockReturns, &[coupon.get()], "an error")
        .await
        .expect("it answers");
    app.execute(&format!(
        "UPDATE flash_sales SET sold = 2 WHERE coupon_id = {coupon};
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
             VALUES (0, 1, 'an older file', now(), now(), '[{}]'), (0, 2, 'all were kept', now(), now(), '[]');
         INSERT INTO webhooks (url, types, secret, state, tries, failing_since, error)
             VALUES ('https://example.com/', '{{}}', '', 'disabled', 9, now(), 'answered 500');
         UPDATE lanes SET state = 'recovering', reason = 'x', closed_at = now() - interval '10 min'",
        claim(order)
    ))
    .await;
    app.compare().await;
    app.expect_disagreements();
    app
}

#[tokio::test]
async fn each_kind_of_thing_has_its_age_and_advice() {
    let app = with_one_of_each().await;
    let (items, next) = list(&app, "limit=100").await;
    assert_eq!((kinds(&items), next), (KINDS.to_vec(), Value::Null), "{items:#?}");
    for item in &items {
        let advice = item["what_to_do"].as_str().expect("a text");
        assert!(advice.ends_with('.'), "{advice}");
        assert!(item["age_s"].as_i64().is_some_and(|age| (0..1_800).contains(&age)), "{item}");
    }
    app.execute("UPDATE postponed SET since = now() - interval '1 hour'").await;
    let (postponed, _) = list(&app, "kind=postponed").await;
    assert!(postponed[0]["age_s"].as_i64().is_some_and(|age| age >= 3_600), "{postponed:?}");
    // By another clock, or by one that was set back.
    app.execute("UPDATE postponed SET since = now() + interval '1 hour'").await;
    let (postponed, _) = list(&app, "kind=postponed").await;
    assert_eq!(postponed[0]["age_s"], 0, "{postponed:?}");
    let (first, _) = list(&app, "limit=1").await;
    assert_eq!(kinds(&first), KINDS[..1]);
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
                let ids = page.iter().map(|item| (item["kind"].clone(), item["id"].clone()));
                seen.extend(ids);
                let Some(next) = next.as_str() else { break };
                cursor = format!("&cursor={next}");
            }
        })
        .await;
        let whole: Vec<_> =
            all.iter().map(|item| (item["kind"].clone(), item["id"].clone())).collect();
        assert_eq!(seen, whole, "pages of {limit}");
    }
    for kind in KINDS {
        let (items, _) = list(&app, &format!("kind={kind}")).await;
        assert!(!items.is_empty() && kinds(&items).iter().all(|found| *found == kind));
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

#[tokio::test]
async fn a_thing_leaves_the_list_when_it_is_dealt_with() {
    let app = with_one_of_each().await;
    let (items, _) = list(&app, "limit=100").await;
    for item in &items {
        let id = item["id"].as_str().expect("an id");
        let note = json!({"note": "told"});
        let (path, body) = match item["kind"].as_str().expect("a word") {
            "finding" => ("/v1/reconcile".to_owned(), Value::Null),
            "recovery" => (format!("/v1/recoveries/{id}/settle"), note),
            "dead_letter" => (format!("/v1/dead-letters/{id}/discard"), json!({})),
            "held_payment" => (format!("/v1/payments/{id}/hand-back"), json!({})),
            "refund" => (format!("/v1/payments/{id}/close"), note),
            "postponed" => (format!("/v1/postponed/{id}/retry"), json!({})),
            "webhook" => {
                let path = format!("/v1/webhooks/{id}");
                let request = app.client().delete(app.url.clone() + &path);
                let request = request.bearer_auth(app.admin_token());
                assert_eq!(app.send(request, "DELETE", &path).await.status, 204);
                continue;
            }
            _ => continue,
        };
        let done = app.post(&path, &app.admin_token(), &body).await;
        assert!((200..300).contains(&done.status), "{path}: {done:?}");
    }
    assert_eq!(say(&app, &["recover", "--lane", "0", "--trust", "redis"]).await.code, Some(0));
    app.recover().await;
    app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    // A postponed item leaves with the next run of its job, money that goes back with the gateway's word, and a finding
    // with the next comparison.
    app.release().await;
    let refund = |id: &str| json!({"kind": "refund", "payment_id": id});
    assert_eq!(app.confirm(&refund("g2")).await.status, 200);
    app.compare().await;
    let (rest, _) = list(&app, "limit=100").await;
    assert_eq!(kinds(&rest), [""; 0], "{rest:#?}");

    let count = async |path: &str, name: &str| {
        let reply = app.get(path, &app.admin_token()).await;
        reply.body[name].as_array().map(Vec::len)
    };
    assert_eq!(count("/v1/recoveries", "recoveries").await, Some(3));
    assert!(count("/v1/reconcile/runs", "runs").await >= Some(2));
}

/// Runs a command on the data of this app.
async fn say(app: &TestApp, words: &[&str]) -> Finished {
    let mut command = flash_sale(words);
    command.args(app.store_arguments());
    run(command).await
}

/// Postgres went back in time, so Redis has a newer epoch, and the leader leaves the lane alone.
#[tokio::test]
async fn a_lane_of_which_redis_has_a_newer_epoch_waits_for_an_operators_word() {
    let app = TestApp::start().await;
    app.create_flash(1).await;
    for _ in 0..2 {
        app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    }
    assert_eq!(list(&app, "").await.0, [] as [Value; 0]);
    let _: i64 = app.redis(&["HINCRBY", &app.keys().lane(lane()), "epoch", "7"]).await;
    app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    app.execute("UPDATE lanes SET closed_at = now() - interval '31 s'").await;
    let (items, _) = list(&app, "kind=lane").await;
    assert_eq!((kinds(&items), &items[0]["id"]), (vec!["lane"], &json!("0")));
    assert!(items[0]["what_to_do"].as_str().is_some_and(|it| it.contains("recover --dry-run")));
    for words in [&["--dry-run"][..], &["--trust", "redis"]] {
        let words = [&["recover"], words].concat();
        assert_eq!(say(&app, &words).await.code, Some(0), "{words:?}");
    }
    let (closed, _) = list(&app, "").await;
    assert_eq!(closed, [] as [Value; 0], "it has been closed a moment ago");
    app.execute("UPDATE lanes SET closed_at = now() - interval '31 s'").await;
    let (closed, _) = list(&app, "").await;
    assert!(closed[0]["detail"].as_str().is_some_and(|it| it.contains("closed: an operator")));
    app.recover().await;
    app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    assert_eq!(list(&app, "").await.0, [] as [Value; 0]);
}
