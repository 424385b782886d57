//! `flash-sale serve`: the service, until it is told to stop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

use super::stores::{As, OpenStores, token_secret};
use crate::app::App;
use crate::base::clock::Clock;
use crate::base::config::{Config, Role};
use crate::base::limits;
use crate::base::shutdown::{Shutdown, stop_requested};
use crate::http::{self, server};
use crate::worker;

/// What a caller does once the service answers.
type Started<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>>;

/// Runs the service until SIGINT or SIGTERM; `started` is called once it answers.
///
/// A stop request during the start is obeyed at once, and private servers are stopped in every case.
pub async fn run(
    config: &Config,
    started: impl Fn(Arc<App>) -> Started<'static>,
) -> anyhow::Result<()> {
    config.validate()?;
    // Before anything is started: whoever can't sign or listen needs no servers.
    let listeners = Listeners::bind(config)?;
    let stores = tokio::select! {
        stores = OpenStores::open(&config.stores, As::Service) => stores?,
        signal = stop_requested() => {
            tracing::info!(signal = signal?, "stopped while starting");
            return Ok(());
        }
    };
    let served = serve(config, &stores, listeners, started).await;
    let closed = stores.close().await;
    served.and(closed)
}

async fn serve(
    config: &Config,
    stores: &OpenStores,
    listeners: Listeners,
    started: impl Fn(Arc<App>) -> Started<'static>,
) -> anyhow::Result<()> {
    tell_what_a_202_is_worth(&stores.redis_facts.appendfsync);
    let secret = token_secret(&config.stores)?;
    let shutdown = Shutdown::default();
    let app =
        App::assemble(config, stores.stores.clone(), &secret, Clock::System, shutdown.clone())
            .await?;
    if config.has_role(Role::Worker) {
        worker::start(&app, config);
    }
    listeners.serve(config, &app);
    let stopped = tokio::select! {
        started = started(app.clone()) => match started {
            Ok(()) => stop_requested().await.map_err(Into::into),
            Err(error) => Err(error),
        },
        signal = stop_requested() => signal.map_err(Into::into),
    };
    if let Ok(signal) = &stopped {
        tracing::info!(signal, "stopping: finishing what has begun");
    }
    tokio::select! {
        drained = shutdown.stop(limits::DRAIN_MAX) => if !drained {
            tracing::warn!(seconds = limits::DRAIN_MAX.as_secs(), "some tasks didn't finish in time; accepted claims are safe in the order log");
        },
        signal = stop_requested() => {
            tracing::warn!(signal = signal?, "stopping at once; accepted claims are safe in the order log");
        }
    }
    stopped.map(|_| ())
}

/// The addresses of this process, bound before anything else is started.
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

    fn serve(self, config: &Config, app: &Arc<App>) {
        let serve = |listener: TcpListener, router, what| {
            let address =
                listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
            tracing::info!("{what} on http://{address}");
            let shutdown = app.shutdown.clone();
            shutdown.spawn(server::run(listener, router, config.connections_max, shutdown.clone()));
        };
        let alone = self.operations.is_none();
        if let Some(listener) = self.api {
            serve(listener, http::api(app, alone), "the API listens");
        }
        if let Some(listener) = self.operations {
            serve(listener, http::operations(app), "/metrics, /livez and /readyz listen");
        }
    }
}

fn tell_what_a_202_is_worth(appendfsync: &str) {
    match appendfsync {
        "always" => {
            tracing::info!("a 202 is on disk: it survives the death of any process and a power cut")
        }
        "everysec" => tracing::warn!(
            "a 202 is in Redis's memory, and on disk about a second later (appendfsync everysec): a kill or a power cut can lose the last ones; set appendfsync always to lose none"
        ),
        "off" => tracing::warn!(
            "a 202 is in Redis's memory only (appendonly no): a restart of Redis loses every claim that hasn't been written to Postgres; set appendonly yes and appendfsync always to lose none"
        ),
        other => tracing::warn!(
            appendfsync = other,
            "a 202 is in Redis's memory, and on disk when the operating system pleases; set appendfsync always to lose none"
        ),
    }
}
