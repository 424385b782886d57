//! The API when all is well: lists, bodies, documents, and no further route.

use std::collections::HashSet;
use std::io::Read;

use chrono::TimeDelta;
use flash_sale::base::limits;
use flate2::read::GzDecoder;
use regex_lite::Regex;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{TestApp, now, references};

/// Every route that `/openapi.json` has to name.
const ROUTES: &[(&str, &str)] = &[
    ("get", "/livez"),
    ("get", "/metrics"),
    ("get", "/readyz"),
    ("get", "/v1/audit"),
    ("get", "/v1/board"),
    ("get", "/v1/board/live"),
    ("get", "/v1/coupons"),
    ("post", "/v1/coupons"),
    ("get", "/v1/coupons/{id}"),
    ("patch", "/v1/coupons/{id}"),
    ("post", "/v1/coupons/{id}/archive"),
    ("post", "/v1/coupons/{id}/cancel-unpaid"),
    ("post", "/v1/coupons/{id}/claims"),
    ("get", "/v1/coupons/{id}/claims/me"),
    ("post", "/v1/coupons/{id}/end"),
    ("get", "/v1/coupons/{id}/live"),
    ("post", "/v1/coupons/{id}/pause"),
    ("get", "/v1/coupons/{id}/progress"),
    ("post", "/v1/coupons/{id}/restock"),
    ("post", "/v1/coupons/{id}/resume"),
    ("post", "/v1/dead-letters/discard"),
    ("post", "/v1/dead-letters/retry"),
    ("get", "/v1/dead-letters/{id}"),
    ("post", "/v1/dead-letters/{id}/discard"),
    ("post", "/v1/dead-letters/{id}/retry"),
    ("get", "/v1/events"),
    ("get", "/v1/operations"),
    ("get", "/v1/orders"),
    ("get", "/v1/orders.csv"),
    ("get", "/v1/orders.ndjson"),
    ("get", "/v1/orders/{id}"),
    ("post", "/v1/orders/{id}/cancel"),
    ("post", "/v1/orders/{id}/cancel-for-buyer"),
    ("post", "/v1/orders/{id}/pay"),
    ("get", "/v1/orders/{id}/payments"),
    ("get", "/v1/orders/{id}/qr"),
    ("post", "/v1/orders/{id}/redeem"),
    ("post", "/v1/orders/{id}/refund"),
    ("post", "/v1/orders/{id}/refund-for-buyer"),
    ("get", "/v1/orders/{id}/trace"),
    ("post", "/v1/payments/callback"),
    ("post", "/v1/payments/{id}/close"),
    ("post", "/v1/payments/{id}/hand-back"),
    ("post", "/v1/postponed/{id}/retry"),
    ("post", "/v1/reconcile"),
    ("get", "/v1/reconcile/runs"),
    ("get", "/v1/reconcile/runs/{id}"),
    ("get", "/v1/recoveries"),
    ("post", "/v1/recoveries/{id}/settle"),
    ("post", "/v1/redemptions"),
    ("get", "/v1/redemptions/{code}"),
    ("get", "/v1/webhooks"),
    ("post", "/v1/webhooks"),
    ("delete", "/v1/webhooks/{id}"),
    ("get", "/v1/webhooks/{id}"),
    ("patch", "/v1/webhooks/{id}"),
    ("get", "/v1/webhooks/{id}/deliveries"),
    ("post", "/v1/webhooks/{id}/test"),
];

/// The sample nginx leads to the whole API, but for the figures of the board; and to no operation of the process.
#[test]
fn the_sample_nginx_passes_on_all_but_what_is_of_the_staff_alone() {
    let text = include_str!("../../../docker/nginx.conf");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let blocks = lines.iter().enumerate().filter_map(|(number, line)| {
        let pattern = line.strip_prefix("location ")?.strip_suffix(" {")?;
        let block: Vec<&str> =
            lines[number + 1..].iter().copied().take_while(|line| *line != "}").collect();
        Some((pattern, block))
    });
    let blocks: Vec<(&str, Vec<&str>)> = blocks.collect();
    // As nginx chooses: an equal path, else the first expression that matches, else the longest beginning.
    let of = |path: &str| -> &Vec<&str> {
        let equal = blocks.iter().find(|(pattern, _)| pattern.strip_prefix("= ") == Some(path));
        let matches = |(pattern, _): &&(&str, Vec<&str>)| {
            let expression = pattern.strip_prefix("~ ").map(Regex::new);
            expression.is_some_and(|it| it.expect("an expression").is_match(path))
        };
        let begins = blocks.iter().filter(|(pattern, _)| path.starts_with(pattern));
        let longest = || begins.max_by_key(|(pattern, _)| pattern.len());
        let chosen = equal.or_else(|| blocks.iter().find(matches)).or_else(longest);
        &chosen.unwrap_or_else(|| panic!("no location for {path}")).1
    };
    // A client chooses no address for itself, and HTTP/1.0 has no Host.
    for line in
        ["proxy_set_header X-Forwarded-For $remote_addr;", "proxy_set_header Host $host_or_own;"]
    {
        assert!(lines.contains(&line), "{line}");
    }
    let nothing_here = of("/nowhere");
    assert!(nothing_here.iter().any(|line| line.starts_with("return 404 ")), "{nothing_here:?}");
    let of_staff = ["/board", "/storm", "/demo/storms", "/claim/1024", "/v1/board/live/", "/pages"];
    for path in of_staff.into_iter().chain(ROUTES.iter().map(|(_, path)| *path)) {
        let path = path.replace("{id}", "1024").replace("{code}", "1");
        let block = of(&path);
        match &*path {
            // nginx has one of its own.
            "/livez" => assert!(block.iter().any(|line| line.starts_with("return 200 "))),
            path if path.starts_with("/v1/") && !path.starts_with("/v1/board") => {
                assert!(block.contains(&"proxy_pass http://api;"), "{path}: {block:?}");
            }
            path => assert_eq!(block, nothing_here, "{path}"),
        }
    }
}

/// What is copied into production: stores that only the service reaches, by passwords and without a superuser; staff that
/// no balancer lets through; clients that can't choose their address.
#[test]
fn the_sample_composition_is_closed() {
    let text = include_str!("../../../docker-compose.yml");
    for (count, line) in [
        (1, "internal: true"),
        (2, "exec redis-server --requirepass"),
        (6, "networks: {stores: {ipv4_address: "),
        (1, "postgres://flash_sale_app@postgres/flash_sale"),
        (1, "./deploy/postgres/roles.sql:/docker-entrypoint-initdb.d/"),
        (2, "FLASH_SALE_ADMIN_LISTEN: "),
        (1, "FLASH_SALE_TRUSTED_PROXIES: &nginx 172.30.250.2"),
        (5, "mem_limit: "),
        (5, "pids_limit: "),
    ] {
        assert_eq!(text.matches(line).count(), count, "{line}");
    }
    let ports = text.lines().filter(|line| line.trim().starts_with("ports: "));
    assert!(ports.clone().all(|line| line.contains("[\"127.0.0.1:")), "on this machine alone");
    assert_eq!(ports.count(), 6);
    let stores = ["  redis:\n    image", "  postgres:\n    image"].map(|name| {
        let store = text.split(name).nth(1).expect("it is there");
        store.split("\n\n").next().expect("it ends")
    });
    assert!(stores.iter().all(|store| store.contains("networks: [stores]")));
}

#[tokio::test]
async fn a_coupon_looks_as_documented() {
    let app = TestApp::start().await;
    let regular = json!({"kind": "regular", "title": "t", "sub_title": "s", "rules": "r", "pay_cents": 1, "currency": "EUR", "value_cents": 2});
    let sale = json!({"total": 5, "opens_at": "2026-01-01T02:00:00+02:00", "closes_at": "2100-01-01T00:00:00.5Z"});
    let flash =
        json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
    let sale = json!({"total": 5, "left": 5, "opens_at": "2026-01-01T00:00:00Z", "closes_at": "2100-01-01T00:00:00.500Z"});
    for (given, added) in [
        (regular, json!({})),
        (flash, json!({"sub_title": "", "rules": "", "currency": "CNY", "sale": sale})),
    ] {
        let created = app.post("/v1/coupons", &app.admin_token(), &given).await;
        assert_eq!(created.status, 201, "{created:?}");
        let mut expected = given;
        for (name, value) in added.as_object().unwrap() {
            expected[name] = value.clone();
        }
        expected["id"] = json!(created.text("id"));
        expected["state"] = json!("active");
        expected["revision"] = json!(1);
        assert_eq!(created.body, expected);
        let location = format!("/v1/coupons/{}", created.text("id"));
        assert_eq!(created.header("location"), location);
        assert_eq!(app.get(&location, "").await.body, expected);
        let listed = app.get("/v1/coupons?limit=1", "").await;
        assert_eq!(listed.body["coupons"], json!([expected]));
    }
}

#[tokio::test]
async fn a_new_flash_coupon_is_loaded_and_counts_down() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_flash(3).await;
        let key = app.keys().coupon(coupon);
        let state: Option<String> = app.redis(&["HGET", &key, "state"]).await;
        assert_eq!(state.as_deref(), Some("active"), "{lanes} lanes");

        let path = format!("/v1/coupons/{coupon}");
        for left in [3, 2, 1, 0, 0] {
            let shown = app.get(&path, "").await;
            assert_eq!(shown.body["sale"]["left"], left, "{lanes} lanes");
            app.claim(100 + left, coupon).await;
            sleep(limits::LEFT_SHOWN_MAX).await;
        }
    }
}

#[tokio::test]
async fn coupons_are_created_at_once_over_few_connections() {
    let app = TestApp::configured(&["--database-connections", "2"]).await;
    let created = futures_util::future::join_all((0..10).map(|_| app.create_regular())).await;
    assert_eq!(created.iter().collect::<HashSet<_>>().len(), 10);
}

#[tokio::test]
async fn coupons_are_listed_page_by_page() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        assert_eq!(walk(&app, "coupons", "", 3).await, [0; 0]);
        let mut created = Vec::new();
        for number in 1..=7 {
            created.push(if number % 2 == 0 {
                app.create_regular().await.get()
            } else {
                app.create_flash(1).await.get()
            });
            if number >= 6 {
                let newest_first: Vec<i64> = created.iter().rev().copied().collect();
                assert_eq!(walk(&app, "coupons", "", 3).await, newest_first);
            }
        }
    }
}

#[tokio::test]
async fn everybody_lists_their_own_orders_page_by_page() {
    let app = TestApp::start().await;
    let mut own = Vec::new();
    for number in 1..=7 {
        // Both ways to an order.
        let coupon =
            if number % 2 == 0 { app.create_regular().await } else { app.create_flash(2).await };
        own.push(app.claim(42, coupon).await.order_id());
        app.claim(43, coupon).await;
    }
    assert_eq!(own.iter().collect::<HashSet<_>>().len(), 7);
    app.write_orders().await;

    own.sort_unstable_by(|a, b| b.cmp(a));
    for limit in [1, 3, 7, 8] {
        let listed = walk(&app, "orders", &app.token(42), limit).await;
        assert_eq!(listed, own, "pages of {limit}");
    }
    assert_eq!(walk(&app, "orders", &app.token(44), 3).await, [0; 0]);
    let page = app.get("/v1/orders", &app.token(42)).await;
    let orders = page.body["orders"].as_array().unwrap();
    assert!(orders.iter().all(|order| order["user_id"] == "42"));
    // The list shows what the single order shows.
    let path = format!("/v1/orders/{}", own[0]);
    assert_eq!(orders[0], app.get(&path, &app.token(42)).await.body);
}

/// The ids on all pages of a list, in their order. No page but an only one is empty.
async fn walk(app: &TestApp, list: &str, token: &str, limit: usize) -> Vec<i64> {
    let id = if list == "orders" { "order_id" } else { "id" };
    let mut ids = Vec::new();
    let mut cursor = String::new();
    for number in 0..100 {
        let path = format!("/v1/{list}?limit={limit}{cursor}");
        let page = app.get(&path, token).await;
        assert_eq!(page.status, 200, "{page:?}");
        let rows = page.body[list].as_array().expect("a list");
        assert!(rows.len() <= limit, "{path}");
        assert!(number == 0 || !rows.is_empty(), "{path} is empty");
        ids.extend(rows.iter().map(|row| {
            let id = row[id].as_str().expect("an id is a string");
            id.parse::<i64>().expect("an id is a number")
        }));
        match &page.body["next_cursor"] {
            Value::Null => return ids,
            next => cursor = format!("&cursor={}", next.as_str().expect("a string")),
        }
    }
    panic!("{list} never ends");
}

#[tokio::test]
async fn metrics_count_claims_by_outcome() {
    let app = TestApp::start().await;
    let one = app.create_flash(1).await;
    let regular = app.create_regular().await;
    let later = now() + TimeDelta::hours(1);
    let future = app.create_sale(1, later, later + TimeDelta::hours(1)).await;
    for (user, coupon) in [
        (1, one),
        (1, one),
        (2, one),
        (3, one),
        (1, regular),
        (1, future),
        (1, "1024000".parse().unwrap()),
    ] {
        app.claim(user, coupon).await;
    }
    let page = app.get("/metrics", "").await;
    let content_type = page.header("content-type");
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let text = page.body.as_str().expect("a text");
    for (outcome, count) in [
        ("accepted", 1),
        ("already_claimed", 1),
        ("sold_out", 2),
        ("created", 1),
        ("sale_not_started", 1),
        ("coupon_not_found", 1),
        ("sale_paused", 0),
        ("sale_ended", 0),
        ("unavailable", 0),
    ] {
        let line = format!("flash_sale_claims_total{{outcome=\"{outcome}\"}} {count}");
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_service_that_is_well_says_so() {
    let app = TestApp::start().await;
    let alive = app.get("/livez", "").await;
    assert_eq!((alive.status, &alive.body), (200, &json!("ok\n")));
    let ready = app.get("/readyz", "").await;
    let well = json!({"status": "ready", "redis": "ok", "postgres": "ok", "backlog": "ok", "lanes": "ok", "durability": "ok", "clock": "ok", "process": "ok"});
    assert_eq!((ready.status, ready.body), (200, well));
}

#[tokio::test]
async fn too_many_unwritten_claims_are_not_ready() {
    let app = TestApp::configured(&["--backlog-orders-max", "3"]).await;
    let coupon = app.create_flash(5).await;
    for (user, status) in [(1, 200), (2, 200), (3, 503)] {
        app.claim(user, coupon).await;
        let ready = app.get("/readyz", "").await;
        assert_eq!(ready.status, status, "after claim {user}: {ready:?}");
    }
    let ready = app.get("/readyz", "").await;
    assert!(ready.text("backlog").starts_with("overloaded: 3 orders"), "{ready:?}");
    app.write_orders().await;
    assert_eq!(app.get("/readyz", "").await.status, 200);
}

#[tokio::test]
async fn the_document_knows_every_route() {
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let paths = document["paths"].as_object().expect("paths");
    let mut documented: Vec<(&str, &str)> = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |m| (&**m, &**path)))
        .filter(|(method, _)| *method != "parameters")
        .collect();
    documented.sort_unstable_by_key(|(method, path)| (*path, *method));
    assert_eq!(documented, ROUTES);

    let references = references(&document);
    assert!(!references.is_empty());
    for reference in references {
        let place = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
    for (method, path) in ROUTES {
        let operation = &document["paths"][path][method];
        assert!(!operation["responses"].as_object().unwrap().is_empty());
        let needed = operation["security"].as_array().expect("needed or not, it says so");
        let needs_token = needed.iter().any(|scheme| scheme["signature"].is_null());
        assert_eq!(operation["responses"]["401"].is_object(), needs_token, "{path}");
    }
}

#[tokio::test]
async fn the_document_and_the_page_of_a_sale_are_sent_in_the_coding_that_the_client_takes() {
    let app = TestApp::start().await;
    let shop = TestApp::configured(&["--pages", "shop"]).await;
    let sale = format!("/sale/{}", shop.create_flash(1).await);
    for (app, path, vary, words, percent_max) in [
        (&app, "/openapi.json", "accept-encoding", "claimCoupon", 50),
        // Of a page that only names three files, less repeats.
        (&shop, &sale, "accept-encoding, accept-language", "og:title", 66),
    ] {
        let get = async |coding| {
            let request = app.client().get(app.url.clone() + path);
            let reply = request.header("accept-encoding", coding).send().await.expect("a reply");
            assert_eq!(reply.status(), 200, "{path}");
            assert_eq!(reply.headers()["vary"], vary, "{path}");
            let is_packed = reply.headers().get("content-encoding").is_some_and(|it| it == "gzip");
            (is_packed, reply.bytes().await.expect("the whole text"))
        };
        let (is_packed, plain) = get("br, gzip;q=0").await;
        assert!(!is_packed && String::from_utf8_lossy(&plain).contains(words), "{path}");
        let (is_packed, packed) = get("gzip, deflate, br").await;
        assert!(
            is_packed && packed.len() * 100 < plain.len() * percent_max,
            "{path}: {} bytes",
            packed.len()
        );
        let mut unpacked = Vec::new();
        GzDecoder::new(&*packed).read_to_end(&mut unpacked).expect("gzip");
        assert!(unpacked == plain, "{path}");
    }
}

/// Things that the next test doesn't make: it asks for ids that are not there.
const NOT_MADE: [&str; 4] = [
    "/v1/dead-letters/{id}",
    "/v1/orders/{id}/trace",
    "/v1/webhooks/{id}",
    "/v1/webhooks/{id}/deliveries",
];

#[tokio::test]
async fn head_is_get_without_a_body() {
    let app = TestApp::configured(&["--events"]).await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(42, coupon).await;
    let code = app.code(42, order).await;
    let admin = app.admin_token();
    let run = app.compare().await;
    let run: i64 = run.text("run_id").parse().expect("a number");
    for (_, path) in ROUTES.iter().filter(|(method, _)| *method == "get") {
        let (id, token) = match path {
            path if path.ends_with("/payments") => (order, admin.clone()),
            path if path.contains("orders.") => (order, admin.clone()),
            path if path.contains("orders") => (order, app.token(42)),
            path if path.contains("reconcile") => (run, admin.clone()),
            path if [
                "dead",
                "operations",
                "postponed",
                "recoveries",
                "owed",
                "audit",
                "redemptions",
                "board",
                "progress",
                "events",
                "webhooks",
            ]
            .iter()
            .any(|of| path.contains(of)) =>
            {
                (coupon.get(), admin.clone())
            }
            _ => (coupon.get(), app.token(42)),
        };
        let pattern = (*path).to_owned();
        let path = path.replace("{id}", &id.to_string()).replace("{code}", &code);
        let (got, head) = tokio::join!(
            app.client().get(app.url.clone() + &path).bearer_auth(&token).send(),
            app.client().head(app.url.clone() + &path).bearer_auth(&token).send(),
        );
        let got = got.unwrap();
        let head = head.unwrap();
        let is_made = !NOT_MADE.contains(&&*pattern);
        assert_eq!(got.status(), if is_made { 200 } else { 404 }, "{path}");
        assert_eq!(head.status(), got.status(), "{path}");
        assert_eq!(head.headers().get("content-type"), got.headers().get("content-type"));
        assert_eq!(head.text().await.unwrap(), "", "{path}");
    }
}

#[tokio::test]
async fn nothing_is_where_nothing_is() {
    let app = TestApp::start().await;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/coupons",
        "/v1/coupons/",
        "/v1/coupons/1/claims/you",
        "//livez",
        "/docs/x",
    ] {
        let reply = app.get(path, "").await;
        assert_eq!(reply.refusal(), (404, "not_found"), "{path}");
        let request = app.client().delete(app.url.clone() + "/nowhere" + path);
        let reply = app.send(request, "DELETE", "/nowhere").await;
        assert_eq!(reply.refusal(), (404, "not_found"), "DELETE /nowhere{path}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let app = TestApp::start().await;
    for (path, allowed) in [
        ("/livez", "GET,HEAD"),
        ("/v1/coupons", "GET,HEAD,POST"),
        ("/v1/coupons/1024", "GET,HEAD,PATCH"),
        ("/v1/coupons/1024/pause", "POST"),
        ("/v1/coupons/1024/restock", "POST"),
        ("/v1/coupons/1024/claims", "POST"),
        ("/v1/coupons/1024/claims/me", "GET,HEAD"),
        ("/v1/orders", "GET,HEAD"),
        ("/v1/orders/1", "GET,HEAD"),
        ("/v1/reconcile", "POST"),
        ("/v1/reconcile/runs", "GET,HEAD"),
    ] {
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            if allowed.contains(method) {
                continue;
            }
            let request = app.client().request(method.parse().unwrap(), app.url.clone() + path);
            let reply = app.send(request, method, path).await;
            assert_eq!(reply.refusal(), (405, "method_not_allowed"), "{method} {path}");
            let mut allow: Vec<&str> = reply.header("allow").split(',').map(str::trim).collect();
            allow.sort_unstable();
            assert_eq!(allow.join(","), allowed, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_request_id_tells_nothing_of_the_traffic() {
    let app = TestApp::start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let reply = app.get("/v1/coupons", "").await;
        let id: uuid::Uuid = reply.header("x-request-id").parse().expect("a UUID");
        ids.push(id.as_u128());
    }
    let [first, second, third] = ids[..] else { unreachable!("three were asked for") };
    assert_ne!(second.wrapping_sub(first), third.wrapping_sub(second), "they count");
    assert!(first.abs_diff(second) > 1 << 64, "they begin alike");
}

#[tokio::test]
async fn a_request_id_is_kept_if_it_is_fit_for_a_log() {
    let app = TestApp::start().await;
    let longest = "x".repeat(64);
    let too_long = "x".repeat(65);
    let rows: [(&[u8], bool); 11] = [
        (b"a", true),
        (b"0af7651916cd43dd-8448_eb.1", true),
        (longest.as_bytes(), true),
        (too_long.as_bytes(), false),
        (b"", false),
        (b"a b", false),
        (b"a/b", false),
        (b"a\"b", false),
        (b"${jndi:x}", false),
        (b"a\tb", false),
        ("caf\u{e9}".as_bytes(), false),
    ];
    for (given, kept) in rows {
        let what = String::from_utf8_lossy(given);
        for path in ["/livez", "/nowhere", "/v1/orders"] {
            let request = app.client().get(app.url.clone() + path).header("x-request-id", given);
            let reply = app.send(request, "GET", path).await;
            let id = reply.header("x-request-id");
            assert_eq!(id.as_bytes() == given, kept, "{what:?} became {id:?}");
            assert!(kept || id.len() == 36, "{what:?} became {id:?}");
        }
    }
}

#[tokio::test]
async fn the_no_op_route_is_there_only_if_asked_for() {
    let app = TestApp::start().await;
    let token = app.token(1);
    assert_eq!(app.post("/v1/no-op", &token, &json!({})).await.status, 404);

    let app = TestApp::configured(&["--no-op-route"]).await;
    assert_eq!(app.post("/v1/no-op", &app.token(1), &json!({})).await.status, 202);
    let refused = app.post("/v1/no-op", "none", &json!({})).await;
    assert_eq!(refused.refusal(), (401, "invalid_token"));
    let document = app.get("/openapi.json", "").await.body;
    assert!(document["paths"]["/v1/no-op"].is_null(), "it is no part of the API");
}
