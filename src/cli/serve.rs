//! `flash-sale serve`: the service, until a signal stops it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::extract::FromRef;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::finding::{Finding, KEEPS_ACCEPTING, payments, persistence, without_spare};
use super::secrets;
use super::stores::{As, OpenStores, random_secret, token_secret};
use crate::app::{self, App};
use crate::base::clock::Clock;
use crate::base::config::{Config, Role};
use crate::base::durability::Level;
use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::shutdown::{Shutdown, StopRequests};
use crate::http::state::HttpState;
use crate::http::{self, server};
use crate::kit::jwt::Tokens;
use crate::kit::jwt::public_keys::{self, Pace, PublicKeys};
use crate::kit::open_files;
use crate::payment::gateway::Checkout;
use crate::worker;

/// Addresses of a service, as they were actually bound.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Address of the API; none without the role `api`.
    pub api: Option<SocketAddr>,
    /// Address of /metrics, /livez and /readyz; none without a listener.
    pub operations: Option<SocketAddr>,
}

/// Runs the service until SIGINT or SIGTERM; calls `started` once the service answers.
///
/// A stop request during the start is obeyed at once, and private servers are stopped in every case.
pub async fn run(
    config: &Config,
    started: impl AsyncFnOnce(&App, Addresses) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    config.validate()?;
    let mut stop_requests = StopRequests::listen()?;
    // Checked before any server is started: without a secret or an address, none is needed.
    let mut tokens = tokens(config).await?;
    if config.has_role(Role::Api) {
        payments(Checkout::of(config)).log();
    }
    make_room_for_connections(config.connections_max);
    let listeners = Listeners::bind(config)?;
    let opened = async {
        let (stores, ()) = tokio::join!(
            OpenStores::open(&config.stores, As::Service),
            fetch_keys(config, &mut tokens),
        );
        stores
    };
    let stores = tokio::select! {
        stores = opened => stores?,
        signal = stop_requests.next() => {
            tracing::info!(signal, "stopped while starting");
            return Ok(());
        }
    };
    let shutdown = Shutdown::default();
    let served = async {
        judge(config, &stores)?;
        let app =
            App::assemble(config, stores.stores.clone(), Clock::System, shutdown.clone()).await?;
        app::start_housekeeping(&app);
        if config.has_role(Role::Worker) {
            let tasks = worker::start(&app, config);
            if config.demo.is_some() && stores.are_own() {
                let_the_worker_be_killed(&app, config, tasks);
            }
        }
        app.metrics.gauges.replace("roles", roles(config));
        let addresses = listeners.addresses()?;
        let http = HttpState::new(app.clone(), config, tokens);
        secrets::follow(config, &app, &http);
        listeners.serve(config, &http);
        tokio::select! {
            failed = async { started(&app, addresses).await.err() } => match failed {
                Some(error) => return Err(error),
                None => stop_requests.next().await,
            },
            signal = stop_requests.next() => signal,
        };
        Ok(app)
    };
    let served: anyhow::Result<Arc<App>> = served.await;
    // A service that failed to start has no clients yet.
    let delay = if served.is_ok() { config.stop_delay() } else { Duration::ZERO };
    stop(&shutdown, &mut stop_requests, delay).await;
    if let Ok(app) = &served {
        app.leave().await;
    }
    let closed = stores.close().await;
    served.and(closed)
}

/// Allows trouble in storms on these servers, which are the demo's own. A worker that is killed leaves its work as it
/// is; another one starts after [`limits::STORM_WORKER_AWAY`].
fn let_the_worker_be_killed(app: &Arc<App>, config: &Config, tasks: Vec<JoinHandle<()>>) {
    let (killed, stop) = (app.storms.allow_trouble(), app.shutdown.stop_token().clone());
    let (app, config, mut tasks) = (app.clone(), config.clone(), tasks);
    app.shutdown.clone().spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = killed.notified() => tasks.iter().for_each(JoinHandle::abort),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(limits::STORM_WORKER_AWAY) => tasks = worker::start(&app, &config),
            }
        }
    });
}

/// Logs what a 202 is worth with this Redis.
///
/// # Errors
///
/// When Redis can't keep the level that is configured, or when a master that its sentinels have replaced would go on
/// accepting claims.
fn judge(config: &Config, stores: &OpenStores) -> anyhow::Result<()> {
    for facts in &stores.redis_facts {
        let persistence = persistence(facts, config.durability);
        persistence.log();
        if let Some(warning) = without_spare(config.durability, facts) {
            warning.log();
        }
        if let (
            Some(level @ (Level::Fsync | Level::Declared)),
            Finding::Warning(why) | Finding::Failure(why),
        ) = (config.durability, &persistence)
        {
            bail!("--durability {level} can't be kept: {why}; or give --durability memory");
        }
        if stores.stores.fleet.first().has_sentinels() && !facts.needs_replicas() {
            bail!(KEEPS_ACCEPTING);
        }
    }
    Ok(())
}

/// The roles of this process, for an alarm about a role that no process has.
fn roles(config: &Config) -> Vec<Gauge> {
    let name = |role| if role == Role::Api { "api" } else { "worker" };
    let gauge = |role: &Role| Gauge::labelled("flash_sale_role", "role", name(*role), 1.0);
    config.roles.iter().map(gauge).collect()
}

async fn tokens(config: &Config) -> anyhow::Result<Tokens> {
    if !config.has_role(Role::Api) {
        return Ok(Tokens::new(&random_secret()));
    }
    let mut tokens = Tokens::configured(&config.stores, &token_secret(&config.stores)?);
    if let Some(file) = &config.token_keys {
        let keys = Arc::new(PublicKeys::in_file(file.clone()));
        keys.refresh().await.map_err(anyhow::Error::msg).context("--token-keys can't be used")?;
        tokens.accept(keys);
    }
    Ok(tokens)
}

/// Fetches the public keys of an issuer, if one is named. The service starts without them: the issuer may come back.
async fn fetch_keys(config: &Config, tokens: &mut Tokens) {
    let Some(url) = config.token_jwks_url.as_ref().filter(|_| config.has_role(Role::Api)) else {
        return;
    };
    if public_keys::is_unprotected(url) {
        tracing::warn!(%url, "{}", public_keys::UNPROTECTED);
    }
    let keys = PublicKeys::under(url.clone(), Pace::default(), limits::KEY_SET_TIMEOUT);
    let keys = Arc::new(keys);
    // `look` logs the outcome.
    let _: Result<(), String> = keys.refresh().await;
    tokens.accept(keys);
}

/// Serves for the delay, then finishes the work that has begun; a further signal cuts either short.
async fn stop(shutdown: &Shutdown, stop_requests: &mut StopRequests, delay: Duration) {
    shutdown.announce();
    if !delay.is_zero() {
        tracing::info!(delay_ms = delay.as_millis(), "going to stop: /readyz says no from now on");
        tokio::select! {
            () = sleep(delay) => {}
            signal = stop_requests.next() => tracing::warn!(signal, "not waiting any longer"),
        }
    }
    tracing::info!("stopping: finishing what has begun");
    tokio::select! {
        drained = shutdown.stop(limits::DRAIN_MAX) => if !drained {
            tracing::warn!("some tasks didn't finish in time; accepted claims are safe in the order log");
        },
        signal = stop_requests.next() => {
            tracing::warn!(signal, "stopping at once; accepted claims are safe in the order log");
        }
    }
}

/// The listeners of this process, bound before the stores are opened.
struct Listeners {
    api: Option<TcpListener>,
    operations: Option<TcpListener>,
}

impl Listeners {
    fn bind(config: &Config) -> anyhow::Result<Self> {
        let bind = |address, flag| {
            server::bind(address)
                .with_context(|| format!("{address} can't be listened on; give another {flag}"))
        };
        let api =
            config.has_role(Role::Api).then(|| bind(config.listen, "--listen")).transpose()?;
        let operations =
            config.admin_listen.map(|address| bind(address, "--admin-listen")).transpose()?;
        Ok(Self { api, operations })
    }

    fn addresses(&self) -> std::io::Result<Addresses> {
        let bound = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose()
        };
        let api = bound(&self.api)?;
        Ok(Addresses { api, operations: bound(&self.operations)?.or(api) })
    }

    fn serve(self, config: &Config, http: &HttpState) {
        let serve = |listener: TcpListener, routes, what| {
            let address =
                listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
            tracing::info!("{what} on http://{address}");
            let app = Arc::<App>::from_ref(http);
            let served = server::run(listener, routes, config.connections_max, app);
            http.app().shutdown.spawn(served);
        };
        let alone = self.operations.is_none();
        let has_api = self.api.is_some();
        if let Some(listener) = self.api {
            let routes = match alone {
                true => http::api(http, true),
                false => http::api(&http.without_administration(), false),
            };
            if alone {
                tell_what_is_public(&listener);
            }
            serve(listener, routes, "the API listens");
        }
        if let Some(listener) = self.operations {
            let (routes, what) = match has_api {
                true => {
                    (http::api(http, true), "administrators, /metrics, /livez and /readyz listen")
                }
                false => (http::operations(http), "/metrics, /livez and /readyz listen"),
            };
            serve(listener, routes, what);
        }
    }
}

/// Logs that one listener serves everything: whoever can reach the API can reach the rest.
fn tell_what_is_public(listener: &TcpListener) {
    let public = "the administrators' operations (with an administrator's token), /docs, /metrics and /readyz are answered where the API is";
    let remedy = "--admin-listen gives all of these an address of their own";
    match listener.local_addr() {
        Ok(address) if address.ip().is_loopback() => {
            tracing::info!("{public}, on this machine alone; {remedy}");
        }
        _ => tracing::warn!("{public}, for all who can reach it; {remedy}"),
    }
}

/// Raises the limit on open files if need be, and warns if the limit is still too low.
fn make_room_for_connections(connections_max: u32) {
    // Beside the clients' connections: those to the stores, listeners, logs.
    const OTHERS: u64 = 100;
    let needed = u64::from(connections_max) + OTHERS;
    match open_files::raise_limit() {
        Ok(limit) if limit < needed => tracing::warn!(
            limit,
            needed,
            "fewer files may be open than --connections-max needs: further clients will wait to be accepted; raise the limit (ulimit -n) or lower --connections-max"
        ),
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "the limit on open files could not be raised"),
    }
}
