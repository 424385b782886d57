//! `flash-sale private-servers`: a Redis and a Postgres for tests, for as long as standard input is open.

use clap::Args;
use private_servers::{Place, Sync, keep};

use super::stores::with_ways_out;
use crate::base::config::StoreConfig;
use crate::base::shutdown::StopRequests;
use crate::kit::private_servers::settings;

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
    let (place, sync) = if arguments.throw_away {
        (Place::ThrowAway, Sync::Off)
    } else {
        (Place::Folder(arguments.stores.data_dir.clone()), Sync::Durable)
    };
    let told_to_stop = async {
        stop_requests.next().await;
    };
    keep(&place, &settings(sync), told_to_stop).await.map_err(with_ways_out)
}
