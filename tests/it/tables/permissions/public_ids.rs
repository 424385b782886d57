//! The same operations where order ids have another form outside: none tells an inner id, and none takes one.

use flash_sale::sale::pass::Pass;
use serde_json::{Value, json};

use super::{Cell, MISSING, OPERATIONS, OWNER, Of, make, tokens};
use crate::support::{KEYED, Reply, SECRET, TestApp};

/// All order ids that Postgres has, and those in Redis.
async fn inner_ids(app: &TestApp) -> Vec<String> {
    let query = "SELECT id::text FROM orders UNION SELECT order_id::text FROM dead_letters WHERE order_id IS NOT NULL
                 UNION SELECT order_id::text FROM payments UNION SELECT lost->0->>'order_id' FROM recoveries";
    let rows: Vec<String> =
        sqlx::query_scalar(query).fetch_all(&app.app.stores.pool).await.expect("Postgres answers");
    // An id of a row that was made up is too short to be looked for.
    rows.into_iter().filter(|id| id.len() > 15).collect()
}

/// The first inner id in body or headers.
async fn leak(app: &TestApp, reply: &Reply) -> Option<String> {
    let text = format!("{} {:?}", reply.body, reply.headers);
    inner_ids(app).await.into_iter().find(|id| text.contains(id))
}

#[tokio::test]
async fn no_operation_tells_or_takes_an_inner_id() {
    let arguments = [&["--payment-callback-secret", SECRET][..], &KEYED].concat();
    let app = TestApp::configured(&arguments).await;
    fill_the_lists(&app).await;
    let mut wrong = Vec::new();
    for (statuses, method, path, of) in OPERATIONS {
        for (status, role) in [(statuses[3], "owner"), (statuses[7], "admin")] {
            let thing = make(&app, *of).await;
            let token = tokens(&app, role).remove(0);
            let cell = Cell { app: &app, method, path, role, token };
            let body = cell.body(&thing);
            if path.starts_with("/v1/orders/{id}") {
                let inner = app.inner(thing.id).to_string();
                let reply = cell.ask(&inner, &body).await;
                if ![403, 404].contains(&reply.status) {
                    wrong.push(format!("{method} {path}, {role}: takes an inner id: {reply:?}"));
                }
            }
            let reply = cell.ask(&thing.id.to_string(), &body).await;
            if reply.status != status {
                wrong.push(format!("{method} {path}, {role}: expected {status}, got {reply:?}"));
            }
            if let Some(id) = leak(&app, &reply).await {
                wrong.push(format!("{method} {path}, {role}: tells {id}: {reply:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    app.expect_disagreements();
}

/// Each list of the staff has an order in it, in members and in sentences.
async fn fill_the_lists(app: &TestApp) {
    let coupon = app.create_flash(5).await;
    let [lost, repaired, postponed] = [1, 2, 3].map(|user| app.order(user, coupon));
    let (lost, _, postponed) = (lost.await, repaired.await, postponed.await);
    let keep = json!([{"coupon_id": coupon, "user_id": "1", "order_id": app.inner(lost).to_string(), "reason": "superseded"}]);
    app.execute(&format!(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
         VALUES (0, 9, 'an older file', now(), now(), '{keep}')"
    ))
    .await;
    let noted = app.app.postponed.note(Pass::Expiry, &[app.inner(postponed)], "an error").await;
    noted.expect("Postgres answers");
    // A live order whose user is no buyer.
    let buyers = app.buyers(coupon).await;
    assert_eq!(buyers[&1], app.inner(lost), "Redis has inner ids");
    app.forget_buyer(coupon, 1).await;
    let run = app.compare(false).await;
    let words = run.body["findings"].to_string();
    assert!(words.contains(&format!("order {lost}")), "the finding names the order: {words}");
}

#[tokio::test]
async fn the_book_and_the_lists_of_the_staff_name_orders_as_users_do() {
    let app = TestApp::configured(&KEYED).await;
    fill_the_lists(&app).await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(OWNER, coupon).await;
    assert_eq!(app.redeem(order).await.status, 200);
    let entries = async |subject: i64| {
        let path = format!("/v1/audit?subject={subject}");
        app.get(&path, &app.admin_token()).await.body["entries"].as_array().expect("a list").clone()
    };
    let found = entries(order).await;
    assert_eq!((found.len(), &found[0]["subject"]), (1, &json!(order.to_string())));
    assert_eq!(entries(app.inner(order)).await, [Value::Null; 0]);
    assert_eq!(entries(coupon.get()).await.len(), 1, "other things have one id");
    let stored = app.number("SELECT subject_id FROM audit WHERE action = 'redeem_order'").await;
    assert_eq!(stored, app.inner(order));

    let list = async |path: &str| app.get(path, &app.admin_token()).await.body;
    let postponed = list("/v1/postponed").await["postponed"][0].clone();
    let item: i64 = postponed["item"].as_str().expect("a text").parse().expect("an id");
    assert_eq!(app.number("SELECT item FROM postponed").await, app.inner(item));
    assert_ne!(item, MISSING);
    let matters = list("/v1/operations?kind=postponed").await["matters"][0].clone();
    let words = matters["detail"].as_str().expect("a text");
    assert!(words.contains(&format!("order {item} has failed")), "{words}");
    app.expect_disagreements();
}

/// Words of a client are told as they came: otherwise a client could ask for the image of any id.
#[tokio::test]
async fn words_of_a_client_are_not_translated() {
    let app = TestApp::configured(&KEYED).await;
    let thing = make(&app, Of::UnpaidOrder).await;
    let inner = app.inner(thing.id);
    let member = format!("order {inner}");
    let body = json!({"method": "balance", &*member: 1});
    let path = format!("/v1/orders/{}/pay", thing.id);
    let refused = app.post(&path, &app.token(OWNER), &body).await;
    assert_eq!(refused.refusal(), (422, "invalid_body"));
    assert!(!refused.body.to_string().contains(&thing.id.to_string()), "{refused:?}");
    let because = json!({ "reason": member });
    let path = format!("/v1/orders/{}/cancel-for-buyer", thing.id);
    assert_eq!(app.post(&path, &app.admin_token(), &because).await.status, 200);
    let book = app.get("/v1/audit?action=cancel_order", &app.admin_token()).await;
    assert_eq!(book.body["entries"][0]["after"]["reason"], because["reason"]);
}
