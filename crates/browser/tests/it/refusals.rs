//! The shopper's page while the service answers nothing, refuses, or can't tell: each state on both sizes and in both
//! themes.

use private_servers::testing::{RedisProxy, eventually};
use serde_json::json;
use sqlx::{Connection, PgConnection};

use crate::access::{check, look};
use crate::support::proxy::{Calls, Proxy};
use crate::support::{Device, SECRET, Servers, Shop, Tab, storefront, token_by};

const DEVICES: [Device; 2] = [Device::Phone, Device::Desk];

/// States that are seen before they are over: the test waits for one that lasts long enough.
const TRIES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_hears_nothing_loads_and_then_says_that_the_shop_does_not_answer() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let proxy = Proxy::before(shop.address()).await;
    for device in DEVICES {
        let tab = shop.browse(device).await;
        proxy.turn(Calls::Wait);
        // The page waits for 12 s at most.
        lasts(async || {
            tab.open(&format!("{}/sale/{coupon}", proxy.url())).await;
            look(&tab, device, "loading").await;
            tab.face().await == "loading"
        })
        .await;
        proxy.turn(Calls::Cut);
        check(&tab, device, "unreachable").await;
        tab.reads("It is asked again by itself").await;
        tab.picture(&format!("unreachable-{device:?}")).await;
        proxy.turn(Calls::Pass);
        tab.shows("open").await;
        tab.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shopper_who_asks_too_often_is_asked_for_a_moment() {
    let shop = Shop::open(&["--user-claims-per-second", "1"]).await;
    for device in DEVICES {
        let other = shop.sale(1, -1).await;
        let tab = shop.visit(device, &format!("/sale/{other}")).await;
        tab.shows("open").await;
        tab.click("#claim").await;
        let token = "return sessionStorage.getItem('flash-sale.token') ?? ''";
        eventually("a token", async || !tab.eval(token).await.is_empty()).await;
        // Another device of this shopper takes what the bound leaves; the page waits longer and longer.
        let _other_device = shop.keeps_claiming(tab.eval(token).await, &other);
        lasts(async || {
            let coupon = shop.sale(2, -1).await;
            shop.go(&tab, &format!("/sale/{coupon}")).await;
            tab.shows("open").await;
            tab.click("#claim").await;
            if !is_refused(&tab).await {
                return false;
            }
            look(&tab, device, "rate_limited").await;
            tab.picture(&format!("rate-limited-{device:?}")).await;
            tab.text("#sale").await.contains("That was too often")
        })
        .await;
        tab.close().await;
    }
}

/// True if the page is told to wait; false if it gets the unit.
async fn is_refused(tab: &Tab) -> bool {
    let mut face = String::new();
    eventually("an answer to the claim", async || {
        face = tab.face().await;
        !["open", "claiming"].contains(&&*face)
    })
    .await;
    face == "rate_limited"
}

/// Only a demo gives tokens away.
#[tokio::test(flavor = "multi_thread")]
async fn a_shop_that_does_not_know_the_shopper_asks_to_sign_in() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let shop = Shop::open(&urls).await;
    let coupon = shop.sale(2, -1).await;
    let (_process, url) = storefront(&urls, "127.0.0.1:0").await;
    for (device, user) in DEVICES.into_iter().zip(["71", "72"]) {
        let tab = shop.browse(device).await;
        tab.open(&format!("{url}/sale/{coupon}")).await;
        for token in [None, Some(token_by("another secret, of 32 bytes or more", "7"))] {
            if let Some(token) = token {
                sign_in(&tab, &token).await;
            }
            tab.shows("open").await;
            tab.click("#claim").await;
            check(&tab, device, "invalid_token").await;
            tab.reads("Sign in first").await;
            tab.picture(&format!("sign-in-{device:?}")).await;
        }
        // The page has thrown the other token away, and takes one that the shop knows.
        sign_in(&tab, &token_by(SECRET, user)).await;
        tab.shows("open").await;
        tab.click("#claim").await;
        tab.shows("unpaid").await;
        tab.close().await;
    }
}

async fn sign_in(tab: &Tab, token: &str) {
    tab.eval(&format!("sessionStorage.setItem('flash-sale.token', '{token}'); return ''")).await;
    tab.reload().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_without_a_sale_says_so_and_shows_the_next_one_by_itself() {
    let shop = Shop::open(&[]).await;
    shop.r#move("1024", "end").await;
    let mut tabs = Vec::new();
    for device in DEVICES {
        let tab = shop.visit(device, "/").await;
        check(&tab, device, "no_sale").await;
        tabs.push(tab);
    }
    shop.sale(5, 3_600).await;
    for tab in tabs {
        tab.shows("sale_not_started").await;
        tab.close_clean().await;
    }
}

/// A lane that is closed in Redis, while a transaction keeps the keeper from opening it.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_a_lane_that_recovers_is_taken_in_once_the_lane_is_open() {
    let servers = Servers::start().await;
    let shop = Shop::open(&servers.arguments()).await;
    let coupon = shop.sale(2, -1).await;
    let mut postgres = PgConnection::connect(servers.database_url()).await.expect("it answers");
    for device in DEVICES {
        let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
        tab.shows("open").await;
        let mut transaction = postgres.begin().await.expect("it answers");
        let lock = sqlx::raw_sql("LOCK TABLE lanes IN SHARE ROW EXCLUSIVE MODE");
        lock.execute(&mut *transaction).await.expect("the lock comes");
        servers.redis(&["HSET", "fs:{0}:lane", "state", "recovering"]);
        tab.click("#claim").await;
        check(&tab, device, "recovering").await;
        tab.reads("The shop is catching up").await;
        tab.picture(&format!("recovering-{device:?}")).await;
        transaction.rollback().await.expect("it answers");
        tab.shows("unpaid").await;
        tab.close_clean().await;
    }
}

/// The clock of the device is wrong by more than the sale lasts, so only the service's can tell.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_the_number_left_is_unknown_and_a_wrong_clock_closes_no_sale() {
    let servers = Servers::start().await;
    let proxy = RedisProxy::before(servers.redis_url(), "*").await;
    let shop = Shop::open(&servers.arguments_behind(proxy.url())).await;
    let coupon = shop.sale(2, -1).await;
    proxy.cut().await;
    let mut tabs = Vec::new();
    for (device, hours) in [(Device::Phone, 30), (Device::Desk, -30)] {
        let tab = shop.browse(device).await;
        tab.before_each_page(&wrong_clock(hours)).await;
        shop.go(&tab, &format!("/sale/{coupon}")).await;
        tab.reads("The number left is unknown").await;
        check(&tab, device, "open").await;
        tab.click("#claim").await;
        check(&tab, device, "unavailable").await;
        tab.picture(&format!("no-redis-{device:?}")).await;
        tabs.push(tab);
    }
    proxy.heal();
    for tab in tabs {
        tab.shows("unpaid").await;
        tab.reads("Time left to pay 1").await;
        tab.close_clean().await;
    }
}

/// Sets the clock that a page reads forward.
fn wrong_clock(hours: i64) -> String {
    format!(
        "const {{ Date: Real }} = window;
        window.Date = class extends Real {{
            constructor(...of) {{ super(...(of.length === 0 ? [window.Date.now()] : of)); }}
            static now() {{ return Real.now() + {hours} * 3600e3; }}
        }};"
    )
}

/// The gateway of a real shop takes the money elsewhere: the page says so, and the order stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_deed_says_why_and_changes_nothing() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let with_a_gateway = [&urls[..], &["--payment-callback-secret", SECRET]].concat();
    let shop = Shop::open(&with_a_gateway).await;
    let coupon = shop.sale(2, -1).await;
    let (_process, url) = storefront(&with_a_gateway, "127.0.0.1:0").await;
    for (device, user) in DEVICES.into_iter().zip(["71", "72"]) {
        let tab = shop.browse(device).await;
        tab.open(&format!("{url}/sale/{coupon}")).await;
        sign_in(&tab, &token_by(SECRET, user)).await;
        tab.shows("open").await;
        tab.click("#claim").await;
        tab.shows("unpaid").await;
        tab.eval(FACES).await;
        tab.click(".buttons .go").await;
        tab.reads("Pay at the shop's payment gateway").await;
        check(&tab, device, "unpaid").await;
        assert_eq!(tab.eval("return window.faces.join(' ')").await, "unpaid");
        // The page notices by itself, and invites its shopper to no second payment.
        let order = tab.text(".number b").await.replace(' ', "");
        let paid = json!({"kind": "payment", "payment_id": format!("p-{order}"), "order_id": order, "method": 3, "amount_cents": 2_500});
        shop.gateway_says(SECRET, &paid).await;
        tab.shows("paid").await;
        assert_eq!(tab.text(".deed").await, "");
        tab.close_clean().await;
    }
}

/// Notes each face that the page has from now on.
const FACES: &str = "
    const card = document.querySelector('#sale');
    window.faces = [card.dataset.face];
    new MutationObserver(() => window.faces.includes(card.dataset.face) || window.faces.push(card.dataset.face))
        .observe(card, { attributes: true });
    return ''";

/// Looks at a state that passes by itself until it has lasted for as long as the look.
async fn lasts(mut look: impl AsyncFnMut() -> bool) {
    for _ in 0..TRIES {
        if look().await {
            return;
        }
    }
    panic!("the state has never lasted long enough");
}
