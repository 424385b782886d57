//! Operations of the staff on single things: found and not found, done at once and going on.

use flash_sale::sale::pass::Pass;
use serde_json::{Value, json};

use super::{code, door, request, told, with_body, with_header};
use crate::support::{Reply, TestApp, admin_token, eventually, lane};

#[tokio::test]
async fn a_postponed_item_is_tried_again_if_it_is_there() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    app.app.postponed.note(Pass::Places, &[1], "an error").await.expect("Postgres answers");
    let item = app.number("SELECT max(id) FROM postponed").await;
    for (item, expected) in [(item + 1, (404, "postponed_not_found")), (item, (204, ""))] {
        let path = format!("/v1/postponed/{item}/retry");
        let reply = told(&door, request("POST", &path, &admin_token())).await;
        assert_eq!((reply.status, code(&reply)), expected, "{item}");
    }
    app.expect_disagreements();
}

#[tokio::test]
async fn a_recovery_that_lost_claims_is_settled_and_no_other() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    app.execute(
        r#"INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
           SELECT 0, n, 'data_lost', now(), now(), CASE n WHEN 1 THEN
                  '[{"coupon_id": "1024", "user_id": "1", "order_id": "77", "reason": "superseded"}]'::jsonb ELSE '[]' END
           FROM generate_series(1, 2) AS n"#,
    )
    .await;
    let id = app.number("SELECT min(id) FROM recoveries").await;
    let not_found = (404, "recovery_not_found");
    for (recovery, expected) in
        [(id, (204, "")), (id, (204, "")), (id + 1, not_found), (id + 2, not_found)]
    {
        let path = format!("/v1/recoveries/{recovery}/settle");
        let settled = with_body("POST", &path, &admin_token(), &json!({"note": "told"}));
        let reply = told(&door, settled).await;
        assert_eq!((reply.status, code(&reply)), expected, "{recovery}");
    }
}

#[tokio::test]
async fn the_progress_of_a_sale_is_told_for_each_coupon_that_is_there() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let (flash, regular) = (app.create_flash(5).await, app.create_regular().await);
    let ask = async |coupon: &str| {
        told(&door, request("GET", &format!("/v1/coupons/{coupon}/progress"), &admin_token())).await
    };
    assert_eq!(ask("1024000").await.refusal(), (404, "coupon_not_found"));
    for (coupon, has_stores) in [(flash, true), (regular, false)] {
        let reply = ask(&coupon.to_string()).await;
        assert_eq!((reply.status, &reply.body["coupon_id"]), (200, &json!(coupon)));
        assert_eq!(reply.body["stores"].is_object(), has_stores, "{reply:?}");
    }
}

/// Letters that stay are told by their reason, and no reason without letters.
#[tokio::test]
async fn letters_that_stay_are_counted_by_their_reason() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let door = door(&app, |_| {});
    let coupon = app.create_flash(2).await;
    let order = app.order(1, coupon).await;
    let discard = async || {
        let body = json!({"reason": "conflict"});
        told(&door, with_body("POST", "/v1/dead-letters/discard", &admin_token(), &body)).await
    };
    let none = discard().await;
    assert_eq!((none.status, none.body), (200, json!({"discarded": 0, "kept": {}})));
    // A claim of another user under the id of that order.
    let (coupon, order) = (coupon.to_string(), order.to_string());
    app.append(lane(), &["coupon", &coupon, "user", "2", "order", &order]).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    let one = discard().await;
    assert_eq!(
        (one.status, one.body),
        (200, json!({"discarded": 0, "kept": {"order_id_taken": 1}}))
    );
    let letter = app.number("SELECT max(id) FROM dead_letters").await;
    let path = format!("/v1/dead-letters/{letter}/discard");
    let reply = told(&door, request("POST", &path, &admin_token())).await;
    assert_eq!(reply.refusal(), (409, "order_id_taken"));
    let unknown =
        told(&door, request("GET", &format!("/v1/dead-letters/{}", letter + 1), &admin_token()))
            .await;
    assert_eq!(unknown.refusal(), (404, "dead_letter_not_found"));
}

/// A repeat is told of a comparison that goes on, and does not wait for its end.
#[tokio::test]
async fn a_comparison_that_goes_on_is_told_by_its_key_until_it_has_ended() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let compare = async || -> Reply {
        let body = json!({"repair": false});
        let asked = with_body("POST", "/v1/reconcile", &admin_token(), &body);
        told(&door, with_header(asked, "idempotency-key", "k")).await
    };
    // There is a sale to be read.
    app.create_flash(1).await;
    let locks = "LOCK TABLE coupons, flash_sales, orders, order_counts IN ACCESS EXCLUSIVE MODE";
    let lock = app.holding(locks).await;
    let repeat = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
              AND EXISTS (SELECT FROM reconcile_runs)";
        eventually("the comparison has begun", async || app.number(waiting).await > 0).await;
        let reply = compare().await;
        lock.rollback().await.expect("Postgres answers");
        reply
    };
    let (first, repeat) = tokio::join!(compare(), repeat);
    assert_eq!((repeat.status, &repeat.body["finished_at"]), (202, &Value::Null), "{repeat:?}");
    let run = repeat.text("run_id");
    assert_eq!(repeat.header("location"), format!("/v1/reconcile/runs/{run}"));
    assert_eq!(
        (repeat.header("retry-after"), &repeat.body["retry_after_ms"]),
        ("1", &json!(1_000))
    );
    // Unless this machine is so slow that it has gone on for longer than a request waits.
    assert_eq!(first.text("run_id"), run);
    eventually("it has ended", async || {
        let reply = compare().await;
        assert!([200, 202].contains(&reply.status) && reply.text("run_id") == run, "{reply:?}");
        assert_eq!(reply.status == 200, reply.body["finished_at"].is_string(), "{reply:?}");
        reply.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_change_is_made_for_the_revision_that_its_header_names() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let coupon = app.create_regular().await;
    let path = format!("/v1/coupons/{coupon}");
    for (tag, title, expected) in [
        ("\"revision-2\"", "a", "precondition_failed"),
        ("\"revision-1\"", "b", ""),
        ("\"revision-1\"", "c", "precondition_failed"),
        ("*", "d", ""),
        ("no tag", "e", "invalid_if_match"),
    ] {
        let edit = with_body("PATCH", &path, &admin_token(), &json!({"title": title}));
        let reply = told(&door, with_header(edit, "if-match", tag)).await;
        assert_eq!(code(&reply), expected, "{tag}");
        if expected.is_empty() {
            assert_eq!(reply.text("title"), title);
        }
    }
}
