//! HTTP: routes and middleware, on one screen.

// Coupons: anyone reads them, the staff creates and changes them.
pub mod coupons;

// Events for other systems.
pub mod feed;

// Claims, and what became of them.
pub mod claims;

// Orders of a user, and their moves.
pub mod orders;

// Notices of the payment gateway.
pub mod payments;

// For the staff: everything that waits for a person, the lists of its parts, comparisons of the stores, the audit log.
pub mod operators;

// Pages for people.
pub mod pages;

// Listeners and connections.
pub mod server;

// Liveness, readiness and metrics.
pub mod operations;

// A route that does nothing, to measure the others against.
pub mod no_op;

// Tokens: who sends a request, and what the scope of the token allows.
pub mod auth;

// Pages of lists.
pub mod page;

// Ids, parameters and bodies of requests.
pub mod extract;

// State of the HTTP side.
pub mod state;

// The frame around every request.
pub mod frame;

// Streams of events.
pub mod events;

// Entity tags: replies that the client has already, and changes of one revision only.
pub mod tags;

// Reasons and notes of the staff.
pub mod words;

// The OpenAPI document.
pub mod contract;

// Refusals and failures as problem bodies.
pub mod problem;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::base::limits;
use crate::store::ids::PostponedId;
use problem::ProblemBody;
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
        (name = "orders", description = "One's own orders, from payment to refund; redemption by a clerk."),
        (name = "coupons", description = "Coupons on offer; administrators create and change them."),
        (name = "payments", description = "Notices of the payment gateway."),
        (name = "dead letters", description = "Claims that could not become orders, for administrators."),
        (name = "operations", description = "Health, metrics, comparisons and recoveries, for operators."),
    ),
    components(schemas(ProblemBody, PostponedId)),
)]
struct ApiDoc;

/// The API, including the operations unless these have a listener of their own.
pub fn api(http: &HttpState, with_operations: bool) -> Router {
    let routes = OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(claims::claim))
        .routes(routes!(claims::my_claim))
        .routes(routes!(orders::list))
        .routes(routes!(orders::show))
        .routes(routes!(orders::export::csv))
        .routes(routes!(orders::export::ndjson))
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
        .routes(routes!(operators::payments::hand_back))
        .routes(routes!(operators::payments::close))
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
        .routes(routes!(feed::read))
        .routes(routes!(operators::webhooks::list, operators::webhooks::create))
        .routes(routes!(
            operators::webhooks::show,
            operators::webhooks::change,
            operators::webhooks::delete
        ))
        .routes(routes!(operators::webhooks::test))
        .routes(routes!(operators::webhooks::deliveries))
        .routes(routes!(operators::waiting::list))
        .routes(routes!(operators::audit::list))
        .routes(routes!(operators::board::show))
        .routes(routes!(operators::board::live))
        .routes(routes!(operators::postponed::retry))
        .routes(routes!(operators::recoveries::list))
        .routes(routes!(operators::recoveries::settle))
        .routes(routes!(operators::reconcile::compare))
        .routes(routes!(operators::reconcile::list))
        .routes(routes!(operators::reconcile::show));
    let routes = if with_operations { routes.merge(operation_routes()) } else { routes };
    let (router, document) = routes.split_for_parts();
    let router = router.route(OPENAPI, pages::document(contract::document(&document)));
    // Not in the document: this route is no part of the API.
    let router = match http.front().no_op_route {
        true => router.route(no_op::PATH, post(no_op::no_op)),
        false => router,
    };
    let router = router.merge(pages::routes(http)).fallback(pages::nothing_here);
    framed(router, http)
}

const OPENAPI: &str = "/openapi.json";

/// The operations and the page of problems alone, for a listener of their own.
pub fn operations(http: &HttpState) -> Router {
    let (router, _) = operation_routes().split_for_parts();
    // Refusals on this listener link to the page of problems, too.
    framed(router.merge(pages::problems()), http)
}

fn operation_routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new()
        .routes(routes!(operations::livez))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
}

/// The routes with the layers of every request around them.
fn framed(routes: Router<HttpState>, http: &HttpState) -> Router {
    let routes = routes.layer((
        from_fn_with_state(http.clone(), frame::frame),
        CatchPanicLayer::custom(frame::panicked),
        RequestBodyLimitLayer::new(limits::BODY_BYTES_MAX),
    ));
    let routes = match frame::cors(&http.front().cors_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.with_state(http.clone())
}
