//! Pages for people, beside the API. They hold no state of their own: everything that a page shows comes from the API,
//! and everything that it does is a call that any other client could make.
//!
//! No cookie is set or read, so no other site can act in a user's name through the user's browser. The pages run only
//! their own scripts (`HEADERS`), and a text from outside can't become one: the browser accepts no string as HTML
//! except from lit-html's own policy.

// Tokens for the shoppers of a demo.
pub mod shoppers;

// Tokens for the administrator of a demo.
pub mod sessions;

// Storms of a demo.
pub mod storms;

// The page of a sale, before its script runs.
mod first;

// The guard of the routes that only the demo has.
mod here;

// The embedded files.
pub mod files;

use std::future::ready;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;
use tower_http::csrf::CsrfLayer;

use super::extract::Id;
use super::frame::reply::Json;
use super::problem::Problem;
use super::problem::kinds::DOCUMENT;
use super::state::HttpState;
use super::tags::values;
use crate::base::config::Page;
use crate::base::limits;
use crate::store::ids::CouponId;
use files::{File, Freshness};

/// Headers of each page and asset.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types lit-html",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Paths of the pages that lead to one another.
const SHOP: &str = "/";
const BOARD: &str = "/board";
const STORM: &str = "/storm";
/// For clerks; served where the shop is.
const REDEEM: &str = "/redeem";

/// Pages that this listener serves. A page links to no others.
#[derive(Clone, Serialize)]
struct Served {
    pages: Vec<&'static str>,
}

impl Served {
    fn here(http: &HttpState) -> Self {
        let front = http.front();
        // Everything on the board is for operators and administrators, so it is served where they are answered.
        let has_board = front.pages.contains(&Page::Board) && http.has_administration();
        let all = [
            (SHOP, front.pages.contains(&Page::Shop)),
            (BOARD, has_board),
            (STORM, front.demo.is_some()),
            (REDEEM, front.pages.contains(&Page::Shop)),
        ];
        Self {
            pages: all.into_iter().filter(|(_, is_here)| *is_here).map(|(path, _)| path).collect(),
        }
    }
}

pub fn routes(http: &HttpState) -> Router<HttpState> {
    let served = Served::here(http);
    let mut routes =
        problems().route("/docs", page("docs.html")).route("/docs/", page("docs.html"));
    if served.pages.contains(&SHOP) {
        routes = routes.route(SHOP, page("shop.html")).route("/sale/{coupon}", get(sale));
        routes = routes.route(REDEEM, page("redeem.html"));
    }
    if served.pages.contains(&BOARD) {
        routes = routes.route(BOARD, page("board.html"));
    }
    if served.pages.contains(&STORM) {
        routes = routes.merge(demo());
    }
    let list = move || ready(([(header::CACHE_CONTROL, "no-store")], Json(served.clone())));
    routes.route("/pages", get(list))
}

/// The page of problems, which refusals on each listener link to, and the files of all pages.
pub fn problems() -> Router<HttpState> {
    Router::new()
        .route(DOCUMENT, page("problems.html"))
        .route("/assets/{version}/{*name}", get(asset))
}

/// The route of the OpenAPI document, which the page `/docs` shows. It is serialized once, at the first request.
pub fn document(document: Value) -> MethodRouter<HttpState> {
    let forms = Arc::new(LazyLock::new(move || {
        let plain = Bytes::from(document.to_string());
        let gzipped = files::gzip(&plain);
        (plain, gzipped)
    }));
    get(move |headers: HeaderMap| {
        let (plain, gzipped) = &**forms;
        let reply = files::coded(&headers, plain.clone(), || gzipped.clone());
        ready(([(header::CONTENT_TYPE, "application/json")], reply).into_response())
    })
}

/// Routes that only the demo has. Each handler begins with the guard [`here::Here`].
fn demo() -> Router<HttpState> {
    let another_site = CsrfLayer::new().with_rejection_response(|_| {
        let detail = "a page of another site may not do this";
        Problem::of("cross_site", detail).into_response()
    });
    Router::new()
        .route("/demo/shoppers", post(shoppers::enter))
        .route("/demo/sessions", post(sessions::enter))
        .route("/demo/storms", post(storms::start))
        .route("/demo/storms/current", get(storms::watch).delete(storms::stop))
        .route("/demo/storms/current/troubles", post(storms::trouble))
        .route("/demo/storms/last", get(storms::last))
        .route(STORM, page("storm.html"))
        .route("/claim/{order}", page("trace.html"))
        .layer(another_site)
}

fn page(name: &'static str) -> MethodRouter<HttpState> {
    get(move |headers: HeaderMap| {
        let page = files::page(name);
        ready(reply(page, page.reply(&headers, Freshness::Asked)))
    })
}

/// The page of a sale, with the sale filled in; without it if there is none, or if it can't be read in time.
async fn sale(
    State(http): State<HttpState>,
    coupon: Result<Id<CouponId>, Problem>,
    headers: HeaderMap,
) -> Response {
    let page = files::page("shop.html");
    let coupon = match coupon {
        Ok(Id(coupon)) => {
            let shown = http.app().coupons.cache.show(coupon);
            timeout(limits::PAGE_WAIT_MAX, shown).await.ok().and_then(Result::ok).flatten()
        }
        Err(_) => None,
    };
    let tongue = values(&headers, header::ACCEPT_LANGUAGE).next();
    let in_chinese = tongue.is_some_and(|tongue| tongue.starts_with("zh"));
    let now = http.app().clock.now();
    let painted = coupon.and_then(|it| first::painted(page.text(), &it.body, now, in_chinese));
    let Some(painted) = painted else {
        return reply(page, page.reply(&headers, Freshness::Asked));
    };
    let about =
        [(header::CACHE_CONTROL, "no-cache"), (header::VARY, "accept-encoding, accept-language")];
    let painted = Bytes::from(painted);
    let coded = files::coded(&headers, painted.clone(), || files::gzip(&painted));
    reply(page, (about, coded).into_response())
}

/// The reply to an unknown path: a page for browsers where there is a shop, otherwise a problem.
pub async fn nothing_here(State(http): State<HttpState>, headers: HeaderMap) -> Response {
    let is_browser = values(&headers, header::ACCEPT).any(|kind| kind.starts_with("text/html"));
    if !is_browser || !http.front().pages.contains(&Page::Shop) {
        return Problem::nothing_here().into_response();
    }
    let page = files::page("shop.html");
    let page = reply(page, page.reply(&headers, Freshness::Never));
    (StatusCode::NOT_FOUND, page).into_response()
}

/// A path of another build gets the file of this build, and no cache may keep it: while processes are replaced, the
/// page of one may load its files from another.
async fn asset(
    Path((version, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Some(file) = files::asset(&name) else {
        return Err(Problem::of("not_found", "there is no such file"));
    };
    let freshness = if version == files::version() { Freshness::Forever } else { Freshness::Never };
    Ok(reply(file, file.reply(&headers, freshness)))
}

fn reply(file: &File, response: Response) -> Response {
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(file.media_type))];
    (content_type, HEADERS, response).into_response()
}
