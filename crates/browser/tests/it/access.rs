//! The page for all: by keyboard alone, in both languages, and in each state, theme and size without a fault that
//! axe-core knows.

use fantoccini::key::Key;

use crate::support::{Device, Shop, Tab};

#[tokio::test(flavor = "multi_thread")]
async fn by_keyboard_alone_and_in_chinese() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let tab = shop.visit(Device::Desk, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.tab_to("[lang=zh-CN]").await;
    tab.press(Key::Enter).await;
    tab.reads("剩余").await;
    assert_eq!(tab.eval("return document.documentElement.lang").await, "zh-CN");
    tab.tab_to("#claim").await;
    tab.press(Key::Enter).await;
    tab.shows("unpaid").await;
    assert!(tab.said().await.starts_with("抢到了"), "{}", tab.said().await);
    // The button has gone, and the focus is not lost: it is at the words in its place.
    assert_eq!(tab.eval("return document.activeElement.innerText").await.trim(), "抢到了");
    tab.picture("unpaid-zh").await;
    tab.tab_to("#pay[aria-disabled=false]").await;
    tab.press(Key::Enter).await;
    tab.shows("paid").await;
    assert!(tab.said().await.starts_with("已归您所有"), "{}", tab.said().await);
    assert_eq!(tab.eval("return document.activeElement.innerText").await.trim(), "已归您所有");
    // The language stays.
    tab.reload().await;
    tab.reads("我的订单").await;
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_state_on_a_phone_has_a_fault_that_axe_knows() {
    check_states(Device::Phone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_state_on_a_desk_has_a_fault_that_axe_knows() {
    check_states(Device::Desk).await;
}

async fn check_states(device: Device) {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, 3_600).await;
    let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
    check(&tab, device, "sale_not_started").await;
    shop.opens_in(&coupon, 0).await;
    check(&tab, device, "open").await;
    shop.r#move(&coupon, "pause").await;
    check(&tab, device, "sale_paused").await;
    shop.r#move(&coupon, "resume").await;
    tab.shows("open").await;
    tab.click("#claim").await;
    check(&tab, device, "unpaid").await;
    tab.click_once("#give-up").await;
    tab.assert_accessible(&format!("the question, {device:?}")).await;
    tab.press(Key::Escape).await;
    tab.pay().await;
    check(&tab, device, "paid").await;
    tab.close().await;

    shop.other_claims(&coupon).await;
    let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
    check(&tab, device, "sold_out").await;
    shop.r#move(&coupon, "end").await;
    check(&tab, device, "sale_ended").await;
    tab.close().await;
    let tab = shop.visit(device, "/sale/1024000").await;
    check(&tab, device, "coupon_not_found").await;
    tab.close().await;
}

/// Checks a state in both themes, once the page is in it.
pub async fn check(tab: &Tab, device: Device, face: &str) {
    tab.shows(face).await;
    look(tab, device, face).await;
}

/// Checks the page as it is, in both themes.
pub async fn look(tab: &Tab, device: Device, face: &str) {
    tab.assert_fits().await;
    for _ in 0..2 {
        tab.click("header button").await;
        let theme = tab.eval("return document.documentElement.dataset.theme").await;
        tab.assert_accessible(&format!("{face}, {device:?}, {theme}")).await;
    }
}
