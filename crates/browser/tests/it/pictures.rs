//! The pictures of the documents, of a real demo and a real storm, and a contact sheet of all states. `make pictures` takes
//! them.

use std::fs;
use std::path::Path;

use fantoccini::key::Key;
use private_servers::testing::eventually;
use serde_json::json;

use crate::board::{pick, sentence};
use crate::shop::FAILING;
use crate::support::{Device, Servers, Shop, Tab, leave};

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

/// Notes when the button can be used, in milliseconds since the navigation began.
const USABLE: &str = "const look = () => {
        if (document.querySelector('#claim:not([aria-disabled=true])')) window.usable = performance.now();
        else requestAnimationFrame(look);
    };
    look()";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: `make pictures` prints it"]
async fn the_first_page_on_a_slow_line() {
    let shop = Shop::open(&[]).await;
    let path = format!("/sale/{}", shop.sale(300, -1).await);
    for latency_ms in [0, 400] {
        let tab = shop.visit(Device::Phone, "/livez").await;
        tab.slow_line(latency_ms).await;
        tab.before_each_page(USABLE).await;
        shop.go(&tab, &path).await;
        tab.shows("open").await;
        let usable = tab.eval("return window.usable.toFixed(0)").await;
        println!("latency {latency_ms} ms: the button can be used after {usable} ms");
        tab.close_unread().await;
    }
}

async fn take(tab: &Tab, name: &str) {
    let picture = tab.screenshot().await;
    println!("{name}: {} bytes", picture.len());
    assert!(picture.len() <= BYTES_MAX, "{name}: {} bytes", picture.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    fs::create_dir_all(&folder).expect("the folder can be made");
    fs::write(folder.join(format!("{name}.png")), picture).expect("it can be written");
}

/// Theme, device and language of each picture of a state.
const VIEWS: [(&str, Device, &str); 5] = [
    ("light", Device::Desk, "en"),
    ("dark", Device::Desk, "zh-CN"),
    ("light", Device::Phone, "en"),
    ("dark", Device::Phone, "en"),
    ("light", Device::Phone, "zh-CN"),
];

/// Each state of each page side by side: `target/browser/sheet/index.html`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: `make pictures` runs it"]
async fn a_contact_sheet_of_all_states() {
    let (mut sheet, shop) = (Sheet(String::new()), Shop::open(&[]).await);
    let board = shop.operator(Device::Desk).await;
    sentence(&board, "well").await;
    sheet.take(&board, "board, idle").await;
    let coupon = shoppers_states(&mut sheet, &shop).await;
    codes(&mut sheet, &shop, &coupon).await;

    let storm = shop.visit(Device::Desk, &shop.storm_link().await).await;
    storm.reads("No storm yet").await;
    shop.storm([6_000, 1_000, 40]).await;
    eventually("its sale is on the board", async || board.eval(PICK).await == "picked").await;
    storm.click_once("#do-kill_worker[aria-disabled=false]").await;
    sheet.take(&storm, "storm, running").await;
    sheet.take(&board, "board, busy").await;
    board.close().await;
    shop.storm_ends(&json!(null)).await;
    storm.reads("Every promise was kept").await;
    sheet.take(&storm, "storm, verdict").await;
    storm.click(".verdict a").await;
    storm.reads("Why it can't get lost").await;
    sheet.take(&storm, "one claim, followed").await;
    for (path, words) in [("/docs#claimCoupon", "Needs a token"), ("/docs/problems", "Problems")] {
        shop.go(&storm, path).await;
        storm.reads(words).await;
        sheet.take(&storm, path.split('#').next().expect("a path")).await;
    }
    storm.close().await;

    let servers = Servers::start().await;
    let shop = Shop::open(&servers.arguments()).await;
    let coupon = shop.sale(5, -1).await;
    let board = shop.operator(Device::Desk).await;
    sentence(&board, "well").await;
    pick(&board, &coupon).await;
    servers.redis(&["XADD", "fs:{0}:log", "*", "coupon", "x"]);
    servers.redis(&["HINCRBY", &format!("fs:{{0}}:coupon:{coupon}"), "stock", "-1"]);
    shop.compare().await;
    sentence(&board, "disagree").await;
    sheet.take(&board, "board, trouble").await;
    board.close().await;
    let html =
        format!("<!doctype html><meta charset=utf-8><title>All states</title>{STYLE}{}", sheet.0);
    println!("{}", leave("sheet/index.html", html.as_bytes()));
}

/// The page of a sale from before it opens to its end. Returns a coupon with units.
async fn shoppers_states(sheet: &mut Sheet, shop: &Shop) -> String {
    let coupon = shop.sale(3, 5_000).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    for (face, deed) in [
        ("sale_not_started", ""),
        ("open", "#claim"),
        ("unpaid", "#pay[aria-disabled=false]"),
        ("paid", ""),
    ] {
        tab.shows(face).await;
        sheet.take(&tab, &format!("sale, {face}")).await;
        if face == "sale_not_started" {
            shop.opens_in(&coupon, 0).await;
        } else if !deed.is_empty() {
            tab.click_once(deed).await;
        }
    }
    tab.close().await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.eval(FAILING).await;
    tab.click("#claim").await;
    tab.pay().await;
    tab.reads("The payment didn't go through").await;
    sheet.take(&tab, "sale, a payment failed").await;
    shop.cancel_unpaid(&coupon, "The kitchen is closed.").await;
    tab.reload().await;
    tab.reads("Cancelled by the shop").await;
    sheet.take(&tab, "sale, cancelled by the staff").await;
    tab.close().await;
    let last = shop.sale(1, -1).await;
    shop.other_claims(&last).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{last}")).await;
    tab.shows("sold_out").await;
    sheet.take(&tab, "sale, sold out").await;
    shop.r#move(&last, "end").await;
    tab.shows("sale_ended").await;
    sheet.take(&tab, "sale, ended").await;
    tab.close().await;
    coupon
}

/// The clerk's page with a code, and with one that has been used.
async fn codes(sheet: &mut Sheet, shop: &Shop, coupon: &str) {
    let code = shop.other_pays(&shop.other_claims(coupon).await).await;
    let tab = shop.visit(Device::Phone, "/redeem").await;
    tab.reads("For clerks").await;
    tab.fill("[name=token]", shop.admin()).await;
    tab.click("#locked .go").await;
    for (words, name) in [("Valid", "redeem, valid"), ("Already redeemed", "redeem, used")] {
        tab.click_once("[name=code]").await;
        tab.fill("[name=code]", &code).await;
        tab.press(Key::Enter).await;
        tab.reads(words).await;
        sheet.take(&tab, name).await;
        if words == "Valid" {
            shop.redeem(&code).await;
            tab.reload().await;
        }
    }
    tab.close().await;
}

/// The pictures, as HTML.
struct Sheet(String);

impl Sheet {
    /// Takes a state of a page in all views.
    async fn take(&mut self, tab: &Tab, state: &str) {
        let (name, own) = (state.replace([' ', ',', '/'], "-"), tab.device());
        self.0.push_str(&format!("<h2>{state}</h2><p>"));
        for (place, (theme, device, language)) in VIEWS.into_iter().enumerate() {
            tab.resize(device).await;
            let (turn, file) = (TURN.replace("LANGUAGE", language), format!("{name}-{place}"));
            tab.eval_later(&turn.replace("THEME", theme)).await;
            tab.picture(&format!("sheet/{file}")).await;
            self.0.push_str(&format!(
                "<img src=\"{file}.png\" alt=\"{theme} {device:?} {language}\">"
            ));
        }
        self.0.push_str("</p>");
        tab.eval_later(&TURN.replace("LANGUAGE", "en").replace("THEME", "light")).await;
        tab.resize(own).await;
    }
}

/// Shows the page in a theme and a language, from its top.
const TURN: &str = "const [tell] = arguments;
    const { documentElement: root } = document;
    root.dataset.theme = 'THEME';
    if (root.lang !== 'LANGUAGE') document.querySelector('header button[lang]').click();
    scrollTo(0, 0);
    dispatchEvent(new Event('resize'));
    setTimeout(tell, 200);";

const STYLE: &str = "<style>body { font: 14px system-ui; background: #888; } p { display: flex; gap: 8px; margin: 0; } img { height: 281px; border: 1px solid #444; }</style>";
