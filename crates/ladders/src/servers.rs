//! A Redis and a Postgres of a ladder's own, in a temporary folder.

use std::path::PathBuf;
use std::time::Duration;

use flash_sale::kit::private_servers::settings;
use private_servers::{PrivateServers, ProcessIds, Sync};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use uuid::Uuid;

/// Longer than Redis takes for an answer on a machine however busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to Redis that waits for answers as long as it takes.
///
/// # Errors
///
/// When no Redis is there.
pub async fn connect(client: &Client) -> anyhow::Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let config = config.set_connection_timeout(Some(PATIENCE));
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// The servers. Stopped, and their data removed, by [`strike`](Self::strike).
pub struct Servers {
    pair: PrivateServers,
    folder: PathBuf,
}

impl Servers {
    /// Starts them. With [`Sync::Durable`] both sync before they answer; with [`Sync::Off`] nothing waits for the disk.
    ///
    /// # Errors
    ///
    /// When a program is missing; the text names the remedy.
    pub async fn start(sync: Sync) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("fs-ladder-{}", Uuid::new_v4().simple()));
        let pair = PrivateServers::start(&folder, &settings(sync)).await?;
        Ok(Self { pair, folder })
    }

    /// Stops the servers, and removes their data.
    ///
    /// # Errors
    ///
    /// When a server doesn't stop.
    pub async fn strike(self) -> anyhow::Result<()> {
        self.pair.stop().await?;
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }

    /// The address of Redis.
    pub fn redis_url(&self) -> &str {
        self.pair.redis_url()
    }

    /// The address of Postgres.
    pub fn database_url(&self) -> &str {
        self.pair.database_url()
    }

    /// Their processes.
    pub fn process_ids(&self) -> ProcessIds {
        self.pair.process_ids()
    }
}
