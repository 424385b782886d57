//! Follows the feed of events of flash-sale, and publishes each event to a message engine.
//!
//! `flash-sale-relay` is the program for NATS JetStream and Kafka. Another engine is a program of its own, with the
//! settings of [`Settings`], an [`Engine`], and a call of [`run`].
//!
//! `settings` is the command line, `event` is what is read and published, `feed` reads the service, `publish` hands over
//! to the engine, `lease` keeps the cursor in Postgres, and `relay` puts them together.

// From the feed to the engine, event by event.
mod relay;

// The service's feed.
mod feed;

// To the engine.
mod publish;

// What is read and published.
mod event;

// The cursor in Postgres.
mod lease;

// The command line.
mod settings;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use event::CloudEvent;
pub use publish::Engine;
pub use settings::{AFTER_HELP, Secret, Settings};

/// Relays until SIGTERM or Ctrl-C. Logs to stderr what `log_filter` lets pass, a directive of `tracing-subscriber`.
pub async fn run(settings: &Settings, engine: &impl Engine, log_filter: &str) -> ExitCode {
    let log = tracing_subscriber::fmt().with_env_filter(log_filter).with_target(false);
    log.with_writer(std::io::stderr).init();
    match relay_until_told(settings, engine).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Relays until SIGTERM or Ctrl-C, and then ends the publish that is under way.
async fn relay_until_told(settings: &Settings, engine: &impl Engine) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let relay = relay::run(settings, engine, &stop);
    tokio::pin!(relay);
    tokio::select! {
        ended = &mut relay => return ended,
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.cancel();
    relay.await
}
