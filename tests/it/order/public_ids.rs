//! Order ids outside: far apart for neighbouring orders, one for each order wherever it is told, and fixed for the life of
//! an installation.

use flash_sale::sale::installation::{UnfitKey, decide_public_ids, public_ids};
use futures_util::future::join_all;
use secrecy::SecretString;
use serde_json::json;

use crate::support::process::Process;
use crate::support::{KEYED, SECRET, TestApp, bounded};

#[tokio::test]
async fn neighbouring_orders_have_ids_far_apart() {
    let app = TestApp::configured(&KEYED).await;
    let coupon = app.create_flash(20).await;
    let claimed = join_all((1..=20).map(|user| app.claim(user, coupon))).await;
    app.write_orders().await;
    let public: Vec<i64> = claimed.iter().map(|reply| reply.order_id()).collect();
    let (mut inner, mut outside) =
        (public.iter().map(|id| app.inner(*id)).collect::<Vec<i64>>(), public.clone());
    inner.sort_unstable();
    outside.sort_unstable();
    let least = |ids: &[i64]| ids.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(least(&inner) < Some(1 << 20), "they are neighbours inside: {inner:?}");
    assert!(least(&outside) > Some(1 << 40), "they tell nothing outside: {outside:?}");
    for id in inner {
        assert_eq!(app.number(&format!("SELECT count(*) FROM orders WHERE id = {id}")).await, 1);
    }
}

#[tokio::test]
async fn an_order_has_one_id_wherever_it_is_told() {
    let app = TestApp::configured(&KEYED).await;
    let coupon = app.create_flash(3).await;
    let order = app.claim_traced(1, coupon, "1").await.order_id();
    assert_ne!(order, app.inner(order));
    assert_eq!(app.buyers(coupon).await[&1], app.inner(order), "Redis has the inner one");
    let repeated = app.claim(1, coupon).await;
    assert_eq!((repeated.refusal(), repeated.order_id()), ((409, "already_claimed"), order));
    assert_eq!(app.my_claim(1, coupon).await.order_id(), order);
    app.write_orders().await;
    assert_eq!(app.my_claim(1, coupon).await.order_id(), order);
    for path in [format!("/v1/orders/{order}"), format!("/v1/orders/{order}/trace")] {
        assert_eq!(app.get(&path, &app.token(1)).await.order_id(), order, "{path}");
    }
    let waited = async {
        let (claimed, ()) = tokio::join!(app.claim_preferring(2, coupon, "wait=10"), async {
            while app.write_orders().await.inserted == 0 {}
        });
        claimed
    };
    let created = bounded("the row and the reply", waited).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.header("location"), format!("/v1/orders/{}", created.order_id()));
    assert_eq!(app.show(2, created.order_id()).await.order_id(), created.order_id());
    let regular = app.create_regular().await;
    let bought = app.claim(1, regular).await;
    assert_eq!(bought.header("location"), format!("/v1/orders/{}", bought.order_id()));
    for action in ["pay", "cancel"] {
        let reply = match action {
            "pay" => app.pay(1, order).await,
            _ => app.act(1, bought.order_id(), action).await,
        };
        assert_eq!(reply.status, 200, "{action}: {reply:?}");
    }
    let code = app.code(1, order).await;
    let redeemed = app.post("/v1/redemptions", &app.admin_token(), &json!({"code": code})).await;
    assert_eq!((redeemed.status, redeemed.order_id()), (200, order));
}

#[tokio::test]
async fn lists_go_on_by_cursors_that_are_ids_outside() {
    let app = TestApp::configured(&KEYED).await;
    let mut orders = Vec::new();
    for _ in 0..5 {
        let coupon = app.create_flash(1).await;
        orders.push(app.order(1, coupon).await.to_string());
    }
    orders.reverse();
    for (query, token) in [("", app.token(1)), ("&user=1", app.admin_token())] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        bounded("the last page", async {
            loop {
                let page = app.get(&format!("/v1/orders?limit=2{query}{cursor}"), &token).await;
                assert_eq!(page.status, 200, "{page:?}");
                let ids = page.body["orders"].as_array().expect("a list").iter();
                seen.extend(ids.map(|order| order["order_id"].as_str().expect("an id").to_owned()));
                let Some(next) = page.body["next_cursor"].as_str() else { break };
                assert_eq!(Some(next), seen.last().map(String::as_str), "the last one told");
                cursor = format!("&cursor={next}");
            }
        })
        .await;
        assert_eq!(seen, orders, "{query}: newest first");
    }
}

#[tokio::test]
async fn a_gateway_knows_orders_by_their_ids_outside() {
    let app =
        TestApp::configured(&[&["--payment-callback-secret", SECRET][..], &KEYED].concat()).await;
    let coupon = app.create_flash(2).await;
    let order = app.order(1, coupon).await;
    let notice = |order: i64| {
        json!({"kind": "payment", "payment_id": format!("g{order}"), "order_id": order.to_string(),
               "method": 3, "amount_cents": 1})
    };
    let held = app.confirm(&notice(app.inner(order))).await;
    assert_eq!(held.text("outcome"), "held", "no order has this id outside: {held:?}");
    let accepted = app.confirm(&notice(order)).await;
    assert_eq!(accepted.text("outcome"), "accepted");
    assert_eq!(accepted.body["order"]["order_id"], order.to_string());
    // The gateway for trying is a gateway, too.
    let tried = app.paid_order(2, coupon).await;
    let reference = format!("SELECT count(*) FROM payments WHERE gateway_payment_id = '{tried}'");
    assert_eq!(app.number(&reference).await, 1);
}

/// `flash-sale id public` translates such a line; the stores and the commands have the ids inside, too.
#[tokio::test]
async fn a_log_line_names_an_order_by_its_id_inside() {
    let app = TestApp::configured(&KEYED).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let inner = app.inner(order);
    // Due, and Postgres lets it stay as it is alone.
    app.execute("UPDATE orders SET pay_by = pay_by - interval '1 day'").await;
    app.execute("ALTER TABLE orders ADD CONSTRAINT stuck CHECK (status = 'unpaid')").await;
    let service = Process::serve(&app, &[&["--roles", "worker"][..], &KEYED].concat());
    let line = service.logged("an item can't be dealt with").await;
    assert!(line.contains(&inner.to_string()), "{line}");
    assert!(!service.said_so_far().contains(&order.to_string()), "{line}");
}

#[tokio::test]
async fn the_form_is_decided_once_and_a_key_that_does_not_fit_is_refused() {
    let key = SecretString::from(KEYED[1]);
    let other = SecretString::from("another key that is only good for tests");
    let app = TestApp::configured(&KEYED).await;
    let pool = &app.app.stores.pool;
    for decided in [decide_public_ids(pool, Some(&key)).await, public_ids(pool, Some(&key)).await] {
        assert!(decided.expect("the key fits").are_keyed());
    }
    assert!(matches!(decide_public_ids(pool, None).await, Err(UnfitKey::Missing)));
    assert!(matches!(decide_public_ids(pool, Some(&other)).await, Err(UnfitKey::Wrong)));
    let kept = decide_public_ids(pool, Some(&key)).await.expect("a refusal has changed nothing");
    assert!(kept.are_keyed());

    let plain = TestApp::start().await;
    let pool = &plain.app.stores.pool;
    assert!(matches!(decide_public_ids(pool, Some(&key)).await, Err(UnfitKey::Plain)));
    assert!(!decide_public_ids(pool, None).await.expect("none is needed").are_keyed());
}

/// The columns of the migration are taken away, as in an installation that comes from 29a0812.
#[tokio::test]
async fn an_installation_that_has_run_keeps_plain_ids_at_its_upgrade() {
    const MIGRATION: &str = include_str!("../../../migrations/0033_order_ids.sql");
    let app = TestApp::start().await;
    let older = "ALTER TABLE settings DROP COLUMN order_ids, DROP COLUMN order_id_check";
    let plain =
        "SELECT count(*) FROM settings WHERE order_ids = 'plain' AND order_id_check IS NULL";
    // No coupon yet: a process may be about to make one.
    for _ in 0..2 {
        app.execute(older).await;
        app.execute(MIGRATION).await;
        assert_eq!(app.number(plain).await, 1);
        let coupon = app.create_flash(1).await;
        let order = app.order(1, coupon).await;
        assert_eq!(app.number(&format!("SELECT count(*) FROM orders WHERE id = {order}")).await, 1);
    }
}
