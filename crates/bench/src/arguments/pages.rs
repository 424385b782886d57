//! The arguments of `flash-sale-bench pages`.

use std::path::PathBuf;

use clap::Args;

use super::client::{ClientArguments, positive};
use flash_sale::base::config::StoreConfig;

#[derive(Args)]
pub(crate) struct PagesArguments {
    /// Watchers of one sale, each with a stream of events
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub watchers: u32,
    /// Seconds for which the watchers are left alone with the service
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    pub watched_seconds: f64,
    /// Pairs of slices of claims: without the watchers and with them, in turns
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pairs: u32,
    /// Binary of the service [default: flash-sale, beside this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Write the table into this document, between its two markers
    #[arg(long)]
    pub document: Option<PathBuf>,
    #[command(flatten)]
    pub client: ClientArguments,
    #[command(flatten)]
    pub stores: StoreConfig,
}
