//! The pictures of the documents, of a real demo and a real storm. `make pictures` takes them.

use std::fs;
use std::path::Path;

use private_servers::testing::eventually;

use crate::support::{Device, Shop, Tab};

/// Most bytes of a picture.
const BYTES_MAX: usize = 200 * 1024;

/// Shoppers of the storm, units on offer, and seconds over which the shoppers arrive.
const STORM: [u32; 3] = [10_000, 3_000, 30];

/// Time from the last unit to the picture: the curve of the refusals has a shape by then, and the storm goes on.
const PAUSE: &str = "const [tell] = arguments; setTimeout(tell, 6000)";

/// Picks the sale of the storm.
const PICK: &str = "const storm = [...document.querySelectorAll('.pick')].find((it) => it.textContent.includes('A storm'));
    storm?.click();
    return storm ? 'picked' : ''";

/// Units that other shoppers have claimed before.
const CLAIMED: usize = 88;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes into docs: `make pictures` runs it"]
async fn take_the_pictures() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(300, -1).await;
    for _ in 0..CLAIMED {
        shop.other_claims(&coupon).await;
    }
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    // It can be pressed a moment after it is there, so that a second tap on "claim" pays nothing.
    eventually("Pay", async || !tab.text("#pay[aria-disabled=false]").await.is_empty()).await;
    tab.reads("211 of 300 left").await;
    take(&tab, "shop").await;
    tab.close_clean().await;

    let tab = shop.operator(Device::Poster).await;
    tab.reads("All is well").await;
    shop.storm(STORM).await;
    eventually("its sale is on the board", async || tab.eval(PICK).await == "picked").await;
    eventually("the last unit", async || tab.text("#tile-left b").await == "0").await;
    tab.eval_later(PAUSE).await;
    shop.compare().await;
    take(&tab, "board").await;
    tab.close_clean().await;
}

async fn take(tab: &Tab, name: &str) {
    let picture = tab.screenshot().await;
    println!("{name}: {} bytes", picture.len());
    assert!(picture.len() <= BYTES_MAX, "{name}: {} bytes", picture.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    fs::create_dir_all(&folder).expect("the folder can be made");
    fs::write(folder.join(format!("{name}.png")), picture).expect("it can be written");
}
