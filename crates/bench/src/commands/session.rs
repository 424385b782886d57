//! One measurement: open the target, measure, close the target.

use anyhow::{anyhow, bail};
use flash_sale::base::shutdown::StopRequests;

use crate::measure::bench::Bench;
use crate::service::target::Target;

/// Measures what has been opened, and ends what was started for it in every case.
pub async fn with_target<T>(
    bench: &mut Bench,
    opening: impl Future<Output = anyhow::Result<Target>>,
    stop_requests: &mut StopRequests,
    measure: impl AsyncFnOnce(&mut Bench, &mut Target) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut target = tokio::select! {
        opened = opening => opened?,
        signal = stop_requests.next() => bail!("{signal} before the service had started"),
    };
    let measured = tokio::select! {
        measured = measure(bench, &mut target) => measured,
        signal = stop_requests.next() => Err(anyhow!("{signal} in the middle of the measurement")),
    };
    bench.progress.say("stopping the service");
    let closed = target.close().await;
    let measured = measured?;
    closed.map(|()| measured)
}
