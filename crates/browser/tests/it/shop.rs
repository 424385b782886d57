//! The page of a sale, as shoppers use it: no test loads a page again unless it is about that.

use private_servers::testing::eventually;
use serde_json::json;

use crate::support::{Device, SAYINGS, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_from_the_countdown_to_the_payment() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, 3_600).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("sale_not_started").await;
    assert_eq!(tab.text("#stock").await, "2 of 2 left");
    tab.reads("Add to calendar").await;
    let aimed_at = tab.button_at().await;
    assert!(aimed_at.parse::<u32>().expect("pixels") <= 740, "below the fold: {aimed_at}");
    tab.assert_fits().await;
    tab.picture("before").await;
    // The button is there, and does nothing yet.
    tab.click("#claim[aria-disabled=true]").await;
    assert_eq!(tab.face().await, "sale_not_started");

    shop.opens_in(&coupon, 3).await;
    tab.shows("open").await;
    assert_eq!(tab.button_at().await, aimed_at, "open: the button has moved");
    let zone = "return new Intl.DateTimeFormat('en', { timeZoneName: 'short' }).formatToParts().find((it) => it.type === 'timeZoneName').value";
    let zone = tab.eval(zone).await;
    assert!(tab.text(".foot").await.ends_with(&zone), "{}", tab.text(".foot").await);
    tab.reads("Ends in").await;
    tab.picture("open").await;
    tab.eval(SAYINGS).await;
    tab.click("#claim[aria-disabled=false]").await;
    tab.shows("unpaid").await;
    tab.reads("Time left to pay").await;
    tab.reads("1 of 2 left").await;
    assert_eq!(tab.button_at().await, aimed_at, "unpaid: the button has moved");
    tab.picture("unpaid").await;
    assert!(tab.said().await.starts_with("You got one. "), "{}", tab.said().await);
    assert!(!tab.said().await.contains(|c: char| c.is_ascii_digit()), "{}", tab.said().await);
    assert!(tab.text("header .user").await.starts_with("Shopper"));

    tab.pay().await;
    tab.shows("paid").await;
    assert!(tab.said().await.starts_with("It's yours. "), "{}", tab.said().await);
    let twice = "return window.sayings.filter((it, n, all) => all.indexOf(it) !== n).join(' | ')";
    assert_eq!(tab.eval(twice).await, "", "each outcome is spoken once");
    assert_ne!(tab.eval("return String(window.sayings.length)").await, "0");
    let number = tab.text(".number b").await;
    tab.reads(&format!("Paid {number}")).await;
    // The ticket has the code, as letters and as a picture.
    eventually("the ticket is whole", async || {
        tab.eval("return String(document.querySelector('img.qr')?.naturalWidth > 0)").await
            == "true"
            && tab.text(".code").await.len() == 19
    })
    .await;
    tab.picture("paid").await;

    // A tab that is closed loses nothing: what the demo gives is the browser's.
    tab.eval("sessionStorage.clear(); return ''").await;
    tab.reload().await;
    tab.shows("paid").await;
    assert_eq!(tab.text(".number b").await, number);
    // A clerk redeems it, and nobody touches the page.
    shop.redeem(&tab.text(".code").await).await;
    tab.shows("redeemed").await;
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
    let aimed_at = tab.button_at().await;
    tab.click("#want").await;
    tab.reads("You will be told").await;
    shop.other_gives_up(&other).await;
    tab.shows("open").await;
    assert_eq!(tab.button_at().await, aimed_at, "the button has moved");
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    // One tap gives nothing up: the page asks.
    tab.click("#give-up").await;
    tab.click("dialog .other:not(#yes)").await;
    assert_eq!(tab.face().await, "unpaid");
    tab.click_once("#give-up").await;
    tab.click("#yes").await;
    tab.reads("Order cancelled").await;
    tab.reads("Claim again").await;
    tab.shows("open").await;
    assert!(tab.said().await.starts_with("Order cancelled. "), "{}", tab.said().await);
    tab.picture("given-up").await;

    shop.other_claims(&coupon).await;
    tab.shows("sold_out").await;
    // The news, and not once more that the order was cancelled.
    eventually("it is spoken", async || tab.said().await.starts_with("Sold out. ")).await;
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
    assert_eq!(tab.text("#stock").await, "", "nothing is left of a sale that is over");
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
    let tab = shop.visit(Device::Phone, "/sale/1024/x").await;
    tab.shows("coupon_not_found").await;
    tab.reads("Page not found").await;
    shop.go(&tab, "/sale/1024000").await;
    tab.shows("coupon_not_found").await;
    tab.click("a.go").await;
    tab.shows("open").await;

    // The shop goes away: the page says so, and how old its numbers are.
    shop.kill();
    tab.reads("Numbers may be out of date").await;
    assert_eq!(tab.face().await, "open");
    eventually("it is spoken", async || tab.said().await.starts_with("Connection lost. ")).await;
    tab.picture("lost").await;
    // The outcome of a claim is unknown then, and the page goes on asking.
    tab.click("#claim").await;
    tab.shows("unavailable").await;
    tab.reads("you can't end up with two").await;
    tab.picture("unknown").await;
    tab.close().await;
}

/// A coupon that costs nothing asks for no payment, and one tap returns nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_coupon_is_had_at_once_and_returned_after_a_question() {
    let shop = Shop::open(&[]).await;
    let sale = json!({"total": 2, "opens_at": "2026-01-01T00:00:00Z", "closes_at": "2090-01-01T00:00:00Z"});
    let free =
        json!({"kind": "flash", "title": "Tea", "pay_cents": 0, "value_cents": 500, "sale": sale});
    let coupon = shop.coupon_of(&free).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    let note = "window.labels = []; new MutationObserver(() => window.labels.push(document.querySelector('.slot')?.innerText)).observe(document.body, { subtree: true, childList: true, characterData: true }); return ''";
    tab.eval(note).await;
    tab.click("#claim").await;
    tab.shows("paid").await;
    let labels = tab.eval("return window.labels.join(' ')").await;
    assert!(!labels.contains("Pay ") && !labels.contains('0'), "{labels}");
    tab.click_once("#refund").await;
    tab.click("dialog .other:not(#yes)").await;
    assert_eq!(tab.face().await, "paid");
    tab.click_once("#refund").await;
    tab.click("#yes").await;
    tab.reads("Refunded").await;
    tab.close_clean().await;
}

/// A payment without an answer is told of until the order has been looked up, and the end of the time to pay, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_fails_and_the_last_minute_are_told_and_spoken() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.eval(SAYINGS).await;
    tab.eval(FAILING).await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    let sayings = "return window.sayings.join(' | ')";
    eventually("the last minute is spoken", async || {
        tab.eval(sayings).await.contains("Less than a minute left to pay.")
    })
    .await;
    tab.pay().await;
    tab.reads("The payment didn't go through").await;
    assert!(tab.eval(sayings).await.contains("The payment didn't go through."));
    tab.eval("window.fails = false; return ''").await;
    tab.pay().await;
    tab.shows("paid").await;
    tab.close_clean().await;
}

/// Payments get no answer as long as `fails` is true, and orders say that half a minute is left to pay.
pub const FAILING: &str = "
    const { fetch } = window;
    window.fails = true;
    window.fetch = async (path, options) => {
        if (window.fails && path.endsWith('/pay')) throw new TypeError('no network');
        const reply = await fetch(path, options);
        if (options.method !== 'GET' || !/\\/v1\\/orders\\/\\d+$/.test(path) || !reply.ok) return reply;
        const order = { ...(await reply.json()), pay_by: new Date(Date.now() + 30_000).toISOString() };
        return new Response(JSON.stringify(order), { headers: { 'content-type': 'application/json' } });
    };
    return ''";

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_the_staff_cancels_says_why() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    shop.cancel_unpaid(&coupon, "The kitchen is closed.").await;
    tab.reads("Cancelled by the shop").await;
    tab.reads("The kitchen is closed.").await;
    tab.picture("cancelled-by-the-shop").await;
    tab.close_clean().await;
}

/// No two currencies look the same; with forced colours, what only a colour shows has a line.
#[tokio::test(flavor = "multi_thread")]
async fn prices_name_their_currency_and_forced_colours_hide_nothing() {
    let shop = Shop::open(&[]).await;
    let tab = shop.browse(Device::Phone).await;
    let sale = json!({"total": 2, "opens_at": "2026-01-01T00:00:00Z", "closes_at": "2090-01-01T00:00:00Z"});
    for (currency, price) in
        [("CNY", "CN¥19.80"), ("JPY", "¥1,980"), ("HKD", "HK$19.80"), ("USD", "$19.80")]
    {
        let coupon = json!({"kind": "flash", "title": "Tea", "pay_cents": 1_980, "value_cents": 1_980, "currency": currency, "sale": sale});
        let coupon = shop.coupon_of(&coupon).await;
        shop.go(&tab, &format!("/sale/{coupon}")).await;
        tab.shows("open").await;
        assert_eq!(tab.text(".price").await, price);
    }
    tab.emulate("forced-colors", "active").await;
    let lines = "return ['#claim', 'progress', '.line i'].map((it) => getComputedStyle(document.querySelector(it)).borderTopStyle).join(' ')";
    assert_eq!(tab.eval(lines).await, "solid solid solid");
    tab.close_clean().await;
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
    const module = new URL('../js/stream.js', document.querySelector('script[type=module]').src).href;
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
