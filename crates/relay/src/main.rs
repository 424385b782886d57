//! `flash-sale-relay`: follows the feed of events and publishes each event to NATS JetStream or Kafka.
//!
//! `settings` is the command line, `event` is what is read and published, `feed` reads the service, `engine` publishes,
//! `lease` keeps the cursor in Postgres, and `relay` puts them together.

// From the feed to the engine, event by event.
mod relay;

// The service's feed.
mod feed;

// Message engines.
mod engine;

// What is read and published.
mod event;

// The cursor in Postgres.
mod lease;

// The command line.
mod settings;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use settings::Settings;

/// The clients of the engines tell of each connection.
const LOG_FILTER: &str = "info,async_nats=warn,rskafka=error,sqlx=warn";

// One thread is enough: the relay waits for others nearly all the time.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let settings = Settings::parse();
    let log = tracing_subscriber::fmt().with_env_filter(LOG_FILTER).with_target(false);
    log.with_writer(std::io::stderr).init();
    match run(&settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Relays until SIGTERM or Ctrl-C, and then ends the publish that is under way.
async fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let relay = relay::run(settings, &stop);
    tokio::pin!(relay);
    tokio::select! {
        ended = &mut relay => return ended,
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.cancel();
    relay.await
}
