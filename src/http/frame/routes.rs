//! Names of routes: `/v1/orders/{id}` for each path of an order, so that times and log lines of one route stand together.
//!
//! The router knows the route of a request, and tells only the handler. So paths are matched once more, behind the reply;
//! a claim is known by its end.

use std::sync::OnceLock;

use metrics::Histogram;

use crate::base::telemetry::Metrics;

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
    /// By the first digit of the status, from 1 to 5; made at the first reply, so that the page of metrics stays short.
    times: [OnceLock<Histogram>; 5],
}

impl Routes {
    /// These paths, and one route for all others.
    pub fn new(paths: Vec<String>) -> Self {
        let route = |name| Route { name, times: Default::default() };
        let mut routes: Vec<Route> = paths.into_iter().map(route).collect();
        let claims = routes.iter().position(|route| route.name.ends_with(CLAIMS));
        routes.push(route(OTHER.to_owned()));
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
    use super::*;

    #[test]
    fn each_path_has_the_name_of_its_route() {
        let names = ["/livez", "/v1/coupons", "/v1/coupons/{id}", "/v1/coupons/{id}/claims"];
        let more = ["/v1/coupons/{id}/claims/me", "/v1/orders/{id}/pay", "/v1/dead-letters/retry"];
        let routes =
            Routes::new(names.iter().chain(&more).map(|name| (*name).to_owned()).collect());
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
        let routes = Routes::new(vec!["/livez".to_owned(), "/v1/coupons/{id}/live".to_owned()]);
        assert_eq!(routes.of("/v1/coupons/77/claims").name, OTHER);
        assert!(!routes.of("/v1/coupons/77/claims").takes_claims());
        assert_eq!(Routes::new(Vec::new()).of("/livez").name, OTHER);
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
            let route = Route { name: name.to_owned(), times: Default::default() };
            assert_eq!((route.takes_claims(), route.streams()), (takes_claims, streams), "{name}");
        }
    }

    #[test]
    fn the_times_of_a_route_stand_by_the_first_digit_of_the_status() {
        let metrics = Metrics::new([].into_iter(), [].into_iter()).expect("metrics");
        let route = Route { name: "/livez".to_owned(), times: Default::default() };
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
