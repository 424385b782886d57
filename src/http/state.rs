//! State that only HTTP needs: tokens, rate limits, and ids of requests.

use std::future::ready;
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock};

use axum::extract::FromRef;
use metrics::Histogram;
use secrecy::{ExposeSecret, SecretString};

use super::frame::bounds::Bounds;
use super::frame::proxies::Proxies;
use crate::app::{self, App};
use crate::base::clock::Clock;
use crate::base::config::{self, Config, Page, StoreConfig};
use crate::base::limits;
use crate::base::telemetry::{LogThrottle, RequestIds};
use crate::kit::jwt::Tokens;
use crate::kit::signature::{Callbacks, Signatures};

/// The service, and the state that HTTP adds. Clones share both.
#[derive(Clone)]
pub struct HttpState {
    shared: Arc<Shared>,
    /// Whether operators and administrators are answered here.
    administration: bool,
}

/// Behind one pointer, because the state is cloned several times for each request.
struct Shared {
    app: Arc<App>,
    front: Front,
}

/// State that HTTP adds to the service.
pub(super) struct Front {
    /// Verifies bearer tokens; a demo issues them, too.
    pub(super) tokens: Tokens,
    /// Verifies callbacks of the gateway, if one is configured.
    pub(super) callbacks: Option<Callbacks>,
    pub(super) bounds: Bounds,
    pub(super) proxies: Proxies,
    /// One in so many requests is written to the log; 0 for none.
    pub(super) access_log_one_in: u32,
    /// Requests so far, for the access log.
    pub(super) access_log_count: AtomicU32,
    /// Times of claims, by the first digit of the status, from 1 to 5.
    pub(super) claim_times: [OnceLock<Histogram>; 5],
    pub(super) cors_origins: Vec<String>,
    /// Whether the route that does nothing is there, for measurements.
    pub(super) no_op_route: bool,
    pub(super) pages: Vec<Page>,
    pub(super) demo: Option<Demo>,
    /// Makes an id for a request that comes without one.
    pub(super) request_ids: RequestIds,
    /// Limits the log to one line now and then during an outage, instead of one for each request.
    pub(super) failure_log: Mutex<LogThrottle>,
}

/// Parts that only the demo has.
pub(super) struct Demo {
    /// User id of the newest shopper.
    pub(super) newest_shopper: AtomicI64,
    /// Codes of printed links that have not been used.
    codes: Mutex<Vec<SecretString>>,
}

impl Demo {
    fn new(config: &config::Demo) -> Self {
        Self { newest_shopper: AtomicI64::default(), codes: Mutex::new(config.codes.clone()) }
    }

    /// Uses up a code. Returns false if the code is unknown or has been used.
    pub(super) fn take_code(&self, code: &str) -> bool {
        let mut codes = self.codes.lock().expect("no holder of this lock panics");
        let found = codes.iter().position(|known| known.expose_secret() == code);
        found.map(|place| codes.swap_remove(place)).is_some()
    }
}

impl HttpState {
    /// Sets up the state as configured. Starts tasks of the service that drop idle clients from the rate limits, and
    /// that refresh the public keys of tokens.
    pub fn new(app: Arc<App>, config: &Config, tokens: Tokens) -> Self {
        let front = Front {
            tokens,
            callbacks: callbacks(config),
            bounds: Bounds::new(config),
            proxies: Proxies::from(config),
            access_log_one_in: config.access_log_one_in,
            access_log_count: AtomicU32::default(),
            claim_times: Default::default(),
            cors_origins: config.cors_origins.clone(),
            no_op_route: config.no_op_route,
            pages: config.pages.clone(),
            demo: config.demo.as_ref().map(Demo::new),
            request_ids: RequestIds::default(),
            failure_log: Mutex::default(),
        };
        let this = Self { shared: Arc::new(Shared { app, front }), administration: true };
        for keys in this.front().tokens.issuers().to_vec() {
            let app = this.shared.app.clone();
            let shutdown = app.shutdown.clone();
            shutdown.spawn(async move { keys.keep(&app.metrics, app.shutdown.stop_token()).await });
        }
        let kept = this.clone();
        app::repeat(&this.shared.app, limits::HOUSEKEEPING_PERIOD, move |_| {
            kept.front().bounds.forget_idle();
            ready(())
        });
        this
    }

    /// From now on signs and verifies with the secrets of this configuration.
    pub fn change_secrets(&self, stores: &StoreConfig, config: &Config) {
        let front = self.front();
        if let Some(secret) = &stores.token_secret {
            front.tokens.change(stores, secret);
        }
        if let Some(secret) = &config.payment_callback_secret {
            let before = config.payment_callback_secret_before.as_ref();
            let own = front.callbacks.as_ref().map(Callbacks::signatures);
            for signatures in own.into_iter().chain(self.app().payments.signatures()) {
                signatures.change(secret, before);
            }
        }
    }

    /// The same, for a listener that answers no operators and administrators.
    pub fn without_administration(&self) -> Self {
        Self { administration: false, ..self.clone() }
    }

    /// Whether operators and administrators are answered here.
    pub(super) fn has_administration(&self) -> bool {
        self.administration
    }

    pub fn app(&self) -> &App {
        &self.shared.app
    }

    pub(super) fn front(&self) -> &Front {
        &self.shared.front
    }
}

/// Verifies callbacks, if a gateway is configured. A gateway that this service sends requests to (`--gateway-url`) has
/// to stamp its callbacks.
fn callbacks(config: &Config) -> Option<Callbacks> {
    let secret = config.payment_callback_secret.as_ref()?;
    let before = config.payment_callback_secret_before.as_ref();
    let signatures = Signatures::changing(secret, before);
    Some(Callbacks::new(signatures, Clock::System, config.gateway_url.is_some()))
}

impl FromRef<HttpState> for Arc<App> {
    fn from_ref(http: &HttpState) -> Self {
        http.shared.app.clone()
    }
}
