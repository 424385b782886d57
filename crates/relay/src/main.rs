//! `flash-sale-relay`: follows the feed of events and publishes each event to NATS JetStream or Kafka.

// The message engines.
mod engine;

use std::process::ExitCode;

use clap::{ArgGroup, Parser};
use flash_sale_relay::{AFTER_HELP, Settings, run};

/// The clients of the engines tell of each connection.
const LOG_FILTER: &str = "info,async_nats=warn,rskafka=error,sqlx=warn";

/// Follows the feed of events of flash-sale, and publishes each event to NATS JetStream or Kafka
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP)]
#[command(group = ArgGroup::new("engine").required(true).args(["nats", "kafka"]))]
struct CommandLine {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    address: engine::Address,
}

// One thread is enough: the relay waits for others nearly all the time.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let CommandLine { settings, address } = CommandLine::parse();
    run(&settings, &address, LOG_FILTER).await
}
