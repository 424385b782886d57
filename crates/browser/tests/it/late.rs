//! Replies that come when the page has gone on, a claim that the stores have lost, and a browser that keeps nothing.

use private_servers::testing::eventually;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::access::check;
use crate::board::{is_listed, is_open, pick, sentence, spoken};
use crate::support::{Device, SAYINGS, Servers, Shop, Tab};

/// A dialog that was closed, or that made room for another one, changes nothing any more but what the notice says.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_late_goes_to_no_other_dialog() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(5, -1).await;
    let tab = shop.operator(Device::Desk).await;
    sentence(&tab, "well").await;
    is_listed(&tab, &coupon).await;
    pick(&tab, &coupon).await;

    // The coupon that is to be edited comes when another dialog is there, or has been there.
    hold(&tab, "/v1/coupons/").await;
    tab.eval("document.getElementById('do-edit').click(); document.getElementById('do-end').click(); return ''").await;
    tab.reads("End this coupon for good?").await;
    is_held(&tab).await;
    tab.click("#dialog-cancel").await;
    is_open(&tab, false).await;
    let_go(&tab).await;
    is_open(&tab, false).await;

    // The outcome of a deed comes while the next one is written.
    hold(&tab, "/restock").await;
    tab.click("#do-restock").await;
    tab.fill("[name=units]", "2").await;
    tab.click("#dialog-do").await;
    is_held(&tab).await;
    tab.click("#dialog-cancel").await;
    is_open(&tab, false).await;
    tab.click("#do-create").await;
    tab.fill("[name=title]", "Half written").await;
    tab.eval(SAYINGS).await;
    let_go(&tab).await;
    spoken(&tab, "Added. It is in force.").await;
    is_open(&tab, true).await;
    assert_eq!(
        tab.eval("return document.querySelector('[name=title]').value").await,
        "Half written"
    );
    tab.click("#dialog-cancel").await;
    is_open(&tab, false).await;

    // So does a refusal.
    hold(&tab, "/pause").await;
    tab.click("#do-pause").await;
    shop.r#move(&coupon, "end").await;
    tab.click("#dialog-do").await;
    is_held(&tab).await;
    tab.click("#dialog-cancel").await;
    is_open(&tab, false).await;
    tab.eval(SAYINGS).await;
    let_go(&tab).await;
    spoken(&tab, "The sale\\'s state has changed meanwhile.").await;
    tab.close().await;
}

/// The board opens with a sale that is on, though regular coupons come first; and what the list shows is what is worked.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_has_picked_stays_picked() {
    let shop = Shop::open(&[]).await;
    shop.coupon_of(&json!({"kind": "regular", "title": "A coffee", "sub_title": "", "rules": "", "pay_cents": 200, "value_cents": 350}))
        .await;
    let [first, second] = [shop.sale(5, -1).await, shop.sale(6, -1).await];
    let tab = shop.operator(Device::Desk).await;
    sentence(&tab, "well").await;
    is_listed(&tab, &first).await;
    assert!(tab.text("#tile-left").await.contains('/'), "a coupon without units is picked");
    // Each has been picked by hand, so the browser minds the list itself.
    for coupon in [&first, &second, &first] {
        pick(&tab, coupon).await;
    }
    let newest = shop.sale(7, -1).await;
    is_listed(&tab, &newest).await;
    assert_eq!(tab.eval("return document.querySelector('.pick select').value").await, first);
    tab.reads("/ 5").await;
    tab.close_clean().await;
}

/// Site data that a browser refuses to keep is kept until the page is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_keeps_nothing_can_buy() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let tab = shop.browse(Device::Phone).await;
    tab.before_each_page("for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, { get() { throw new DOMException('refused', 'SecurityError'); } });").await;
    shop.go(&tab, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    tab.click("[lang=zh-CN]").await;
    tab.reads("剩余支付时间").await;
    tab.click(".buttons .go").await;
    tab.shows("paid").await;
    tab.close_clean().await;
}

/// Both stores lose a claim that was confirmed: the page that showed it says so, and lets its shopper claim again.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_the_stores_have_lost_is_shown_as_held_no_longer() {
    let servers = Servers::start().await;
    let shop = Shop::open(&servers.arguments()).await;
    let coupon = shop.sale(2, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    let order = tab.text(".number b").await.replace(' ', "");
    let mut postgres = PgConnection::connect(servers.database_url()).await.expect("it answers");
    let lost = format!(
        "DELETE FROM orders WHERE id = {order}; UPDATE flash_sales SET sold = sold - 1 WHERE coupon_id = {coupon}"
    );
    sqlx::raw_sql(AssertSqlSafe(lost)).execute(&mut postgres).await.expect("it is deleted");
    let user =
        "return JSON.parse(atob(sessionStorage.getItem('flash-sale.token').split('.')[1])).sub";
    servers.redis(&["EVAL", FORGET, "0", &tab.eval(user).await]);
    check(&tab, Device::Phone, "not_claimed").await;
    tab.reads("Your claim is gone").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    assert_ne!(tab.text(".number b").await.replace(' ', ""), order);
    tab.close().await;
}

/// Takes a user out of all that Redis has.
const FORGET: &str = "
    for _, key in ipairs(redis.call('KEYS', '*')) do
        if redis.call('TYPE', key).ok == 'hash' then redis.call('HDEL', key, ARGV[1]) end
    end
    return 'OK'";

// ---- steps of these tests ----

/// Holds the next reply from a path with these words back, once the browser has it.
async fn hold(tab: &Tab, words: &str) {
    let script = "
        const ask = window.fetch;
        window.letGo = null;
        window.fetch = async (url, ...more) => {
          if (!url.includes('WORDS')) return ask(url, ...more);
          window.fetch = ask;
          const reply = await ask(url, ...more);
          await new Promise((go) => { window.letGo = go; });
          return reply;
        };
        return ''";
    tab.eval(&script.replace("WORDS", words)).await;
}

async fn is_held(tab: &Tab) {
    eventually("the reply", async || tab.eval("return typeof window.letGo").await == "function")
        .await;
}

/// Lets the reply go, and the page read it.
async fn let_go(tab: &Tab) {
    tab.eval_later("const [done] = arguments; window.letGo(); setTimeout(() => done(''), 300)")
        .await;
}
