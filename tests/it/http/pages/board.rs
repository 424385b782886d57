//! The board: the first event at once, all processes added up, no question without a watcher, stores that are away, and
//! an end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::demo::board::Watching;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{folder, get, words};
use crate::support::process::Process;
use crate::support::{
    Events, OwnServers, SECRET, TestApp, bounded, codes, command_calls, eventually, now, shared,
};

/// Operations of the board's deeds.
const CALLED: [(&str, &str); 22] = [
    ("get", "/v1/coupons"),
    ("post", "/v1/coupons"),
    ("get", "/v1/coupons/{id}"),
    ("get", "/v1/coupons/{id}/progress"),
    ("patch", "/v1/coupons/{id}"),
    ("post", "/v1/coupons/{id}/pause"),
    ("post", "/v1/coupons/{id}/resume"),
    ("post", "/v1/coupons/{id}/end"),
    ("post", "/v1/coupons/{id}/restock"),
    ("post", "/v1/coupons/{id}/archive"),
    ("post", "/v1/coupons/{id}/cancel-unpaid"),
    ("post", "/v1/dead-letters/retry"),
    ("post", "/v1/dead-letters/discard"),
    ("post", "/v1/recoveries/{id}/settle"),
    ("get", "/v1/dead-letters/{id}"),
    ("post", "/v1/dead-letters/{id}/retry"),
    ("post", "/v1/dead-letters/{id}/discard"),
    ("post", "/v1/payments/{id}/hand-back"),
    ("post", "/v1/payments/{id}/close"),
    ("post", "/v1/postponed/{id}/retry"),
    ("post", "/v1/reconcile"),
    ("get", "/v1/audit"),
];

/// Codes that need no words of their own: the page can't cause them.
const WORDLESS: [&str; 12] = [
    "invalid_id",
    // Only an ended sale has the deed, and none is opened again.
    "sale_not_ended",
    "invalid_idempotency_key",
    // The page names a revision in the body, and sends no If-Match.
    "invalid_if_match",
    "precondition_failed",
    "invalid_query",
    "malformed_json",
    "unsupported_media_type",
    "body_too_large",
    "body_too_slow",
    "method_not_allowed",
    "internal",
];

#[tokio::test]
async fn the_first_board_comes_at_once_with_all_that_is_known() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    app.write_orders().await;
    app.claim(2, coupon).await;
    app.app.presence_job().await;
    assert_eq!(app.compare().await.body["disagreements"], 0);
    let mut events = watch(&app, &app.url).await;
    // The first one, unless this machine is too busy for a check of both stores in half a second.
    let board = until(&mut events, |board| there(board) == [true, true]).await;
    let sale = &board["sales"][0];
    assert_eq!((&sale["coupon_id"], &sale["state"]), (&json!(coupon), &json!("active")), "{board}");
    assert_eq!((&sale["left"], &sale["total"]), (&json!(3), &json!(5)), "{sale}");
    let units = &sale["units"];
    for (name, number) in [("total", 5), ("left", 3), ("buyers", 2), ("sold", 1), ("in_review", 0)]
    {
        assert_eq!(units[name], number, "{name} of {units}");
    }
    assert_eq!(units["conserved"], true);
    assert_eq!(board["backlog"], 1);
    assert_eq!((&board["waits"], &board["findings"]), (&json!([]), &json!([])));
    assert_eq!(board["runs"][0]["disagreements"], 0);
    assert_eq!(
        board["lanes"],
        json!([{"lane": 0, "is_open": true, "pending": 0, "unread": 1, "oldest_ms": board["oldest_ms"]}])
    );
    for store in board["stores"].as_array().expect("a list") {
        assert_eq!(store["is_there"], true, "{store}");
    }
    let [process] = &board["processes"].as_array().expect("a list")[..] else {
        panic!("{board}");
    };
    assert_eq!(
        (&process["is_heard"], &process["roles"]),
        (&json!(true), &json!(["api", "worker"]))
    );
}

#[tokio::test]
async fn each_change_and_each_finding_is_told() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let mut events = watch(&app, &app.url).await;
    assert_eq!(app.r#move(coupon, "pause").await.status, 200);
    until(&mut events, |board| board["sales"][0]["state"] == "paused").await;
    // Decided, and not known to Redis yet.
    app.decide_on(coupon, flash_sale::coupon::model::CouponState::Active).await;
    until(&mut events, |board| board["sales"][0]["is_pending"] == true).await;
    app.changes_job().await;
    until(&mut events, |board| board["sales"][0]["is_pending"] == false).await;
    app.expect_disagreements();
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "-1"]).await;
    until(&mut events, |board| board["sales"][0]["units"]["conserved"] == false).await;
    app.compare().await;
    let board = until(&mut events, |board| board["findings"] != json!([])).await;
    assert_eq!(board["findings"][0]["code"], "not_conserved");
}

#[tokio::test]
async fn the_counts_of_all_processes_are_added_up() {
    let clock = Clock::manual(now());
    let app = TestApp::on(shared(), &[], clock.clone()).await;
    let other = app.another_instance_at(clock.clone()).await;
    let coupon = app.create_flash(5).await;
    let job = async || {
        app.app.presence_job().await;
        other.presence_job().await;
    };
    // Redis forgets a word after some seconds of its own time. Said again at the same time, it is no new one.
    let keep_saying = async || loop {
        job().await;
        tokio::time::sleep(limits::BOARD_PERIOD / 2).await;
    };
    job().await;
    for user in 1..=3 {
        app.claim(user, coupon).await;
    }
    for _ in 0..4 {
        other.metrics.count_claim("sold_out");
    }
    other.metrics.count_claim("accepted");
    clock.set(clock.now() + TimeDelta::seconds(1));
    job().await;
    let mut events = watch(&app, &app.url).await;
    let both_are_heard = async {
        until(&mut events, |board| heard(board) == 2).await;
    };
    tokio::select! { () = both_are_heard => {}, () = keep_saying() => {} }
    // The producer hears the next words itself.
    for _ in 0..6 {
        other.metrics.count_claim("already_claimed");
        app.app.metrics.count_claim("already_claimed");
    }
    clock.set(clock.now() + TimeDelta::seconds(2));
    let added_up = until(&mut events, |board| board["point"]["repeats"] == json!(6.0));
    tokio::select! { _ = added_up => {}, () = keep_saying() => {} }
}

#[tokio::test]
async fn a_process_that_dies_is_silent_and_one_that_ends_is_gone() {
    let app = TestApp::start().await;
    let mut events = watch(&app, &app.url).await;
    let heard = |board: &Value, is_heard| match is_heard {
        true => heard(board),
        false => board["processes"].as_array().expect("a list").len() - heard(board),
    };
    let mut worker = Process::serve(&app, &["--roles", "worker"]);
    let board = until(&mut events, |board| heard(board, true) == 1).await;
    assert_eq!(board["processes"][0]["roles"], json!(["worker"]));
    worker.kill();
    let board = until(&mut events, |board| heard(board, false) == 1).await;
    assert_eq!((heard(&board, true), &board["processes"][0]["roles"]), (0, &json!(["worker"])));
    let mut next = Process::serve(&app, &["--roles", "worker"]);
    until(&mut events, |board| heard(board, true) == 1).await;
    next.assert_stops().await;
    let board = until(&mut events, |board| heard(board, true) == 0).await;
    assert_eq!(heard(&board, false), 1, "only the one that died is missed: {board}");
}

#[tokio::test]
async fn the_board_goes_on_without_a_store() {
    let mut servers = OwnServers::durable();
    let soon = ["--database-timeout-ms", "1000", "--redis-timeout-ms", "1000"];
    let app = TestApp::on(&servers.at, &soon, Clock::System).await;
    let coupon = app.create_flash(5).await;
    // The process knows the sale from its first claim on.
    app.claim(1, coupon).await;
    let mut events = watch(&app, &app.url).await;
    until(&mut events, |board| there(board) == [true, true]).await;
    servers.kill_postgres();
    let board = until(&mut events, |board| there(board) == [true, false]).await;
    // The last facts of Postgres stay, with the time of that check.
    assert_eq!(board["sales"][0]["coupon_id"], json!(coupon));
    assert!(board["stores"][1]["at"].as_i64() < board["now"].as_i64(), "{board}");
    assert_eq!(app.claim(2, coupon).await.status, 202);
    until(&mut events, |board| board["sales"][0]["left"] == 3).await;
    servers.kill_redis();
    let board = until(&mut events, |board| there(board) == [false, false]).await;
    assert_eq!((&board["backlog"], &board["sales"][0]["left"]), (&json!(null), &json!(null)));
    assert_eq!(board["processes"], json!([]), "no old count looks like a new one");
    servers.bring_back();
    let mut events = watch(&app, &app.url).await;
    until(&mut events, |board| there(board) == [true, true]).await;
}

#[tokio::test]
async fn a_board_without_watchers_costs_no_question() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.app.presence_job().await;
    assert_eq!(command_calls(&app, "zrange").await, 0);
    let mut watchers = Vec::new();
    for _ in 0..5 {
        let mut events = watch(&app, &app.url).await;
        board(&mut events).await;
        watchers.push(events);
    }
    assert!(app.app.board.is_watched() && command_calls(&app, "zrange").await > 0);
    drop(watchers);
    eventually("its producer ends", async || !app.app.board.is_watched()).await;
    let asked = command_calls(&app, "zrange").await;
    app.app.presence_job().await;
    assert_eq!(command_calls(&app, "zrange").await, asked);
}

#[tokio::test]
async fn watchers_of_the_board_take_places_of_all_watchers() {
    let app = TestApp::configured(&["--connections-max", "5"]).await;
    let coupon = app.create_flash(5).await;
    let (sale, events) = (app.watch(coupon).await, watch(&app, &app.url).await);
    let refused = app.get("/v1/board/live", &app.admin_token()).await;
    assert_eq!(refused.refusal(), (503, "too_many_watchers"));
    assert_eq!(refused.header("retry-after"), limits::WATCHERS_RETRY_AFTER.as_secs().to_string());
    drop((sale, events));
    eventually("there is room again", async || {
        app.get("/v1/board/live", &app.admin_token()).await.status == 200
    })
    .await;
}

/// A page without a place asks, and is shown the same: with rates, which need two checks.
#[tokio::test]
async fn the_board_can_be_asked_for_without_a_place() {
    let app = TestApp::configured(&["--connections-max", "3"]).await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    let place = app.watch(coupon).await;
    let refused = app.get("/v1/board/live", &app.admin_token()).await;
    assert_eq!(refused.refusal(), (503, "too_many_watchers"));
    let keeps_telling = async || loop {
        app.app.metrics.count_claim("sold_out");
        app.app.presence_job().await;
        tokio::time::sleep(limits::BOARD_PERIOD / 10).await;
    };
    // A busy machine may have told nothing new between two checks; it has before a later question.
    let a_rate = bounded("a rate", async {
        loop {
            let asked = ask(&app).await;
            if asked["point"]["sold_out"].as_f64() > Some(0.0) {
                return asked;
            }
        }
    });
    let asked = tokio::select! {
        asked = a_rate => asked,
        () = keeps_telling() => unreachable!("it tells for ever"),
    };
    assert_eq!((&asked["sales"][0]["left"], &asked["backlog"]), (&json!(4), &json!(1)), "{asked}");
    drop(place);
    eventually("the place is free", async || app.app.board.watch().is_some()).await;
    let mut events = watch(&app, &app.url).await;
    let told = board(&mut events).await;
    let names = |board: &Value| -> Vec<String> {
        board.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(names(&asked), names(&told));
    assert!(told["now"].as_i64() >= asked["now"].as_i64(), "of the same producer");
}

#[tokio::test]
async fn however_many_clients_ask_the_stores_are_looked_up_once_a_second() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let began = Instant::now();
    for _ in 0..5 {
        let mut asking = JoinSet::new();
        for _ in 0..20 {
            let request = app.client().get(format!("{}/v1/board", app.url));
            let request = request.bearer_auth(app.admin_token());
            asking.spawn(async move { request.send().await.expect("it answers").status() });
        }
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.expect("it ends"), 200);
        }
        tokio::time::sleep(limits::BOARD_PERIOD / 2).await;
    }
    let checks = began.elapsed().div_duration_f64(limits::BOARD_PERIOD) + 2.0;
    let asked = command_calls(&app, "zrange").await;
    assert!(asked > 1 && (asked as f64) < checks, "{asked} looks in {:?}", began.elapsed());
    // The next question is answered by the same producer, which has no watcher meanwhile.
    assert!(app.app.board.is_watched());
}

/// A page asks every 10 to 20 s; its figures are rates, so the checks go on in between, and no longer.
#[tokio::test]
async fn the_checks_end_once_no_client_asks_any_more() {
    let app = TestApp::start().await;
    ask(&app).await;
    let began = Instant::now();
    eventually("its producer ends", async || !app.app.board.is_watched()).await;
    assert!(began.elapsed() > Duration::from_secs(20), "before the next question of a page");
}

/// A watcher that doesn't read meanwhile is told the newest board next, and none of those before.
#[tokio::test]
async fn a_slow_watcher_skips_to_the_newest_board() {
    let app = TestApp::start().await;
    let [mut slow, mut quick] = [(); 2].map(|()| app.app.board.watch().expect("there is room"));
    let next =
        async |states: &mut Watching| bounded("a board", states.next()).await.expect("one").now;
    let mut last = next(&mut slow).await;
    for _ in 0..3 {
        last = next(&mut quick).await;
    }
    let told = next(&mut slow).await;
    assert!(told >= last, "{told} is older than {last}");
    assert!(next(&mut slow).await > told, "each board is told once");
}

#[tokio::test]
async fn a_stop_ends_the_stream() {
    let app = TestApp::start().await;
    let mut process = Process::serve(&app, &[]);
    let mut events = watch(&app, &process.url().await).await;
    board(&mut events).await;
    process.signal(Signal::SIGTERM);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    assert_eq!(last, Some(("bye".to_owned(), json!({"reason": "stopping"}))));
    process.assert_stops().await;
}

#[tokio::test]
async fn the_page_stands_where_administrators_are_answered() {
    let app = TestApp::start().await;
    assert_eq!(app.get("/board", "").await.refusal(), (404, "not_found"));
    let apart = ["--pages", "board", "--admin-listen", "127.0.0.1:0"];
    let service = Process::serve(&app, &apart);
    let public = service.url().await;
    let line =
        service.logged("administrators, /metrics, /livez and /readyz listen on http://").await;
    let (_, address) = line.split_once("http://").expect("the line has a URL");
    for (url, status) in [(public, 404), (format!("http://{address}"), 200)] {
        let request = app.client().get(format!("{url}/v1/board/live"));
        let stream = request.bearer_auth(app.admin_token()).send().await.expect("a reply");
        let page = app.client().get(format!("{url}/board")).send().await.expect("a reply");
        assert_eq!((page.status().as_u16(), stream.status().as_u16()), (status, status), "{url}");
    }
    let board = TestApp::configured(&["--pages", "board"]).await;
    assert_eq!(get(&board, "/board", &[]).await.status, 200);
    assert_eq!(get(&board, "/", &[]).await.status, 404);
}

#[tokio::test]
async fn the_bar_leads_to_pages_that_are_served_and_to_no_others() {
    let served = async |app: &TestApp, pages: &[&str]| {
        let reply = app.get("/pages", "").await;
        assert_eq!((reply.status, &reply.body), (200, &json!({"pages": pages})));
        assert_eq!(reply.header("cache-control"), "no-store");
        for page in ["/", "/board", "/storm", "/redeem"] {
            let status = if pages.contains(&page) { 200 } else { 404 };
            assert_eq!(get(app, page, &[]).await.status, status, "{page} beside {pages:?}");
        }
    };
    served(&TestApp::demo().await, &["/", "/board", "/storm", "/redeem"]).await;
    served(&TestApp::configured(&["--pages", "board"]).await, &["/board"]).await;
    served(&TestApp::configured(&["--pages", "shop"]).await, &["/", "/redeem"]).await;
    let both = TestApp::configured(&["--pages", "shop,board"]).await;
    served(&both, &["/", "/board", "/redeem"]).await;
    served(&TestApp::start().await, &[]).await;
}

#[tokio::test]
async fn a_payment_that_waits_is_on_the_board_until_it_is_settled() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let mut events = watch(&app, &app.url).await;
    let board = until(&mut events, |board| there(board) == [true, true]).await;
    assert_eq!(board["waiting"], json!([]));
    let notice = json!({"kind": "payment", "payment_id": "p", "order_id": "1024", "method": 3, "amount_cents": 7});
    assert_eq!(app.confirm(&notice).await.status, 200);
    let board = until(&mut events, |board| board["waiting"] != json!([])).await;
    let listed = app.get("/v1/operations", &app.admin_token()).await;
    let (shown, listed) = (&board["waiting"][0], &listed.body["items"][0]);
    for name in ["kind", "id", "since", "reason", "detail", "what_to_do"] {
        assert_eq!(shown[name], listed[name], "{name}");
    }
    assert_eq!(shown["reason"], "may_be_back");
    let path = format!("/v1/payments/{}/close", shown["id"].as_str().expect("an id"));
    let closed = app.post(&path, &app.admin_token(), &json!({"note": "returned in cash"})).await;
    assert_eq!(closed.status, 204, "{closed:?}");
    until(&mut events, |board| board["waiting"] == json!([])).await;
}

/// An older one, too, which is not among the newest recoveries.
#[tokio::test]
async fn a_recovery_that_lost_claims_is_on_the_board_until_it_is_settled() {
    let app = TestApp::start().await;
    let mut events = watch(&app, &app.url).await;
    let board = until(&mut events, |board| there(board) == [true, true]).await;
    assert_eq!(board["waits"], json!([]));
    app.execute(
        r#"INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost)
           SELECT 0, n, 'x', now(), now(), CASE n WHEN 1 THEN
                  '[{"coupon_id": "1024", "user_id": "1", "order_id": "77", "reason": "superseded"}]'::jsonb ELSE '[]' END
           FROM generate_series(1, 9) AS n"#,
    )
    .await;
    let board = until(&mut events, |board| board["waits"][0]["items"] == 1).await;
    let newest = board["recoveries"].as_array().map(Vec::len);
    assert_eq!(newest, Some(limits::BOARD_RECOVERIES_MAX as usize), "{board}");
    let lost = &board["waiting"][0];
    assert_eq!(lost["kind"], "recovery", "{lost}");
    let path = format!("/v1/recoveries/{}/settle", lost["id"].as_str().expect("an id"));
    let settled = app.post(&path, &app.admin_token(), &json!({"note": "told"})).await;
    assert_eq!(settled.status, 204, "{settled:?}");
    until(&mut events, |board| board["waits"] == json!([])).await;
}

#[tokio::test]
async fn a_sale_that_is_on_stays_on_the_board_before_any_number_of_newer_ones_that_are_over() {
    let app = TestApp::start().await;
    // The stores have unlike windows then.
    app.expect_disagreements();
    let on = app.create_flash(5).await;
    let paused = app.create_flash(5).await;
    assert_eq!(app.r#move(paused, "pause").await.status, 200);
    let mut over = Vec::new();
    for number in 0..limits::BOARD_SALES_MAX {
        let coupon = app.create_flash(1).await;
        match number % 2 {
            0 => assert_eq!(app.r#move(coupon, "end").await.status, 200),
            _ => {
                let close = "UPDATE flash_sales SET closes_at = now() WHERE coupon_id";
                app.execute(&format!("{close} = {coupon}")).await;
            }
        }
        over.push(coupon);
    }
    let mut events = watch(&app, &app.url).await;
    let board = until(&mut events, |board| there(board) == [true, true]).await;
    let sales = board["sales"].as_array().expect("a list");
    let shown: Vec<&Value> = sales.iter().map(|sale| &sale["coupon_id"]).collect();
    let newest = over.iter().rev().take(limits::BOARD_SALES_MAX as usize - 2);
    let expected: Vec<Value> = [paused, on].iter().chain(newest).map(|id| json!(id)).collect();
    assert_eq!(shown, expected.iter().collect::<Vec<_>>());
    // Redis is asked for them, too.
    until(&mut events, |board| board["sales"][1]["left"] == 5).await;
}

#[tokio::test]
async fn the_board_has_words_for_each_answer_in_both_languages() {
    let [english, chinese] = ["board/en", "board/zh"].map(words);
    // Chinese has no plural.
    let keys = |words: &BTreeMap<String, String>| -> BTreeSet<String> {
        words.keys().map(|key| key.trim_end_matches(".one").to_owned()).collect()
    };
    assert_eq!(keys(&english), keys(&chinese));
    for (key, word) in english.iter().chain(&chinese) {
        assert!(!word.trim().is_empty(), "{key} has no words");
    }
    let has = |key: &str| assert!(english.contains_key(key), "no words for {key}");
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let schema = |name: &str| &document["components"]["schemas"][name];
    let filters = document["paths"]["/v1/audit"]["get"]["parameters"].as_array();
    let mut filters = filters.expect("filters").iter();
    let action = filters.find(|filter| filter["name"] == "action").expect("a filter");
    for (group, words) in [("action", &action["schema"]), ("state", schema("CouponState"))] {
        for word in words["enum"].as_array().unwrap_or_else(|| panic!("no words of {group}")) {
            has(&format!("{group}.{}", word.as_str().expect("a word")));
        }
    }
    for (method, path) in CALLED {
        let responses = document["paths"][path][method]["responses"].as_object();
        for response in responses.unwrap_or_else(|| panic!("no {method} {path}")).values() {
            for code in codes(&document, response) {
                if !WORDLESS.contains(&code) {
                    has(&format!("refused.{code}"));
                }
            }
        }
    }
}

#[tokio::test]
async fn each_change_of_coupons_letters_and_recoveries_is_a_deed_of_the_board() {
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let mut changes = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in ["post", "patch", "put", "delete"] {
            let tag = methods[method]["tags"][0].as_str().unwrap_or_default();
            let is_recovery = path.starts_with("/v1/recoveries") && !tag.is_empty();
            if ["coupons", "dead letters"].contains(&tag) || is_recovery {
                changes.insert((method, path.as_str()));
            }
        }
    }
    assert!(changes.len() >= 13, "{changes:?}");
    let deeds: BTreeSet<(&str, &str)> = CALLED.into();
    assert_eq!(&changes - &deeds, BTreeSet::new(), "changes without a deed");
}

#[test]
fn each_problem_has_words_and_leads_to_its_row() {
    let [english, chinese] = ["board/en", "board/zh"].map(words);
    let lists = fs::read_to_string(folder().join("board/lists.js")).expect("it is there");
    let (guides, _) = lists
        .split_once("const GUIDES = {")
        .map(|it| it.1)
        .and_then(|it| it.split_once("};"))
        .expect("the guides");
    for (key, guide) in guides.lines().filter_map(|line| line.trim().split_once(": ['")) {
        let alarm = guide.split('\'').next().expect("an alarm").to_lowercase();
        let row = format!("<a id=\"{alarm}\"></a>");
        assert!(include_str!("../../../../docs/operate.md").contains(&row), "{key}: {row}");
        let key = key.replace("_waiting", "").replace("stale", "lost");
        for words in [&english, &chinese] {
            assert!(words.contains_key(&format!("cause.{key}")), "{key}");
        }
    }
}

// ---- steps of these tests ----

async fn ask(app: &TestApp) -> Value {
    let asked = app.get("/v1/board", &app.admin_token()).await;
    assert_eq!(asked.status, 200, "{asked:?}");
    asked.body
}

async fn watch(app: &TestApp, url: &str) -> Events {
    let request = app.client().get(format!("{url}/v1/board/live")).bearer_auth(app.admin_token());
    Events::of(request.send().await.expect("the service answers"))
}

/// The next state of the board.
async fn board(events: &mut Events) -> Value {
    bounded("the next board", async {
        loop {
            let (name, data) = events.next().await.expect("the stream goes on");
            if name == "board" {
                return data;
            }
        }
    })
    .await
}

/// Processes that are heard.
fn heard(board: &Value) -> usize {
    let processes = board["processes"].as_array().expect("a list");
    processes.iter().filter(|it| it["is_heard"] == true).count()
}

/// Reads states until one is as it should be.
async fn until(events: &mut Events, is_right: impl Fn(&Value) -> bool) -> Value {
    bounded("a board as it should be", async {
        loop {
            let board = board(events).await;
            if is_right(&board) {
                return board;
            }
        }
    })
    .await
}

/// Whether Redis and Postgres are there.
fn there(board: &Value) -> [bool; 2] {
    [0, 1].map(|number| board["stores"][number]["is_there"] == true)
}
