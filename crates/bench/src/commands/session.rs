//! One measurement: find the binary, open the target, measure, close the target.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use flash_sale::base::config::InvalidConfig;
use flash_sale::base::shutdown::StopRequests;
use serde::Serialize;

use crate::arguments::ServiceArguments;
use crate::figures::say;
use crate::measure::bench::Bench;
use crate::service::target::Target;

/// The service's binary: the one that is given, or else the one beside the bench.
///
/// # Errors
///
/// [`InvalidConfig`] if there is no such file; the text names the command that builds it.
pub fn binary(arguments: &ServiceArguments) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("flash-sale");
    existing(arguments.binary.clone().unwrap_or(beside))
}

/// This binary, if it is there.
pub fn existing(binary: PathBuf) -> anyhow::Result<PathBuf> {
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

/// Measures what has been opened, and ends what was started for it in every case.
pub async fn with_target<T>(
    bench: &mut Bench,
    opening: impl Future<Output = anyhow::Result<Target>>,
    stop_requests: &mut StopRequests,
    measure: impl AsyncFnOnce(&mut Bench, &mut Target) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    say("starting the service");
    let mut target = tokio::select! {
        opened = opening => opened?,
        signal = stop_requests.next() => bail!("{signal} before the service had started"),
    };
    let measured = tokio::select! {
        measured = measure(bench, &mut target) => measured,
        signal = stop_requests.next() => Err(anyhow!("{signal} in the middle of the measurement")),
    };
    say("stopping the service");
    let closed = target.close().await;
    let measured = measured?;
    closed.map(|()| measured)
}

/// Writes all figures to the file that was asked for.
pub fn write_json(file: Option<&PathBuf>, report: &impl Serialize) -> anyhow::Result<()> {
    match file {
        Some(file) => Ok(std::fs::write(file, serde_json::to_string_pretty(report)?)?),
        None => Ok(()),
    }
}
