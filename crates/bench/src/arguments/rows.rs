//! The arguments of `flash-sale-bench rows`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use flash_sale::base::config::StoreConfig;

/// Parts of the measurement of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowsPart {
    /// Ways to write a batch
    Ways,
    /// Inserts with each index, and all constraints, left out
    Indexes,
    /// Changes of the status, with indexes and fill factors
    Moves,
    /// Inserts and reads with many orders in the table; takes minutes and gigabytes
    Large,
}

/// A way to write the claims of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// INSERT from arrays in the list of a SELECT, in the order of the ids: no row is kept in between. The service's way
    UnnestInList,
    /// INSERT from UNNEST in the order of the ids
    Unnest,
    /// INSERT from UNNEST, sorted by Postgres
    UnnestSorted,
    /// INSERT from arrays in the list of a SELECT, in the order of the users: neighbours in two indexes
    ByUser,
    /// COPY into `orders`, as text
    CopyText,
    /// COPY into `orders`, binary
    CopyBinary,
    /// Binary COPY into a temporary table, and INSERT from it
    Staged,
}

#[derive(Args)]
pub(crate) struct RowsArguments {
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ways,indexes,moves")]
    pub parts: Vec<RowsPart>,
    /// Ways to write, for the part `ways`; the others are compared with the first one
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "unnest-in-list,unnest,unnest-sorted,by-user,copy-text,copy-binary,staged"
    )]
    pub ways: Vec<Way>,
    /// Rows of a slice; with more than 100,000, a checkpoint may fall into a slice of the part `large`
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=5_000_000))]
    pub rows: u64,
    /// Numbers of rows in a transaction, for the part `ways`
    #[arg(long, value_delimiter = ',', default_value = "500,1000,5000",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batches: Vec<u32>,
    /// Slices of each kind, in turns with the others; the median counts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Orders of the large table, for the part `large`; they take some 210 bytes of disk each, and Postgres's log 1 GB
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub large_orders: u64,
    /// Binary of the service [default: flash-sale, beside this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub stores: StoreConfig,
}
