//! The board, as an operator uses it: a sale from its creation to its end, and what goes wrong.

use fantoccini::key::Key;
use private_servers::testing::{RedisProxy, eventually};
use serde_json::json;

use crate::support::{Device, SAYINGS, Servers, Shop, Tab, worker};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_runs_a_sale() {
    let shop = Shop::open(&[]).await;
    let tab = shop.browse(Device::Desk).await;
    // As in a page without TLS from another machine.
    tab.before_each_page("delete Crypto.prototype.randomUUID").await;
    shop.go(&tab, &shop.board_link().await).await;
    assert_eq!(tab.eval("return typeof crypto.randomUUID").await, "undefined");
    assert!(!tab.eval("return location.href").await.contains("code"), "the code is used up");
    sentence(&tab, "well").await;
    tab.reads("No claims in the last").await;
    assert!(tab.title().await.starts_with("✓ Board"), "{}", tab.title().await);
    tab.picture("board").await;

    // A new sale, by keyboard.
    tab.click("#do-create").await;
    for (name, value) in
        [("title", "Tea for two"), ("pay", "19.90"), ("value", "40"), ("total", "3")]
    {
        tab.fill(&format!("[name={name}]"), value).await;
    }
    // It opens at once.
    tab.eval("const it = document.querySelector('[name=opens_at]'); it.value = '2026-01-01T00:00:00'; return ''").await;
    tab.press(Key::Enter).await;
    eventually("the new sale", async || tab.text(".sale h2").await == "Tea for two").await;
    state(&tab, "active").await;
    let coupon = tab.eval(PICKED).await;
    let created = shop.coupon(&coupon).await;
    assert_eq!((&created["pay_cents"], &created["sale"]["total"]), (&json!(1_990), &json!(3)));

    shop.other_claims(&coupon).await;
    let left = "#panel-sale #tile-left";
    eventually("the tile", async || tab.text(left).await.starts_with("Left 2 / 3")).await;
    // Its figures stand apart from those of all sales.
    assert_eq!(tab.text("#panel-service #tile-left").await, "");
    tab.reads("accepted").await;
    for (verb, is) in [("pause", "paused"), ("resume", "active")] {
        tab.click(&format!("#do-{verb}")).await;
        check(&tab, verb).await;
        tab.picture(&format!("board-{verb}")).await;
        finish(&tab).await;
        state(&tab, is).await;
    }
    restock(&shop, &tab, &coupon).await;
    edit(&shop, &tab, &coupon).await;

    compare(&tab, "Compared: no findings.").await;
    eventually("the new title", async || tab.text(".sale h2").await == "Tea for three").await;
    end(&tab).await;
    tab.reads(&format!("Tea for three · {coupon}")).await;
    // A dialog that is closed does nothing.
    tab.press(Key::Escape).await;
    state(&tab, "active").await;
    end(&tab).await;
    finish(&tab).await;
    state(&tab, "ended").await;
    assert_eq!(shop.coupon(&coupon).await["state"], "ended");

    // Twenty newer sales are on the board. It is found by its number, and others by their title.
    for _ in 0..21 {
        shop.sale(5, -1).await;
    }
    eventually("others", async || !tab.text("#panel-sales").await.contains("Tea")).await;
    pick(&tab, &coupon).await;
    state(&tab, "ended").await;
    tab.fill("#find", "dinner").await;
    tab.press(Key::Enter).await;
    eventually("another", async || tab.text(".sale h2").await == "Dinner for two").await;
    tab.close_clean().await;
}

/// Asks to end the sale that is picked: a rare deed stands in a menu.
async fn end(tab: &Tab) {
    // The driver takes what the sticky sentence covers for visible.
    tab.eval("document.querySelector('#menu-sale').scrollIntoView({ block: 'center' }); return ''")
        .await;
    tab.click("#menu-sale summary").await;
    tab.click("#do-end").await;
}

/// A restock has one key for each dialog: it is made once, however often it is sent.
async fn restock(shop: &Shop, tab: &Tab, coupon: &str) {
    tab.click("#do-restock").await;
    let key = "return document.querySelector('[name=key]').value";
    let first = tab.eval(key).await;
    tab.fill("[name=units]", "7").await;
    // The reply to the first request is lost.
    tab.eval("const { fetch } = window; window.fetch = async (...all) => { await fetch(...all); window.fetch = fetch; throw new TypeError('lost'); }; return ''").await;
    tab.click("#dialog-do").await;
    eventually("no answer", async || tab.text("dialog .refused").await.contains("No answer")).await;
    check(tab, "no answer").await;
    assert_eq!(tab.eval(key).await, first);
    finish(tab).await;
    eventually("the tile", async || tab.text("#tile-left").await.starts_with("Left 9 / 10")).await;
    assert_eq!(shop.coupon(coupon).await["sale"]["total"], 10);
    tab.click("#do-restock").await;
    assert_ne!(tab.eval(key).await, first);
    tab.click("#dialog-cancel").await;
    is_open(tab, false).await;
}

/// A change that another administrator has overtaken is not made, and may be made anew.
async fn edit(shop: &Shop, tab: &Tab, coupon: &str) {
    tab.click("#do-edit").await;
    is_open(tab, true).await;
    shop.costs(coupon, 2_100).await;
    tab.fill("[name=title]", "Tea for three").await;
    tab.click("#dialog-do").await;
    eventually("the conflict", async || {
        tab.text("dialog .refused").await.contains("Another administrator has changed")
    })
    .await;
    check(tab, "conflict").await;
    tab.picture("board-conflict").await;
    tab.click("#reload").await;
    let price = "return document.querySelector('[name=pay]').value";
    eventually("the price of the other", async || tab.eval(price).await == "21.00").await;
    tab.fill("[name=title]", "Tea for three").await;
    tab.click("#dialog-do").await;
    tab.reads("Saved, and in effect.").await;
    let coupon = shop.coupon(coupon).await;
    assert_eq!((&coupon["title"], &coupon["pay_cents"]), (&json!("Tea for three"), &json!(2_100)));
}

/// Does what the dialog is about, and waits until that is done.
async fn finish(tab: &Tab) {
    tab.click("#dialog-do").await;
    is_open(tab, false).await;
}

/// Compares the stores until the notice says this: while another comparison is under way, it says something else.
async fn compare(tab: &Tab, words: &str) {
    eventually(words, async || {
        tab.click("#do-compare[aria-disabled=false]").await;
        let busy = "return document.getElementById('do-compare').ariaDisabled";
        eventually("an answer", async || tab.eval(busy).await == "false").await;
        tab.text("#notice").await == words
    })
    .await;
}

/// Waits until the live region has spoken these words, since [`SAYINGS`] listens.
pub async fn spoken(tab: &Tab, words: &str) {
    let script = format!("return String(window.sayings.includes('{words}'))");
    eventually(words, async || tab.eval(&script).await == "true").await;
}

/// Waits until the dialog is open, or closed.
pub async fn is_open(tab: &Tab, open: bool) {
    let script = "return String(document.getElementById('dialog').open)";
    eventually("the dialog", async || tab.eval(script).await == open.to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_seen_and_nothing_is_praised_then() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let shop = Shop::open(&[&urls[..], &["--roles", "api"]].concat()).await;
    let tab = shop.operator(Device::Desk).await;
    sentence(&tab, "no_worker").await;
    let mut worker = worker(&urls);
    sentence(&tab, "well").await;

    worker.kill();
    sentence(&tab, "no_worker").await;
    tab.reads("silent for").await;
    tab.reads("with the settings of the service: flash-sale serve --roles worker").await;
    assert!(tab.title().await.starts_with("⚠ No worker is running."), "{}", tab.title().await);
    assert_eq!(tab.eval_later(GUIDE).await, json!(true), "the documentation");
    // The state stays in sight.
    assert_eq!(tab.eval("scrollTo(0, 9999); return String(document.querySelector('#sentence').getBoundingClientRect().top)").await, "0");
    check(&tab, "no worker").await;
    tab.picture("board-killed").await;
    let coupon = shop.sale(5, -1).await;
    let _ = shop.other_claims(&coupon).await;
    let _worker = self::worker(&urls);
    sentence(&tab, "silent").await;
    check(&tab, "silent").await;

    servers.signal("postgres", "-KILL");
    sentence(&tab, "postgres_away_waiting").await;
    assert_eq!(praise(&tab, "#store-postgres, #panel-stores").await, "");
    check(&tab, "Postgres is away").await;
    tab.picture("board-postgres-away").await;
    // A change is not told as made.
    tab.click("#do-pause").await;
    tab.click("#dialog-do").await;
    eventually("no answer", async || tab.text("dialog .refused").await.contains("No answer")).await;
    tab.click("#dialog-cancel").await;
    tab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_tried_again_and_discarded_and_a_finding_is_spelled_out() {
    let servers = Servers::start().await;
    let urls = servers.arguments();
    let shop = Shop::open(&urls).await;
    let coupon = shop.sale(5, -1).await;
    let tab = shop.operator(Device::Phone).await;
    sentence(&tab, "well").await;
    servers.redis(&["XADD", "fs:{0}:log", "*", "coupon", "x"]);
    sentence(&tab, "letters").await;
    tab.reads("undecodable").await;
    servers.redis(&["HINCRBY", &format!("fs:{{0}}:coupon:{coupon}"), "stock", "-1"]);
    compare(&tab, "Compared: there are findings.").await;
    sentence(&tab, "disagree").await;
    assert_eq!(praise(&tab, "#sentence, #panel-stores, #panel-equations").await, "");
    check(&tab, "trouble").await;
    tab.picture("board-trouble-phone").await;

    tab.click("#panel-waiting .retry").await;
    tab.reads("The entry can't be read.").await;
    tab.click("#panel-waiting .retry_all").await;
    tab.reads("Became orders: 0. letter_unreadable: 1").await;
    assert_eq!(
        praise(&tab, "#sentence, #panel-waiting, #panel-equations").await,
        "",
        "the letter stays"
    );
    tab.click("#panel-waiting .discard").await;
    tab.reads("coupon = x").await;
    check(&tab, "discard").await;
    tab.click("#dialog-do").await;
    tab.reads("Discarded.").await;
    let is_open = async || tab.text("#panel-waiting").await.contains("undecodable");
    eventually("the letter has gone", async || !is_open().await).await;
    servers.redis(&["XADD", "fs:{0}:log", "*", "coupon", "y"]);
    eventually("the next letter", is_open).await;
    tab.click("#panel-waiting .discard_all").await;
    assert_eq!(tab.text("#dialog-title").await, "Discard all claims: undecodable?");
    tab.reads("coupon = y").await;
    check(&tab, "discard all").await;
    tab.click("#dialog-do").await;
    tab.reads("Discarded: 1.").await;
    tab.tab_to("[lang=zh-CN]").await;
    tab.press(Key::Enter).await;
    tab.reads("两库核对").await;
    tab.reads("处不一致").await;
    check(&tab, "trouble, zh").await;
    tab.picture("board-trouble-phone-zh").await;
    tab.close().await;
}

/// Postgres decides about a change, and Redis hears of it once it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_while_redis_is_away_is_decided_and_in_force_once_redis_is_back() {
    let servers = Servers::start().await;
    let proxy = RedisProxy::before(servers.redis_url(), "*").await;
    let shop = Shop::open(&servers.arguments_behind(proxy.url())).await;
    let coupon = shop.sale(5, -1).await;
    let shopper = shop.visit(Device::Phone, &format!("/sale/{coupon}")).await;
    shopper.shows("open").await;
    for (device, verb, is, face) in [
        (Device::Desk, "pause", "paused", "sale_paused"),
        (Device::Phone, "resume", "active", "open"),
    ] {
        let tab = shop.operator(device).await;
        sentence(&tab, "well").await;
        pick(&tab, &coupon).await;
        proxy.cut().await;
        sentence(&tab, "redis_away").await;
        // Others may be answered: the board says whom Redis doesn't answer, and that no process can be heard then.
        tab.reads(" gets no answer from Redis.").await;
        tab.reads("Unknown: processes report through Redis").await;
        tab.eval(SAYINGS).await;
        tab.click(&format!("#do-{verb}")).await;
        tab.click("#dialog-do").await;
        eventually("the decision", async || {
            tab.text("#notice").await == "Decided. Redis will be told."
        })
        .await;
        spoken(&tab, "Decided. Redis will be told.").await;
        assert_eq!(praise(&tab, "#notice, #sentence, .sale").await, "", "it is not in force yet");
        assert_eq!(shop.coupon(&coupon).await["state"], is, "Postgres has decided");
        eventually("the mark", async || !tab.text("#pending").await.is_empty()).await;
        check(&tab, "a change that Redis has not heard of").await;
        tab.picture(&format!("board-decided-{verb}")).await;

        proxy.heal();
        eventually("Redis is told", async || tab.text("#pending").await.is_empty()).await;
        state(&tab, is).await;
        // A comparison of the meantime may have broken off, and the next one is a minute away.
        shop.compare().await;
        sentence(&tab, "well").await;
        // The shopper is told the state that Redis has.
        shopper.shows(face).await;
        tab.close_clean().await;
    }
    shopper.close_clean().await;
}

/// Picks a sale of several.
pub async fn pick(tab: &Tab, coupon: &str) {
    tab.fill("#find", coupon).await;
    tab.press(Key::Enter).await;
    eventually("the sale", async || tab.eval(PICKED).await == coupon).await;
}

/// Id of the sale that is picked.
const PICKED: &str = "return document.querySelector('#panel-sale').dataset.coupon";

/// Tells whether the first problem leads to its section.
const GUIDE: &str = "const [tell] = arguments;
    const { href } = document.querySelector('#panel-problems a');
    fetch(href).then((it) => it.text()).then((text) => tell(text.includes(decodeURIComponent(href.split('text=')[1]))));";

/// Redis loses all that it has while a sale goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_is_on_the_board_and_its_sale_goes_on() {
    let servers = Servers::start().await;
    let shop = Shop::open(&servers.arguments()).await;
    let coupon = shop.sale(20, -1).await;
    for _ in 0..3 {
        let other = shop.other_claims(&coupon).await;
        shop.other_is_written(&other).await;
    }
    let tab = shop.operator(Device::Desk).await;
    sentence(&tab, "well").await;
    servers.redis(&["FLUSHALL"]);
    shop.other_claims(&coupon).await;
    eventually("the recovery", async || {
        let panel = tab.text("#panel-recoveries").await;
        !panel.is_empty() && !panel.contains("under way")
    })
    .await;
    let cell = async |name| tab.text(&format!("#panel-recoveries td[data-label='{name}']")).await;
    // The other sale is the demo's own.
    assert_eq!(cell("Sales rebuilt").await, "2");
    assert_eq!(cell("Claims lost").await, "0");
    let told = tab.text("#panel-timeline").await;
    assert!(told.contains("Lane 0 closed") && told.contains("Lane 0 open again"), "{told}");
    check(&tab, "a recovery").await;
    tab.eval("document.getElementById('panel-recoveries').scrollIntoView(); return ''").await;
    tab.picture("board-recovery").await;
    assert_eq!(shop.coupon(&coupon).await["sale"]["left"], 16);
    tab.close_clean().await;
}

/// What the staff does is marked on the charts and told in time, and orders are found by their number and their buyer's.
#[tokio::test(flavor = "multi_thread")]
async fn what_happened_is_marked_and_an_order_is_found() {
    let shop = Shop::open(&[]).await;
    let coupon = shop.sale(5_000, -1).await;
    let tab = shop.operator(Device::Desk).await;
    sentence(&tab, "well").await;
    let other = shop.other_claims(&coupon).await;
    shop.other_is_written(&other).await;
    // One claim in some seconds is a rate of 0.
    eventually("the curve", async || {
        shop.other_claims(&coupon).await;
        !tab.text("#panel-service .legend").await.is_empty()
    })
    .await;
    for verb in ["pause", "resume"] {
        shop.r#move(&coupon, verb).await;
    }
    tab.click("#do-read_book").await;
    tab.reads("Coupon resumed Dinner for two").await;
    let marks = "return String(document.querySelector('#panel-service .chart')?.querySelectorAll('.mark').length)";
    eventually("two marks", async || tab.eval(marks).await == "2").await;
    tab.eval(HOVER).await;
    eventually("the mark", async || tab.text(".marked").await.contains("Coupon ")).await;
    assert_eq!(tab.text(".when").await.len(), "12:34:56".len());
    check(&tab, "marks").await;
    tab.eval("document.getElementById('panel-service').scrollIntoView(); return ''").await;
    tab.picture("board-marks").await;

    let found = async |number: &str, words: &str| {
        tab.fill("#find-orders", number).await;
        tab.press(Key::Enter).await;
        eventually(words, async || tab.text("#panel-orders").await.contains(words)).await;
    };
    found("99", "No order and no buyer with orders has the number 99.").await;
    found(&other.1, "Unpaid").await;
    let buyer = tab.text("#panel-orders td[data-label=Buyer]").await;
    found("99", "No order").await;
    found(&buyer, &other.1).await;
    check(&tab, "an order").await;
    tab.picture("board-order").await;
    tab.click("#panel-orders .pick").await;
    eventually("its sale", async || tab.eval(PICKED).await == coupon).await;
    // A number without an order is a 404, of which the browser speaks.
    tab.close().await;
}

/// The pointer at the newest mark of the first chart.
const HOVER: &str = "const { left, top } = document.querySelector('#panel-service .mark').getBoundingClientRect();
    document.querySelector('#panel-service .chart').dispatchEvent(new PointerEvent('pointermove', { clientX: left + 4, clientY: top + 20 }));
    return ''";

#[tokio::test(flavor = "multi_thread")]
async fn no_state_of_the_board_has_a_fault_that_axe_knows() {
    let mut shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Phone, "/board").await;
    tab.reads("For administrators").await;
    check(&tab, "locked").await;
    tab.close().await;
    let tab = shop.operator(Device::Phone).await;
    sentence(&tab, "well").await;
    check(&tab, "well").await;
    tab.picture("board-phone").await;
    for dialog in ["create", "edit", "restock", "end"] {
        match dialog {
            "end" => end(&tab).await,
            _ => tab.click(&format!("#do-{dialog}")).await,
        }
        is_open(&tab, true).await;
        check(&tab, dialog).await;
        tab.picture(&format!("board-{dialog}-phone")).await;
        tab.press(Key::Escape).await;
        is_open(&tab, false).await;
    }
    shop.kill();
    sentence(&tab, "stale").await;
    check(&tab, "stale").await;
    assert_eq!(praise(&tab, "main").await, "", "old figures praise nothing");
    tab.close().await;
}

/// The sentence is a pure function of an event and its age: no fact that is missing, old or bad stands beside a good
/// word.
#[tokio::test(flavor = "multi_thread")]
async fn no_good_word_stands_without_its_evidence() {
    let shop = Shop::open(&[]).await;
    let tab = shop.visit(Device::Desk, "/board").await;
    tab.reads("For administrators").await;
    let wrong = tab.eval_later(VERDICTS).await;
    assert_eq!(wrong, json!([]));
    tab.close_clean().await;
}

/// Calls the functions of verdict.js with one fact changed at a time, and tells the changes that left a good word.
const VERDICTS: &str = r"
    const [tell] = arguments;
    const module = document.querySelector('link[href$=\'board/verdict.js\']').href;
    import(module).then(({ sentences, comparison, equations, store, lane }) => {
        const now = Date.parse('2026-03-01T10:00:00Z');
        const good = () => ({
            line: 'live', ageMs: 100,
            board: {
                now, backlog: 0, oldest_ms: 0, waits: [], waiting: [], findings: [], recoveries: [],
                runs: [{ started_at: '2026-03-01T09:59:30Z', finished_at: '2026-03-01T09:59:31Z', failure: null, disagreements: 0 }],
                sales: [{ coupon_id: '1', total: 5, units: { at: now, total: 5, left: 4, buyers: 1, sold: 1, in_review: 0, conserved: true } }],
                processes: [{ is_heard: true, roles: ['api'] }, { is_heard: true, roles: ['worker'] }],
                lanes: [{ is_open: true, pending: 0, unread: 0, oldest_ms: 0 }],
                stores: [{ name: 'redis', is_there: true, is_fault: false }, { name: 'postgres', is_there: true, is_fault: false }],
            },
        });
        const words = (state) => ({
            sentence: sentences(state), comparison: [comparison(state)], equations: equations(state, state.board.sales[0]),
            buyers: [equations(state, state.board.sales[0])[1]], redis: [store(state, state.board.stores[0])], postgres: [store(state, state.board.stores[1])], lane: [lane(state, state.board.lanes[0])],
        });
        const isGood = (verdicts) => verdicts.some((it) => it.tone === 'good');
        const wrong = [];
        const all = Object.keys(words(good()));
        for (const key of all) if (!words(good())[key].every((it) => it.tone === 'good')) wrong.push(`${key} is not good when all is`);
        const stores = ['sentence', 'redis', 'equations', 'lane'];
        const cases = {
            'lost line': [(it) => { it.line = 'lost'; }, all],
            'asked now and then': [(it) => { it.line = 'asked'; }, all],
            'old event': [(it) => { it.ageMs = 6000; }, all],
            'Redis away': [(it) => { it.board.stores[0].is_there = false; }, stores],
            'Postgres away': [(it) => { it.board.stores[1].is_there = false; }, ['sentence', 'postgres', 'comparison']],
            'not durable': [(it) => { it.board.stores[0].is_fault = true; }, ['sentence', 'redis']],
            'finding': [(it) => { it.board.runs[0].disagreements = 1; it.board.findings = [{ coupon_id: '1' }]; }, ['sentence', 'comparison', 'equations']],
            'broken off': [(it) => { it.board.runs.unshift({ started_at: now, finished_at: '2026-03-01T09:59:59Z', failure: 'x', disagreements: null }); }, ['sentence', 'comparison']],
            'never compared': [(it) => { it.board.runs = []; }, ['sentence', 'comparison']],
            'compared long ago': [(it) => { it.board.runs[0].finished_at = '2026-03-01T09:20:00Z'; }, ['sentence', 'comparison']],
            'dead letter': [(it) => { it.board.waits.push({ kind: 'dead_letter', items: 1, oldest_s: 0 }); }, ['sentence']],
            'claims lost in a recovery': [(it) => { it.board.waits.push({ kind: 'recovery', items: 1, oldest_s: 0 }); }, ['sentence', 'buyers']],
            'units lost': [(it) => { it.board.sales[0].units.conserved = false; }, ['sentence', 'equations']],
            'lane closed': [(it) => { it.board.lanes[0].is_open = false; }, ['sentence', 'lane']],
            'log unreadable': [(it) => { it.board.lanes[0].pending = null; it.board.backlog = null; }, ['sentence', 'lane']],
            'no worker': [(it) => { it.board.processes.pop(); }, ['sentence']],
            'no api': [(it) => { it.board.processes.shift(); }, ['sentence']],
            'silent process': [(it) => { it.board.processes.push({ is_heard: false, roles: [] }); }, ['sentence']],
            'old entry': [(it) => { it.board.oldest_ms = 20000; it.board.lanes[0].oldest_ms = 20000; it.board.backlog = 1; }, ['sentence', 'lane']],
            'held payment': [(it) => { it.board.waits.push({ kind: 'held_payment', items: 1, oldest_s: 0 }); }, ['sentence']],
            'old refund': [(it) => { it.board.waits.push({ kind: 'refund', items: 1, oldest_s: 700 }); }, ['sentence']],
            'postponed': [(it) => { it.board.waits.push({ kind: 'postponed', items: 1, oldest_s: 0 }); }, ['sentence']],
        };
        for (const [name, [change, silent]] of Object.entries(cases)) {
            const state = good();
            change(state);
            const found = words(state);
            for (const key of silent) if (isGood(found[key])) wrong.push(`${name}: ${key} says ${found[key].map((it) => it.key)}`);
        }
        const oversold = good();
        oversold.board.sales[0].units.sold = 6;
        if (words(oversold).equations[2].tone !== 'bad' || isGood(words(oversold).equations)) wrong.push('oversold');
        const lost = good();
        lost.board.runs[0].disagreements = 1;
        lost.board.findings = [{ coupon_id: '1' }];
        if (words(lost).equations[1].tone !== 'bad') wrong.push('lost buyer');
        const unknown = sentences({ board: null, line: 'connecting', ageMs: 0 });
        if (isGood(unknown)) wrong.push('nothing is known');
        tell(wrong);
    }, (error) => tell([String(error)]));";

pub async fn sentence(tab: &Tab, key: &str) {
    let script = format!(
        "return String(document.querySelector('#sentence [data-key={key}], #panel-problems [data-key={key}]') !== null)"
    );
    eventually(&format!("the sentence {key}"), async || tab.eval(&script).await == "true").await;
}

async fn state(tab: &Tab, is: &str) {
    let script = "return document.querySelector('#sale-state')?.dataset.state ?? ''";
    eventually(&format!("the state {is}"), async || tab.eval(script).await == is).await;
}

/// Good words within these parts of the page.
async fn praise(tab: &Tab, parts: &str) -> String {
    tab.eval(&format!(
        "return [...document.querySelectorAll('{parts}')].flatMap((part) => [...part.querySelectorAll('[data-tone=good], [data-tone=live]')]).map((it) => it.textContent.trim()).join('; ')"
    ))
    .await
}

/// Checks the page in both themes and on both sizes.
pub async fn check(tab: &Tab, what: &str) {
    let own = tab.device();
    for device in [Device::Phone, Device::Desk] {
        tab.resize(device).await;
        tab.assert_fits().await;
        for theme in ["light", "dark"] {
            tab.eval(&format!("document.documentElement.dataset.theme = '{theme}'; return ''"))
                .await;
            tab.assert_accessible(&format!("{what}, {device:?}, {theme}")).await;
        }
    }
    tab.resize(own).await;
}
