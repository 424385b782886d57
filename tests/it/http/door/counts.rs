//! Counts, times and lines about requests.

use flash_sale::base::limits;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{door, request, told};
use crate::support::lines::Lines;
use crate::support::{TestApp, patience, token};

/// The number behind a line of the page of metrics; 0 if there is no such line.
fn metric(app: &TestApp, name: &str) -> u64 {
    let page = app.app.metrics.page();
    let begin = format!("flash_sale_{name} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&begin));
    line.map_or(0, |number| number.parse().expect("a number"))
}

#[tokio::test]
async fn the_tally_counts_each_reply_and_records_the_answers_of_claims() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let door = door(&app, |_| {});
    let claims = format!("/v1/coupons/{coupon}/claims");
    let times = |route: &str, class: &str| {
        let labels = format!("{{route=\"{route}\",class=\"{class}\"}}");
        metric(&app, &format!("http_request_duration_seconds_count{labels}"))
    };
    let refused =
        |status: u16| metric(&app, &format!("requests_refused_total{{status=\"{status}\"}}"));
    let tally = &app.app.metrics.tally;
    let answers = || tally.answers.counts().values().sum::<u64>();
    for (method, path, token, route, status) in [
        ("GET", "/livez", "", "/livez", 200),
        ("GET", "/v1/orders/7", &*token(1), "/v1/orders/{id}", 404),
        ("GET", "/v1/jobs", &*token(1), "/v1/jobs", 403),
        ("GET", "/v1/orders", "", "/v1/orders", 401),
        ("GET", "/nowhere", "", "other", 404),
        ("POST", &*claims, &*token(1), "/v1/coupons/{id}/claims", 202),
        ("POST", &*claims, &*token(1), "/v1/coupons/{id}/claims", 409),
        ("POST", &*claims, "no.good.token", "/v1/coupons/{id}/claims", 401),
    ] {
        let class = format!("{}xx", status / 100);
        let seen =
            || (tally.requests.get(), answers(), times(route, &class), refused(401), refused(403));
        let before = seen();
        assert_eq!(told(&door, request(method, path, token)).await.status, status, "{path}");
        let is_claim = u64::from(route.ends_with("/claims"));
        let expected = (
            before.0 + 1,
            before.1 + is_claim,
            before.2 + 1,
            before.3 + u64::from(status == 401),
            before.4 + u64::from(status == 403),
        );
        assert_eq!(seen(), expected, "{method} {path}: {status}");
    }
}

/// While Postgres is away, each request is counted, and a line now and then tells of them.
#[tokio::test]
async fn failures_are_counted_one_by_one_and_logged_now_and_then() {
    const REQUESTS: u64 = 20;
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let lines = Lines::heard();
    let failures = || lines.with("a request could not be answered");
    assert_eq!(told(&door, request("GET", "/v1/orders/7", &token(1))).await.status, 404);
    assert_eq!((metric(&app, "requests_failed_total"), failures().len()), (0, 0));
    app.app.stores.pool.close().await;
    let began = Instant::now();
    for count in 1..=REQUESTS {
        let reply = told(&door, request("GET", "/v1/orders/7", &token(1))).await;
        assert_eq!(reply.refusal(), (503, "unavailable"));
        assert_eq!(metric(&app, "requests_failed_total"), count);
    }
    let told = failures();
    let pauses = began.elapsed().as_millis() / limits::LOG_LINE_PAUSE.as_millis();
    assert!(!told.is_empty() && told.len() as u128 <= 1 + pauses, "{told:?}");
    assert!(told[0].contains("request_id=") && told[0].contains("Postgres"), "{told:?}");
}

/// Lines are written by a task of the service, for as long as it runs.
#[tokio::test]
async fn one_request_in_so_many_is_a_line_of_the_access_log() {
    let app = TestApp::start().await;
    let lines = Lines::heard();
    let access = || lines.with(" access: ");
    let lost = || metric(&app, "access_lines_lost_total");
    let doors = [1, 3, 0].map(|one_in| door(&app, |config| config.access_log_one_in = one_in));
    for (door, expected) in doors.iter().zip([6, 2, 0]) {
        let before = access().len();
        for _ in 0..6 {
            told(door, request("GET", "/v1/orders", &token(42))).await;
            yield_now().await;
        }
        yield_now().await;
        let written = access();
        assert_eq!((written.len() - before, lost()), (expected, 0), "{written:?}");
        for line in &written[before..] {
            for part in
                ["method=\"GET\"", "route=\"/v1/orders\"", "status=200", "actor=\"user 42\""]
            {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
    }
    assert!(app.app.shutdown.stop(patience()).await, "a task hangs");
    for (door, more) in doors.iter().zip([6, 2, 0]) {
        let before = lost();
        for _ in 0..6 {
            told(door, request("GET", "/livez", "")).await;
        }
        assert_eq!(lost() - before, more, "no task writes any more");
    }
}
