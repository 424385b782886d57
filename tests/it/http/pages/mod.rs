//! Pages for people: their files and headers, the words for each answer, and the tokens of a demo's shoppers.

// The board.
mod board;

// The lists of a board that has more of everything than it shows.
mod full;

// Live states of sales.
mod live;

// Storms of a demo.
mod storms;

// Watchers that don't read.
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::order::model::OrderStatus;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::support::{CODE, Reply, TestApp, codes, now};

/// Most bytes that the shopper's page may be, as it is sent.
const SHOP_BYTES_MAX: usize = 25 * 1024;

/// The shopper's page has its scripts in one file.
const BUNDLE: &str = "shop/main.js";

/// Most bytes of all pages together.
const BYTES_MAX: usize = 114 * 1024;

const PAGES: [&str; 8] =
    ["/", "/sale/1024", "/redeem", "/board", "/storm", "/claim/1024", "/docs", "/docs/problems"];

/// The policy of each page.
const POLICY: [&str; 11] = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "font-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types lit-html",
];

/// Paths that only the demo has, for POST.
const OF_THE_DEMO: [&str; 4] =
    ["/demo/shoppers", "/demo/sessions", "/demo/storms", "/demo/storms/current/troubles"];

/// Operations whose refusals the shopper's page tells.
const CALLED: [(&str, &str); 7] = [
    ("post", "/v1/coupons/{id}/claims"),
    ("get", "/v1/coupons/{id}/claims/me"),
    ("get", "/v1/coupons/{id}/live"),
    ("get", "/v1/coupons/{id}"),
    ("post", "/v1/orders/{id}/pay"),
    ("post", "/v1/orders/{id}/cancel"),
    ("post", "/v1/orders/{id}/refund"),
];

/// Codes that need no words of their own: the page can't cause them, or deals with them by itself.
const WORDLESS: [&str; 10] = [
    "invalid_id",
    "invalid_query",
    "invalid_body",
    "malformed_json",
    "unsupported_media_type",
    "body_too_large",
    "body_too_slow",
    "method_not_allowed",
    "internal",
    "too_many_watchers",
];

#[tokio::test]
async fn each_page_and_each_file_has_its_type_and_the_guards() {
    let app = TestApp::demo().await;
    for (path, file) in pages_and_files(&app, &PAGES).await {
        let expected = match path.rsplit_once('.') {
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(file.header("content-type"), expected, "{path}");
        let policy: Vec<&str> =
            file.header("content-security-policy").split(';').map(str::trim).collect();
        assert_eq!(policy, POLICY, "{path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cross-origin-opener-policy", "same-origin"),
            ("referrer-policy", "same-origin"),
            ("content-encoding", "gzip"),
            ("vary", "accept-encoding"),
        ] {
            assert_eq!(file.header(name), value, "{path}: {name}");
        }
        assert!(!file.headers.contains_key("set-cookie"), "{path}");
        let is_asset = path.starts_with("/assets/");
        let cache = if is_asset { "public, max-age=31536000, immutable" } else { "no-cache" };
        assert_eq!(file.header("cache-control"), cache, "{path}");
    }
}

#[tokio::test]
async fn what_a_browser_has_is_not_sent_again() {
    let app = TestApp::demo().await;
    for (path, file) in pages_and_files(&app, &PAGES).await {
        let again = get(&app, &path, &[("if-none-match", file.header("etag"))]).await;
        assert_eq!((again.status, again.bytes.len()), (304, 0), "{path}");
        assert_eq!(again.header("etag"), file.header("etag"), "{path}");
        let other = get(&app, &path, &[("if-none-match", "W/\"another\"")]).await;
        assert_eq!(other.status, 200, "{path}");
        // For a client that takes no gzip: the same text as in the repository, scripts and styles of ours without comments,
        // empty lines and the spaces that lines begin with.
        let plain = get(&app, &path, &[]).await;
        assert!(!plain.headers.contains_key("content-encoding"), "{path}");
        if let Some((_, name)) = path.strip_prefix("/assets/").and_then(|name| name.split_once('/'))
        {
            if name == BUNDLE {
                assert_has_its_modules(&plain.bytes);
                continue;
            }
            let mut source = fs::read_to_string(folder().join(name)).expect("it is there");
            let is_ours = !name.starts_with("vendor/");
            if is_ours && [".js", ".css"].iter().any(|ending| name.ends_with(ending)) {
                let begins =
                    if name.ends_with(".js") { &["//", "/*", "* ", "*/"][..] } else { &["/*"] };
                let is_comment =
                    |line: &&str| *line == "\n" || begins.iter().any(|it| line.starts_with(it));
                let lines = source.split_inclusive('\n').map(|line| line.trim_start_matches(' '));
                source = lines.filter(|line| !is_comment(line)).collect();
            }
            assert!(plain.bytes == source.as_bytes(), "{path} isn't pages/{name}");
        }
    }
}

/// Each statement of the shop's modules stands in the bundle; imports and exports are other statements there.
fn assert_has_its_modules(bundle: &[u8]) {
    let bundle = String::from_utf8_lossy(bundle);
    let there: BTreeSet<&str> = bundle.lines().collect();
    for name in sources("shop") {
        let source = fs::read_to_string(folder().join(&name)).expect("it is there");
        let begins = ["import ", "export ", "//", "/*", "* ", "*/"];
        let lines = source.lines().map(|line| line.trim_start_matches(' '));
        for line in lines.filter(|line| !line.is_empty()) {
            let is_other = begins.iter().any(|begin| line.starts_with(begin));
            assert!(is_other || there.contains(line), "{BUNDLE} lacks a line of {name}: {line}");
        }
    }
}

#[tokio::test]
async fn files_of_another_build_are_those_of_this_one_and_kept_by_no_cache() {
    let app = TestApp::demo().await;
    let other = get(&app, "/assets/00000000/shop.css", &[("if-none-match", "*")]).await;
    assert_eq!((other.status, other.header("cache-control")), (200, "no-store"));
    for path in
        ["/assets/00000000/shop.html", "/assets/00000000/none.js", "/assets/00000000/../Cargo.toml"]
    {
        assert_eq!(app.get(path, "").await.refusal(), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn the_page_is_small() {
    let app = TestApp::demo().await;
    let sale = format!("/sale/{}", app.create_flash(1).await);
    for (pages, bytes_max) in [(&[&*sale][..], SHOP_BYTES_MAX), (&PAGES[..], BYTES_MAX)] {
        let files = pages_and_files(&app, pages).await;
        let bytes: usize = files.values().map(|file| file.bytes.len()).sum();
        println!("{pages:?}: {bytes} bytes in {} files", files.len());
        assert!(bytes <= bytes_max, "{pages:?}: {bytes} bytes");
    }
    // A page names all that it needs, so a browser asks for everything at once (and the bench weighs everything).
    for page in PAGES {
        let plain = get(&app, page, &[]).await;
        let named = links(page, &String::from_utf8(plain.bytes).expect("it is text"));
        let needed = pages_and_files(&app, &[page]).await;
        let named: BTreeSet<&str> = named.iter().map(String::as_str).chain([page]).collect();
        assert_eq!(named, needed.keys().map(String::as_str).collect(), "{page}");
    }
    let files = pages_and_files(&app, &PAGES).await;
    let names = files.keys().filter_map(|path| path.strip_prefix("/assets/")?.split_once('/'));
    let served: BTreeSet<String> = names.map(|(_, name)| name.to_owned()).collect();
    let there: BTreeSet<String> = sources("")
        .into_iter()
        .filter(|name| [".js", ".css", ".svg"].iter().any(|ending| name.ends_with(ending)))
        .filter(|name| !name.starts_with("shop/") || name == BUNDLE)
        .collect();
    assert_eq!(served, there, "left: the files that the page needs; right: those of pages/");
}

#[tokio::test]
async fn pages_are_served_only_where_they_are_asked_for() {
    let app = TestApp::start().await;
    for path in ["/", "/sale/1024", "/redeem", "/board", "/claim/1024"] {
        assert_eq!(app.get(path, "").await.refusal(), (404, "not_found"), "{path}");
    }
    let shop = TestApp::configured(&["--pages", "shop"]).await;
    assert_eq!(get(&shop, "/", &[]).await.status, 200);
    assert_eq!(get(&shop, "/claim/1024", &[]).await.status, 404, "only the demo follows claims");
    // A shopper at a wrong path gets a page, and a program a problem.
    for (accept, kind) in [
        ("text/html,application/xhtml+xml", "text/html; charset=utf-8"),
        ("*/*", "application/problem+json"),
    ] {
        let lost = get(&shop, "/sale/1024/x", &[("accept", accept)]).await;
        assert_eq!((lost.status, lost.header("content-type")), (404, kind));
    }
    for app in [&app, &shop] {
        for path in OF_THE_DEMO {
            let refused = enter(app, path, &[]).await;
            assert_eq!(refused.refusal(), (404, "not_found"), "only the demo has {path}");
        }
    }
}

#[tokio::test]
async fn a_shopper_of_the_demo_can_buy() {
    let app = TestApp::demo().await;
    let coupon = app.create_flash(5).await;
    let host = app.url.strip_prefix("http://").expect("a URL");
    let (_, port) = host.split_once(':').expect("a port");
    let local = format!("localhost:{port}");
    let mut users = BTreeSet::new();
    for headers in [
        &[][..],
        &[("host", local.as_str())],
        &[("origin", app.url.as_str())],
        &[("sec-fetch-site", "same-origin"), ("origin", app.url.as_str())],
    ] {
        let shopper = enter(&app, "/demo/shoppers", headers).await;
        assert_eq!(shopper.status, 200, "{shopper:?}");
        let path = format!("/v1/coupons/{coupon}/claims");
        let claimed = app.post(&path, shopper.text("token"), &Value::Null).await;
        assert_eq!(claimed.status, 202, "{claimed:?}");
        users.insert(shopper.text("user_id").to_owned());
    }
    assert_eq!(users.len(), 4, "each is a user of their own");
    // The page tells what is sold before its script runs.
    let page = get(&app, &format!("/sale/{coupon}"), &[("accept-language", "zh-CN,zh")]).await;
    let page = String::from_utf8(page.bytes).expect("it is text");
    assert!(
        page.contains("<h1>") && page.contains("og:title") && page.contains("正在抢购"),
        "{page}"
    );
    let shopper = enter(&app, "/demo/shoppers", &[]).await;
    let payload = shopper.text("token").split('.').nth(1).expect("a payload");
    let payload = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    let payload: Value = serde_json::from_slice(&payload).expect("JSON");
    let lasts = payload["exp"].as_i64().expect("seconds") - now().timestamp();
    assert!((3_300..=3_600).contains(&lasts), "an hour: {payload}");
}

#[tokio::test]
async fn other_sites_get_nothing_of_the_demo() {
    let app = TestApp::demo().await;
    for path in OF_THE_DEMO {
        for host in
            ["example.org", "example.org:80", "localhost.example.org", "192.0.2.1:8080", "a b"]
        {
            let refused = enter(&app, path, &[("host", host)]).await;
            assert_eq!(refused.refusal(), (421, "wrong_host"), "{path} {host}");
        }
        for headers in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "http://example.org")],
            &[("origin", "null")],
            &[("origin", "http://example.org"), ("sec-fetch-site", "cross-site")],
        ] {
            let refused = enter(&app, path, headers).await;
            assert_eq!(refused.refusal(), (403, "cross_site"), "{path} {headers:?}");
        }
        assert_eq!(app.get(path, "").await.refusal(), (405, "method_not_allowed"), "{path}");
    }
    // None of these has used the code up.
    assert_eq!(exchange(&app, &json!({"code": CODE})).await.status, 200);
}

#[tokio::test]
async fn a_printed_link_lets_one_administrator_in() {
    let app = TestApp::demo().await;
    let shorter = &CODE[1..];
    for code in ["", "x", shorter, &"x".repeat(100)] {
        let refused = exchange(&app, &json!({"code": code})).await;
        assert_eq!(refused.refusal(), (403, "invalid_code"), "{code}");
    }
    for body in [
        json!({}),
        json!({"code": 7}),
        json!({"code": null}),
        json!({"code": CODE, "x": 1}),
        json!([CODE]),
        json!({"code": "x".repeat(101)}),
    ] {
        let refused = exchange(&app, &body).await;
        assert_eq!(refused.refusal(), (422, "invalid_body"), "{body}");
    }
    let session = exchange(&app, &json!({"code": CODE})).await;
    let waiting = app.get("/v1/operations", session.text("token")).await;
    assert_eq!(waiting.status, 200, "{waiting:?}");
    let again = exchange(&app, &json!({"code": CODE})).await;
    assert_eq!(again.refusal(), (403, "invalid_code"));
    // Two tabs at one time: one gets in.
    let app = TestApp::demo().await;
    let body = json!({"code": CODE});
    let (one, other) = tokio::join!(exchange(&app, &body), exchange(&app, &body));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403]);
}

#[tokio::test]
async fn each_answer_has_words_in_both_languages() {
    let [english, chinese] = ["shop/en", "shop/zh"].map(words);
    let keys = |words: &BTreeMap<String, String>| words.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&english), keys(&chinese));
    for (key, word) in english.iter().chain(&chinese) {
        assert!(!word.trim().is_empty(), "{key} has no words");
    }
    let has = |key: &str| assert!(english.contains_key(key), "no words for {key}");
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let statuses = document["components"]["schemas"]["ClaimStatus"]["enum"].as_array();
    for status in statuses.expect("statuses of claims") {
        has(&format!("face.{}", status.as_str().expect("a word")));
    }
    ClaimOutcome::codes().for_each(|code| has(&format!("face.{code}")));
    for (method, path) in CALLED {
        let responses = document["paths"][path][method]["responses"].as_object();
        for response in responses.unwrap_or_else(|| panic!("no {method} {path}")).values() {
            for code in codes(&document, response) {
                if WORDLESS.contains(&code) {
                    continue;
                }
                let deed = path.starts_with("/v1/orders/{id}/");
                has(&format!("{}.{code}", if deed { "deed" } else { "face" }));
            }
        }
    }
}

#[test]
fn each_state_of_a_storm_has_words_in_both_languages() {
    let english = words("storm/en");
    let has = |key: &str| assert!(english.contains_key(key), "no words for {key}");
    for (group, names) in [
        ("stage", &["arming", "running", "settling", "checking", "done"][..]),
        ("outcome", &["won", "sold_out", "come_back", "unknown", "refused"]),
        ("no_verdict", &["stopped", "crowd_failed", "store_away", "not_written"]),
        ("verdict", &["kept", "broken", "incomparable", "lost", "oversold", "twice"]),
        ("verdict", &["unexplained", "turned_away", "closed"]),
        ("problem", &storms::CODES),
        ("problem", &["other"]),
        ("trouble", &["kill_worker", "freeze_redis", "empty_redis"]),
        ("met", &["kill_worker", "freeze_redis", "empty_redis"]),
        ("locked", &["no_link", "invalid_code", "invalid_token", "forbidden", "wrong_host"]),
    ] {
        names.iter().for_each(|name| has(&format!("{group}.{name}")));
    }
}

#[test]
fn each_state_of_a_code_has_words_in_both_languages() {
    let english = words("redeem/en");
    let has = |key: String| assert!(english.contains_key(&key), "no words for {key}");
    OrderStatus::ALL.iter().for_each(|status| has(format!("status.{}", status.as_str())));
    for outcome in
        ["valid", "redeemed", "already_redeemed", "invalid_transition", "redemption_code_unknown"]
    {
        has(format!("outcome.{outcome}"));
        has(format!("outcome.{outcome}.more"));
    }
}

#[tokio::test]
async fn each_tag_each_need_and_each_problem_has_words_in_both_languages() {
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let english = words("docs/en");
    let schemes = document["components"]["securitySchemes"].as_object().expect("schemes");
    let needs = schemes.keys().map(|name| format!("need.{name}"));
    let tags = document["tags"].as_array().expect("tags").iter();
    let tags = tags.map(|tag| format!("tag.{}", tag["name"].as_str().expect("a name")));
    needs.chain(tags).for_each(|key| assert!(english.contains_key(&key), "no words for {key}"));
    let titles = fs::read_to_string(folder().join("problems/titles.js")).expect("it is there");
    let (_, titles) = titles.split_once("export default ").expect("it exports an object");
    let titles: BTreeMap<&str, &str> = serde_json::from_str(titles).expect("it is JSON");
    let problems = include_str!("../../../../docs/problems.md").lines();
    let codes = problems.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    assert_eq!(titles.into_keys().collect::<BTreeSet<_>>(), codes.collect());
}

#[test]
fn words_that_the_pages_for_operators_share_stand_in_one_place() {
    let shared = texts("js/desk");
    for page in ["board", "storm", "trace", "redeem", "docs", "problems"] {
        let own = texts(&format!("{page}/texts"));
        // Chinese has no plural.
        let keys = |language: &str| own[language].keys().filter(|key| !key.ends_with(".one"));
        assert!(keys("en").eq(keys("zh")), "{page}, left: English; right: Chinese");
        for (language, words) in &own {
            assert!(words.values().all(|word| !word.trim().is_empty()), "{page}, {language}");
            let twice = words.keys().find(|key| shared[language].contains_key(*key));
            assert_eq!(twice, None, "of {page} and js/desk.js, {language}");
        }
    }
    assert!(shared["en"].keys().eq(shared["zh"].keys()), "left: English; right: Chinese");
}

#[tokio::test]
async fn each_step_of_a_claim_and_each_refusal_has_words_in_both_languages() {
    let english = words("trace/en");
    let has = |key: &str| assert!(english.contains_key(key), "no words for {key}");
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let steps = document["components"]["schemas"]["StepName"]["enum"].as_array();
    let steps = steps.expect("the steps of a claim");
    assert_eq!(steps.len(), 8);
    // The way between browser and service is the page's own step, and its file is named there.
    ["step.way", "crash.way"].into_iter().for_each(has);
    let view = fs::read_to_string(folder().join("trace/view.js")).expect("it is there");
    let (_, server) = view.split_once("const SERVER = '").expect("the file of that step");
    let server = server.split('\'').next().expect("a path");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(server).is_file(), "there is no {server}");
    for step in steps {
        let name = step.as_str().expect("a word");
        has(&format!("step.{name}"));
        has(&format!("crash.{name}"));
    }
    let responses = document["paths"]["/v1/orders/{id}/trace"]["get"]["responses"].as_object();
    for response in responses.expect("they are documented").values() {
        for code in codes(&document, response).iter().filter(|code| !WORDLESS[1..].contains(code)) {
            has(&format!("refused.{code}"));
        }
    }
}

#[test]
fn files_of_others_are_as_they_were_vetted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = fs::read_to_string(root.join("vendor.lock")).expect("it is there");
    let mut locked = BTreeSet::new();
    for line in lock.lines().filter(|line| !line.starts_with('#')) {
        let [_, _, _, _, file, sum] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("vendor.lock: {line:?} has no six words");
        };
        let bytes = fs::read(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let found = digest::digest(&digest::SHA256, &bytes);
        let found: String = found.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{file} isn't what vendor.lock names; run scripts/vendor");
        locked.insert(file.to_owned());
    }
    for name in sources("vendor") {
        assert!(locked.contains(&format!("pages/{name}")), "{name} isn't in vendor.lock");
    }
}

#[test]
fn no_page_names_another_site_or_needs_a_laxer_policy() {
    for name in sources("").iter().filter(|name| !name.starts_with("vendor/")) {
        let text = fs::read_to_string(folder().join(name)).expect("it is text");
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for lax in [
            "http:",
            "https:",
            "ws:",
            "wss:",
            "//cdn",
            " style=",
            "innerHTML",
            "eval(",
            "onclick=",
            "document.cookie",
            "unsafeHTML",
        ] {
            assert!(!text.contains(lax), "pages/{name} has `{lax}`");
        }
    }
}

// ---- steps of these tests ----

/// A reply with a body of bytes.
struct Fetched {
    status: u16,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

impl Fetched {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("headers are ASCII here"))
    }
}

async fn get(app: &TestApp, path: &str, headers: &[(&str, &str)]) -> Fetched {
    let mut request = app.client().get(format!("{}{path}", app.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let reply = request.send().await.expect("it answers");
    let (status, headers) = (reply.status().as_u16(), reply.headers().clone());
    Fetched { status, headers, bytes: reply.bytes().await.expect("a body").to_vec() }
}

/// These pages, and the files that they lead to, as a browser gets them.
async fn pages_and_files(app: &TestApp, pages: &[&str]) -> BTreeMap<String, Fetched> {
    let mut found = BTreeMap::new();
    let mut wanted: Vec<String> = pages.iter().map(ToString::to_string).collect();
    while let Some(path) = wanted.pop() {
        if found.contains_key(&path) {
            continue;
        }
        let file = get(app, &path, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!(file.status, 200, "{path}");
        let plain = get(app, &path, &[]).await;
        wanted.extend(links(&path, &String::from_utf8(plain.bytes).expect("it is text")));
        found.insert(path, file);
    }
    found
}

/// The files that a page or a module names.
fn links(path: &str, text: &str) -> Vec<String> {
    let quoted = |quote| text.split(quote).skip(1).step_by(2);
    let base = path.rsplit_once('/').expect("a path").0;
    if !path.ends_with(".js") {
        let assets = quoted('"').filter(|link| link.starts_with("/assets/"));
        return assets.map(str::to_owned).collect();
    }
    let above = base.rsplit_once('/').expect("a folder").0;
    let imports = text.lines().filter_map(|line| line.strip_prefix("import ")?.split('\'').nth(1));
    let full = |link: &str| match link.strip_prefix("../") {
        Some(link) => format!("{above}/{link}"),
        None => format!("{base}/{}", link.strip_prefix("./").expect("a relative link")),
    };
    imports.map(full).collect()
}

/// POST without a body and a token.
async fn enter(app: &TestApp, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = app.client().post(format!("{}{path}", app.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    app.send(request, "POST", path).await
}

async fn exchange(app: &TestApp, body: &Value) -> Reply {
    let request = app.client().post(format!("{}/demo/sessions", app.url)).json(body);
    app.send(request, "POST", "/demo/sessions").await
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pages")
}

/// The files below this folder of the pages, by their names there.
fn sources(below: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder().join(below)).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let name = path.strip_prefix(folder()).expect("it is below").to_str().expect("UTF-8");
        match path.is_dir() {
            true => names.extend(sources(name)),
            false => names.push(name.to_owned()),
        }
    }
    names
}

/// Words of a page in a language, as in `board/en`, with those that the pages for operators share.
fn words(of: &str) -> BTreeMap<String, String> {
    let (page, language) = of.split_once('/').expect("a page and a language");
    let mut words = texts(&format!("{page}/texts")).remove(language).expect("it has the language");
    if page != "shop" {
        words.append(&mut texts("js/desk").remove(language).expect("it has the language"));
    }
    words
}

/// Words by key, by language.
fn texts(module: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let path = folder().join(format!("{module}.js"));
    let text = fs::read_to_string(path).expect("it is there");
    let object = text.strip_prefix("export default ").expect("it exports an object");
    let pairs: BTreeMap<String, Vec<String>> =
        serde_json::from_str(object).expect("the object is JSON, with both languages under a key");
    let mut texts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (key, pair) in pairs {
        assert!(pair.len() <= 2, "{key} has a third language");
        for (language, text) in ["en", "zh"].into_iter().zip(pair) {
            texts.entry(language.to_owned()).or_default().insert(key.clone(), text);
        }
    }
    texts
}
