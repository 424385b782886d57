//! State that HTTP alone needs: identities, bounds and names of requests.

use std::future::ready;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use axum::extract::FromRef;
use secrecy::SecretString;

use crate::app::{self, App};
use crate::base::clock::Clock;
use crate::base::config::{Config, Page};
use crate::base::limits;
use crate::base::telemetry::{LogThrottle, RequestIds};
use crate::kit::jwt::Tokens;
use crate::kit::rate_limit::RateLimit;
use crate::kit::signature::{Callbacks, Signatures};

/// The service, and the state that HTTP adds. Clones share both.
#[derive(Clone)]
pub struct HttpState(Arc<Shared>);

/// In one place, because each request is handed the state several times.
struct Shared {
    app: Arc<App>,
    front: Front,
}

/// State that HTTP adds to the service.
pub(super) struct Front {
    /// Verifies bearer tokens.
    pub(super) tokens: Tokens,
    /// Verifies callbacks of the gateway, if one is configured.
    pub(super) callbacks: Option<Callbacks>,
    /// Bound on the claims of a user per second, if one is set.
    pub(super) user_claims: Option<RateLimit>,
    /// Whether the route that does nothing is there, for measurements.
    pub(super) no_op_route: bool,
    /// Pages that are served.
    pub(super) pages: Vec<Page>,
    /// Newest shopper of a demo, if this is one.
    pub(super) shoppers: Option<AtomicI64>,
    /// Names requests that come without a name.
    pub(super) request_ids: RequestIds,
    /// Limits the log to one line about an outage now and then, instead of one for each request.
    pub(super) failure_log: Mutex<LogThrottle>,
}

impl HttpState {
    /// The state of this service, as the configuration has it. Tokens are verified with `secret`. The memory of the
    /// bounds is kept small by a task of the service.
    pub fn new(app: Arc<App>, config: &Config, secret: &SecretString) -> Self {
        let front = Front {
            tokens: Tokens::new(secret),
            callbacks: callbacks(config),
            user_claims: NonZeroU32::new(config.user_claims_per_second).map(RateLimit::new),
            no_op_route: config.no_op_route,
            pages: config.pages.clone(),
            shoppers: config.demo_shoppers.then(AtomicI64::default),
            request_ids: RequestIds::default(),
            failure_log: Mutex::default(),
        };
        let this = Self(Arc::new(Shared { app, front }));
        if this.front().user_claims.is_some() {
            let bounded = this.clone();
            app::repeat(&this.0.app, limits::HOUSEKEEPING_PERIOD, move |_| {
                bounded.front().user_claims.iter().for_each(RateLimit::forget_idle);
                ready(())
            });
        }
        this
    }

    /// The service.
    pub fn app(&self) -> &App {
        &self.0.app
    }

    pub(super) fn front(&self) -> &Front {
        &self.0.front
    }
}

/// Callbacks as the configuration has them, if a gateway is known. A gateway that takes requests has to stamp them.
fn callbacks(config: &Config) -> Option<Callbacks> {
    let secret = config.payment_callback_secret.as_ref()?;
    let before = config.payment_callback_secret_before.as_ref();
    let signatures = Signatures::changing(secret, before);
    Some(Callbacks::new(signatures, Clock::System, config.gateway_url.is_some()))
}

impl FromRef<HttpState> for Arc<App> {
    fn from_ref(http: &HttpState) -> Self {
        http.0.app.clone()
    }
}
