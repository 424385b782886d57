//! `flash-sale id`: the two forms of an order id, for an operator between a user's letter and a log line.

// The key that a data folder keeps.
pub mod kept;

use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::cli::stores::{As, OpenStores};
use crate::sale::ids::OrderId;
use crate::sale::ids::public::{PublicIds, PublicOrderId};
use crate::sale::installation;

#[derive(Args)]
pub struct IdArguments {
    #[command(subcommand)]
    command: IdCommand,
}

#[derive(Subcommand)]
enum IdCommand {
    /// Print the id that users, the staff's pages and gateways know, of an id in a log line, a store or a command
    Public {
        /// Id inside
        #[arg(value_name = "ORDER")]
        order: OrderId,
        #[command(flatten)]
        stores: StoreConfig,
    },
    /// Print the id in log lines, stores and commands, of an id that users know
    Inner {
        /// Id outside
        #[arg(value_name = "ORDER")]
        order: PublicOrderId,
        #[command(flatten)]
        stores: StoreConfig,
    },
}

impl IdArguments {
    pub fn stores(&self) -> &StoreConfig {
        let (IdCommand::Public { stores, .. } | IdCommand::Inner { stores, .. }) = &self.command;
        stores
    }
}

/// Translates by the key of the installation, which Postgres proves.
pub async fn run(arguments: &IdArguments) -> anyhow::Result<()> {
    let key = kept::order_id_key(arguments.stores())?;
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let ids = installation::public_ids(&opened.stores.pool, key.as_ref()).await;
    let closed = opened.close().await;
    println!("{}", arguments.command.translated(&ids?));
    closed
}

impl IdCommand {
    fn translated(&self, ids: &PublicIds) -> String {
        match self {
            Self::Public { order, .. } => ids.public(*order).to_string(),
            Self::Inner { order, .. } => ids.inner(*order).to_string(),
        }
    }
}
