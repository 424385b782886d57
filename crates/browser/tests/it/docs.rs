//! The pages for programmers: an operation is found, tried and refused, and the link of its refusal explains it.

use private_servers::testing::eventually;

use crate::access::look;
use crate::support::{Device, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_tried_and_its_refusal_is_looked_up() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    for device in [Device::Desk, Device::Phone] {
        // The address names the operation, and the demo has made this browser a shopper.
        let tab = shop.visit(device, "/docs#claimCoupon").await;
        tab.reads("Needs a token of any user.").await;
        tab.fill("#claimCoupon-id", &coupon).await;
        let url = format!("{}/v1/coupons/{coupon}/claims", shop.url());
        let command = format!(r#"curl -i -X POST -H "Authorization: Bearer $TOKEN" '{url}'"#);
        assert_eq!(tab.text("#command-claimCoupon").await, command);
        for answer in ["Response 202", "Response 409 already_claimed"] {
            tab.click("#claimCoupon .go").await;
            eventually(answer, async || tab.said().await.trim() == answer).await;
        }
        tab.click("#createCoupon > summary").await;
        tab.reads("Units on offer, 1 or more.").await;
        look(&tab, device, "open operations").await;
        tab.picture(&format!("docs-{device:?}")).await;

        tab.click(".answer a").await;
        tab.reads("Problems").await;
        assert!(tab.text("#already_claimed:target pre").await.contains("order_id"));
        look(&tab, device, "problems").await;
        tab.click("[lang=zh-CN]").await;
        assert_eq!(tab.text("#already_claimed h3").await, "已抢过");
        tab.picture(&format!("problems-{device:?}")).await;
        tab.close_clean().await;
    }
}
