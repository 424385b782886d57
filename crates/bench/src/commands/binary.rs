//! The service's binary: the one that is given, or else the one beside the bench.

use std::path::{Path, PathBuf};

use flash_sale::base::config::InvalidConfig;

/// Name of the service's binary.
const NAME: &str = "flash-sale";

/// The binary to start.
///
/// # Errors
///
/// [`InvalidConfig`] if there is no such file; the text names the command that builds it.
pub fn of_service(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name(NAME);
    let binary = given.map_or(beside, Path::to_owned);
    if binary.is_file() {
        return Ok(binary);
    }
    let message = format!(
        "there is no service to measure at {}: build it with `cargo build --release --locked --bin flash-sale` (without \
         --release if the bench is built so), or name one with --binary",
        binary.display()
    );
    Err(InvalidConfig::new(message).into())
}
