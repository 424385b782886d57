//! Names of routes: `/v1/orders/{id}` for each path of an order, so that times and log lines of one route stand together.
//!
//! The router knows the route of a request, and tells only the handler. So paths are matched once more, behind the reply;
//! a claim is known by its end.

use std::sync::OnceLock;

use axum::http::{HeaderMap, Method, header};
use metrics::Histogram;
use serde_json::Value;
use utoipa::openapi::OpenApi;

use crate::base::telemetry::Metrics;
use crate::http::contract::paths::{LIVEZ, METRICS, READYZ};

/// Name of all paths that no route has.
const OTHER: &str = "other";

/// The routes of a listener, with the times of each.
pub struct Routes {
    routes: Vec<Route>,
    claims: usize,
}

/// One route.
pub struct Route {
    /// Its path, with names in place of ids.
    pub name: String,
    /// Who asks, by the method in lower case.
    classes: Vec<(String, Class)>,
    /// By the first digit of the status, from 1 to 5; made at the first reply, so that the page of metrics stays short.
    times: [OnceLock<Histogram>; 5],
}

/// Who may ask an operation, hence which bound counts a request (`bounds.rs`):
///
/// | class | bound |
/// |---|---|
/// | `Open`: no token is asked for, or there is no such operation | the address, as it comes |
/// | `Identified`: a user or one of the staff, by a token | the user (claims by themselves), but no operator or administrator; the address for a request without a token, as it comes, and for a refused token |
/// | `Signed`: the gateway | none; the address for a refused signature |
/// | `Probe`: liveness, readiness, metrics | none |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Open,
    Identified,
    Signed,
    Probe,
}

impl Class {
    fn of(path: &str, operation: &Value) -> Self {
        let asked = operation["security"].as_array().into_iter().flatten();
        let asks = |scheme: &str| asked.clone().any(|needed| needed[scheme].is_array());
        match () {
            () if [LIVEZ, READYZ, METRICS].contains(&path) => Self::Probe,
            () if asks("signature") => Self::Signed,
            () if ["user", "clerk", "operator", "admin"].into_iter().any(asks) => Self::Identified,
            () => Self::Open,
        }
    }
}

impl Routes {
    /// The operations of a document, other paths, whose POST is for users, and one route for all others.
    pub fn new(document: &OpenApi, others: &[&str]) -> Self {
        let document = serde_json::to_value(document).expect("a document is JSON");
        let route = |name: &str, classes| Route {
            name: name.to_owned(),
            classes,
            times: Default::default(),
        };
        let mut routes = Vec::new();
        for (path, operations) in document["paths"].as_object().into_iter().flatten() {
            let operations = operations.as_object().into_iter().flatten();
            let classes = operations.map(|(method, it)| (method.clone(), Class::of(path, it)));
            routes.push(route(path, classes.collect()));
        }
        let for_users = || vec![("post".to_owned(), Class::Identified)];
        routes.extend(others.iter().map(|path| route(path, for_users())));
        let claims = routes.iter().position(|route| route.name.ends_with(CLAIMS));
        routes.push(route(OTHER, Vec::new()));
        let claims = claims.unwrap_or(routes.len() - 1);
        Self { routes, claims }
    }

    /// The route of a path.
    pub fn of(&self, path: &str) -> &Route {
        if path.ends_with(CLAIMS) {
            return &self.routes[self.claims];
        }
        let fits = |route: &&Route| {
            let mut segments = path.split('/');
            let fits = route.name.split('/').all(|name| {
                segments.next().is_some_and(|segment| name.starts_with('{') || name == segment)
            });
            fits && segments.next().is_none()
        };
        self.routes.iter().find(fits).unwrap_or(&self.routes[self.routes.len() - 1])
    }
}

const CLAIMS: &str = "/claims";

impl Route {
    /// Whether a request counts for its address as it comes.
    pub fn counts_address(&self, method: &Method, headers: &HeaderMap) -> bool {
        let name = if method == Method::HEAD { "GET" } else { method.as_str() };
        let class = self.classes.iter().find(|(method, _)| method.eq_ignore_ascii_case(name));
        match class.map_or(Class::Open, |(_, class)| *class) {
            Class::Open => true,
            Class::Identified => !headers.contains_key(header::AUTHORIZATION),
            Class::Signed | Class::Probe => false,
        }
    }

    /// Whether it takes claims.
    pub fn takes_claims(&self) -> bool {
        self.name.ends_with(CLAIMS)
    }

    /// True for a route whose replies are streams of a sale's or of the board's events.
    pub fn streams(&self) -> bool {
        self.name.ends_with("/live")
    }

    /// The times of replies of this route with such a status.
    pub fn times(&self, metrics: &Metrics, status: u16) -> &Histogram {
        let class = usize::from(status / 100).clamp(1, 5);
        self.times[class - 1].get_or_init(|| metrics.http_seconds(&self.name, class))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn route(name: &str) -> Route {
        Route { name: name.to_owned(), classes: Vec::new(), times: Default::default() }
    }

    /// Each class of operation, asked without and with a token.
    #[test]
    fn a_request_counts_for_its_address_by_the_class_of_its_operation() {
        let asks = |scheme: &str| json!({"responses": {}, "security": [{scheme: []}]});
        let open = json!({"responses": {}});
        let document = serde_json::from_value(json!({
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "paths": {
                "/livez": {"get": open},
                "/v1/coupons": {"get": open, "post": asks("admin")},
                "/v1/coupons/{id}": {"get": open, "patch": asks("admin")},
                "/v1/coupons/{id}/claims": {"post": asks("user")},
                "/v1/coupons/{id}/progress": {"get": asks("operator")},
                "/v1/payments/callback": {"post": asks("signature")},
            },
        }));
        let routes = Routes::new(&document.expect("a document"), &["/v1/no-op"]);
        let token = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("x"))]);
        for (method, path, bare, with_token) in [
            (Method::GET, "/livez", false, false),
            (Method::HEAD, "/livez", false, false),
            (Method::GET, "/v1/coupons", true, true),
            (Method::POST, "/v1/coupons", true, false),
            (Method::HEAD, "/v1/coupons/7", true, true),
            (Method::PATCH, "/v1/coupons/7", true, false),
            (Method::OPTIONS, "/v1/coupons/7", true, true),
            (Method::POST, "/v1/coupons/7/claims", true, false),
            (Method::GET, "/v1/coupons/7/progress", true, false),
            (Method::POST, "/v1/payments/callback", false, false),
            (Method::POST, "/v1/no-op", true, false),
            (Method::GET, "/nowhere", true, true),
        ] {
            let route = routes.of(path);
            let counts = [HeaderMap::new(), token.clone()]
                .map(|headers| route.counts_address(&method, &headers));
            assert_eq!(counts, [bare, with_token], "{method} {path}");
        }
    }

    #[test]
    fn each_path_has_the_name_of_its_route() {
        let names = ["/livez", "/v1/coupons", "/v1/coupons/{id}", "/v1/coupons/{id}/claims"];
        let more = ["/v1/coupons/{id}/claims/me", "/v1/orders/{id}/pay", "/v1/dead-letters/retry"];
        let routes = Routes::new(&OpenApi::default(), &[&names[..], &more].concat());
        for (path, name) in [
            ("/livez", "/livez"),
            ("/v1/coupons", "/v1/coupons"),
            ("/v1/coupons/77", "/v1/coupons/{id}"),
            ("/v1/coupons/77/claims", "/v1/coupons/{id}/claims"),
            ("/v1/coupons/77/claims/me", "/v1/coupons/{id}/claims/me"),
            // A claim is known by its end.
            ("/v2/things/claims", "/v1/coupons/{id}/claims"),
            ("/v1/orders/7/pay", "/v1/orders/{id}/pay"),
            ("/v1/orders/7/pay/", OTHER),
            ("/v1/orders/7", OTHER),
            ("/v1/dead-letters/retry", "/v1/dead-letters/retry"),
            ("/", OTHER),
            ("", OTHER),
            ("*", OTHER),
        ] {
            assert_eq!(routes.of(path).name, name, "{path}");
        }
    }

    #[test]
    fn without_claims_their_path_is_another_one() {
        let routes = Routes::new(&OpenApi::default(), &["/livez", "/v1/coupons/{id}/live"]);
        assert_eq!(routes.of("/v1/coupons/77/claims").name, OTHER);
        assert!(!routes.of("/v1/coupons/77/claims").takes_claims());
        assert_eq!(Routes::new(&OpenApi::default(), &[]).of("/livez").name, OTHER);
    }

    #[test]
    fn a_route_takes_claims_or_streams_by_its_end() {
        for (name, takes_claims, streams) in [
            ("/v1/coupons/{id}/claims", true, false),
            ("/v1/coupons/{id}/claims/me", false, false),
            ("/v1/coupons/{id}/live", false, true),
            ("/v1/board/live", false, true),
            ("/livez", false, false),
            (OTHER, false, false),
        ] {
            let route = route(name);
            assert_eq!((route.takes_claims(), route.streams()), (takes_claims, streams), "{name}");
        }
    }

    #[test]
    fn the_times_of_a_route_stand_by_the_first_digit_of_the_status() {
        let metrics = Metrics::new([].into_iter(), [].into_iter()).expect("metrics");
        let route = route("/livez");
        for (status, times) in [
            (101, 1),
            (200, 2),
            (299, 3),
            (304, 4),
            (404, 5),
            (503, 6),
            (599, 7),
            (600, 8),
            (999, 9),
        ] {
            for _ in 0..times {
                route.times(&metrics, status).record(0.001);
            }
        }
        let page = metrics.page();
        for (class, count) in [("1xx", 1), ("2xx", 5), ("3xx", 4), ("4xx", 5), ("5xx", 30)] {
            let line = format!(
                "flash_sale_http_request_duration_seconds_count{{route=\"/livez\",class=\"{class}\"}} {count}"
            );
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.contains("class=\"6xx\""), "{page}");
    }
}
