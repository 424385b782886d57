//! Rung 8: many copies that were made together expire together, or, with jitter, one after the other.

use std::time::Duration;

use tokio::time::sleep;

use crate::rungs::aside;
use crate::shelf::{COPIES, Shelf};

/// Time for which a copy is kept at least.
const KEPT_MS: i64 = 500;
/// Copies with up to so many seconds of jitter; they are read once when those without it have expired.
pub async fn play(shelf: &Shelf, jitter_s: i64) -> anyhow::Result<()> {
    let kept = |id| {
        let jitter_ms = jitter_s * 1_000 * (id - 1) / COPIES;
        (id, KEPT_MS + jitter_ms)
    };
    shelf.keep_all((1..=COPIES).map(kept)).await?;
    sleep(Duration::from_millis(KEPT_MS.unsigned_abs() + 50)).await;
    for id in 1..=COPIES {
        shelf.shown(Some("old"), aside::read(shelf, id)).await?;
    }
    Ok(())
}
