//! The frame around every request: identifies and bounds the client, gives the request an id, completes the reply
//! (problem body, headers), and records its time and a line of the access log.

// How often one client may ask.
pub mod bounds;

// Who sends a request.
pub mod caller;

// JSON replies.
pub mod reply;

// Proxies that are trusted to name their clients.
pub mod proxies;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::Histogram;
use tokio::time::{Instant, timeout};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer, ExposeHeaders};
use uuid::Uuid;

use self::caller::Caller;
use super::problem::Problem;
use super::state::{Front, HttpState};
use super::tags::Held;
use crate::base::limits;
use crate::base::telemetry::{Metrics, RequestIds};
use crate::kit::jwt::{Grants, Scope};

/// Carries the id of a request, in both directions.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Passes a request on, unless its client has asked too often, and completes the reply.
pub async fn frame(State(http): State<HttpState>, mut request: Request, next: Next) -> Response {
    let front = http.front();
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let from = from.map_or_else(|| [0; 4].into(), |ConnectInfo(peer)| peer.ip());
    let headers = request.headers();
    let caller = Caller::of(headers, front.proxies.client(from, headers), &front.tokens);
    let request_id = request_id(headers, &front.request_ids);
    let held = Held::of(&request);
    // Caches don't keep replies to POST anyway.
    let private = request.method() != Method::POST && headers.contains_key(header::AUTHORIZATION);
    let (method, version) = (request.method().clone(), request.version());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = match front.bounds.pass(&caller, &method, request.uri().path()) {
        Ok(()) => {
            request.extensions_mut().insert(caller.clone());
            // A reply that is there at once, as most refusals are, sets no timer. A layer of tower-http would.
            let reply = timeout(limits::REQUEST_TIMEOUT, next.run(request)).await;
            reply.unwrap_or_else(|_| Problem::unavailable().into_response())
        }
        Err(too_often) => Problem::from(too_often).into_response(),
    };
    let code = write_problem(&http, &mut response, &request_id);
    match held {
        Some(held) if response.status().is_success() => held.shorten(&mut response),
        // Only a success can be revalidated.
        _ if !response.status().is_success() => drop(response.headers_mut().remove(header::ETAG)),
        _ => {}
    }
    let metrics = &http.app().metrics;
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    count(front, metrics, route, response.status().as_u16(), caller.arrived);
    if front.access_log_one_in > 0
        && front.access_log_count.fetch_add(1, Relaxed).is_multiple_of(front.access_log_one_in)
    {
        log(&method, route, response.status(), code, &caller, &request_id);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id);
    secure(headers, private);
    if http.app().shutdown.is_announced() && version <= Version::HTTP_11 {
        // Makes the client connect anew, to another process. HTTP/2 has a frame of its own for that.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The client's own id for the request if it is fit for a log line, otherwise a new one.
fn request_id(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let fit = |id: &&HeaderValue| {
        (1..=64).contains(&id.len())
            && id.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    headers.get(REQUEST_ID).filter(fit).cloned().unwrap_or_else(|| {
        let mut text = Uuid::encode_buffer();
        let text = ids.next().hyphenated().encode_lower(&mut text);
        HeaderValue::from_str(text).expect("digits, letters and hyphens")
    })
}

/// Writes the problem body of a refusal by a handler or a layer, and returns its code.
fn write_problem(
    http: &HttpState,
    response: &mut Response,
    request_id: &HeaderValue,
) -> Option<&'static str> {
    let made = response.extensions_mut().remove::<Problem>();
    let is_page = response.headers().contains_key(header::CONTENT_SECURITY_POLICY);
    let problem = made.or_else(|| Problem::of_status(response.status()).filter(|_| !is_page))?;
    let metrics = &http.app().metrics;
    if let Some(bound) = problem.too_often() {
        metrics.count_rate_limited(bound);
    }
    let request_id = request_id.to_str().expect("checked or made by us");
    if let Some(failure) = problem.failure() {
        metrics.requests_failed.increment(1);
        // An outage writes one line now and then; the metrics count every failure.
        if http.front().failure_log.lock().is_ok_and(|mut throttle| throttle.allows()) {
            tracing::warn!(request_id, error = %failure, "a request could not be answered");
        }
    }
    problem.write(response, request_id);
    Some(problem.code())
}

fn count(front: &Front, metrics: &Metrics, route: &str, status: u16, arrived: Instant) {
    let took = arrived.elapsed();
    let class = usize::from(status / 100).clamp(1, 5);
    let is_claim = route.ends_with("/claims");
    metrics.tally.requests.add(1);
    metrics.count_refused(status);
    if is_claim {
        // Claims are many, so their histogram is looked up once.
        let times: &OnceLock<Histogram> = &front.claim_times[class - 1];
        times.get_or_init(|| metrics.http_seconds(route, class)).record(took);
        metrics.tally.answers.record(took, 1);
    } else {
        metrics.http_seconds(route, class).record(took);
    }
}

fn log(
    method: &Method,
    route: &str,
    status: StatusCode,
    code: Option<&str>,
    caller: &Caller,
    request_id: &HeaderValue,
) {
    let actor = match caller.grants {
        Some(Ok(Grants { subject, scope })) => {
            format!("{} {subject}", scope.map_or("user", Scope::role))
        }
        Some(Err(_)) => "refused".to_owned(),
        None => "none".to_owned(),
    };
    tracing::info!(
        target: "access",
        method = method.as_str(),
        route,
        status = status.as_u16(),
        code = code.unwrap_or("ok"),
        took_us = u64::try_from(caller.arrived.elapsed().as_micros()).unwrap_or(u64::MAX),
        actor,
        request_id = request_id.to_str().unwrap_or_default(),
        "request"
    );
}

/// A reply of the API is no page: nothing may be loaded for it, and no page may frame it.
const API: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

/// Adds headers that keep browsers from misusing a reply. A header that the handler has set stays as it is.
fn secure(headers: &mut HeaderMap, private: bool) {
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(API);
    if private {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
}

/// A panic is a bug of the service. It is logged as an error; the client is told only that there is a bug.
pub fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(message, "a request handler panicked");
    Problem::internal().into_response()
}

/// Lets pages of these origins use the API from a browser; `None` without origins. Credentials are not allowed: a page
/// sends its token in a header itself, and cookies mean nothing here. So listing an origin, or all of them, endangers
/// no users of other sites.
pub fn cors(origins: &[String]) -> Option<CorsLayer> {
    let value = |origin: &String| HeaderValue::from_str(origin).expect("the setting is checked");
    let allowed = match origins {
        [] => return None,
        origins if origins.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        origins => AllowOrigin::list(origins.iter().map(value)),
    };
    let layer = CorsLayer::new().allow_origin(allowed).max_age(limits::PREFLIGHT_KEPT);
    let layer = layer.allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE]);
    Some(layer.allow_headers(AllowHeaders::mirror_request()).expose_headers(ExposeHeaders::any()))
}
