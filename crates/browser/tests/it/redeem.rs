//! The clerk's page.

use fantoccini::key::Key;

use crate::access::look;
use crate::support::{Device, Shop, Tab};

#[tokio::test(flavor = "multi_thread")]
async fn a_clerk_redeems_a_code_once_and_sees_who_did_it_before() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let other = shop.other_claims(&coupon).await;
    let code = shop.other_pays(&other).await;
    let tab = shop.visit(Device::Phone, "/redeem").await;
    tab.reads("For clerks").await;
    tab.fill("[name=token]", shop.admin()).await;
    tab.press(Key::Enter).await;
    tab.reads("Redeem a code").await;

    check(&tab, "0000").await;
    tab.reads("Unknown code").await;
    // As it is typed in a hurry.
    check(&tab, &code.to_lowercase().replace('-', " ")).await;
    tab.reads("Valid: not redeemed yet").await;
    tab.reads("Dinner for two").await;
    look(&tab, Device::Phone, "a code that is valid").await;
    tab.picture("redeem").await;
    tab.click("#do-redeem").await;
    tab.reads("Hand over the goods now.").await;
    assert_eq!(tab.said().await, "Redeemed");

    tab.click("#do-next").await;
    check(&tab, &code).await;
    tab.reads("Already redeemed").await;
    tab.reads("Clerk").await;
    look(&tab, Device::Phone, "a code that has been redeemed").await;
    tab.picture("redeemed-before").await;
    tab.close().await;
}

async fn check(tab: &Tab, code: &str) {
    tab.fill("[name=code]", code).await;
    tab.press(Key::Enter).await;
}
