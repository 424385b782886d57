//! The door for requests: routes and middleware, on one screen.

// Coupons: read by all users, created and changed by administrators.
pub mod coupons;

// Claims, and what became of them.
pub mod claims;

// Orders of a user, and their moves.
pub mod orders;

// Notices of the payment gateway.
pub mod payments;

// All that waits for a person, and the lists of its parts; comparisons and the book of changes: for the staff.
pub mod operators;

// Pages for people.
pub mod pages;

// Listeners and connections.
pub mod server;

// Liveness, readiness and metrics.
pub mod operations;

// A route that does nothing, to measure the others against.
pub mod no_op;

// Tokens: the user of a request, and whether the user is an administrator.
pub mod auth;

// Tags of replies, and clients that have one already.
pub mod tags;

// Ids, parameters and bodies of requests.
pub mod extract;

// State of the HTTP side.
pub mod state;

// The frame of every request: its bounds, and the headers of its reply.
pub mod frame;

// Streams of events.
pub mod events;

// Pages of lists.
pub mod page;

// Words of the staff in bodies.
pub mod words;

// The finished document of the API, and bodies held against it.
pub mod contract;

// Refusals and failures as problem bodies.
pub mod problem;

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::FutureExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::time::{Instant, timeout};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::base::limits;
use crate::base::telemetry::{Metrics, RequestIds};
use crate::kit::rate_limit::TooOften;
use frame::access_log::{Access, AccessLog};
use frame::reply;
use frame::routes::{Route, Routes};
use frame::security::{self, Kind};
use problem::{Problem, ProblemBody, REQUEST_ID};
use state::HttpState;
use tags::Held;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "flash-sale",
        description = "Sells a limited number of coupons to a crowd that arrives all at once.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "This service")),
    tags(
        (name = "claims", description = "Taking a coupon, and what became of it."),
        (name = "orders", description = "One's own orders, from payment to refund; redemption by a clerk."),
        (name = "coupons", description = "Coupons on offer; administrators create and change them."),
        (name = "payments", description = "Notices of the payment gateway."),
        (name = "dead letters", description = "Claims that could not become orders, for administrators."),
        (name = "operations", description = "Health, metrics, comparisons and recoveries, for operators."),
    ),
    components(schemas(ProblemBody)),
)]
struct ApiDoc;

/// The API, including the operations unless these have a listener of their own.
pub fn api(http: &HttpState, with_operations: bool) -> Door {
    let routes = OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(claims::claim))
        .routes(routes!(claims::my_claim))
        .routes(routes!(orders::list))
        .routes(routes!(orders::show))
        .routes(routes!(orders::pay))
        .routes(routes!(orders::cancel))
        .routes(routes!(orders::refund))
        .routes(routes!(orders::trace::follow))
        .routes(routes!(orders::payments::list))
        .routes(routes!(orders::staff::cancel))
        .routes(routes!(orders::staff::refund))
        .routes(routes!(orders::redemptions::qr_code))
        .routes(routes!(orders::redemptions::redeem))
        .routes(routes!(orders::redemptions::redeem_code))
        .routes(routes!(orders::redemptions::order_of_code))
        .routes(routes!(payments::callback))
        .routes(routes!(operators::payments::owed))
        .routes(routes!(operators::payments::hand_back))
        .routes(routes!(operators::payments::close))
        .routes(routes!(operators::dead_letters::list))
        .routes(routes!(operators::dead_letters::show))
        .routes(routes!(operators::dead_letters::discard_all))
        .routes(routes!(operators::dead_letters::discard))
        .routes(routes!(operators::dead_letters::retry))
        .routes(routes!(operators::dead_letters::retry_all))
        .routes(routes!(coupons::list, coupons::create))
        .routes(routes!(coupons::show, coupons::changes::edit))
        .routes(routes!(coupons::changes::pause))
        .routes(routes!(coupons::changes::resume))
        .routes(routes!(coupons::changes::end))
        .routes(routes!(coupons::changes::restock))
        .routes(routes!(coupons::archive::archive))
        .routes(routes!(coupons::cancel_unpaid::cancel_unpaid))
        .routes(routes!(coupons::live::live))
        .routes(routes!(coupons::progress::progress))
        .routes(routes!(operators::waiting::list))
        .routes(routes!(operators::audit::list))
        .routes(routes!(operators::board::show))
        .routes(routes!(operators::board::live))
        .routes(routes!(operators::postponed::list))
        .routes(routes!(operators::postponed::retry))
        .routes(routes!(operators::recoveries::list))
        .routes(routes!(operators::recoveries::settle))
        .routes(routes!(operators::reconcile::compare))
        .routes(routes!(operators::reconcile::list))
        .routes(routes!(operators::reconcile::show));
    let routes = if with_operations { routes.merge(operation_routes()) } else { routes };
    let (router, document) = routes.split_for_parts();
    let names = Routes::new(&document, &[no_op::PATH, OPENAPI]);
    let docs = pages::docs::routes(OPENAPI, contract::document(&document));
    let router = router.merge(problem::kinds::routes());
    // Not in the document: this route is no part of the API.
    let router = match http.front().no_op_route {
        true => router.route(no_op::PATH, post(no_op::no_op)),
        false => router,
    };
    let router = router.merge(docs).merge(pages::routes(http)).fallback(pages::nothing_here);
    Door::new(router, names, http)
}

const OPENAPI: &str = "/openapi.json";

/// The operations and the document of problems alone, for a listener of their own.
pub fn operations(http: &HttpState) -> Door {
    let (router, document) = operation_routes().split_for_parts();
    // Refusals of this listener link to it, too.
    let router = router.merge(problem::kinds::routes());
    let router = router.fallback(|| async { Problem::nothing_here() });
    Door::new(router, Routes::new(&document, &[]), http)
}

fn operation_routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new()
        .routes(routes!(operations::livez))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
}

/// The service of a listener: the routes, and the frame of every request. Clones share both.
#[derive(Clone)]
pub struct Door {
    http: HttpState,
    routes: TowerToHyperService<Router>,
    names: Arc<Routes>,
}

impl Door {
    /// No layer: each one would put every route into a box of its own, and every body that it may change. The frame of a
    /// request is [`answer`](Self::answer).
    fn new(router: Router<HttpState>, names: Routes, http: &HttpState) -> Self {
        let router = router
            .method_not_allowed_fallback(|| async {
                Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "the header Allow says which methods this path has",
                )
            })
            .with_state(http.clone());
        let routes = TowerToHyperService::new(router);
        Self { http: http.clone(), routes, names: Arc::new(names) }
    }

    /// The frame of every request: its id, its limits, its problem body, its duration.
    /// `body_missing` tells whether the request waits for bytes of its body.
    pub async fn answer(
        &self,
        client: IpAddr,
        mut request: Request,
        body_missing: impl Fn() -> bool,
    ) -> Response {
        let front = self.http.front();
        let frame = self.frame(client, &request);
        // For entries in the book of changes.
        request.headers_mut().insert(REQUEST_ID, frame.request_id.clone());
        if frame.route.takes_claims() && self.http.app().traces.leave() {
            request.extensions_mut().insert(claims::Arrived(frame.started));
        }
        if frame.route.streams() {
            request.extensions_mut().insert(events::Watcher(client));
        }
        let cors = front.cors.as_ref();
        let response = if frame.is_anonymous
            && let Err(too_often) = front.bounds.anonymous(client)
        {
            Problem::from(too_often).into_response()
        } else if let Some(reply) =
            cors.and_then(|cors| cors.preflight(request.method(), request.headers()))
        {
            reply
        } else if declared_bytes(request.headers()) > limits::BODY_BYTES_MAX {
            extract::body_too_large().into_response()
        } else {
            if !request.body().is_end_stream() {
                DefaultBodyLimit::max(limits::BODY_BYTES_MAX).apply(&mut request);
            }
            bounded(self.routes.call(request), body_missing).await
        };
        self.finish(frame, response)
    }

    /// The reply to a request that gets no further than its connection.
    pub fn refuse<B>(&self, client: IpAddr, request: &Request<B>, problem: Problem) -> Response {
        let frame = self.frame(client, request);
        let counted = self.http.front().bounds.anonymous(client);
        let problem = counted.map_or_else(Problem::from, |()| problem);
        self.finish(frame, problem.into_response())
    }

    /// A whole HTTP/1.1 reply, in place of one without a body, to bytes from this address that are no request.
    pub fn refusal_of_bytes(&self, from: IpAddr, status: StatusCode) -> Vec<u8> {
        let id = new_request_id(&self.http.front().request_ids);
        let counted = self.http.front().bounds.anonymous(from);
        let problem = counted.map_or_else(Problem::from, |()| unfit(status));
        let name = id.to_str().expect("made by us");
        let (parts, _) = problem.render(name).into_parts();
        let (status, mut headers, body) = (parts.status, parts.headers, problem.body(name));
        headers.insert(header::CONTENT_LENGTH, body.len().into());
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        headers.insert(REQUEST_ID, id);
        security::secure(&mut headers, Kind::Api, false);
        let mut reply = format!("HTTP/1.1 {status}\r\n").into_bytes();
        for (name, value) in &headers {
            reply.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        reply.extend([b"\r\n", &body[..]].concat());
        reply
    }

    /// The metrics of the service.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.http.app().metrics.clone()
    }

    fn frame<B>(&self, client: IpAddr, request: &Request<B>) -> Frame<'_> {
        let headers = request.headers();
        let route = self.names.of(request.uri().path());
        let log = self.http.front().access_log.as_ref().filter(|log| log.picks());
        let origin = headers.get(header::ORIGIN);
        Frame {
            started: Instant::now(),
            client,
            route,
            picked: log.map(|log| Picked {
                log,
                method: request.method().clone(),
                authorization: headers.get(header::AUTHORIZATION).cloned(),
            }),
            version: request.version(),
            kind: Kind::of(request.uri().path()),
            is_anonymous: route.counts_address(request.method(), headers),
            // A reply to POST is not kept anyway.
            private: request.method() != Method::POST
                && headers.contains_key(header::AUTHORIZATION),
            origin: self.http.front().cors.as_ref().and_then(|cors| cors.allowed(origin)),
            held: Held::of(request),
            request_id: request_id(headers, &self.http.front().request_ids),
        }
    }

    fn finish(&self, frame: Frame<'_>, mut response: Response) -> Response {
        let Frame { route, picked, origin, request_id, .. } = frame;
        let metrics = &self.http.app().metrics;
        let mut code = None;
        let mut problem = response.extensions_mut().remove::<Problem>();
        let is_page = response.headers().contains_key(header::CONTENT_SECURITY_POLICY);
        if problem.is_none() && response.status() == StatusCode::NOT_FOUND && !is_page {
            // Swagger UI answers for a page that is not there, without a problem body.
            problem = Some(Problem::nothing_here());
        }
        if let Some(mut problem) = problem {
            if let Err(too_often) = self.count_refusal(&problem, frame.client, frame.is_anonymous) {
                problem = too_often.into();
            }
            if let Some(policy) = problem.too_often() {
                metrics.count_rate_limited(policy.name);
            }
            code = Some(problem.code());
            let request_id = request_id.to_str().expect("checked or made by us");
            log_failure(&self.http, &problem, request_id);
            let rendered = problem.render(request_id);
            let kept = [header::ALLOW, claims::SERVER_TIMING];
            let kept = kept.map(|name| Some((response.headers_mut().remove(&name)?, name)));
            response = rendered;
            let kept = kept.into_iter().flatten();
            response.headers_mut().extend(kept.map(|(value, name)| (name, value)));
        }
        response.headers_mut().insert(REQUEST_ID, request_id);
        if let Some(held) = frame.held {
            reply::tag(&mut response);
            held.shorten(&mut response);
        }
        security::secure(response.headers_mut(), frame.kind, frame.private);
        if let Some(cors) = &self.http.front().cors {
            cors.allow(response.headers_mut(), origin);
        }
        if self.http.app().shutdown.is_announced() && frame.version <= Version::HTTP_11 {
            // The client's next request goes to another process. HTTP/2 announces that in a frame of its own.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let (status, took) = (response.status().as_u16(), frame.started.elapsed());
        route.times(metrics, status).record(took);
        metrics.tally.requests.add(1);
        if route.takes_claims() {
            metrics.tally.answers.record(took, 1);
        }
        metrics.count_refused(status);
        if let Some(Picked { log, method, authorization }) = picked {
            let route = route.name.clone();
            let request_id = response.headers()[REQUEST_ID].clone();
            let access = Access { method, route, status, code, took, authorization, request_id };
            log.hand_over(access, metrics);
        }
        response
    }

    /// Counts a refusal for the address of the client, if neither a user nor the address has been counted for the request.
    fn count_refusal(
        &self,
        problem: &Problem,
        client: IpAddr,
        is_counted: bool,
    ) -> Result<(), TooOften> {
        let bounds = &self.http.front().bounds;
        match () {
            () if problem.refuses_token() => bounds.refused_token(client),
            () if !is_counted && problem.precedes_token() => bounds.anonymous(client),
            () => Ok(()),
        }
    }
}

/// Facts about a request that its reply needs.
struct Frame<'a> {
    started: Instant,
    client: IpAddr,
    route: &'a Route,
    /// Facts for a line of the access log, if there will be one.
    picked: Option<Picked<'a>>,
    version: Version,
    kind: Kind,
    /// True if the request has been counted for its address.
    is_anonymous: bool,
    /// Whether the reply is for this client alone.
    private: bool,
    /// The value that allows a page of another origin to see the reply.
    origin: Option<HeaderValue>,
    /// Replies that the client has, of a read.
    held: Option<Held>,
    request_id: HeaderValue,
}

struct Picked<'a> {
    log: &'a AccessLog,
    method: Method,
    authorization: Option<HeaderValue>,
}

/// One line now and then tells that requests fail; the metrics count the rest.
fn log_failure(http: &HttpState, problem: &Problem, request_id: &str) {
    let Some(failure) = problem.failure() else { return };
    http.app().metrics.requests_failed.increment(1);
    if http.front().failure_log.lock().is_ok_and(|mut throttle| throttle.allows()) {
        tracing::warn!(request_id, error = %failure, "a request could not be answered");
    }
}

/// The problem of bytes that are no request, or of a head that is too large.
fn unfit(status: StatusCode) -> Problem {
    let (code, detail) = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => (
            "head_too_large",
            "the request line and the headers together have at most 16 KiB, and there are at most 100 headers",
        ),
        StatusCode::URI_TOO_LONG => ("uri_too_long", "no operation has so long a path"),
        _ => ("malformed_request", "this is no HTTP request"),
    };
    Problem::new(status, code, detail)
}

/// The problem of a head over HTTP/2 that is larger than hyper lets one over HTTP/1.1 be.
fn oversized<B>(request: &Request<B>) -> Option<Problem> {
    let (uri, headers) = (request.uri(), request.headers());
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target >= limits::HEADER_BYTES_MAX {
        return Some(unfit(StatusCode::URI_TOO_LONG));
    }
    // As HTTP/2 counts them (RFC 9113, section 6.5.2).
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    let host = uri.authority().map_or(0, |host| host.as_str().len());
    let too_large = target + host + bytes.sum::<usize>() > limits::HEADER_BYTES_MAX
        || headers.len() > limits::HEADERS_MAX;
    too_large.then(|| unfit(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE))
}

/// The problem of a request that doesn't say which host it is for, or says so twice.
fn host_missing() -> Problem {
    let detail = "HTTP/1.1 needs the header `Host`, once";
    Problem::new(StatusCode::BAD_REQUEST, "host_missing", detail)
}

/// The client's own id for the request if it is fit for a log line, else a new one.
fn request_id(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let fit = |id: &&HeaderValue| {
        (1..=64).contains(&id.len())
            && id.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    let given = headers.get(REQUEST_ID).filter(fit).cloned();
    given.unwrap_or_else(|| new_request_id(ids))
}

fn new_request_id(ids: &RequestIds) -> HeaderValue {
    let mut text = Uuid::encode_buffer();
    let text = ids.next().hyphenated().encode_lower(&mut text);
    HeaderValue::from_str(text).expect("digits, letters and hyphens")
}

fn declared_bytes(headers: &HeaderMap) -> usize {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

/// The reply of the routes, unless they panic or take too long: in that case the client is at fault if its body `is_missing`.
async fn bounded(
    reply: impl Future<Output = Result<Response, Infallible>>,
    is_missing: impl Fn() -> bool,
) -> Response {
    match timeout(limits::REQUEST_TIMEOUT, AssertUnwindSafe(reply).catch_unwind()).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => panicked(panic),
        Err(_) if is_missing() => {
            let detail = "the body didn't come in time, and nothing was carried out";
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail).into_response()
        }
        Err(_) => Problem::unavailable().into_response(),
    }
}

/// A panic is a bug of the service: logged as an error; the client learns only that.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(message, "a request handler panicked");
    Problem::internal().into_response()
}

#[cfg(test)]
mod tests {
    use super::contract::check::wrong_parameters;
    use super::operators::payments;
    use super::orders::Asked;
    use private_servers::testing::bound_this_test;

    use super::*;

    fn problem(response: &Response) -> String {
        format!("{:?}", response.extensions().get::<Problem>().expect("a problem"))
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_tells_the_client_nothing() {
        bound_this_test();
        let response = bounded(async { panic!("the secret is 42") }, || false).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let problem = problem(&response);
        assert!(problem.contains("\"internal\"") && !problem.contains("42"), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_does_not_come_is_given_up() {
        bound_this_test();
        let response = bounded(std::future::pending(), || false).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(problem(&response).contains("\"unavailable\""));
        // The client is at fault where the body is missing.
        let response = bounded(std::future::pending(), || true).await;
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(problem(&response).contains("\"body_too_slow\""));
        let reply = bounded(async { Ok(StatusCode::NO_CONTENT.into_response()) }, || true).await;
        assert_eq!(reply.status(), StatusCode::NO_CONTENT);
    }

    #[test]
    fn an_id_of_the_client_is_kept_if_it_is_fit_for_a_log_line() {
        const LONGEST: &str = "0123456789012345678901234567890123456789012345678901234567890123";
        const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";
        let ids = RequestIds::default();
        let named = |id: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(id))]);
            request_id(&headers, &ids)
        };
        for fit in ["a", "-", "_", ".", "7", "a-1_b.C", LONGEST] {
            assert_eq!(named(fit), fit);
        }
        for unfit in ["", " ", "a b", "a\"b", "a/", "/", &LONG[..65], LONG] {
            assert_eq!(named(unfit).len(), 36, "{unfit}");
        }
    }

    #[test]
    fn the_length_that_a_client_declares_is_a_number_or_none() {
        for (value, bytes) in
            [(None, 0), (Some("0"), 0), (Some("65537"), 65_537), (Some("x"), 0), (Some("-1"), 0)]
        {
            let length =
                value.map(|value| (header::CONTENT_LENGTH, HeaderValue::from_static(value)));
            assert_eq!(declared_bytes(&length.into_iter().collect()), bytes, "{value:?}");
        }
    }

    #[test]
    fn what_is_unfit_for_a_request_is_told_by_its_status() {
        for (status, code) in [
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
            (StatusCode::URI_TOO_LONG, "uri_too_long"),
            (StatusCode::BAD_REQUEST, "malformed_request"),
        ] {
            let problem = unfit(status);
            let body: serde_json::Value = serde_json::from_slice(&problem.body("x")).expect("JSON");
            assert_eq!((problem.code(), &body["status"]), (code, &status.as_u16().into()));
        }
    }

    /// A head of this target, for this host, with a header of so many bytes in its value, and so many headers of 34 bytes.
    fn oversized_by(
        host: &str,
        path: usize,
        value: Option<usize>,
        more: usize,
    ) -> Option<&'static str> {
        let authority = if host.is_empty() { String::new() } else { format!("http://{host}") };
        let mut request = Request::get(format!("{authority}/{}", "p".repeat(path - 1)));
        for number in 0..more {
            // As many bytes as the shortest name and value: each counts 32 more.
            let name = char::from(b'a' + u8::try_from(number % 26).expect("a letter")).to_string();
            request = request.header(name, "1");
        }
        if let Some(bytes) = value {
            request = request.header("x-long", "v".repeat(bytes));
        }
        oversized(&request.body(()).expect("a request")).map(|problem| problem.code())
    }

    /// As HTTP/2 counts: each header has 32 bytes more than its name and its value.
    #[test]
    fn a_head_is_oversized_beyond_its_bytes_and_its_number_of_headers() {
        const MAX: usize = limits::HEADER_BYTES_MAX;
        let of_value = "x-long".len() + 32;
        let (head, uri) = (Some("head_too_large"), Some("uri_too_long"));
        for (host, path, value, more, expected) in [
            ("", 1, None, 0, None),
            // A target that is too long by itself.
            ("", MAX - 1, None, 0, None),
            ("", MAX, None, 0, uri),
            ("", MAX + 1, None, 0, uri),
            ("", MAX, Some(10), 0, uri),
            // All of it together.
            ("", 100, Some(MAX - 100 - of_value), 0, None),
            ("", 100, Some(MAX - 100 - of_value + 1), 0, head),
            ("host.example", 100, Some(MAX - 100 - of_value - 12), 0, None),
            ("host.example", 100, Some(MAX - 100 - of_value - 11), 0, head),
            ("host.example", MAX - 12, None, 0, None),
            ("host.example", MAX - 11, None, 0, head),
            ("", 100, Some(MAX - 100 - of_value - 34 * 10), 10, None),
            ("", 100, Some(MAX - 100 - of_value - 34 * 10 + 1), 10, head),
            // However short they are.
            ("", 1, None, limits::HEADERS_MAX, None),
            ("", 1, None, limits::HEADERS_MAX + 1, head),
        ] {
            let found = oversized_by(host, path, value, more);
            assert_eq!(found, expected, "{host:?} {path} {value:?} {more}");
        }
    }

    #[test]
    fn wrong_parameters_of_a_query_are_told_in_its_order() {
        let told = |query: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                query.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
            (wrong_parameters::<Asked>(&pairs), wrong_parameters::<payments::Asked>(&pairs))
        };
        let limit = "`limit` has to be a whole number from 1 to 100";
        let status = "`status` has to be one of unpaid, ";
        for (query, expected) in [
            (&[][..], &[][..]),
            (&[("limit", "5"), ("user", "7")], &[]),
            (&[("limit", "x")], &[limit]),
            (&[("limit", "101"), ("colour", "red")], &[limit, "`colour` is unknown"]),
            (&[("limit", "1"), ("user", "7"), ("limit", "2")], &["`limit` stands there twice"]),
            (&[("limit", "1"), ("limit", "x")], &["`limit` stands there twice", limit]),
            (
                &[("status", "x"), ("user", "0")],
                &[status, "`user` has to be a whole number from 1 "],
            ),
            (&[("from", "soon")], &["`from` has to be a time such as "]),
        ] {
            let (wrong, _) = told(query);
            assert_eq!(wrong.len(), expected.len(), "{query:?}: {wrong:?}");
            for (wrong, begins) in wrong.iter().zip(expected) {
                assert!(wrong.starts_with(begins), "{query:?}: {wrong:?}");
            }
        }
        for (value, is_right) in [("true", true), ("false", true), ("1", false), ("", false)] {
            let (_, wrong) = told(&[("settled", value)]);
            let expected: &[&str] =
                if is_right { &[] } else { &["`settled` has to be true or false"] };
            assert_eq!(wrong, expected, "{value}");
        }
    }
}
