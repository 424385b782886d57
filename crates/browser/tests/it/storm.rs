//! The page of storms: a crowd from the button to the verdict.

use fantoccini::key::Key;
use private_servers::testing::eventually;
use serde_json::{Value, json};

use crate::board;
use crate::support::{Device, Servers, Shop, Tab, leave};

/// Two thousand shoppers for two hundred units.
const CROWD: &str =
    "for (const [name, value] of [['shoppers', 2000], ['stock', 200], ['over_s', 2]]) {
        document.querySelector(`[name=${name}]`).value = value;
    }
    return ''";

/// A crowd that takes a minute.
const SLOW_CROWD: &str = "document.querySelector('[name=shoppers]').value = 120;
    document.querySelector('[name=stock]').value = 100;
    document.querySelector('[name=over_s]').value = 60;
    return ''";

/// Tells what is wrong with the squares of large crowds on small screens: one square stands for several shoppers there.
const SQUARES: &str = "
    const [tell] = arguments;
    const module = document.querySelector('link[href$=\\'storm/squares.js\\']').href;
    import(module).then(({ layout, squares }) => {
        const wrong = [];
        for (const width of [320, 360, 1200]) for (const shoppers of [1, 2000, 10000, 100000]) {
            const { cell, columns, high, each } = layout(shoppers, width);
            const room = `${shoppers} shoppers on ${width} px: ${JSON.stringify({ cell, columns, high, each })}`;
            if (columns * cell > width || high * cell > 460) wrong.push(`too large: ${room}`);
            if (columns * high < Math.ceil(shoppers / each)) wrong.push(`too few squares: ${room}`);
            if ((each === 1) !== (shoppers < 100000)) wrong.push(`too coarse, or too fine: ${room}`);
        }
        if (squares('w3s1b2', 1) !== 'wwwsbb' || squares('w3s1b2', 2) !== 'wwb') wrong.push('another order, or another colour than that of most');
        tell(wrong);
    }, (error) => tell([String(error)]));";

/// Whether the verdict is in sight, without scrolling.
const IN_SIGHT: &str = "scrollTo(0, 0); return String(document.getElementById('verdict').getBoundingClientRect().bottom < innerHeight)";

/// Steps of the followed claim that have a time.
const KNOWN_STEPS: &str = "return String([...document.querySelectorAll('.way .took')].filter((it) => /\\d/.test(it.innerText)).length)";

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_two_thousand_and_its_verdict() {
    let shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Desk, &shop.storm_link().await).await;
    tab.reads("No storm yet").await;
    assert_eq!(tab.eval_later(SQUARES).await, json!([]));
    assert_eq!(tab.eval("return location.hash").await, "", "the code stays in the address");
    tab.eval(CROWD).await;
    tab.tab_to(".fields .go").await;
    tab.press(Key::Enter).await;
    tab.reads("Under way").await;
    tab.picture("storm-running").await;
    shop.storm_ends(&Value::Null).await;
    tab.reads("Every promise was kept").await;
    assert_eq!(tab.text("#answers").await, "2,000 of 2,000 answered");
    assert_eq!(
        tab.text(".sums").await,
        "sold 200 rows in Postgres = 200 distinct buyers = 200".to_owned()
    );
    // The verdict is what one sees first.
    tab.reads("2,000 people, 200 dinners. This service sold 200 oversold 0 lost 0 twice 0").await;
    assert_eq!(tab.eval(IN_SIGHT).await, "true");
    tab.reads("Answers a second, peak").await;
    assert_eq!(tab.said().await, "Every promise was kept");
    tab.assert_fits().await;
    tab.picture("storm-done").await;
    // Each shopper is a square that is not waiting any more.
    tab.click("[lang=zh-CN]").await;
    tab.reads("所有承诺都已兑现").await;
    tab.picture("storm-done-zh").await;
    // The tab stays in, and sees the last storm.
    tab.reload().await;
    tab.reads("所有承诺都已兑现").await;
    // One of its claims is followed; the crowd is no browser, so the way between the two is not known.
    tab.click(".verdict a").await;
    tab.reads("为什么不会丢失").await;
    eventually("all of its steps", async || tab.eval(KNOWN_STEPS).await == "8").await;
    assert_eq!(tab.text("[data-step=way]").await, "");
    tab.picture("storm-followed-zh").await;
    tab.close_clean().await;
}

/// Three things break in one storm, and the same crowd asks a naive design. The storm is kept, and has a report.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_in_which_everything_breaks_keeps_its_promises() {
    let shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Desk, &shop.storm_link().await).await;
    tab.reads("No storm yet").await;
    tab.eval(REPORTED).await;
    shop.storm([1_500, 1_000, 25]).await;
    for (trouble, met) in [
        ("freeze_redis", "Redis frozen"),
        ("kill_worker", "worker killed"),
        ("empty_redis", "Redis emptied"),
    ] {
        tab.click_once(&format!("#do-{trouble}[aria-disabled=false]")).await;
        eventually(met, async || tab.text(".met").await.contains(met)).await;
    }
    check(&tab, "The naive design, same crowd").await;
    tab.picture("storm-trouble").await;
    shop.storm_ends(&Value::Null).await;
    tab.reads("This service sold 1,000 oversold 0 lost 0 twice 0").await;
    tab.reads("Past storms, kept in this browser").await;
    check(&tab, "Every promise was kept").await;
    tab.picture("storm-broken-and-kept").await;
    tab.click(".past button").await;
    eventually("the report", async || !tab.eval(REPORT).await.is_empty()).await;
    let report = tab.eval(REPORT).await;
    for words in ["Every promise was kept", "Redis emptied", "The naive design", "line-won"] {
        assert!(report.contains(words), "{words}: {report}");
    }
    for of_others in ["<script", "http", "src=", "href=", "url("] {
        let alone = report.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "");
        assert!(!alone.contains(of_others), "{of_others}: {report}");
    }
    tab.reload().await;
    tab.reads("This tab hasn't seen this storm.").await;
    assert_eq!(tab.text(".past b").await, "1,500 people, 1,000 dinners.");
    tab.open(&leave("storm-report.html", report.as_bytes())).await;
    tab.assert_accessible("the report").await;
    tab.picture("storm-report").await;
    tab.close_clean().await;
}

/// Notes the report that is handed to the browser as a file.
const REPORTED: &str = "const make = URL.createObjectURL;
    URL.createObjectURL = (file) => { file.text().then((it) => { window.report = it; }); return make(file); };
    return ''";
const REPORT: &str = "return window.report ?? ''";

#[tokio::test(flavor = "multi_thread")]
async fn no_state_of_a_storm_has_a_fault_that_axe_knows() {
    let mut shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Phone, "/storm").await;
    check(&tab, "For administrators").await;
    tab.picture("storm-locked").await;
    // Without a link the token that the demo prints lets in.
    let paste =
        format!("document.querySelector('[name=token]').value = '{}'; return ''", shop.admin());
    tab.eval(&paste).await;
    tab.click("#locked .go").await;
    check(&tab, "No storm yet").await;
    tab.eval(SLOW_CROWD).await;
    tab.click(".fields .go").await;
    tab.reads("The crowd arrives").await;
    let got = "return document.querySelector('.legend b').innerText";
    eventually("the first one has got one", async || tab.eval(got).await != "0").await;
    check(&tab, "Under way").await;
    tab.click(".fields .other").await;
    check(&tab, "Stopped, without a verdict").await;
    eventually("the next storm may begin", async || {
        tab.text(".fields .go").await == "Start the storm"
    })
    .await;
    let before = shop.last_storm().await;
    tab.eval(CROWD).await;
    tab.click(".fields .go").await;
    shop.storm_ends(&before).await;
    check(&tab, "Every promise was kept").await;
    tab.picture("storm-done-phone-dark").await;
    shop.kill();
    check(&tab, "Connection lost. Numbers").await;
    tab.click(".fields .go").await;
    check(&tab, "The service doesn't answer.").await;
    tab.close().await;
}

/// Redis sells three units more than there are, so three promised orders can't become rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_promise_is_called_broken() {
    let servers = Servers::start().await;
    let shop = Shop::open(&servers.arguments()).await;
    let tab = shop.visit(Device::Desk, "/storm").await;
    tab.reads("For administrators").await;
    tab.fill("[name=token]", shop.admin()).await;
    tab.press(Key::Enter).await;
    tab.reads("No storm yet").await;
    shop.storm([60, 5, 20]).await;
    eventually("the last unit", async || tab.text(".tiles dd").await == "0").await;
    assert_eq!(tab.text("#trouble").await, "", "somebody else runs these servers");
    let stock = format!("fs:{{0}}:coupon:{}", shop.newest_coupon().await);
    // A crowd that is not answered looks like one that is, but for a word.
    servers.signal("redis", "-STOP");
    check(&tab, "No shopper has been answered for ").await;
    tab.reads("Redis doesn't answer the service.").await;
    assert_eq!(tab.said().await, "Nothing is being answered.");
    tab.picture("storm-frozen").await;
    servers.signal("redis", "-CONT");
    servers.redis(&["HINCRBY", &stock, "stock", "3"]);
    check(&tab, "A promise was broken").await;
    assert_eq!(tab.eval("return document.querySelector('.verdict').dataset.tone").await, "bad");
    let sums = tab.text(".sums").await;
    assert!(sums.contains("rows in Postgres = 5 ") && sums.contains("lost 3"), "{sums}");
    tab.picture("storm-broken").await;
    tab.close_clean().await;
}

/// Checks a state on both sizes and in both themes.
async fn check(tab: &Tab, words: &str) {
    tab.reads(words).await;
    board::check(tab, words).await;
}
