//! Name and environment of the private servers of this service.

use private_servers::{Settings, Sync};

/// Name of the Postgres role and of its database.
const NAME: &str = "flash_sale";
/// Environment variable by which `.ci/run` finds processes that were left running.
const CI_RUN: &str = "FLASH_SALE_CI_RUN";

/// Settings of the servers in a data folder of this service.
pub fn settings(sync: Sync) -> Settings {
    Settings::new(sync).named(NAME).inheriting(CI_RUN)
}
