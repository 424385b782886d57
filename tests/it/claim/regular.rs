//! Claims on regular coupons: Postgres decides, one unpaid order at a time.

use std::time::{Duration, Instant};

use flash_sale::base::limits;
use flash_sale::store::ids::CouponId;
use serde_json::json;

use crate::support::{TestApp, eventually, user};

#[tokio::test]
async fn a_claim_creates_an_unpaid_order_at_once() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_regular().await;
        let created = app.claim(42, coupon).await;
        assert_eq!((created.status, created.text("status")), (201, "unpaid"));
        assert_eq!(created.header("location"), format!("/v1/orders/{}", created.order_id()));
        assert_eq!(app.get(created.header("location"), &app.token(42)).await.body, created.body);
        assert_eq!(app.my_claim(42, coupon).await.order_id(), created.order_id());
    }
}

#[tokio::test]
async fn one_unpaid_order_at_a_time() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let first = app.claim(42, coupon).await;
    let repeat = app.claim(42, coupon).await;
    assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), first.order_id()));
    assert_eq!(app.claim(43, coupon).await.status, 201, "another user's is another matter");

    for closed in [
        "status = 'paid', paid_at = now(), pay_method = 'balance'",
        "status = 'cancelled', cancelled_at = now()",
        "status = 'expired', expired_at = now()",
    ] {
        app.execute(&format!(
            "UPDATE orders SET {closed} WHERE status = 'unpaid' AND user_id = 42"
        ))
        .await;
        assert_eq!(app.claim(42, coupon).await.status, 201, "after {closed}");
    }
}

/// Nobody pays for it, so only its use makes room for the next one.
#[tokio::test]
async fn a_repeated_claim_of_a_free_coupon_gets_the_first_order_until_that_is_redeemed() {
    let app = TestApp::start().await;
    let free = json!({"kind": "regular", "title": "t", "pay_cents": 0, "value_cents": 2});
    let created = app.post("/v1/coupons", &app.admin_token(), &free).await;
    let coupon = created.text("id").parse().expect("an id");
    let first = app.claim(42, coupon).await;
    assert_eq!((first.status, first.text("status")), (201, "paid"));
    let repeat = app.claim(42, coupon).await;
    assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), first.order_id()));
    app.execute("UPDATE orders SET status = 'redeemed', redeemed_at = now()").await;
    assert_eq!(app.claim(42, coupon).await.status, 201);
}

#[tokio::test]
async fn of_many_claims_at_once_one_creates_the_order() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let replies = futures_util::future::join_all((0..10).map(|_| app.claim(42, coupon))).await;
    let orders: Vec<i64> =
        replies.iter().filter(|reply| reply.status != 503).map(|reply| reply.order_id()).collect();
    assert!(orders.iter().all(|order| *order == orders[0]));
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test]
async fn a_busy_lock_is_waited_for_and_then_unavailable() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let key = app.keys().order_lock(coupon.lane(), user(42));
    let held = app.app.locks.first().try_acquire_batch(vec![key]).await.unwrap();
    let began = Instant::now();
    let busy = app.claim(42, coupon).await;
    assert_eq!((busy.refusal(), busy.header("retry-after")), ((503, "unavailable"), "1"));
    assert!(began.elapsed() >= limits::LOCK_WAIT_MAX, "it is not waited for");

    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        held.release().await;
    };
    let (mut waited, ()) = tokio::join!(app.claim(42, coupon), release);
    // On a slow machine the second of the first request may be over before the lock is free.
    eventually("an order", async || {
        if waited.status == 503 {
            waited = app.claim(42, coupon).await;
        }
        waited.status == 201
    })
    .await;
}

#[tokio::test]
async fn a_coupon_that_is_not_on_offer_is_refused() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    for (verb, refusal) in [("pause", (409, "sale_paused")), ("end", (410, "sale_ended"))] {
        assert_eq!(app.r#move(coupon, verb).await.status, 200);
        assert_eq!(app.claim(42, coupon).await.refusal(), refusal);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_leave_its_lock_behind() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let key = app.keys().order_lock(coupon.lane(), user(42));
    // The claim waits for this row's lock when its client gives up.
    let tx = app.holding("LOCK TABLE orders").await;
    let held = async || app.redis::<bool>(&["EXISTS", &key]).await;
    let gone = async {
        eventually("it has the lock", held).await;
    };
    tokio::select! {
        reply = app.claim(42, coupon) => panic!("it was answered: {reply:?}"),
        () = gone => {}
    }
    eventually("the lock is free", async || !held().await).await;
    tx.rollback().await.unwrap();
    let outcome = app.claim(42, coupon).await;
    assert!([201, 409].contains(&outcome.status), "{outcome:?}");
}

/// Claims and cancels until a claim is refused. Returns the number of orders.
async fn claimed_and_cancelled(app: &TestApp, id: i64, coupon: CouponId, most: usize) -> usize {
    for orders in 0..most {
        let claimed = app.claim(id, coupon).await;
        if claimed.status != 201 {
            assert_eq!(claimed.refusal(), (409, "too_many_closed_orders"));
            let seconds: i64 = claimed.header("retry-after").parse().expect("seconds");
            assert!((1..=3_601).contains(&seconds), "{claimed:?}");
            return orders;
        }
        assert_eq!(app.cancel(id, claimed.order_id()).await.status, 200);
    }
    most
}

#[tokio::test]
async fn claiming_and_cancelling_in_a_loop_is_bounded_by_default() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    assert_eq!(claimed_and_cancelled(&app, 42, coupon, 30).await, 20);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 20);
    let unbounded = TestApp::configured(&["--closed-orders-max", "0"]).await;
    let coupon = unbounded.create_regular().await;
    assert_eq!(claimed_and_cancelled(&unbounded, 42, coupon, 30).await, 30);
}

#[tokio::test]
async fn closed_orders_count_for_their_user_their_coupon_and_their_hour() {
    let app = TestApp::configured(&["--closed-orders-max", "2"]).await;
    let (coupon, another) = (app.create_regular().await, app.create_regular().await);
    let paid = app.claim(42, coupon).await.order_id();
    assert_eq!(app.pay(42, paid).await.status, 200);
    assert_eq!(claimed_and_cancelled(&app, 42, coupon, 1).await, 1);
    let unpaid = app.claim(42, coupon).await;
    assert_eq!(unpaid.status, 201, "a paid order doesn't count");
    let repeat = app.claim(42, coupon).await;
    assert_eq!(
        (repeat.refusal(), repeat.order_id()),
        ((409, "already_claimed"), unpaid.order_id())
    );
    assert_eq!(app.cancel(42, unpaid.order_id()).await.status, 200);
    assert_eq!(app.claim(42, coupon).await.refusal(), (409, "too_many_closed_orders"));
    assert_eq!(app.r#move(coupon, "pause").await.status, 200);
    assert_eq!(app.claim(42, coupon).await.refusal(), (409, "sale_paused"));
    assert_eq!(app.r#move(coupon, "resume").await.status, 200);
    assert_eq!(claimed_and_cancelled(&app, 43, coupon, 2).await, 2, "another user");
    assert_eq!(claimed_and_cancelled(&app, 42, another, 2).await, 2, "another coupon");
    // Ids carry seconds.
    let hour = 3_602_i64 << 32;
    app.execute(&format!("UPDATE orders SET id = id - {hour} WHERE status = 'cancelled'")).await;
    assert_eq!(app.claim(42, coupon).await.status, 201, "an hour later");
}
