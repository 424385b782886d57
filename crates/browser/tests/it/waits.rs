//! A claim that waits for others, in each state on the way, on both sizes and in both themes: for a decision of the
//! staff, for a gateway, for a worker.

use serde_json::json;

use crate::access::check;
use crate::support::{Device, SECRET, Servers, Shop, Tab, worker};

const DEVICES: [Device; 2] = [Device::Phone, Device::Desk];

/// Redis counts one unit more than Postgres has, so the worker can't write the second claim. An operator adds a unit, and
/// retries the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_review_becomes_an_order_once_there_is_a_unit_for_it() {
    let servers = Servers::start().await;
    let shop = Shop::open(&servers.arguments()).await;
    for device in DEVICES {
        let coupon = shop.sale(1, -1).await;
        let add_in_redis = |units: &str| {
            servers.redis(&["HINCRBY", &format!("fs:{{0}}:coupon:{coupon}"), "stock", units]);
        };
        add_in_redis("1");
        let other = shop.other_claims(&coupon).await;
        shop.other_is_written(&other).await;
        let tab = claiming(&shop, device, &coupon).await;
        check(&tab, device, "in_review").await;
        tab.reads("Your unit stays reserved").await;
        tab.reads("Your claim stands here as soon as its order is written").await;
        tab.picture(&format!("in-review-{device:?}")).await;

        let board = shop.operator(device).await;
        board.reads("One claim could not become an order").await;
        shop.restock(&coupon, 1).await;
        add_in_redis("-1");
        board.click("#panel-letters .retry").await;
        board.reads("It is an order now.").await;
        board.reads("None open.").await;
        board.reads("Dead letter retried").await;
        board.close_clean().await;
        // The page of its buyer notices by itself.
        tab.shows("unpaid").await;
        tab.click(".buttons .go").await;
        tab.shows("paid").await;
        tab.close_clean().await;
    }
}

/// A gateway without a URL is asked for nothing: the refund waits until the gateway confirms it.
#[tokio::test(flavor = "multi_thread")]
async fn a_refund_is_on_its_way_until_the_gateway_confirms_it() {
    let shop = Shop::open(&["--payment-callback-secret", SECRET]).await;
    for device in DEVICES {
        let coupon = shop.sale(2, -1).await;
        let tab = claiming(&shop, device, &coupon).await;
        tab.shows("unpaid").await;
        let order = tab.text(".number b").await.replace(' ', "");
        let payment = format!("p-{order}");
        let paid = json!({"kind": "payment", "payment_id": payment, "order_id": order, "method": 3, "amount_cents": 2_500});
        shop.gateway_says(SECRET, &paid).await;
        tab.shows("paid").await;
        tab.click(".buttons .other").await;
        check(&tab, device, "refunding").await;
        tab.reads("The money is being handed back").await;
        tab.picture(&format!("refunding-{device:?}")).await;
        shop.gateway_says(SECRET, &json!({"kind": "refund", "payment_id": payment})).await;
        tab.reads("You have your money back").await;
        tab.close_clean().await;
    }
}

/// Without a worker the log fills up to its bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_sent_away_is_taken_in_as_soon_as_there_is_room() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let bound = ["--roles", "api", "--backlog-orders-max", "1"];
    let shop = Shop::open(&[&urls[..], &bound].concat()).await;
    let coupon = shop.sale(5, -1).await;
    shop.other_claims(&coupon).await;
    shop.is_full().await;
    let mut tabs = Vec::new();
    for device in DEVICES {
        let tab = claiming(&shop, device, &coupon).await;
        check(&tab, device, "overloaded").await;
        tab.reads("Your claim was not taken in yet").await;
        tab.picture(&format!("overloaded-{device:?}")).await;
        tabs.push(tab);
    }
    let _worker = worker(&urls);
    for tab in tabs {
        tab.shows("unpaid").await;
        tab.close_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_after_too_many_that_were_given_up_is_not_given_up() {
    let shop = Shop::open(&["--closed-orders-max", "1"]).await;
    let coupon = shop.sale(5, -1).await;
    for device in DEVICES {
        let tab = claiming(&shop, device, &coupon).await;
        tab.shows("unpaid").await;
        tab.click(".buttons .other").await;
        tab.shows("open").await;
        tab.click("#claim").await;
        tab.shows("unpaid").await;
        tab.click(".buttons .other").await;
        tab.reads("You have given up too many orders of this coupon").await;
        check(&tab, device, "unpaid").await;
        tab.close_clean().await;
    }
}

/// A worker gives the unit of a closed order back; until then its buyer is still one.
#[tokio::test(flavor = "multi_thread")]
async fn a_click_after_an_order_was_given_up_waits_until_its_unit_is_back() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let shop = Shop::open(&[&urls[..], &["--roles", "api"]].concat()).await;
    let coupon = shop.sale(5, -1).await;
    let mut first = worker(&urls);
    let mut tabs = Vec::new();
    for device in DEVICES {
        let tab = claiming(&shop, device, &coupon).await;
        tab.shows("unpaid").await;
        tabs.push((device, tab));
    }
    first.kill();
    for (device, tab) in &tabs {
        tab.click(".buttons .other").await;
        tab.shows("open").await;
        tab.click("#claim").await;
        check(tab, *device, "coming_back").await;
        tab.reads("Your last order is being closed").await;
        tab.picture(&format!("coming-back-{device:?}")).await;
    }
    let _second = worker(&urls);
    for (_, tab) in tabs {
        tab.shows("unpaid").await;
        tab.close_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_under_way_and_an_order_that_expired_have_no_fault_that_axe_knows() {
    let shop = Shop::open(&["--payment-window-s", "3"]).await;
    for device in DEVICES {
        let coupon = shop.sale(1, -1).await;
        let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
        tab.shows("open").await;
        tab.eval(SLOW_CLAIMS).await;
        tab.click("#claim").await;
        check(&tab, device, "claiming").await;
        tab.eval("window.deliver(); return ''").await;
        tab.reads("Not paid in time").await;
        check(&tab, device, "open").await;
        tab.close_clean().await;
    }
}

/// Holds the replies to claims back until `deliver` is called.
const SLOW_CLAIMS: &str = "
    const { fetch } = window;
    const delivered = new Promise((done) => { window.deliver = done; });
    window.fetch = async (path, options) => {
        const reply = await fetch(path, options);
        if (path.endsWith('/claims')) await delivered;
        return reply;
    };
    return ''";

/// A tab that has clicked on the button of this sale.
async fn claiming(shop: &Shop, device: Device, coupon: &str) -> Tab {
    let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab
}
