//! Bounds on how often one client may send requests, by class of request.
//!
//! A user is counted as that user, from any address: claims by themselves, and everything else together. Only requests
//! without a token, or with one that is refused, count for their address, because a whole city may share an address.
//! Operators and administrators, callbacks of the gateway, probes and metrics are not bounded. A callback whose
//! signature is refused counts for its address.

use std::net::IpAddr;

use axum::http::Method;

use super::caller::Caller;
use crate::base::config::Config;
use crate::base::telemetry::RATE_LIMITS;
use crate::http::contract::paths::{CALLBACK, LIVEZ, METRICS, NO_OP, READYZ};
use crate::kit::jwt::{Grants, Scope};
use crate::kit::rate_limit::{RateLimit, TooOften, network};

/// Paths of probes, metrics and the gateway: a request without a user is not counted there.
const UNCOUNTED: [&str; 4] = [LIVEZ, READYZ, METRICS, CALLBACK];

pub struct Bounds {
    user_claims: Option<RateLimit<i64>>,
    user_requests: Option<RateLimit<i64>>,
    anonymous: Option<RateLimit<IpAddr>>,
}

impl Bounds {
    /// The bounds of the configuration; 0 means no bound.
    pub fn new(config: &Config) -> Self {
        let [user_claims, user_requests, anonymous] = RATE_LIMITS;
        Self {
            user_claims: RateLimit::new(user_claims, config.user_claims_per_second),
            user_requests: RateLimit::new(user_requests, config.user_requests_per_second),
            anonymous: RateLimit::new(anonymous, config.anonymous_requests_per_second),
        }
    }

    /// Counts a request for its user, or, if it has none, for its address.
    ///
    /// # Errors
    ///
    /// When the user or the address has sent too many requests.
    pub fn pass(&self, caller: &Caller, method: &Method, path: &str) -> Result<(), TooOften> {
        match caller.grants {
            Some(Ok(Grants { scope: Some(Scope::Operator | Scope::Administrator), .. })) => Ok(()),
            Some(Ok(Grants { subject, .. })) => {
                let bound =
                    if is_claim(method, path) { &self.user_claims } else { &self.user_requests };
                bound.as_ref().map_or(Ok(()), |bound| bound.pass(&subject))
            }
            _ if UNCOUNTED.contains(&path) => Ok(()),
            Some(Err(_)) | None => self.anonymous(caller.client),
        }
    }

    /// Counts a request for its address.
    ///
    /// # Errors
    ///
    /// When the address has sent too many of these.
    pub fn anonymous(&self, client: IpAddr) -> Result<(), TooOften> {
        self.anonymous.as_ref().map_or(Ok(()), |bound| bound.pass(&network(client)))
    }

    /// Forgets clients that have sent nothing for a while.
    pub fn forget_idle(&self) {
        self.user_claims.iter().chain(&self.user_requests).for_each(RateLimit::forget_idle);
        self.anonymous.iter().for_each(RateLimit::forget_idle);
    }
}

/// Whether this is a claim, or the route that claims are measured against.
fn is_claim(method: &Method, path: &str) -> bool {
    method == Method::POST && (path.ends_with("/claims") || path == NO_OP)
}
