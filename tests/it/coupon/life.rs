//! The life of a coupon over HTTP: changes by an administrator, refusals, and their effect on claims.

use chrono::TimeDelta;
use flash_sale::store::ids::CouponId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Reply, TestApp, bounded, eventually, now};

async fn get(app: &TestApp, coupon: CouponId) -> Value {
    app.get(&format!("/v1/coupons/{coupon}"), "").await.body
}

/// Verb, status, and code (or state) after it, one after the other.
type Story = [(&'static str, u16, &'static str)];

async fn tell(app: &TestApp, coupon: CouponId, story: &Story) {
    for (verb, status, word) in story {
        let reply = app.r#move(coupon, verb).await;
        assert_eq!(reply.status, *status, "{verb}: {reply:?}");
        let name = if *status == 200 { "state" } else { "code" };
        assert_eq!(reply.text(name), *word, "{verb}");
        if *status == 200 {
            assert_eq!(reply.body, get(app, coupon).await, "{verb}");
        }
    }
}

#[tokio::test]
async fn coupons_are_listed_by_kind_and_state_page_by_page() {
    let app = TestApp::start().await;
    let mut coupons = Vec::new();
    for _ in 0..3 {
        coupons.push((app.create_flash(1).await, "flash"));
        coupons.push((app.create_regular().await, "regular"));
    }
    for (at, moves) in [(0, &["pause"][..]), (1, &["pause"]), (2, &["end"]), (3, &["end"])] {
        for verb in moves {
            assert_eq!(app.r#move(coupons[at].0, verb).await.status, 200);
        }
    }
    let states = ["paused", "paused", "ended", "ended", "active", "active"];
    let all: Vec<(String, &str, &str)> = coupons
        .iter()
        .zip(states)
        .map(|((id, kind), state)| (id.to_string(), *kind, state))
        .rev()
        .collect();
    for kind in ["", "flash", "regular"] {
        for state in ["", "active", "paused", "ended"] {
            let has = |word: &str, asked: &str| asked.is_empty() || asked == word;
            let expected: Vec<&str> = all
                .iter()
                .filter(|(_, of, is)| has(of, kind) && has(is, state))
                .map(|(id, ..)| id.as_str())
                .collect();
            let filters = [("kind", kind), ("state", state)];
            let filters = filters.iter().filter(|(_, value)| !value.is_empty());
            let query: String = filters.map(|(name, value)| format!("&{name}={value}")).collect();
            let (mut listed, mut cursor) = (Vec::new(), String::new());
            bounded("the last page", async {
                loop {
                    let page = app.get(&format!("/v1/coupons?limit=2{query}{cursor}"), "").await;
                    assert_eq!(page.status, 200, "{query}: {page:?}");
                    for coupon in page.body["coupons"].as_array().expect("a list") {
                        listed.push(coupon["id"].as_str().expect("an id").to_owned());
                    }
                    match page.body["next_cursor"].as_str() {
                        Some(next) => cursor = format!("&cursor={next}"),
                        None => break,
                    }
                }
            })
            .await;
            assert_eq!(listed, expected, "{query}");
        }
    }
}

#[tokio::test]
async fn a_coupon_is_paused_resumed_and_ended_for_good() {
    let app = TestApp::start().await;
    for coupon in [app.create_flash(5).await, app.create_regular().await] {
        tell(
            &app,
            coupon,
            &[
                ("resume", 200, "active"),
                ("pause", 200, "paused"),
                ("pause", 200, "paused"),
                ("resume", 200, "active"),
                ("resume", 200, "active"),
                ("pause", 200, "paused"),
                ("end", 200, "ended"),
                ("end", 200, "ended"),
                ("resume", 409, "invalid_transition"),
                ("pause", 409, "invalid_transition"),
                ("end", 200, "ended"),
            ],
        )
        .await;
        // Four of them changed the coupon.
        assert_eq!(get(&app, coupon).await["revision"], 5);
        let refused = app.r#move(coupon, "resume").await;
        assert_eq!((refused.text("from"), refused.text("to")), ("ended", "active"));
    }
    let straight = app.create_flash(5).await;
    tell(&app, straight, &[("end", 200, "ended"), ("pause", 409, "invalid_transition")]).await;
}

#[tokio::test]
async fn claims_hear_of_it_at_once_and_a_buyer_stays_a_buyer() {
    let app = TestApp::start().await;
    for coupon in [app.create_flash(5).await, app.create_regular().await] {
        let first = app.claim(1, coupon).await.order_id();
        for (verb, user, refusal) in [
            ("pause", 2, Some((409, "sale_paused"))),
            ("resume", 2, None),
            ("end", 3, Some((410, "sale_ended"))),
        ] {
            assert_eq!(app.r#move(coupon, verb).await.status, 200);
            let claim = app.claim(user, coupon).await;
            match refusal {
                Some(refusal) => assert_eq!(claim.refusal(), refusal, "{verb}"),
                None => assert!([201, 202].contains(&claim.status), "{verb}: {claim:?}"),
            }
            let repeat = app.claim(1, coupon).await;
            assert_eq!(repeat.refusal(), (409, "already_claimed"), "{verb}");
            assert_eq!(repeat.order_id(), first, "{verb}");
        }
    }
}

#[tokio::test]
async fn an_edit_changes_what_it_mentions_and_nothing_else() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut expected = get(&app, coupon).await;
    let opens_at = "2020-01-01T00:00:00Z";
    let closes_at = "2030-01-01T00:00:00.123456Z";
    for (place, value, edit) in [
        ("/title", json!("Dinner"), json!({"title": "Dinner"})),
        ("/sub_title", json!("for two"), json!({"sub_title": "for two"})),
        ("/sub_title", json!(""), json!({"sub_title": ""})),
        ("/rules", json!("none"), json!({"rules": "none"})),
        ("/pay_cents", json!(0), json!({"pay_cents": 0})),
        ("/value_cents", json!(7), json!({"value_cents": 7})),
        ("/sale/opens_at", json!(opens_at), json!({"sale": {"opens_at": opens_at}})),
        ("/sale/closes_at", json!(closes_at), json!({"sale": {"closes_at": closes_at}})),
        ("/sale/total", json!(8), json!({"sale": {"total": 8}})),
    ] {
        let revision = expected["revision"].as_i64().unwrap() + 1;
        *expected.pointer_mut(place).unwrap() = value;
        expected["revision"] = json!(revision);
        expected["sale"]["left"] = expected["sale"]["total"].clone();
        for repeat in ["the first time", "again"] {
            let reply = app.edit(coupon, &edit).await;
            assert_eq!((reply.status, &reply.body), (200, &expected), "{edit} {repeat}");
        }
        assert_eq!(get(&app, coupon).await, expected, "{edit}");
    }
    // An instant finer than Postgres keeps makes no new revision at each repeat.
    let fine = json!({"sale": {"closes_at": "2030-01-01T00:00:00.123456789Z"}});
    assert_eq!(app.edit(coupon, &fine).await.body, expected);
    assert_eq!(app.edit(coupon, &json!({})).await.body, expected);
    assert_eq!(app.edit(coupon, &json!({"sale": {}})).await.body, expected);

    let regular = app.create_regular().await;
    assert_eq!(app.edit(regular, &json!({"title": "Lunch"})).await.text("title"), "Lunch");
}

#[tokio::test]
async fn a_window_that_is_moved_holds_for_the_next_claim() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let (soon, later) = (now() + TimeDelta::hours(1), now() + TimeDelta::hours(2));
    for (window, user, told) in [
        (json!({"opens_at": soon, "closes_at": later}), 1, "sale_not_started"),
        (Value::Null, 2, "sale_ended"),
        (json!({"closes_at": later}), 3, ""),
    ] {
        match told {
            "sale_ended" => app.let_window_end(coupon, TimeDelta::hours(1)).await,
            _ => assert_eq!(app.edit(coupon, &json!({"sale": window})).await.status, 200),
        }
        let claim = app.claim(user, coupon).await;
        match told {
            "" => assert_eq!(claim.status, 202, "{window}"),
            code => assert_eq!(claim.text("code"), code, "{window}"),
        }
    }
}

async fn change_if(
    app: &TestApp,
    coupon: CouponId,
    action: &str,
    tags: &[&str],
    body: &Value,
) -> Reply {
    let (method, path) = match action {
        "" => (Method::PATCH, format!("/v1/coupons/{coupon}")),
        action => (Method::POST, format!("/v1/coupons/{coupon}/{action}")),
    };
    let url = format!("{}{path}", app.url);
    let mut request = app.client().request(method.clone(), url).bearer_auth(app.admin_token());
    for tag in tags {
        request = request.header("if-match", *tag);
    }
    app.send(request.json(body), method.as_str(), &path).await
}

#[tokio::test]
async fn a_tag_of_any_reply_about_its_revision_lets_a_change_through() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let path = format!("/v1/coupons/{coupon}");
    let tag = app.get(&path, "").await.header("etag").to_owned();
    assert!(tag.starts_with("\"revision-1."), "{tag}");
    // Another reply about the same revision: fewer units are left.
    app.claim(1, coupon).await;
    let other = async || app.get(&path, "").await.header("etag") != tag;
    eventually("the units left are counted again", other).await;
    let later = app.get(&path, "").await.header("etag").to_owned();
    assert!(later.starts_with("\"revision-1."), "{tag} {later}");
    let edited = change_if(&app, coupon, "", &[&tag], &json!({"title": "a"})).await;
    assert_eq!((edited.status, &edited.body["revision"]), (200, &json!(2)));
    // The reply to a change has the tag for the next one.
    let next = edited.header("etag").to_owned();
    assert_eq!(app.get(&path, "").await.header("etag"), next);
    let paused = change_if(&app, coupon, "pause", &[&next], &json!({"revision": 2})).await;
    assert_eq!((paused.status, &paused.body["revision"]), (200, &json!(3)));
    let resumed = change_if(&app, coupon, "resume", &["\"revision-3\""], &json!({})).await;
    assert_eq!((resumed.status, &resumed.body["revision"]), (200, &json!(4)));
    let ended = change_if(&app, coupon, "end", &["*"], &json!(null)).await;
    assert_eq!((ended.status, &ended.body["revision"]), (200, &json!(5)));
    // A repeat, which changes nothing, is not refused for the effect of its first time.
    let again = change_if(&app, coupon, "end", &["\"revision-4\""], &json!(null)).await;
    assert_eq!((again.status, &again.body), (200, &ended.body));
}

#[tokio::test]
async fn a_change_with_another_tag_is_refused_and_changes_nothing() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.edit(coupon, &json!({"title": "a"})).await.body["revision"], 2);
    let before = get(&app, coupon).await;
    let weak = "W/\"revision-2\"";
    let changes = [("", json!({"title": "b"})), ("pause", json!({})), ("end", json!(null))];
    for (action, body) in &changes {
        for tag in [
            "\"revision-1\"",
            "\"revision-3\"",
            weak,
            "\"5f2b\"",
            "\"\"",
            "\"revision-\"",
            "\"revision-+2\"",
            // A list without a tag.
            "",
        ] {
            let reply = change_if(&app, coupon, action, &[tag], body).await;
            assert_eq!(reply.refusal(), (412, "precondition_failed"), "{action} {tag}");
            assert!(reply.text("detail").contains("revision 2 by now"), "{reply:?}");
        }
        let two = ["\"revision-1\"", "\"revision-2\""];
        let listed = two.join(", ");
        for tags in
            [&["revision-2"][..], &["2"], &["\""], &["\"a\"b\""], &two, &[&listed], &["*", "*"]]
        {
            let reply = change_if(&app, coupon, action, tags, body).await;
            assert_eq!(reply.refusal(), (400, "invalid_if_match"), "{action} {tags:?}");
        }
        // Header and body have to name one revision.
        let mut other = if body.is_null() { json!({}) } else { body.clone() };
        for (revision, tag) in [(1, "\"revision-2\""), (2, "\"revision-1\"")] {
            other["revision"] = json!(revision);
            let reply = change_if(&app, coupon, action, &[tag], &other).await;
            assert_eq!(reply.refusal(), (422, "invalid_body"), "{action} {revision} {tag}");
            assert_eq!(reply.body["errors"][0]["pointer"], "/revision");
        }
        // A tag of no revision matches none, whatever the body asks for.
        for tag in [weak, "\"5f2b\"", ""] {
            other["revision"] = json!(2);
            let reply = change_if(&app, coupon, action, &[tag], &other).await;
            assert_eq!(reply.refusal(), (412, "precondition_failed"), "{action} {tag}");
        }
    }
    assert_eq!(get(&app, coupon).await, before);
    // In the body alone, a revision is refused as before.
    let stale = app.edit(coupon, &json!({"title": "b", "revision": 1})).await;
    assert_eq!(stale.refusal(), (409, "revision_conflict"));
}

#[tokio::test]
async fn of_two_changes_with_one_tag_one_is_refused() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let (a, b) = (json!({"title": "a"}), json!({"title": "b"}));
    let tag = ["\"revision-1\""];
    let (a, b) =
        tokio::join!(change_if(&app, coupon, "", &tag, &a), change_if(&app, coupon, "", &tag, &b));
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
}

#[tokio::test]
async fn a_restock_adds_its_units_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let sale = |reply: &Value| (reply["sale"]["total"].clone(), reply["sale"]["left"].clone());
    for (units, key, stock) in
        [(3, "monday", 5), (3, "monday", 5), (4, "tuesday", 9), (3, "monday", 9)]
    {
        let reply = app.restock(coupon, units, key).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(sale(&reply.body), (json!(stock), json!(stock)), "{key}");
    }
    let refused = app.restock(coupon, 4, "monday").await;
    assert_eq!(refused.refusal(), (409, "restock_key_used"));
    // The key belongs to the coupon.
    let other = app.create_flash(1).await;
    assert_eq!(sale(&app.restock(other, 1, "monday").await.body), (json!(2), json!(2)));
    // Many at a time under one key.
    let crowd = (0..10).map(|_| app.restock(coupon, 1, "wednesday"));
    for reply in futures_util::future::join_all(crowd).await {
        assert_eq!((reply.status, sale(&reply.body).0), (200, json!(10)));
    }
}

#[tokio::test]
async fn no_coupon_that_orders_may_name_goes_away() {
    let app = TestApp::start().await;
    let flash = app.create_flash(1).await;
    let regular = app.create_regular().await;
    for statement in [
        format!("DELETE FROM flash_sales WHERE coupon_id = {flash}"),
        format!("DELETE FROM coupons WHERE id = {regular}"),
        "TRUNCATE coupons CASCADE".to_owned(),
    ] {
        let deleted =
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&app.app.stores.pool).await;
        let refused = deleted.unwrap_err().to_string();
        assert!(refused.contains("never deleted"), "{refused}");
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 2);
}

/// Over HTTP as `flash-sale coupon show` prints it.
#[tokio::test]
async fn the_progress_of_a_sale_is_told_by_both_stores() {
    let app = TestApp::start().await;
    let (sale, regular) = (app.create_flash(5).await, app.create_regular().await);
    app.paid_order(1, sale).await;
    app.order(2, sale).await;
    app.claim(3, sale).await;
    let progress = async |coupon: CouponId| {
        app.get(&format!("/v1/coupons/{coupon}/progress"), &app.admin_token()).await
    };
    let told = progress(sale).await;
    assert_eq!((told.status, told.text("coupon_id")), (200, &*sale.to_string()));
    let stores = &told.body["stores"];
    assert_eq!((&stores["redis"]["left"], &stores["redis"]["buyers"]), (&json!(2), &json!(3)));
    assert_eq!((&stores["postgres"]["sold"], &stores["log"]["unread"]), (&json!(2), &json!(1)));
    assert_eq!(stores["postgres"]["orders"], json!({"paid": 1, "unpaid": 1}));
    assert_eq!(stores["disagreements"], json!([]));
    assert_eq!(progress(regular).await.body["stores"], Value::Null);
    let unknown: CouponId = "1048577".parse().expect("an id");
    assert_eq!(progress(unknown).await.refusal(), (404, "coupon_not_found"));
    app.execute(&format!("UPDATE flash_sales SET sold = 4 WHERE coupon_id = {sale}")).await;
    let wrong = progress(sale).await;
    assert_eq!(wrong.body["stores"]["disagreements"].as_array().map(Vec::len), Some(1));
    app.execute(&format!("UPDATE flash_sales SET sold = 2 WHERE coupon_id = {sale}")).await;
}
