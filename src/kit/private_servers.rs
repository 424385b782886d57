//! The private servers of this service: their name, and the variable that they inherit.

use private_servers::{Settings, Sync};

/// Name of the Postgres role and of its database.
const NAME: &str = "flash_sale";
/// Environment variable by which `.ci/run` finds processes that were left behind.
const CI_RUN: &str = "FLASH_SALE_CI_RUN";

/// Settings of the servers in a data folder of this service.
pub fn settings(sync: Sync) -> Settings {
    Settings::new(sync).named(NAME).inheriting(CI_RUN)
}
