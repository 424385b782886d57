//! All unpaid orders of a coupon, cancelled by a job that survives the death of its process.

use flash_sale::base::limits::CANCELLATIONS_BATCH;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::for_buyers::bad_reasons;
use crate::support::process::Process;
use crate::support::{Bounded, Reply, TestApp, bounded, eventually};

async fn ask(app: &TestApp, coupon: CouponId, key: &str) -> Reply {
    let path = format!("/v1/coupons/{coupon}/cancel-unpaid");
    let body = json!({"key": key, "reason": "the price was wrong"});
    let reply = app.post(&path, &app.admin_token(), &body).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    reply
}

async fn job(app: &TestApp, id: &str) -> Value {
    let reply = app.get(&format!("/v1/jobs/{id}"), &app.admin_token()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body
}

#[tokio::test]
async fn all_unpaid_orders_of_before_are_cancelled_and_no_others() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let other = app.create_flash(1).await;
    let (one, two) = (app.order(1, coupon).await, app.order(2, coupon).await);
    let paid = app.paid_order(3, coupon).await;
    let of_another = app.order(1, other).await;
    // Accepted before, and a row only later.
    let in_the_log = app.claim(4, coupon).await.order_id();

    let asked = ask(&app, coupon, "k").await;
    let id = asked.text("job_id").to_owned();
    assert_eq!(asked.header("location"), format!("/v1/jobs/{id}"));
    assert_eq!((&asked.body["left"], &asked.body["cancelled"]), (&json!(2), &json!(0)));
    let later = app.claim(5, coupon).await.order_id();
    assert_eq!(app.cancel_for_jobs().await, 2);
    let halfway = job(&app, &id).await;
    assert_eq!((&halfway["cancelled"], &halfway["left"]), (&json!(2), &json!(0)));
    assert!(halfway["finished_at"].is_null(), "a claim of before waits in the log: {halfway}");

    app.write_orders().await;
    assert_eq!(app.cancel_for_jobs().await, 1);
    let done = job(&app, &id).await;
    assert_eq!((&done["cancelled"], done["finished_at"].is_string()), (&json!(3), true), "{done}");
    for (user, order, status) in [
        (1, one, "cancelled"),
        (2, two, "cancelled"),
        (3, paid, "paid"),
        (4, in_the_log, "cancelled"),
        (5, later, "unpaid"),
        (1, of_another, "unpaid"),
    ] {
        assert_eq!(app.status(user, order).await, status, "user {user}");
    }
    assert_eq!((app.give_back().await, app.stock(coupon).await, app.sold(coupon).await), (3, 7, 2));
}

#[tokio::test]
async fn a_repeated_request_finds_its_job_and_cancels_nothing_more() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    app.order(1, coupon).await;
    let first = ask(&app, coupon, "k").await;
    assert_eq!(app.cancel_for_jobs().await, 1);
    let later = app.order(2, coupon).await;
    let again = ask(&app, coupon, "k").await;
    assert_eq!(first.body["job_id"], again.body["job_id"]);
    assert_eq!(app.cancel_for_jobs().await, 0);
    assert_eq!(app.status(2, later).await, "unpaid");
    let path = format!("/v1/audit?subject={coupon}&action=cancel_unpaid_orders");
    let book = app.get(&path, &app.admin_token()).await.body["entries"].clone();
    assert_eq!(book.as_array().map(Vec::len), Some(1), "{book}");
    let after =
        json!({"job_id": first.body["job_id"], "key": "k", "reason": "the price was wrong"});
    assert_eq!(book[0]["after"], after);

    ask(&app, coupon, "another").await;
    assert_eq!((app.cancel_for_jobs().await, app.status(2, later).await), (1, "cancelled".into()));
    let other = app.create_flash(1).await;
    for (of, jobs) in [(coupon, 2), (other, 0)] {
        let path = format!("/v1/jobs?coupon={of}");
        let of_it = app.get(&path, &app.admin_token()).await;
        assert_eq!(of_it.body["jobs"].as_array().map(Vec::len), Some(jobs), "{of_it:?}");
    }
    let page = app.get("/v1/jobs?limit=1", &app.admin_token()).await;
    assert_eq!(page.body["jobs"][0]["key"], "another");
    let next = format!("/v1/jobs?cursor={}", page.text("next_cursor"));
    let next = app.get(&next, &app.admin_token()).await;
    assert_eq!(
        (&next.body["jobs"][0]["key"], &next.body["next_cursor"]),
        (&json!("k"), &Value::Null)
    );
}

/// Postgres takes longer over one coupon than a statement may take.
#[tokio::test]
async fn a_job_that_fails_holds_up_no_other() {
    let app = TestApp::configured(&["--database-timeout-ms", "3000"]).await;
    let [slow, other] = [app.create_flash(1).await, app.create_flash(1).await];
    let orders = [app.order(1, slow).await, app.order(2, other).await];
    for coupon in [slow, other] {
        ask(&app, coupon, "k").await;
    }
    app.execute(&format!(
        "CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(4); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON orders FOR EACH ROW WHEN (OLD.coupon_id = {slow}) EXECUTE FUNCTION take_time()"
    ))
    .await;
    app.app.cancellations.pass().bounded().await.expect_err("one job has failed");
    assert_eq!(
        (app.status(1, orders[0]).await, app.status(2, orders[1]).await),
        ("unpaid".into(), "cancelled".into())
    );
    app.execute("DROP TRIGGER slow ON orders").await;
    assert_eq!(app.cancel_for_jobs().await, 1);
}

/// A process is killed in its second batch; another one goes on.
#[tokio::test]
async fn a_job_survives_the_death_of_its_process_and_counts_each_order_once() {
    let app = TestApp::start().await;
    let orders = 2 * CANCELLATIONS_BATCH + 1;
    let coupon = app.create_flash(orders).await;
    app.sell_out_by_hand(coupon, orders).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
             SELECT (1::bigint << 60) + n, {coupon}, 'flash', n, now() - interval '1 min' + n * interval '1 ms', 1, 'CNY',
                    now() + interval '1 hour'
             FROM generate_series(1, {orders}) AS n;
         UPDATE flash_sales SET sold = {orders} WHERE coupon_id = {coupon}"
    ))
    .await;
    let id = ask(&app, coupon, "k").await.text("job_id").to_owned();

    // The second batch waits for an order that another transaction has locked.
    let url = app.store_arguments()[3].clone();
    let mut blocker = PgConnection::connect(&url).await.expect("Postgres answers");
    let mut locked = blocker.begin().await.expect("Postgres answers");
    let in_second_batch = (1_i64 << 60) + CANCELLATIONS_BATCH + 1;
    sqlx::query("SELECT FROM orders WHERE id = $1 FOR UPDATE")
        .bind(in_second_batch)
        .execute(&mut *locked)
        .await
        .expect("Postgres locks it");
    let mut dying = Process::serve(&app, &["--roles", "worker"]);
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                   AND datname = current_database() AND query LIKE '%WITH these AS%'";
    eventually("the second batch waits", async || app.number(waiting).await == 1).await;
    dying.kill();
    dying.ended().await;
    locked.rollback().await.expect("Postgres answers");
    // Postgres notices that its client has gone when it asks for the next statement, and rolls the batch back.
    let left = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND query LIKE 'WITH these AS%'";
    eventually("the second batch is rolled back", async || app.number(left).await == 0).await;
    let cancelled = "SELECT count(*) FROM orders WHERE status = 'cancelled'";
    assert_eq!(app.number(cancelled).await, CANCELLATIONS_BATCH, "one batch, whole");
    assert_eq!(job(&app, &id).await["cancelled"], CANCELLATIONS_BATCH);

    let mut another = Process::serve(&app, &["--roles", "worker"]);
    eventually("the other process ends the job", async || {
        job(&app, &id).await["finished_at"].is_string()
    })
    .await;
    assert_eq!(job(&app, &id).await["cancelled"], orders);
    assert_eq!(app.sold(coupon).await, 0);
    eventually("each unit is back", async || app.stock(coupon).await == orders).await;
    another.assert_stops().await;
    assert_eq!(app.number(cancelled).await, orders);
    assert_eq!(app.number("SELECT count(*) FROM stock_returns").await, orders, "each unit once");
    assert_eq!(app.stock(coupon).await, orders);
}

/// Two processes work on the same job at the same moment, while the buyers pay.
#[tokio::test]
async fn an_order_is_paid_or_cancelled_and_never_both() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(20).await;
    let mut orders = Vec::new();
    for user in 1..=20 {
        orders.push((user, app.claim(user, coupon).await.order_id()));
    }
    app.write_orders().await;
    let id = ask(&app, coupon, "k").await.text("job_id").to_owned();
    let other = app.another_instance().await;
    let pay = async {
        let mut paid = 0;
        for (user, order) in &orders {
            paid += i64::from(app.pay(*user, *order).await.status == 200);
        }
        paid
    };
    let passes = async { tokio::join!(app.cancel_for_jobs(), other.cancellations.pass()) };
    let both = bounded("passes and payments", async { tokio::join!(pay, passes) }).await;
    let (paid, (here, there)) = both;
    let cancelled = i64::try_from(here + there.expect("both stores answer")).expect("few");
    assert_eq!(paid + cancelled, 20);
    let job = job(&app, &id).await;
    assert_eq!((&job["cancelled"], job["finished_at"].is_string()), (&json!(cancelled), true));
    assert_eq!(app.sold(coupon).await, paid);
}

#[tokio::test]
async fn a_key_is_good_for_one_reason() {
    let app = TestApp::start().await;
    let (coupon, other) = (app.create_flash(2).await, app.create_flash(1).await);
    let first = ask(&app, coupon, "k").await;
    let body = json!({"key": "k", "reason": "the event is off"});
    let path = format!("/v1/coupons/{coupon}/cancel-unpaid");
    let refused = app.post(&path, &app.admin_token(), &body).await;
    assert_eq!(refused.refusal(), (422, "idempotency_key_reused"));
    let book = app.get(&format!("/v1/audit?subject={coupon}"), &app.admin_token()).await;
    assert!(!book.body.to_string().contains("the event is off"), "{book:?}");
    assert_eq!(ask(&app, coupon, "k").await.body["job_id"], first.body["job_id"]);
    // Another coupon has keys of its own.
    let path = format!("/v1/coupons/{other}/cancel-unpaid");
    let accepted = app.post(&path, &app.admin_token(), &body).await;
    assert_eq!((accepted.status, &accepted.body["reason"]), (202, &body["reason"]));
}

#[tokio::test]
async fn a_bad_request_for_a_job_is_refused() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let path = format!("/v1/coupons/{coupon}/cancel-unpaid");
    let mut bodies = bad_reasons(json!({"key": "k"}));
    let keys = [json!(""), json!("a\nb"), json!("x".repeat(101)), json!(7), json!(null)];
    bodies.extend(keys.map(|key| json!({"key": key, "reason": "x"})));
    bodies.push(json!({"reason": "x"}));
    for body in bodies {
        let refused = app.post(&path, &app.admin_token(), &body).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{body}");
    }
    let fine = json!({"key": "k", "reason": "x"});
    let none = app.post("/v1/coupons/7/cancel-unpaid", &app.admin_token(), &fine).await;
    assert_eq!(none.refusal(), (404, "coupon_not_found"));
    let missing = app.get("/v1/jobs/7", &app.admin_token()).await;
    assert_eq!(missing.refusal(), (404, "job_not_found"));
    assert_eq!(app.number("SELECT count(*) FROM jobs").await, 0);
    assert_eq!(app.cancel_for_jobs().await, 0);
}
