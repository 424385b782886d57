//! The page of one claim: from the click on a sale to all of its steps.

use fantoccini::key::Key;
use private_servers::testing::eventually;

use crate::access::look;
use crate::support::{Device, Shop, Tab};

/// The times that the page shows, of steps that are known.
const TIMES: &str = "return String([...document.querySelectorAll('.way .took')].filter((it) => /\\d/.test(it.innerText)).length)";

/// The time that the tab has kept for its request.
const TRIP: &str =
    "return String(localStorage.getItem(`flash-sale.trip.${location.pathname.split('/')[2]}`))";

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_followed_from_the_page_of_its_sale() {
    let shop = Shop::open(&[]).await;
    let tab = claimed(&shop, Device::Desk).await;
    tab.tab_to(".number a").await;
    tab.press(Key::Enter).await;
    all_known(&tab).await;
    assert_eq!(tab.text("nav [aria-current]").await, "One claim");
    assert!(tab.text(".badge").await.starts_with("row after"), "{}", tab.text(".badge").await);
    assert!(tab.text("[data-step=log] .took").await.starts_with("≈"));
    // What this tab has waited for longer than the service took is the way between the two, there and back.
    assert!(tab.text("[data-step=way] .took").await.starts_with("≈"));
    let bars = "return String(document.querySelectorAll('[data-step=way] rect').length)";
    assert_eq!(tab.eval(bars).await, "2");
    let trip = tab.eval(TRIP).await;
    assert!(
        trip.parse::<f64>().is_ok_and(|ms| ms > 0.0),
        "the browser's time of the request: {trip:?}"
    );
    assert!(!tab.text("[data-step=row] .took").await.contains('≈'));
    assert_eq!(tab.text("[data-step=script] code").await, "lua/claim.lua");
    assert_eq!(tab.said().await, "All steps of the claim are known.");
    tab.assert_fits().await;
    tab.picture("trace").await;
    tab.click("[lang=zh-CN]").await;
    tab.reads("为什么不会丢失").await;
    tab.picture("trace-zh").await;
    // The times stay as they are; the sale still knows the way here.
    tab.reload().await;
    all_known(&tab).await;
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_of_the_sale_keeps_the_link_and_a_stranger_is_told_nothing() {
    let shop = Shop::open(&[]).await;
    let tab = claimed(&shop, Device::Phone).await;
    tab.reload().await;
    tab.shows("unpaid").await;
    let path = "return document.querySelector('.number a')?.getAttribute('href') ?? ''";
    eventually("the link is there", async || !tab.eval(path).await.is_empty()).await;
    let path = tab.eval(path).await;
    let stranger = shop.visit(Device::Phone, &path).await;
    stranger.reads("This tab isn't signed in").await;
    stranger.close().await;
    let lost = shop.visit(Device::Phone, "/claim/x").await;
    lost.reads("This tab isn't signed in").await;
    lost.close().await;
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_state_of_a_claim_on_a_phone_has_a_fault_that_axe_knows() {
    check_states(Device::Phone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_state_of_a_claim_on_a_desk_has_a_fault_that_axe_knows() {
    check_states(Device::Desk).await;
}

async fn check_states(device: Device) {
    let shop = Shop::open(&[]).await;
    let tab = claimed(&shop, device).await;
    check(&tab, device, "Follow this claim").await;
    tab.click(".number a").await;
    all_known(&tab).await;
    check(&tab, device, "Why it can't get lost").await;
    tab.picture(&format!("trace-{device:?}")).await;
    tab.click("header button").await;
    tab.picture(&format!("trace-{device:?}-other")).await;
    tab.close().await;
    let stranger = shop.visit(device, "/claim/1024").await;
    check(&stranger, device, "This tab isn't signed in").await;
    stranger.close().await;
}

/// A tab that has claimed, and shows the link to its claim.
async fn claimed(shop: &Shop, device: Device) -> Tab {
    let coupon = shop.sale(2, -1).await;
    let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    tab.reads("Follow this claim").await;
    tab
}

/// Checks a state in both themes.
async fn check(tab: &Tab, device: Device, words: &str) {
    tab.reads(words).await;
    look(tab, device, words).await;
}

async fn all_known(tab: &Tab) {
    eventually("all steps are known", async || tab.eval(TIMES).await == "9").await;
}
