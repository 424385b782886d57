//! Attacks on the pages, by strangers, other tabs and broken clocks.

use private_servers::testing::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::access::look;
use crate::support::{BREACHES, Device, SECRET, Servers, Shop, storefront, token_by};

/// A page of another site, with `{}` in place of the service. It tells what it was able to do in `window.done`.
const EVIL: &str = r#"<!doctype html><title>evil</title>
<iframe src="{}/"></iframe><iframe src="{}/board"></iframe><iframe src="{}/storm"></iframe>
<iframe name="reply"></iframe>
<form method="post" target="reply" enctype="text/plain" action="{}/demo/storms"><input name='{"shoppers":5,"stock":5,"over_s":0,"twice_percent":0,"a":"' value='"}'></form>
<script>
    window.done = [];
    window.asked = 0;
    document.forms[0].submit();
    const paths = ['/demo/shoppers', '/demo/sessions', '/demo/storms', '/v1/coupons', '/v1/board/live', '/pages'];
    for (const path of paths) {
        const method = path.startsWith('/demo') ? 'POST' : 'GET';
        for (const mode of ['cors', 'no-cors']) {
            fetch('{}' + path, { method, mode, credentials: 'include' }).then(
                (reply) => { window.asked += 1; if (reply.type !== 'opaque') window.done.push(path); },
                () => { window.asked += 1; });
        }
    }
    window.opened = window.open('{}/board');
</script>"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_can_neither_frame_nor_read_nor_use_the_service() {
    let shop = Shop::open(&[]).await;
    let (evil, _serving) = site(EVIL.replace("{}", shop.url())).await;
    let tab = shop.browse(Device::Desk).await;
    tab.open(&evil).await;
    eventually("all its requests are answered", async || {
        tab.eval("return String(window.asked)").await == "12"
    })
    .await;
    assert_eq!(tab.eval("return window.done.join(' ')").await, "", "it has read a reply");
    // Its handle to the window that it has opened leads nowhere.
    eventually("the window is out of its reach", async || {
        tab.eval("return String(window.opened === null || window.opened.closed)").await == "true"
    })
    .await;
    let mut log = Vec::new();
    eventually("the browser frames none of the pages", async || {
        log.extend(tab.log().await);
        let refused =
            |it: &&serde_json::Value| it["message"].to_string().contains("frame-ancestors");
        // The three pages, and the refusal of the form.
        log.iter().filter(refused).count() == 4
    })
    .await;
    tab.close_unread().await;
    // No storm has been started, and the code of the link has not been used up.
    let tab = shop.visit(Device::Desk, &shop.storm_link().await).await;
    tab.reads("No storm yet").await;
    tab.close_clean().await;
}

/// Tabs are closed with a look for breaches: this is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_breach_of_the_policy_is_reported_by_the_browser() {
    let shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Desk, "/").await;
    tab.shows("open").await;
    assert_eq!(tab.breaches().await, [""; 0]);
    let markup = "try { document.createElement('p').innerHTML = '<b>x</b>' } catch { return 'refused' } return 'done'";
    assert_eq!(tab.eval(markup).await, "refused");
    let image = "const it = new Image(); it.src = 'http://192.0.2.1/x.png'; document.body.append(it); return ''";
    tab.eval(image).await;
    let mut breaches = Vec::new();
    eventually("both are reported", async || {
        breaches.extend(tab.breaches().await);
        BREACHES.iter().all(|words| breaches.iter().any(|it| it.contains(words)))
    })
    .await;
    tab.close_unread().await;
}

/// A site of its own: each request is answered by this page.
async fn site(page: String) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
    let reply = format!("{head}Content-Length: {}\r\n\r\n{page}", page.len());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.expect("the listener accepts");
            // The browser may have gone again.
            let _ = client.read(&mut [0; 4_096]).await;
            let _ = client.write_all(reply.as_bytes()).await;
            let _ = client.shutdown().await;
        }
    });
    (url, serving)
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_a_stranger_stay_words_and_fit_into_their_places() {
    let shop = Shop::open(&[]).await;
    let html = "<b>bold</b><img src=x onerror=alert(1)>${1}</title><script>alert(1)</script>";
    let long = "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichen";
    let rtl = "عشاء لشخصين، ١٠٪";
    for (title, rules) in [(html, html), (long, &*"x".repeat(4_000)), (rtl, rtl)] {
        let title = title.repeat(200 / title.chars().count());
        let coupon = shop.coupon_of(&json!({
            "kind": "flash", "title": title, "sub_title": title, "rules": rules, "pay_cents": 99_999_999_900_i64, "value_cents": 999_999_999_900_i64,
            "sale": {"total": 100_000_000, "opens_at": "2026-01-01T00:00:00Z", "closes_at": "2090-01-01T00:00:00Z"},
        })).await;
        for device in [Device::Phone, Device::Desk] {
            let tab = shop.visit(device, &format!("/sale/{coupon}")).await;
            tab.shows("open").await;
            assert_eq!(tab.text("h1").await, title);
            assert_eq!(tab.eval("return document.title").await, format!("{title} · flash-sale"));
            tab.click("#claim").await;
            tab.shows("unpaid").await;
            eventually("my orders", async || tab.text(".orders").await.contains(&title)).await;
            look(&tab, device, "words of a stranger").await;
            tab.picture(&format!("stranger-{device:?}")).await;
            let made = "return String(document.querySelectorAll('main b b, main img, main script, main style').length)";
            assert_eq!(tab.eval(made).await, "0");
            tab.close_clean().await;

            let board = shop.operator(device).await;
            board.reads("Coupon created").await;
            eventually("its title", async || board.text(".sale h2").await == title).await;
            look(&board, device, "words of a stranger, on the board").await;
            board.picture(&format!("stranger-board-{device:?}")).await;
            assert_eq!(
                board
                    .eval(
                        "return String(document.querySelectorAll('main img, main script').length)"
                    )
                    .await,
                "0"
            );
            board.close_clean().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_another_tab_pays_is_paid_once_and_one_that_it_closes_is_closed_here() {
    let shop = Shop::open(&[]).await;
    for (button, face, words) in
        [("#pay[aria-disabled=false]", "paid", "It's yours"), ("#yes", "open", "Order cancelled")]
    {
        let coupon = shop.sale(1, -1).await;
        let path = format!("/sale/{coupon}");
        let first = shop.visit(Device::Phone, &path).await;
        first.shows("open").await;
        first.click("#claim").await;
        first.shows("unpaid").await;
        let token = first.eval("return localStorage.getItem('flash-sale.token')").await;
        // The first tab is in the background meanwhile, and looks at nothing.
        first.eval(HIDE).await;
        let second = shop.visit(Device::Desk, &path).await;
        second.eval(&format!("sessionStorage.setItem('flash-sale.token', '{token}'); sessionStorage.setItem('flash-sale.claimed.{coupon}', ''); return ''")).await;
        second.reload().await;
        second.shows("unpaid").await;
        if button == "#yes" {
            second.click("#give-up").await;
        }
        second.click_once(button).await;
        second.shows(face).await;
        first.eval("window.show(); return ''").await;
        // At once, and not only when the time to pay is over.
        first.shows(face).await;
        first.reads(words).await;
        first.close_clean().await;
        second.close_clean().await;
    }
}

/// Hides the page until `show` is called: timers wait, too.
const HIDE: &str = "
    const { setTimeout: real } = window;
    window.setTimeout = (act, ms) => (document.hidden ? 0 : real(act, ms));
    const turn = (hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    };
    window.show = () => turn(false);
    turn(true);
    return ''";

/// The process behind an open page is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_goes_on_with_the_next_process() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let shop = Shop::open(&urls).await;
    let coupon = shop.sale(2, -1).await;
    let (mut before, url) = storefront(&urls, "127.0.0.1:0").await;
    let tab = shop.browse(Device::Phone).await;
    tab.open(&format!("{url}/sale/{coupon}")).await;
    let token = token_by(SECRET, "42");
    tab.eval(&format!("sessionStorage.setItem('flash-sale.token', '{token}'); return ''")).await;
    tab.reload().await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("unpaid").await;
    let aimed_at = tab.button_at().await;
    before.kill();
    tab.reads("Connection lost. Numbers may be out of date").await;
    assert_eq!(tab.button_at().await, aimed_at, "the button moved under the finger");
    tab.pay().await;
    tab.reads("No answer. Checking what happened").await;
    let listen = url.strip_prefix("http://").expect("a URL");
    let (_after, _) = storefront(&[&urls[..], &["--in-process-gateway"]].concat(), listen).await;
    eventually("the line is live", async || {
        tab.eval("return document.querySelector('.line').dataset.line").await == "live"
    })
    .await;
    assert_eq!(tab.face().await, "unpaid");
    tab.pay().await;
    tab.shows("paid").await;
    // Nobody is known without a token, and the page says so.
    tab.eval("sessionStorage.clear(); return ''").await;
    tab.reload().await;
    tab.shows("open").await;
    tab.click("#claim").await;
    tab.shows("invalid_token").await;
    assert!(tab.said().await.starts_with("Please sign in. "), "{}", tab.said().await);
    tab.close().await;
}
