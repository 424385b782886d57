//! The page of a sale, as shoppers use it: no test loads a page again unless it is about that.

use private_servers::testing::eventually;
use serde_json::json;

use crate::access::check;
use crate::support::{Device, SAYINGS, Servers, Shop};

/// Holds the reply with the first list of orders back until `deliver` is called, and lets none through while `away`.
const SLOW_LISTS: &str = "
    const { fetch } = window;
    window.fetch = async (path, options) => {
        if (!path.startsWith('/v1/orders?')) return fetch(path, options);
        if (window.away) throw new TypeError('no network');
        const reply = await fetch(path, options);
        if (!window.held) {
            window.held = reply;
            await new Promise((done) => { window.deliver = done; });
        }
        return reply;
    };
    return ''";

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

/// Notes the pauses before the looks at a claim as they are asked for, which no busy machine makes longer, and the looks
/// themselves. While `isDeaf`, the page hears nothing of its sale.
const LOOKS: &str = "
    const { fetch: ask, setTimeout: wait } = window;
    Object.assign(window, { pauses: [], looks: 0, isDeaf: false });
    window.setTimeout = (act, ms, ...more) => {
        if (String(act).includes('#look(')) window.pauses.push(ms);
        return wait(act, ms, ...more);
    };
    window.fetch = async (path, options) => {
        if (String(path).endsWith('/claims/me')) window.looks += 1;
        const reply = await ask(path, options);
        if (!String(path).endsWith('/live')) return reply;
        const heard = new TransformStream({ transform: (bytes, on) => window.isDeaf || on.enqueue(bytes) });
        return new Response(reply.body.pipeThrough(heard), reply);
    };";

/// Without a worker a claim stays pending.
#[tokio::test(flavor = "multi_thread")]
async fn a_winner_looks_less_and_less_often_and_a_loser_never() {
    let servers = Servers::start().await;
    let shop = Shop::open(&[&servers.arguments()[..], &["--roles", "api"]].concat()).await;
    let coupon = shop.sale(1, -1).await;
    let noticed = "return JSON.stringify([window.pauses, window.looks])";
    let [winner, loser] = [shop.browse(Device::Phone).await, shop.browse(Device::Phone).await];
    for tab in [&winner, &loser] {
        tab.before_each_page(LOOKS).await;
        shop.go(tab, &format!("/sale/{coupon}")).await;
        tab.shows("open").await;
    }
    loser.eval("window.isDeaf = true; return ''").await;
    winner.click("#claim").await;
    winner.shows("pending").await;
    loser.click("#claim").await;
    loser.shows("sold_out").await;
    assert_eq!(loser.eval(noticed).await, "[[],0]");
    let pauses = "return JSON.stringify(window.pauses.slice(0, 8))";
    eventually("eight looks", async || {
        winner.eval(pauses).await == "[150,250,400,800,1500,3000,5000,5000]"
    })
    .await;
    assert_eq!(loser.eval(noticed).await, "[[],0]");
    winner.close_clean().await;
    loser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_costs_what_the_coupon_cost_at_the_claim() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(2, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    shop.costs(&coupon, 3_000).await;
    eventually("the new price", async || tab.text(".price b").await == "¥30.00").await;
    eventually("the order's price", async || tab.text(".buttons .go").await == "Pay ¥25.00").await;
    tab.click(".buttons .go").await;
    tab.shows("paid").await;
    tab.close_clean().await;
}

/// The service takes up to half a second to take the closed order back; the page asks again until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_click_right_after_an_order_is_given_up_gets_a_new_one() {
    let shop = Shop::open(&["--unpaid-orders-max", "1"]).await;
    let [one, other] = [shop.sale(5, -1).await, shop.sale(5, -1).await];
    let tab = shop.visit(Device::Desk, &format!("/sale/{one}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    for _ in 0..3 {
        tab.shows("unpaid").await;
        tab.click(".buttons .other").await;
        tab.shows("open").await;
        tab.click("#claim").await;
    }
    tab.shows("unpaid").await;
    tab.click(".buttons .go").await;
    tab.shows("paid").await;
    shop.go(&tab, &format!("/sale/{other}")).await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    tab.close().await;
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
async fn my_orders_are_never_those_of_before_and_are_asked_for_until_they_come() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(1, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    tab.eval(SLOW_LISTS).await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    let held = "return String('deliver' in window)";
    eventually("the first list is held back", async || tab.eval(held).await == "true").await;
    tab.click(".buttons .go").await;
    tab.shows("paid").await;
    eventually("the second list", async || tab.text(".orders").await.contains("Paid")).await;

    tab.eval("window.deliver(); return ''").await;
    let read = "return String(window.held.bodyUsed)";
    eventually("the page reads the first list", async || tab.eval(read).await == "true").await;
    assert!(tab.text(".orders").await.contains("Paid"), "{}", tab.text(".orders").await);

    tab.eval("window.away = true; return ''").await;
    tab.click(".buttons .other").await;
    tab.reads("You have your money back").await;
    tab.reads("Your orders can't be shown").await;
    tab.eval("window.away = false; return ''").await;
    eventually("the list comes", async || tab.text(".orders").await.contains("Refunded")).await;
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

/// However many newer ones have ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_finds_a_sale_behind_fifty_that_have_ended() {
    let shop = Shop::open(&[]).await;
    let on = shop.sale(2, -1).await;
    for _ in 0..50 {
        let over = shop.sale(1, -1).await;
        shop.r#move(&over, "end").await;
    }
    let tab = shop.visit(Device::Phone, "/").await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    assert_eq!(shop.coupon(&on).await["sale"]["left"], 1, "the page sells that one");
    tab.close_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_a_place_for_its_stream_asks_now_and_then() {
    let shop = Shop::open(&["--watchers-max", "1"]).await;
    let coupon = shop.sale(5, -1).await;
    let path = format!("/sale/{coupon}");
    let first = shop.visit(Device::Phone, &path).await;
    first.shows("open").await;
    let second = shop.visit(Device::Phone, &path).await;
    second.shows("open").await;
    let line = "return document.querySelector('.line').dataset.line";
    eventually("the line of the first", async || first.eval(line).await == "live").await;
    // Its figures are up to 20 s old.
    eventually("the line of the second", async || second.eval(line).await == "asked").await;
    shop.r#move(&coupon, "pause").await;
    first.shows("sale_paused").await;
    second.shows("sale_paused").await;
    second.close_clean().await;
    first.close_clean().await;
}

/// A repeat is no error: a tab that doesn't know of its claim is told the order.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_told_its_order_and_a_date_of_another_year_names_it() {
    let shop = Shop::open(&[]).await;
    for device in [Device::Phone, Device::Desk] {
        let coupon = shop.sale(2, -1).await;
        let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
        tab.shows("open").await;
        tab.click("#claim").await;
        tab.shows("unpaid").await;
        tab.eval(&format!("sessionStorage.removeItem('flash-sale.claimed.{coupon}'); return ''"))
            .await;
        tab.reload().await;
        tab.shows("open").await;
        tab.click("#claim").await;
        tab.reads("You have it already").await;
        check(&tab, device, "unpaid").await;
        tab.reads("1 left").await;
        tab.close_clean().await;
    }
    let coupon = shop.sale(2, 400 * 86_400).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("sale_not_started").await;
    let year = "return String(new Date(Date.now() + 400 * 86400e3).getFullYear())";
    let year = tab.eval(year).await;
    assert!(tab.text(".foot").await.contains(&year), "{}", tab.text(".foot").await);
    tab.close_clean().await;
}

/// A crowd that has lost must not ask on and on.
#[tokio::test(flavor = "multi_thread")]
async fn a_shopper_who_loses_costs_one_request() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(1, -1).await;
    let tab = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    tab.shows("open").await;
    // Without a stream the page doesn't know yet that the last unit goes.
    tab.eval(HIDE).await;
    let winner = shop.other_claims(&coupon).await;
    tab.click("#claim").await;
    tab.shows("sold_out").await;
    tab.eval("window.show(); return ''").await;
    shop.other_gives_up(&winner).await;
    tab.shows("open").await;
    assert_eq!(tab.eval(ASKED).await, format!("/v1/coupons/{coupon}/claims"));
    tab.close().await;
}

/// Paths of the claims, and of the questions about them, that this page has sent.
const ASKED: &str = "return performance.getEntriesByType('resource').map((it) => new URL(it.name).pathname).filter((path) => path.includes('/claims')).join(' ')";

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
