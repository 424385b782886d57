//! The page of a sale, as shoppers use it: no test loads a page again unless it is about that.

use serde_json::json;

use crate::support::{Device, SAYINGS, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_from_the_countdown_to_the_payment() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, 3_600).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("sale_not_started").await;
    assert_eq!(tab.text("#stock").await, "2 left of 2");
    tab.assert_fits().await;
    tab.picture("before").await;
    // The button is there, and does nothing yet.
    tab.click("#claim[aria-disabled=true]").await;
    assert_eq!(tab.face().await, "sale_not_started");

    shop.opens_in(&coupon, 3).await;
    tab.shows("open").await;
    tab.picture("open").await;
    tab.eval(SAYINGS).await;
    tab.click("#claim[aria-disabled=false]").await;
    tab.shows("unpaid").await;
    tab.reads("Time left to pay").await;
    tab.reads("1 left").await;
    tab.picture("unpaid").await;
    assert!(tab.said().await.starts_with("You got one. "), "{}", tab.said().await);
    assert!(!tab.said().await.contains(|c: char| c.is_ascii_digit()), "{}", tab.said().await);
    assert!(tab.text("header .user").await.starts_with("Shopper"));

    tab.click(".buttons .go").await;
    tab.shows("paid").await;
    assert!(tab.said().await.starts_with("Paid. "), "{}", tab.said().await);
    let twice = "return window.sayings.filter((it, n, all) => all.indexOf(it) !== n).join(' | ')";
    assert_eq!(tab.eval(twice).await, "", "each outcome is spoken once");
    assert_ne!(tab.eval("return String(window.sayings.length)").await, "0");
    let number = tab.text(".number b").await;
    tab.reads(&format!("Paid {number}")).await;
    tab.picture("paid").await;

    // This tab remembers that it has claimed, and asks for its order.
    tab.reload().await;
    tab.shows("paid").await;
    assert_eq!(tab.text(".number b").await, number);
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_given_up_brings_the_button_back_to_others() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(1, -1).await;
    let other = shop.other_claims(&coupon).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("sold_out").await;
    tab.picture("sold-out").await;
    shop.other_gives_up(&other).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    tab.click(".buttons .other").await;
    tab.reads("Given up").await;
    tab.reads("Claim again").await;
    tab.shows("open").await;
    tab.picture("given-up").await;

    shop.other_claims(&coupon).await;
    tab.shows("sold_out").await;
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_not_paid_in_time_expires_on_the_page() {
    let shop = Shop::open(&["--payment-window-s", "3"]).await;
    let coupon = shop.sale(1, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.reads("Not paid in time").await;
    // The unit has come back, and may be claimed again.
    tab.shows("open").await;
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_does_is_seen_at_once() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(5, -1).await;
    let tab = shop.visit(Device::Desk, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    for (verb, face) in [("pause", "sale_paused"), ("resume", "open"), ("end", "sale_ended")] {
        shop.r#move(&coupon, verb).await;
        tab.shows(face).await;
    }
    tab.picture("ended").await;
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_has_the_sale_that_is_on_and_an_old_link_says_so() {
    let mut shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Phone, "/").await;
    tab.shows("open").await;
    assert_eq!(tab.text("h1").await, "Dinner for two");
    tab.close_clean().await;
    let tab = shop.visit(Device::Phone, "/sale/1024000").await;
    tab.shows("coupon_not_found").await;
    tab.click("a.go").await;
    tab.shows("open").await;

    // The shop goes away: the page says so, and how old its numbers are.
    shop.kill();
    tab.reads("Age of the numbers").await;
    assert_eq!(tab.face().await, "open");
    tab.picture("lost").await;
    // The outcome of a claim is unknown then, and the page goes on asking.
    tab.click("#claim").await;
    tab.shows("unavailable").await;
    tab.reads("you can't end up with two").await;
    tab.picture("unknown").await;
    tab.close().await;
}

/// A hidden page has no stream: a browser has six connections to a host.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_page_watches_nothing_and_a_late_message_opens_no_sale_early() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(5, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.eval(HIDE).await;
    shop.r#move(&coupon, "pause").await;
    assert_eq!(tab.eval_later(CLOCK).await, json!([]));
    assert_eq!(tab.eval("return String(window.streams)").await, "0", "it is hidden");
    tab.eval("window.show(); return ''").await;
    tab.shows("sale_paused").await;
    // A stream that a slow machine has cut makes room for the next one.
    assert_eq!(tab.eval("return String(window.most)").await, "1", "streams at a time");
    tab.close_clean().await;
}

/// Hides the page until `show` is called. Counts the streams that are asked for from then on, and the most at a time.
const HIDE: &str = "
    const { fetch } = window;
    window.streams = 0;
    window.most = 0;
    let open = 0;
    window.fetch = (path, options) => {
        if (path.endsWith('/live')) {
            window.streams += 1;
            open += 1;
            window.most = Math.max(window.most, open);
            options.signal.addEventListener('abort', () => { open -= 1; });
        }
        return fetch(path, options);
    };
    const turn = (hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    };
    window.show = () => turn(false);
    turn(true);
    return ''";

/// Tells what is wrong with a clock that has heard late messages only.
const CLOCK: &str = "
    const [tell] = arguments;
    const module = document.querySelector('link[href$=\\'js/clock.js\\']').href;
    import(module).then(({ Clock }) => {
        const truth = () => performance.now() + 1e12;
        const clock = new Clock();
        const hear = (late) => clock.heard(truth() - late);
        const behind = () => truth() - clock.now();
        const wrong = [];
        for (const late of [60000, 5000, 120000]) hear(late);
        if (behind() < 4999) wrong.push('early: the least late message counts');
        if (behind() > 59000) wrong.push('late: a later message counts more');
        for (let more = 0; more < 30; more += 1) hear(90000);
        if (behind() < 89999) wrong.push('an old message counts for ever');
        tell(wrong);
    }, (error) => tell([String(error)]));";
