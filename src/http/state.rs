//! State that HTTP alone needs: identities, bounds and names of requests.

use std::future::ready;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use axum::extract::FromRef;
use axum::http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use super::frame::access_log::{self, AccessLog};
use super::frame::bearer::actor;
use super::frame::bounds::Bounds;
use super::frame::cors::Cors;
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
    /// Whether administrators are answered here.
    administration: bool,
}

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
    /// How often one client may ask.
    pub(super) bounds: Bounds,
    /// Lines about requests, if any are written.
    pub(super) access_log: Option<AccessLog>,
    /// Pages of other origins that may use the API, if any may.
    pub(super) cors: Option<Cors>,
    /// Whether the route that does nothing is there, for measurements.
    pub(super) no_op_route: bool,
    /// Pages that are served.
    pub(super) pages: Vec<Page>,
    /// Parts that only the demo has, if this is one.
    pub(super) demo: Option<Demo>,
    /// Names requests that come without a name.
    pub(super) request_ids: RequestIds,
    /// Limits the log to one line about an outage now and then, instead of one for each request.
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

    /// Uses a code up. False if there is no such code (any more).
    pub(super) fn take_code(&self, code: &str) -> bool {
        let mut codes = self.codes.lock().expect("no holder of this lock panics");
        let found = codes.iter().position(|known| known.expose_secret() == code);
        found.map(|place| codes.swap_remove(place)).is_some()
    }
}

impl Front {
    /// Forgets clients that have not asked for a while, and reads the file of public keys again.
    fn housekeeping_pass(&self) {
        self.bounds.forget_idle();
        self.tokens.read_keys_again();
    }
}

impl HttpState {
    /// The state of this service, as the configuration has it. Tasks of the service keep the memory of the bounds small,
    /// and read and fetch the public keys of tokens again.
    pub fn new(app: Arc<App>, config: &Config, tokens: Tokens) -> Self {
        let (access_log, lines) = AccessLog::new(config.access_log_one_in).unzip();
        let front = Front {
            access_log,
            tokens,
            callbacks: callbacks(config),
            bounds: Bounds::new(config),
            cors: Cors::new(&config.cors_origins),
            no_op_route: config.no_op_route,
            pages: config.pages.clone(),
            demo: config.demo.as_ref().map(Demo::new),
            request_ids: RequestIds::default(),
            failure_log: Mutex::default(),
        };
        let this = Self { shared: Arc::new(Shared { app, front }), administration: true };
        if let Some(lines) = lines {
            let (http, stop) = (this.clone(), this.app().shutdown.stop_token().clone());
            this.app().shutdown.spawn(async move {
                let actor = |header: &HeaderValue| actor(&http.front().tokens, header);
                access_log::write(lines, stop, actor).await;
            });
        }
        if let Some(keys) = this.front().tokens.key_url().cloned() {
            let app = this.shared.app.clone();
            let shutdown = app.shutdown.clone();
            shutdown.spawn(async move { keys.keep(&app.metrics, app.shutdown.stop_token()).await });
        }
        let kept = this.clone();
        app::repeat(&this.shared.app, limits::HOUSEKEEPING_PERIOD, move |_| {
            kept.front().housekeeping_pass();
            ready(())
        });
        this
    }

    /// From now on signs and verifies with the secrets that the configuration has.
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

    /// The same, for a listener that answers no administrator.
    pub fn without_administration(&self) -> Self {
        Self { administration: false, ..self.clone() }
    }

    /// Whether administrators are answered here.
    pub(super) fn has_administration(&self) -> bool {
        self.administration
    }

    /// The service.
    pub fn app(&self) -> &App {
        &self.shared.app
    }

    pub(super) fn front(&self) -> &Front {
        &self.shared.front
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
        http.shared.app.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        config: Config,
    }

    /// Otherwise each address that has ever asked would stay in memory.
    #[test]
    fn a_housekeeping_pass_forgets_clients_that_have_not_asked_for_a_while() {
        // A while is a microsecond at this rate.
        let words = ["flash-sale", "--anonymous-requests-per-second", "1000000"];
        let Command { config } = Command::parse_from(words);
        let front = Front {
            access_log: None,
            tokens: Tokens::new(&SecretString::from("a secret that is only good for tests")),
            callbacks: None,
            bounds: Bounds::new(&config),
            cors: None,
            no_op_route: false,
            pages: Vec::new(),
            demo: None,
            request_ids: RequestIds::default(),
            failure_log: Mutex::default(),
        };
        let client: IpAddr = "192.0.2.7".parse().expect("an address");
        front.bounds.anonymous(client).expect("the first");
        assert_eq!(front.bounds.remembered(), [0, 0, 1, 0]);
        let is_forgotten = (0..100_000).any(|_| {
            front.housekeeping_pass();
            front.bounds.remembered() == [0; 4]
        });
        assert!(is_forgotten, "{:?} are remembered", front.bounds.remembered());
    }

    #[test]
    fn each_code_of_a_demo_is_good_once() {
        let codes = ["first", "second"].map(SecretString::from).to_vec();
        let demo = Demo::new(&config::Demo { codes });
        let takes = ["", "third", "firs", "second", "second", "first", "first"]
            .map(|code| demo.take_code(code));
        assert_eq!(takes, [false, false, false, true, false, true, false]);
        assert!(!Demo::new(&config::Demo::default()).take_code(""), "there is none");
    }
}
