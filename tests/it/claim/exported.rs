//! Traces of claims, sent to a real receiver by the processes that took and wrote them.

#![expect(clippy::disallowed_types, reason = "the collector is no reply of the service")]

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use flash_sale::base::limits::SPANS_REPLY_BYTES_MAX;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::sale::ids::OrderId;
use flash_sale::sale::trace::names::TraceName;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::process::{Process, flash_sale, order_id, try_claim};
use crate::support::{TestApp, eventually};

/// A receiver of OTLP over HTTP, and the spans that it has got, each with the roles of its process.
#[derive(Clone)]
struct Receiver {
    url: String,
    spans: Arc<Mutex<Vec<(String, Value)>>>,
    answer: (StatusCode, Value),
}

impl Receiver {
    async fn start(answer: (StatusCode, Value)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let url = format!("http://{address}/v1/traces");
        let receiver = Self { url, spans: Arc::default(), answer };
        let router = Router::new().route("/v1/traces", post(receive)).with_state(receiver.clone());
        Shutdown::default().spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    fn of(&self, order: i64) -> Vec<(String, Value)> {
        let trace = trace_id(order);
        let spans = self.spans.lock().unwrap();
        spans.iter().filter(|(_, span)| span["traceId"] == trace).cloned().collect()
    }
}

async fn receive(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    assert_eq!(headers["content-type"], "application/json");
    for of_process in list(&body["resourceSpans"]) {
        let resource = &of_process["resource"];
        assert_eq!(attribute(resource, "service.name"), "flash-sale");
        let roles = attribute(resource, "flash_sale.roles").as_str().expect("a text").to_owned();
        for spans in list(&of_process["scopeSpans"]) {
            let spans = list(&spans["spans"]).iter().map(|span| (roles.clone(), span.clone()));
            receiver.spans.lock().unwrap().extend(spans);
        }
    }
    let (status, answer) = receiver.answer;
    (status, Json(answer))
}

#[tokio::test]
async fn a_claim_is_one_trace_from_the_process_that_took_it_and_the_one_that_wrote_it() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let receiver = Receiver::start((StatusCode::OK, json!({}))).await;
    let sent = ["--otlp-url", &receiver.url, "--otlp-one-in", "1"];
    let api = Process::serve(&app, &[&["--roles", "api"], &sent[..]].concat());
    let url = api.url().await;
    let claim = async |user| {
        let (status, body) = try_claim(&app, &url, user, coupon).await.expect("a reply");
        assert_eq!(status, 202, "{body}");
        order_id(&body)
    };
    let orders = [claim(1).await, claim(2).await];
    let (refused, _) = try_claim(&app, &url, 1, coupon).await.expect("a reply");
    assert_eq!(refused, 409, "a refusal has no trace");
    for order in orders {
        eventually("the API sends its part", async || receiver.of(order).len() == 4).await;
    }
    let mut command = flash_sale(&["serve", "--roles", "worker", "--redis-timeout-ms", "10000"]);
    command.args(app.store_arguments()).args(sent);
    let _worker = Process::spawn(command);
    for order in orders {
        eventually("the worker sends its part", async || receiver.of(order).len() == 9).await;
        assert_is_one_trace(&receiver.of(order), order, &coupon.to_string());
    }
    assert_eq!(receiver.spans.lock().unwrap().len(), 18, "two claims, and nothing else");
}

/// Each step once, from the right process, below the span of the request, and in its order.
fn assert_is_one_trace(spans: &[(String, Value)], order: i64, coupon: &str) {
    let steps = ["queue", "script", "answer", "log", "batch", "locks", "row", "acknowledgement"];
    let named = |name: &str| {
        let mut found = spans.iter().filter(|(_, span)| span["name"] == name);
        let (roles, span) = found.next().unwrap_or_else(|| panic!("{name} is missing: {spans:?}"));
        assert!(found.next().is_none(), "{name} is there twice: {spans:?}");
        (roles.as_str(), span)
    };
    let (roles, request) = named("POST /v1/coupons/{id}/claims");
    assert_eq!((roles, &request["kind"]), ("api", &json!(2)));
    assert!(request.get("parentSpanId").is_none(), "{request}");
    assert_eq!(attribute(request, "http.response.status_code"), "202");
    assert_eq!(attribute(request, "flash_sale.coupon_id"), coupon);
    let mut begun = 0;
    for (at, step) in steps.into_iter().enumerate() {
        let (roles, span) = named(step);
        assert_eq!(roles, if at < 3 { "api" } else { "worker" }, "{step}");
        assert_eq!(span["parentSpanId"], request["spanId"], "{step}");
        assert_eq!(attribute(span, "flash_sale.order_id"), &*order.to_string(), "{step}");
        let path = attribute(span, "code.file.path").as_str().expect("a path").to_owned();
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).is_file(), "{path}");
        let [from, to] = ["startTimeUnixNano", "endTimeUnixNano"].map(|time| ns(&span[time]));
        assert!(from <= to, "{span}");
        // The log begins by Redis's clock, in whole milliseconds.
        if step != "log" {
            assert!(begun <= from, "{step} begins before the step before it: {spans:?}");
            begun = from;
        }
    }
    assert_eq!(attribute(named("batch").1, "flash_sale.batch_claims"), "2");
}

#[tokio::test]
async fn one_claim_in_so_many_is_traced_and_both_processes_pick_the_same_ones() {
    const CLAIMS: i64 = 60;
    let app = TestApp::start().await;
    let coupon = app.create_flash(CLAIMS).await;
    let receiver = Receiver::start((StatusCode::OK, json!({}))).await;
    let service = Process::serve(&app, &["--otlp-url", &receiver.url, "--otlp-one-in", "4"]);
    let url = service.url().await;
    let mut orders = Vec::new();
    for user in 1..=CLAIMS {
        let (_, body) = try_claim(&app, &url, user, coupon).await.expect("a reply");
        orders.push(order_id(&body));
    }
    let is_picked = |order: i64| TraceName::of(OrderId::new(order).unwrap()).is_picked(4);
    let picked: Vec<i64> = orders.into_iter().filter(|order| is_picked(*order)).collect();
    for order in &picked {
        eventually("it is traced", async || receiver.of(*order).len() == 9).await;
    }
    assert_eq!(receiver.spans.lock().unwrap().len(), 9 * picked.len(), "no other claim is traced");
}

#[tokio::test]
async fn a_collector_that_does_not_take_spans_costs_no_claim() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let refusing = Receiver::start((StatusCode::SERVICE_UNAVAILABLE, json!({}))).await;
    let partial = json!({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "full"}});
    let picky = Receiver::start((StatusCode::OK, partial)).await;
    // One byte too long, with its quotation marks.
    let long = json!("x".repeat(SPANS_REPLY_BYTES_MAX - 1));
    let long = Receiver::start((StatusCode::OK, long)).await;
    for (user, (url, lost)) in (1..).zip([
        ("http://127.0.0.1:1/v1/traces", 4),
        (&refusing.url, 4),
        (&picky.url, 3),
        (&long.url, 4),
    ]) {
        let arguments = ["--roles", "api", "--otlp-url", url, "--otlp-one-in", "1"];
        let service = Process::serve(&app, &arguments);
        let address = service.url().await;
        let (status, body) = try_claim(&app, &address, user, coupon).await.expect("a reply");
        assert_eq!(status, 202, "{body}");
        let line = format!("flash_sale_spans_lost_total {lost}\n");
        let counted = async || {
            let page = app.client().get(format!("{address}/metrics")).send().await;
            page.expect("a page").text().await.expect("a text").contains(&line)
        };
        eventually("lost spans are counted", counted).await;
        service.logged("has not taken spans").await;
    }
    app.write_orders().await;
}

#[tokio::test]
async fn a_process_that_stops_sends_its_last_spans() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let receiver = Receiver::start((StatusCode::OK, json!({}))).await;
    let arguments = ["--roles", "api", "--otlp-url", &receiver.url, "--otlp-one-in", "1"];
    let mut service = Process::serve(&app, &arguments);
    let (_, body) = try_claim(&app, &service.url().await, 1, coupon).await.expect("a reply");
    service.assert_stops().await;
    assert_eq!(receiver.of(order_id(&body)).len(), 4);
    app.write_orders().await;
}

fn trace_id(order: i64) -> String {
    let name = TraceName::of(OrderId::new(order).expect("an id"));
    name.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// The value of an attribute of a span or a resource, whatever its type.
fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let found = list(&of["attributes"]).iter().find(|attribute| attribute["key"] == key);
    let value = &found.unwrap_or_else(|| panic!("{key} is missing: {of}"))["value"];
    value.as_object().expect("an object").values().next().expect("a value")
}

fn ns(time: &Value) -> u64 {
    time.as_str().and_then(|text| text.parse().ok()).expect("nanoseconds")
}
