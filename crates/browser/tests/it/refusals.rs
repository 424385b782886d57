//! The shopper's page while the service answers nothing, refuses, or can't tell: each state on both sizes and in both
//! themes.

use sqlx::{Connection, PgConnection};

use crate::access::check;
use crate::support::{Device, Servers, Shop};

const DEVICES: [Device; 2] = [Device::Phone, Device::Desk];

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

/// A lane that is closed in Redis, while a transaction keeps the leader from opening it.
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
