//! The door for requests: routes and middleware, on one screen.

// Listeners and connections.
pub mod server;

// Coupons: read by all users, created and changed by administrators.
pub mod coupons;

// Claims, and what became of them.
pub mod claims;

// Orders of a user, and their moves.
pub mod orders;

// Notices of the payment gateway.
pub mod payments;

// Dead letters, postponed items, recoveries and comparisons, for operators.
pub mod operators;

// Liveness, readiness and metrics.
pub mod operations;

// A route that does nothing, to measure the others against.
pub mod no_op;

// Tokens: the user of a request, and whether the user is an administrator.
pub mod auth;

// State of the HTTP side.
pub mod state;

// Pages of lists.
pub mod page;

// Ids, parameters and bodies of requests.
pub mod extract;

// The finished document of the API, and bodies held against it.
pub mod contract;

// Refusals and failures as problem bodies.
pub mod problem;

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::FutureExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::time::{Instant, timeout};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::SwaggerUi;
use uuid::Uuid;

use crate::base::limits;
use crate::base::telemetry::RequestIds;
use problem::{Problem, ProblemBody, REQUEST_ID, pages};
use state::HttpState;

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
        (name = "orders", description = "One's own orders, from payment to refund; redemption by an administrator."),
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
        .routes(routes!(orders::redeem))
        .routes(routes!(payments::callback))
        .routes(routes!(operators::dead_letters::list))
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
        .routes(routes!(operators::postponed::list))
        .routes(routes!(operators::postponed::retry))
        .routes(routes!(operators::recoveries::list))
        .routes(routes!(operators::reconcile::compare))
        .routes(routes!(operators::reconcile::list))
        .routes(routes!(operators::reconcile::show));
    let routes = if with_operations { routes.merge(operation_routes()) } else { routes };
    let (router, document) = routes.split_for_parts();
    let docs = SwaggerUi::new("/docs")
        .external_url_unchecked("/openapi.json", contract::document(&document));
    let router = router.route(pages::PAGE, get(pages::page)).route(pages::LIST, get(pages::list));
    // Not in the document: this route is no part of the API.
    let router = match http.front().no_op_route {
        true => router.route(no_op::PATH, post(no_op::no_op)),
        false => router,
    };
    Door::new(router.merge(docs), http)
}

/// The operations alone, for a listener of their own.
pub fn operations(http: &HttpState) -> Door {
    Door::new(operation_routes().split_for_parts().0, http)
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
}

impl Door {
    /// No layer: each one would put every route into a box of its own, and every body that it may change. The frame of a
    /// request is [`answer`](Self::answer).
    fn new(router: Router<HttpState>, http: &HttpState) -> Self {
        let router = router
            .fallback(|| async { nothing_here() })
            .method_not_allowed_fallback(|| async {
                Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "the header Allow says which methods this path has",
                )
            })
            .with_state(http.clone());
        Self { http: http.clone(), routes: TowerToHyperService::new(router) }
    }

    /// The frame of every request: its id, its limits, its problem body, its duration.
    pub async fn answer(&self, mut request: Request) -> Response {
        let started = Instant::now();
        let version = request.version();
        let request_id = request_id(request.headers(), &self.http.front().request_ids);
        let mut response = if declared_bytes(request.headers()) > limits::BODY_BYTES_MAX {
            extract::body_too_large().into_response()
        } else {
            if !request.body().is_end_stream() {
                DefaultBodyLimit::max(limits::BODY_BYTES_MAX).apply(&mut request);
            }
            bounded(self.routes.call(request)).await
        };
        let mut problem = response.extensions_mut().remove::<Problem>();
        if problem.is_none() && response.status() == StatusCode::NOT_FOUND {
            // Swagger UI answers for a page that is not there, without a problem body.
            problem = Some(nothing_here());
        }
        if let Some(problem) = problem {
            let request_id = request_id.to_str().expect("checked or made by us");
            log_failure(&self.http, &problem, request_id);
            let rendered = problem.render(request_id);
            let allow = response.headers_mut().remove(header::ALLOW);
            response = rendered;
            response.headers_mut().extend(allow.map(|allow| (header::ALLOW, allow)));
        }
        response.headers_mut().insert(REQUEST_ID, request_id);
        if self.http.app().shutdown.is_announced() && version <= Version::HTTP_11 {
            // The client's next request goes to another process. HTTP/2 announces that in a frame of its own.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.http.app().metrics.http_seconds.record(started.elapsed());
        response
    }
}

/// One line now and then tells that requests fail; the metrics count the rest.
fn log_failure(http: &HttpState, problem: &Problem, request_id: &str) {
    let Some(failure) = problem.failure() else { return };
    http.app().metrics.requests_failed.increment(1);
    if http.front().failure_log.lock().is_ok_and(|mut throttle| throttle.allows()) {
        tracing::warn!(request_id, error = %failure, "a request could not be answered");
    }
}

fn nothing_here() -> Problem {
    let detail = "no operation has this path; /docs lists them all";
    Problem::not_found("not_found", detail)
}

/// The client's own id for the request if it is fit for a log line, else a new one.
fn request_id(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let fit = |id: &&HeaderValue| {
        (1..=64).contains(&id.len())
            && id.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    let given = headers.get(REQUEST_ID).filter(fit).cloned();
    given.unwrap_or_else(|| {
        let mut text = Uuid::encode_buffer();
        let text = ids.next().hyphenated().encode_lower(&mut text);
        HeaderValue::from_str(text).expect("digits, letters and hyphens")
    })
}

fn declared_bytes(headers: &HeaderMap) -> usize {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

/// The reply of the routes, unless they panic or take too long.
async fn bounded(reply: impl Future<Output = Result<Response, Infallible>>) -> Response {
    match timeout(limits::REQUEST_TIMEOUT, AssertUnwindSafe(reply).catch_unwind()).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => panicked(panic),
        Err(_) => Problem::unavailable().into_response(),
    }
}

/// A panic is a bug of the service: logged as an error; the client learns only that.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(message, "a request handler panicked");
    let detail = "this is a bug; the request id finds it in the log";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(response: &Response) -> String {
        format!("{:?}", response.extensions().get::<Problem>().expect("a problem"))
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_tells_the_client_nothing() {
        let response = bounded(async { panic!("the secret is 42") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let problem = problem(&response);
        assert!(problem.contains("\"internal\"") && !problem.contains("42"), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_does_not_come_is_given_up() {
        let response = bounded(std::future::pending()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(problem(&response).contains("\"unavailable\""));
    }

    #[test]
    fn an_id_of_the_client_is_kept_if_it_is_fit_for_a_log_line() {
        const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";
        let ids = RequestIds::default();
        let named = |id: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(id))]);
            request_id(&headers, &ids)
        };
        assert_eq!(named("a-1_b.C"), "a-1_b.C");
        for unfit in ["", "a b", "a\"b", LONG] {
            assert_eq!(named(unfit).len(), 36, "{unfit}");
        }
    }
}
