//! `flash-sale private-servers`: a Redis and a Postgres for a test run.
//!
//! The servers end with the standard input of this process. A pipe closes however its other end dies, so a killed
//! test run leaves nothing behind.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use crate::base::config::StoreConfig;
use crate::base::shutdown::StopRequests;
use crate::kit::private_servers::{PrivateServers, Sync};

#[derive(Args)]
pub struct PrivateServersArguments {
    /// For tests: in a temporary folder, deleted at the end, and nothing waits for the disk
    #[arg(long)]
    throw_away: bool,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Starts the servers, prints their addresses, and stops them at the end of input, SIGINT or SIGTERM.
pub async fn run(arguments: &PrivateServersArguments) -> anyhow::Result<()> {
    let mut stop_requests = StopRequests::listen()?;
    let temporary = arguments.throw_away.then(temporary_folder).transpose()?;
    let dir = temporary.as_ref().unwrap_or(&arguments.stores.data_dir);
    let sync = if arguments.throw_away { Sync::Off } else { Sync::Durable };
    let ran = start_and_stop(dir, sync, &mut stop_requests).await;
    if let Some(temporary) = temporary {
        std::fs::remove_dir_all(temporary)?;
    }
    ran
}

async fn start_and_stop(
    dir: &Path,
    sync: Sync,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    let servers = PrivateServers::start(dir, sync).await?;
    let ids = servers.process_ids();
    println!(
        "{}",
        serde_json::json!({
            "redis_url": servers.redis_url(),
            "database_url": servers.database_url(),
            "redis_pid": ids.redis,
            "postgres_pid": ids.postgres,
        })
    );
    tokio::select! {
        _ = end_of_input() => {}
        _ = stop_requests.next() => {}
    }
    Ok(servers.stop().await?)
}

/// A new folder with a random name: the deletion at the end can't hit other data.
fn temporary_folder() -> std::io::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("flash-sale-{}", Uuid::new_v4().simple()));
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

async fn end_of_input() {
    let mut input = tokio::io::stdin();
    while matches!(input.read(&mut [0; 64]).await, Ok(1..)) {}
}
