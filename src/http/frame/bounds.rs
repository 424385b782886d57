//! Bounds on how often one client may ask, by class of request.
//!
//! A user counts as that user, from any address: claims by themselves, and all else together. Only requests without an
//! identity count for their address, because behind one address there may be a whole city. A claim looks into one
//! table. Operators and administrators, signed callbacks of the gateway, probes and metrics are not bounded. The table of
//! routes (`routes.rs`) says which bound counts a request.

use std::net::IpAddr;

use axum::http::{Method, Uri};

use crate::base::config::Config;
use crate::base::telemetry::RATE_LIMITS;
use crate::http::contract::paths::NO_OP;
use crate::kit::rate_limit::{RateLimit, TooOften, network};
use crate::sale::ids::UserId;

/// The bounds of a process.
pub struct Bounds {
    user_claims: Option<RateLimit<i64>>,
    user_requests: Option<RateLimit<i64>>,
    anonymous: Option<RateLimit<IpAddr>>,
    refused_tokens: Option<RateLimit<IpAddr>>,
}

impl Bounds {
    /// As the configuration has them; 0 is no bound.
    pub fn new(config: &Config) -> Self {
        let [user_claims, user_requests, anonymous, refused_tokens] = RATE_LIMITS;
        Self {
            user_claims: RateLimit::new(user_claims, config.user_claims_per_second),
            user_requests: RateLimit::new(user_requests, config.user_requests_per_second),
            anonymous: RateLimit::new(anonymous, config.anonymous_requests_per_second),
            refused_tokens: RateLimit::new(refused_tokens, config.refused_tokens_per_second),
        }
    }

    /// Lets a user ask.
    ///
    /// # Errors
    ///
    /// When the user has asked too often.
    pub fn user(&self, user: UserId, method: &Method, uri: &Uri) -> Result<(), TooOften> {
        let bound = if is_claim(method, uri) { &self.user_claims } else { &self.user_requests };
        bound.as_ref().map_or(Ok(()), |bound| bound.pass(&user.get()))
    }

    /// Counts a request for its address: one that no user makes, or that was refused before its token was looked at.
    ///
    /// # Errors
    ///
    /// When the address has made too many of these.
    pub fn anonymous(&self, client: IpAddr) -> Result<(), TooOften> {
        self.anonymous.as_ref().map_or(Ok(()), |bound| bound.pass(&network(client)))
    }

    /// Counts a token that was refused.
    ///
    /// # Errors
    ///
    /// When the address has sent too many of these.
    pub fn refused_token(&self, client: IpAddr) -> Result<(), TooOften> {
        self.refused_tokens.as_ref().map_or(Ok(()), |bound| bound.pass(&network(client)))
    }

    /// Forgets clients that have not asked for a while.
    pub fn forget_idle(&self) {
        [&self.user_claims, &self.user_requests]
            .into_iter()
            .flatten()
            .for_each(RateLimit::forget_idle);
        [&self.anonymous, &self.refused_tokens]
            .into_iter()
            .flatten()
            .for_each(RateLimit::forget_idle);
    }

    /// Clients that have not been forgotten: of claims, of other requests of users, of requests without a user, of refused
    /// tokens.
    #[cfg(test)]
    pub fn remembered(&self) -> [usize; 4] {
        let of_users =
            |bound: &Option<RateLimit<i64>>| bound.as_ref().map_or(0, RateLimit::remembered);
        let of_addresses =
            |bound: &Option<RateLimit<IpAddr>>| bound.as_ref().map_or(0, RateLimit::remembered);
        [
            of_users(&self.user_claims),
            of_users(&self.user_requests),
            of_addresses(&self.anonymous),
            of_addresses(&self.refused_tokens),
        ]
    }
}

/// Whether this is a claim, or the route that claims are measured against.
fn is_claim(method: &Method, uri: &Uri) -> bool {
    method == Method::POST && (uri.path().ends_with("/claims") || uri.path() == NO_OP)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        config: Config,
    }

    fn bounds(arguments: &[&str]) -> Bounds {
        let arguments = ["flash-sale"].iter().chain(arguments);
        let config = Command::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
        Bounds::new(&config.config)
    }

    #[test]
    fn each_class_of_requests_has_the_bound_of_its_setting() {
        let user = UserId::new(7).expect("an id");
        let claims = Uri::from_static("/v1/coupons/1024/claims");
        let orders = Uri::from_static("/v1/orders");
        let client: IpAddr = "192.0.2.7".parse().expect("an address");
        let passes = |bounds: &Bounds, class: usize| {
            match class {
                0 => bounds.user(user, &Method::POST, &claims),
                1 => bounds.user(user, &Method::GET, &orders),
                2 => bounds.anonymous(client),
                _ => bounds.refused_token(client),
            }
            .is_ok()
        };
        let settings = [
            "--user-claims-per-second",
            "--user-requests-per-second",
            "--anonymous-requests-per-second",
            "--refused-tokens-per-second",
        ];
        for (bounded, setting) in settings.into_iter().enumerate() {
            let bounds = bounds(&[setting, "1"]);
            for class in 0..settings.len() {
                assert!(passes(&bounds, class), "{setting}: the first request of class {class}");
                // By default there is room for some; a slow thread gets one more in each second, rightly.
                let more = if class == bounded { 1_000 } else { 1 };
                let all_pass = (0..more).all(|_| passes(&bounds, class));
                assert_eq!(all_pass, class != bounded, "{setting}: more requests of class {class}");
            }
        }
        let none = bounds(&settings.map(|setting| [setting, "0"]).concat());
        for class in 0..settings.len() {
            assert!((0..1_000).all(|_| passes(&none, class)), "0 is no bound of class {class}");
        }
    }

    #[test]
    fn a_claim_is_a_post_to_the_claims_of_a_coupon_or_to_the_route_beside_them() {
        for (method, path, claims) in [
            (Method::POST, "/v1/coupons/1024/claims", true),
            (Method::POST, "/v1/coupons/1024/claims?claims=x", true),
            (Method::POST, "/v1/no-op", true),
            (Method::GET, "/v1/coupons/1024/claims", false),
            (Method::GET, "/v1/no-op", false),
            (Method::POST, "/v1/coupons", false),
            (Method::POST, "/v1/orders/7/pay?x=/claims", false),
            (Method::GET, "/v1/coupons/1024/claims/me", false),
        ] {
            let uri: Uri = path.parse().expect("a path");
            assert_eq!(is_claim(&method, &uri), claims, "{method} {path}");
        }
    }

    /// Otherwise each address that has ever asked would stay in memory.
    #[test]
    fn clients_that_have_not_asked_for_a_while_are_forgotten() {
        let user = UserId::new(7).expect("an id");
        let client: IpAddr = "192.0.2.7".parse().expect("an address");
        let many = "1000000";
        let bounds = bounds(&[
            "--user-claims-per-second",
            many,
            "--user-requests-per-second",
            many,
            "--anonymous-requests-per-second",
            many,
            "--refused-tokens-per-second",
            many,
        ]);
        bounds.user(user, &Method::POST, &Uri::from_static("/v1/no-op")).expect("the first");
        bounds.user(user, &Method::GET, &Uri::from_static("/v1/orders")).expect("the first");
        bounds.anonymous(client).expect("the first");
        bounds.refused_token(client).expect("the first");
        assert_eq!(bounds.remembered(), [1, 1, 1, 1]);
        // A while is a microsecond at this rate.
        let are_forgotten = (0..100_000).any(|_| {
            bounds.forget_idle();
            bounds.remembered() == [0, 0, 0, 0]
        });
        assert!(are_forgotten, "{:?} are remembered", bounds.remembered());
    }
}
