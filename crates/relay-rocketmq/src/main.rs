//! `flash-sale-relay-rocketmq`: follows the feed of events and publishes each event to RocketMQ.

// The message engine.
mod rocketmq;

use std::process::ExitCode;

use clap::Parser;
use flash_sale_relay::{AFTER_HELP, Settings, run};

/// The client tells of each connection, and of each task that a broken one leaves behind.
const LOG_FILTER: &str = "info,rocketmq_client_rust=off,rocketmq_runtime=off,\
    rocketmq_transport=off,sqlx=warn";

/// Follows the feed of events of flash-sale, and publishes each event to RocketMQ
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP)]
struct CommandLine {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    address: rocketmq::Address,
}

// One thread is enough for the relay; the client brings its own.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let CommandLine { settings, address } = CommandLine::parse();
    run(&settings, &address, LOG_FILTER).await
}
