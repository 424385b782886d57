//! A demo, and tabs that look at it.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use chrono::{DateTime, TimeDelta, Utc};
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use flash_sale_browser::{ARGUMENTS, Driver, browser};
use hyper_util::client::legacy::connect::HttpConnector;
use private_servers::testing::{DataFolder, Process, eventually};
use serde_json::{Value, json};
use url::{ParseError, Url};

/// The accessibility checker, vendored.
const AXE: &str = include_str!("../../../vendor/axe.min.js");

/// Settings for a machine however busy, and no bounds that a fast one would meet. A test may give others.
const PATIENT: [[&str; 2]; 6] = [
    ["--redis-timeout-ms", "10000"],
    ["--database-timeout-ms", "10000"],
    ["--claim-wait-ms", "9000"],
    ["--user-claims-per-second", "0"],
    ["--user-requests-per-second", "0"],
    ["--anonymous-requests-per-second", "0"],
];

/// A secret that the gateway knows, too.
pub const SECRET: &str = "a secret of the tests, of 32 bytes or more";

/// Words of the browser's messages about breaches of the policy.
pub const BREACHES: [&str; 2] = ["Content Security Policy", "TrustedHTML"];

/// Notes what the live region speaks from now on.
pub const SAYINGS: &str = "
    const said = document.getElementById('said');
    window.sayings = [];
    new MutationObserver(() => said.textContent && window.sayings.push(said.textContent))
        .observe(said, { childList: true, characterData: true, subtree: true });
    return ''";

/// Time that the browser has for a script or a page. Only a hang takes longer.
const BROWSER_MS_MAX: u64 = 300_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Phone,
    Desk,
    /// A desk whose screen shows the whole board.
    Poster,
}

impl Device {
    fn size(self) -> (u32, u32) {
        match self {
            Self::Phone => (360, 780),
            Self::Desk => (1_280, 900),
            Self::Poster => (1_280, 1_188),
        }
    }
}

/// A demo with its own stores, and the driver of the browsers that look at it.
pub struct Shop {
    demo: Process,
    driver: Driver,
    http: reqwest::Client,
    url: String,
    admin: String,
    /// Removed at the end.
    _folder: DataFolder,
}

impl Shop {
    /// Opens with these arguments of `flash-sale demo`.
    pub async fn open(arguments: &[&str]) -> Self {
        let folder = DataFolder::new();
        let mut command = patient("demo", arguments);
        command.args(["--listen", "127.0.0.1:0", "--data-dir", folder.text()]);
        let mut demo = Process::spawn(command);
        eventually("the demo prints its lines", async || {
            assert!(demo.is_running(), "the demo has ended: {}", demo.said_so_far());
            demo.printed_so_far().iter().any(|line| line.contains("  ADMIN="))
        })
        .await;
        let word = |line: String| line.split_whitespace().last().expect("a word").to_owned();
        let storm = word(demo.printed("  storm ").await);
        let admin = word(demo.printed("  ADMIN=").await).replace("ADMIN=", "");
        let (url, _) = storm.split_once("/storm#").expect("the page of storms");
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let url = url.to_owned();
        Self { demo, driver: Driver::start().await, http, url, admin, _folder: folder }
    }

    /// Ends the demo without a warning.
    pub fn kill(&mut self) {
        self.demo.kill();
    }

    /// Path of the printed link to the page of storms; its code works once.
    pub async fn storm_link(&self) -> String {
        let line = self.demo.printed("  storm ").await;
        let (_, path) = line.trim_end().split_once(&self.url).expect("a link to this demo");
        path.to_owned()
    }

    /// The administrator's token that the demo has printed.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// The demo's URL, without a path.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A sale of `total` units that opens so many seconds from now.
    pub async fn sale(&self, total: i64, opens_in_s: i64) -> String {
        let sale = json!({"total": total, "opens_at": in_seconds(opens_in_s), "closes_at": in_seconds(opens_in_s + 86_400)});
        let coupon = json!({"kind": "flash", "title": "Dinner for two", "sub_title": "At half the price, while they last", "rules": "Book a table ahead.", "pay_cents": 2_500, "value_cents": 5_000, "sale": sale});
        self.coupon_of(&coupon).await
    }

    /// A coupon with these values. Returns its id.
    pub async fn coupon_of(&self, values: &Value) -> String {
        let created = self.as_admin("POST", "/v1/coupons", values).await;
        created["id"].as_str().expect("an id").to_owned()
    }

    /// The window of a sale begins so many seconds from now.
    pub async fn opens_in(&self, coupon: &str, seconds: i64) {
        let change = json!({"sale": {"opens_at": in_seconds(seconds)}});
        self.as_admin("PATCH", &format!("/v1/coupons/{coupon}"), &change).await;
    }

    /// Claims cost so much from now on.
    pub async fn costs(&self, coupon: &str, cents: i64) {
        let change = json!({"pay_cents": cents});
        self.as_admin("PATCH", &format!("/v1/coupons/{coupon}"), &change).await;
    }

    /// Pauses, resumes or ends a sale.
    pub async fn r#move(&self, coupon: &str, verb: &str) {
        self.as_admin("POST", &format!("/v1/coupons/{coupon}/{verb}"), &Value::Null).await;
    }

    /// Compares the stores, after a comparison that is under way.
    pub async fn compare(&self) {
        eventually("a comparison", async || {
            let request = self.http.post(format!("{}/v1/reconcile", self.url));
            let request = request.bearer_auth(&self.admin);
            request.send().await.expect("the demo answers").status().as_u16() == 200
        })
        .await;
    }

    /// Leads a tab to another path.
    pub async fn go(&self, tab: &Tab, path: &str) {
        tab.open(&format!("{}{path}", self.url)).await;
    }

    /// Starts a storm of so many shoppers, for so many units, who arrive over so many seconds.
    pub async fn storm(&self, [shoppers, stock, over_s]: [u32; 3]) {
        let plan =
            json!({"shoppers": shoppers, "stock": stock, "over_s": over_s, "twice_percent": 10});
        self.as_admin("POST", "/demo/storms", &plan).await;
    }

    /// Waits until a storm after this one has its verdict.
    pub async fn storm_ends(&self, before: &Value) {
        eventually("the storm is over", async || {
            let last = self.as_admin("GET", "/demo/storms/last", &Value::Null).await;
            last["stage"] == "done" && last["id"] != *before
        })
        .await;
    }

    /// Id of the last storm.
    pub async fn last_storm(&self) -> Value {
        self.as_admin("GET", "/demo/storms/last", &Value::Null).await["id"].clone()
    }

    /// Another shopper claims a unit, and asks again as long as the outcome is unknown. Returns their token and the order.
    pub async fn other_claims(&self, coupon: &str) -> (String, String) {
        let shopper = self.call("POST", "/demo/shoppers", "", &Value::Null).await;
        let token = shopper["token"].as_str().expect("a token").to_owned();
        let path = format!("/v1/coupons/{coupon}/claims");
        let mut order = None;
        eventually("the other shopper holds a unit", async || {
            let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&token);
            let reply = request.send().await.expect("the demo answers");
            let claimed: Value = reply.json().await.expect("JSON");
            order = claimed["order_id"].as_str().map(ToOwned::to_owned);
            order.is_some()
        })
        .await;
        (token, order.expect("waited for"))
    }

    /// Waits until that shopper's order is written.
    pub async fn other_is_written(&self, (token, order): &(String, String)) {
        let url = format!("{}/v1/orders/{order}", self.url);
        eventually("the order is written", async || {
            let request = self.http.get(&url).bearer_auth(token);
            request.send().await.expect("the demo answers").status().is_success()
        })
        .await;
    }

    /// That shopper gives the order up, once it is written.
    pub async fn other_gives_up(&self, (token, order): &(String, String)) {
        let path = format!("/v1/orders/{order}/cancel");
        eventually("the order is written and given up", async || {
            let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(token);
            request.send().await.expect("the demo answers").status().is_success()
        })
        .await;
    }

    /// That shopper pays for the order, once it is written. Returns its redemption code.
    pub async fn other_pays(&self, other: &(String, String)) -> String {
        self.other_is_written(other).await;
        let (token, order) = other;
        let path = format!("/v1/orders/{order}/pay");
        let paid = self.call("POST", &path, token, &json!({"method": "balance"})).await;
        paid["redemption_code"].as_str().expect("a code").to_owned()
    }

    /// A clerk redeems this code.
    pub async fn redeem(&self, code: &str) {
        self.as_admin("POST", "/v1/redemptions", &json!({"code": code})).await;
    }

    /// The staff cancels all unpaid orders of a coupon.
    pub async fn cancel_unpaid(&self, coupon: &str, reason: &str) {
        let path = format!("/v1/coupons/{coupon}/cancel-unpaid");
        self.as_admin("POST", &path, &json!({"reason": reason})).await;
    }

    /// A new browser, with nothing in its storage, at this path.
    pub async fn visit(&self, device: Device, path: &str) -> Tab {
        let tab = self.browse(device).await;
        self.go(&tab, path).await;
        tab
    }

    /// A new browser, with nothing in its storage.
    pub async fn browse(&self, device: Device) -> Tab {
        let (width, height) = device.size();
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(ToString::to_string).collect();
        arguments.push("--lang=en".into());
        arguments.push(format!("--window-size={width},{height}"));
        if device == Device::Poster {
            arguments.push("--hide-scrollbars".into());
        }
        let mut options = json!({"args": arguments, "binary": browser()});
        if device == Device::Phone {
            let metrics =
                json!({"width": width, "height": height, "pixelRatio": 2.0, "touch": true});
            options["mobileEmulation"] = json!({"deviceMetrics": metrics});
        }
        let capabilities: Capabilities = [
            ("goog:chromeOptions".to_owned(), options),
            ("goog:loggingPrefs".to_owned(), json!({"browser": "ALL"})),
            ("timeouts".to_owned(), json!({"script": BROWSER_MS_MAX, "pageLoad": BROWSER_MS_MAX})),
        ]
        .into_iter()
        .collect();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let client = builder.connect(self.driver.url()).await.expect("the browser starts");
        Tab { client, device: Cell::new(device) }
    }

    /// Path of the board with the code that lets one tab in.
    pub async fn board_link(&self) -> String {
        let line = self.demo.printed("  board ").await;
        let link = line.split_whitespace().nth(1).expect("a link");
        link.strip_prefix(&self.url).expect("a page of this demo").to_owned()
    }

    /// A tab that looks at the board, let in by an administrator's token.
    pub async fn operator(&self, device: Device) -> Tab {
        self.let_in(device, &self.admin).await
    }

    /// A tab that looks at the board, let in by this token.
    pub async fn let_in(&self, device: Device, token: &str) -> Tab {
        let tab = self.visit(device, "/board").await;
        tab.reads("For administrators").await;
        tab.fill("[name=token]", token).await;
        tab.press(Key::Enter).await;
        tab
    }

    /// Id of the newest coupon.
    pub async fn newest_coupon(&self) -> String {
        let list = self.call("GET", "/v1/coupons?limit=1", "", &Value::Null).await;
        list["coupons"][0]["id"].as_str().expect("an id").to_owned()
    }

    /// A coupon, as all users see it.
    pub async fn coupon(&self, coupon: &str) -> Value {
        self.call("GET", &format!("/v1/coupons/{coupon}"), "", &Value::Null).await
    }

    async fn as_admin(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, path, &self.admin, body).await
    }

    async fn call(&self, method: &str, path: &str, token: &str, body: &Value) -> Value {
        let method = method.parse().expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        let reply = request.send().await.expect("the demo answers");
        let (status, text) = (reply.status(), reply.text().await.expect("a body"));
        assert!(status.is_success(), "{path}: {status} {text}");
        match text.is_empty() {
            true => Value::Null,
            false => serde_json::from_str(&text).expect("JSON"),
        }
    }
}

/// Redis and Postgres for processes of their own.
pub struct Servers {
    _keeper: Process,
    at: Value,
    _folder: DataFolder,
}

impl Servers {
    /// Starts both.
    pub async fn start() -> Self {
        let folder = DataFolder::new();
        let mut command = Command::new(binary());
        command.args(["private-servers", "--data-dir", folder.text()]).stdin(Stdio::piped());
        let keeper = Process::spawn(command);
        let line = keeper.printed("redis_url").await;
        let at = serde_json::from_str(&line).expect("the keeper writes JSON");
        let servers = Self { _keeper: keeper, at, _folder: folder };
        let migrate = ["migrate", "--database-url", servers.database_url()];
        let done = Command::new(binary()).args(migrate).output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
        servers
    }

    /// Where Redis is.
    pub fn redis_url(&self) -> &str {
        self.at["redis_url"].as_str().expect("a text")
    }

    /// Where Postgres is.
    pub fn database_url(&self) -> &str {
        self.at["database_url"].as_str().expect("a text")
    }

    /// Arguments of processes that share these.
    pub fn arguments(&self) -> [&str; 6] {
        self.arguments_behind(self.redis_url())
    }

    /// Arguments of processes that share these, and reach Redis at this URL.
    pub fn arguments_behind<'a>(&'a self, redis_url: &'a str) -> [&'a str; 6] {
        let database_url = self.database_url();
        ["--redis-url", redis_url, "--database-url", database_url, "--token-secret", SECRET]
    }

    /// Runs a command in Redis.
    pub fn redis(&self, words: &[&str]) {
        let path = self.redis_url().trim_start_matches("redis+unix://");
        let path = path.split('?').next().unwrap_or(path);
        let done = Command::new("redis-cli").args(["-s", path]).args(words).output();
        let done = done.expect("redis-cli is there");
        assert!(done.status.success() && !done.stdout.starts_with(b"ERR"), "{done:?}");
    }

    /// A signal for `redis` or `postgres`.
    pub fn signal(&self, store: &str, signal: &str) {
        let pid = self.at[format!("{store}_pid")].as_i64().expect("a number");
        let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }
}

/// A worker beside the demo.
pub fn worker(urls: &[&str]) -> Process {
    let mut command = patient("serve", urls);
    command.args(["--roles", "worker"]);
    Process::spawn(command)
}

/// A service beside the demo that is none: it gives no tokens away. Returns its URL, too.
pub async fn storefront(urls: &[&str], listen: &str) -> (Process, String) {
    let mut command = patient("serve", urls);
    command.args(["--listen", listen, "--roles", "api", "--pages", "shop,board"]);
    let process = Process::spawn(command);
    let line = process.logged("the API listens on ").await;
    let (_, url) = line.split_once("listens on ").expect("the text that was waited for");
    (process, url.trim().to_owned())
}

/// A token of a user, signed with this secret.
pub fn token_by(secret: &str, user: &str) -> String {
    let arguments = ["token", "--user", user, "--token-secret", secret];
    let done = Command::new(binary()).args(arguments).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).expect("a token is text").trim().to_owned()
}

/// A browser with one tab, or several windows.
pub struct Tab {
    client: Client,
    device: Cell<Device>,
}

impl Tab {
    /// The device that the page is on.
    pub fn device(&self) -> Device {
        self.device.get()
    }

    /// Makes the page as large as on another device.
    pub async fn resize(&self, device: Device) {
        let ((width, height), mobile) = (device.size(), device == Device::Phone);
        let scale = if mobile { 2 } else { 1 };
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile});
        let body = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.client.issue_cmd(DevTools(body)).await.expect("the driver knows the command");
        self.device.set(device);
    }

    /// Leads to this URL.
    pub async fn open(&self, url: &str) {
        self.client.goto(url).await.expect("the page loads");
    }

    /// Runs a script before those of each page that is loaded from now on.
    pub async fn before_each_page(&self, script: &str) {
        let body =
            json!({"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": script}});
        self.client.issue_cmd(DevTools(body)).await.expect("the driver knows the command");
    }

    /// Lets each answer take this much longer from now on, and keeps nothing in the cache.
    pub async fn slow_line(&self, latency_ms: u32) {
        let line = json!({"offline": false, "latency": latency_ms, "downloadThroughput": -1, "uploadThroughput": -1});
        for (name, params) in [
            ("Network.enable", json!({})),
            ("Network.setCacheDisabled", json!({"cacheDisabled": true})),
            ("Network.emulateNetworkConditions", line),
        ] {
            let body = json!({"cmd": name, "params": params});
            self.client.issue_cmd(DevTools(body)).await.expect("the driver knows the command");
        }
    }

    /// The browser's messages since they were last asked for.
    pub async fn log(&self) -> Vec<Value> {
        let log = self.client.issue_cmd(BrowserLog).await.expect("the driver has a log");
        log.as_array().expect("a list").clone()
    }

    /// The face that the page has.
    pub async fn face(&self) -> String {
        self.eval("return document.querySelector('#sale')?.dataset.face ?? ''").await
    }

    /// Waits until the page has this face.
    pub async fn shows(&self, face: &str) {
        let (what, mut seen) = (format!("the face {face}"), String::new());
        eventually(&what, async || {
            let now = self.face().await;
            if now != seen {
                println!("the page has the face {now:?}; {face:?} is awaited");
                seen = now;
            }
            seen == face
        })
        .await;
    }

    /// Waits until the text of the page has these words.
    pub async fn reads(&self, words: &str) {
        let what = format!("the words {words:?}");
        eventually(&what, async || self.text("#page").await.contains(words)).await;
    }

    /// The visible text of an element, in one line.
    pub async fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.innerText ?? ''");
        let text = self.eval(&script).await;
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The title of the tab.
    pub async fn title(&self) -> String {
        self.eval("return document.title").await
    }

    /// The last words of the live region.
    pub async fn said(&self) -> String {
        self.eval("return document.getElementById('said').textContent").await
    }

    /// Clicks on an element, as a mouse or a finger does.
    pub async fn click(&self, selector: &str) {
        let element = self.client.find(Locator::Css(selector)).await;
        let element = element.unwrap_or_else(|error| panic!("no {selector}: {error}"));
        element.click().await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Clicks on an element once it is there: a button takes no click while its `aria-disabled` is true.
    pub async fn click_once(&self, selector: &str) {
        let is_there = format!("return String(document.querySelector({selector:?}) !== null)");
        eventually(selector, async || self.eval(&is_there).await == "true").await;
        self.click(selector).await;
    }

    /// Pays for the order on the page.
    pub async fn pay(&self) {
        self.click_once("#pay[aria-disabled=false]").await;
    }

    /// Where the lower edge of the button of a sale is, from the top of the page.
    pub async fn button_at(&self) -> String {
        let script = "return String(Math.round(document.querySelector('.slot .go').getBoundingClientRect().bottom + scrollY))";
        self.eval(script).await
    }

    /// Shows the page as with this setting of the device, such as `forced-colors`.
    pub async fn emulate(&self, name: &str, value: &str) {
        let features = json!([{"name": name, "value": value}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.client.issue_cmd(DevTools(body)).await.expect("the driver knows the command");
    }

    /// Puts a text in place of that of a field.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.client.find(Locator::Css(selector)).await;
        let element = element.unwrap_or_else(|error| panic!("no {selector}: {error}"));
        element.clear().await.expect("it is a field");
        element.send_keys(text).await.expect("it takes text");
    }

    /// The value that a script tells by its last argument, later.
    pub async fn eval_later(&self, script: &str) -> Value {
        self.client.execute_async(script, Vec::new()).await.expect("the script tells")
    }

    /// Presses a key, wherever the focus is.
    pub async fn press(&self, key: Key) {
        self.strike([key.into()]).await;
    }

    /// Keys, each down and up, as of a keyboard: it names no element, which the page might replace in between.
    async fn strike(&self, keys: impl IntoIterator<Item = char>) {
        let keyboard = KeyActions::new("keyboard".to_owned());
        let strokes = keys.into_iter().fold(keyboard, |strokes, value| {
            strokes.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.client.perform_actions(strokes).await.expect("keys can be pressed");
    }

    /// Presses Tab until the element has the focus.
    pub async fn tab_to(&self, selector: &str) {
        let script = format!("return String(document.activeElement.matches({selector:?}))");
        for _ in 0..30 {
            self.press(Key::Tab).await;
            if self.eval(&script).await == "true" {
                return;
            }
        }
        panic!("Tab doesn't lead to {selector}");
    }

    /// Loads the page again.
    pub async fn reload(&self) {
        self.client.refresh().await.expect("the page loads");
    }

    /// The text that a script returns.
    pub async fn eval(&self, script: &str) -> String {
        let value = self.client.execute(script, Vec::new()).await.expect("the script runs");
        value.as_str().unwrap_or_else(|| panic!("{script}: {value}")).to_owned()
    }

    /// Leaves a picture in `target/browser`.
    pub async fn picture(&self, name: &str) {
        leave(&format!("{name}.png"), &self.screenshot().await);
    }

    /// The page as it is on the screen, as PNG.
    pub async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.expect("a picture")
    }

    /// Checks that no part of the page lies beside the screen, and none of a card or a dialog beside that.
    pub async fn assert_fits(&self) {
        // The width of the window hides it: on a phone the browser makes the window as wide as the page.
        let width = self.eval("return String(document.documentElement.scrollWidth)").await;
        let width: u32 = width.parse().expect("a number");
        let device = self.device();
        assert!(width <= device.size().0, "{device:?}: the page is {width} wide");
        assert_eq!(self.eval(BESIDE).await, "", "{device:?}: parts lie beside their places");
    }

    /// Checks the page as it is by axe-core.
    pub async fn assert_accessible(&self, what: &str) {
        if self.eval("return typeof window.axe").await == "undefined" {
            self.client.execute(AXE, Vec::new()).await.expect("axe loads");
        }
        let script = "const tell = arguments[arguments.length - 1];
            axe.run(document, { resultTypes: ['violations'] }).then(
                ({ violations }) => tell(violations.map((it) => `${it.id} at ${it.nodes.map((node) => `${node.target} (${node.failureSummary})`).join('; ')}`)),
                (error) => tell([String(error)]));";
        let found = self.client.execute_async(script, Vec::new()).await.expect("axe runs");
        assert_eq!(found, json!([]), "{what}");
    }

    /// Checks that the browser had nothing to complain of, a breach of the policy among others, and closes it.
    pub async fn close_clean(self) {
        let mut complaints = String::new();
        let log = self.log().await;
        // An answer of the service that asks for patience is no fault of the page, and a slow machine has some; nor is a
        // change that another administrator has overtaken.
        let is_fault = |entry: &&Value| {
            let message = entry["message"].to_string();
            ["503", "409"].iter().all(|it| !message.contains(&format!("with a status of {it}")))
        };
        for entry in log.iter().filter(is_fault) {
            writeln!(complaints, "{} {}", entry["level"], entry["message"]).expect("a text");
        }
        assert!(complaints.is_empty(), "{complaints}");
        self.close_unread().await;
    }

    /// Breaches of the policy that the browser has reported since it was last asked for its messages.
    pub async fn breaches(&self) -> Vec<String> {
        let messages = self.log().await.into_iter().map(|entry| entry["message"].to_string());
        let is_breach = |message: &String| BREACHES.iter().any(|words| message.contains(words));
        messages.filter(is_breach).collect()
    }

    /// Checks that the browser has reported no breach of the policy, and closes it.
    pub async fn close(self) {
        assert_eq!(self.breaches().await, [""; 0]);
        self.close_unread().await;
    }

    /// Closes a browser whose page is of another site.
    pub async fn close_unread(self) {
        self.client.close().await.expect("the browser ends");
    }
}

/// Chromedriver's command for the messages on the browser's console.
#[derive(Debug)]
struct BrowserLog;

impl WebDriverCompatibleCommand for BrowserLog {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

/// A command for the browser itself.
#[derive(Debug)]
struct DevTools(Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.0.to_string()))
    }
}

/// Elements whose text or box lies beside the card, the panel or the dialog that they stand in. Those cut off what lies
/// beside them, so the width of the page doesn't tell.
const BESIDE: &str = "
    const parts = [...document.querySelectorAll('main *')].filter((it) => it instanceof HTMLElement && it.clientWidth > 1 && !it.matches('select, option, input, textarea, .tear, thead, thead *'));
    const place = (it) => it.parentElement.closest('.card, .panel, dialog, main').getBoundingClientRect();
    const isBeside = (it) => it.scrollWidth > it.clientWidth + 1 || it.getBoundingClientRect().right > place(it).right + 1;
    return parts.filter((it) => !it.querySelector('.tear') && isBeside(it)).map((it) => `${it.tagName}.${it.className} ${it.innerText}`).join('; ')";

/// A command of the service with these arguments, and those for a machine however busy.
fn patient(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FLASH_SALE_") && name != "FLASH_SALE_CI_RUN" {
            command.env_remove(name);
        }
    }
    command.arg(name).args(arguments).stdin(Stdio::null());
    command.args(PATIENT.iter().filter(|[flag, _]| !arguments.contains(flag)).flatten());
    command
}

fn in_seconds(seconds: i64) -> String {
    (now() + TimeDelta::seconds(seconds)).to_rfc3339()
}

#[expect(clippy::disallowed_methods, reason = "the demo has the time of this machine, too")]
fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Leaves a file in `target/browser`. Returns its URL.
pub fn leave(name: &str, bytes: &[u8]) -> String {
    let file = target().join("browser").join(name);
    fs::create_dir_all(file.parent().expect("a folder")).expect("the folder can be made");
    fs::write(&file, bytes).expect("it can be written");
    format!("file://{}", file.display())
}

/// The folder of this build.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let profile = test.ancestors().nth(2).expect("target/debug/deps/it-...");
    profile.parent().expect("target").to_owned()
}

/// The service of this build.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let binary = test.ancestors().nth(2).expect("target/debug/deps/it-...").join("flash-sale");
    assert!(binary.is_file(), "{} isn't there: cargo build --bin flash-sale", binary.display());
    binary
}
