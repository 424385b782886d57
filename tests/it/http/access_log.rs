//! Lines of the access log, and metrics by route.

use crate::support::TestApp;
use crate::support::process::Process;

#[tokio::test]
async fn each_request_is_a_line_with_its_route_its_user_and_no_token() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let service = Process::serve(&app, &["--access-log-one-in", "1", "--log-format", "json"]);
    let url = service.url().await;
    let claim = async |token: &str, name: &str| {
        let url = format!("{url}/v1/coupons/{coupon}/claims");
        let request = app.client().post(url).bearer_auth(token).header("x-request-id", name);
        request.send().await.expect("the service answers");
    };
    claim(&app.token(42), "first").await;
    claim(&app.token(42), "second").await;
    claim("no.good.token", "third").await;
    for (name, status, code, actor) in [
        ("first", 202, "ok", "user 42"),
        ("second", 409, "already_claimed", "user 42"),
        ("third", 401, "invalid_token", "refused"),
    ] {
        let line = service.logged(&format!("\"request_id\":\"{name}\"")).await;
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["target"], "access");
        let fields = &line["fields"];
        assert_eq!(fields["method"], "POST");
        assert_eq!(fields["route"], "/v1/coupons/{id}/claims");
        assert_eq!(fields["status"], status);
        assert_eq!(fields["code"], code);
        assert_eq!(fields["actor"], actor);
        assert!(fields["took_us"].as_u64().is_some_and(|took| took > 0), "{line}");
    }
    assert!(!service.said_so_far().contains("no.good.token"));
}

#[tokio::test]
async fn metrics_tell_times_by_route_and_count_refusals() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    app.claim(1, coupon).await;
    app.claim(1, coupon).await;
    app.get("/v1/orders", "").await;
    app.get("/v1/operations", &app.token(1)).await;
    app.get("/nowhere", "").await;
    let page = app.app.metrics.page();
    for line in [
        "http_request_duration_seconds_count{route=\"/v1/coupons/{id}/claims\",class=\"2xx\"} 1",
        "http_request_duration_seconds_count{route=\"/v1/coupons/{id}/claims\",class=\"4xx\"} 1",
        "http_request_duration_seconds_count{route=\"/v1/orders\",class=\"4xx\"} 1",
        "http_request_duration_seconds_count{route=\"other\",class=\"4xx\"} 1",
        "requests_refused_total{status=\"401\"} 1",
        "requests_refused_total{status=\"403\"} 1",
    ] {
        let line = format!("flash_sale_{line}");
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}
