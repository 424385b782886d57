//! Duration of fdatasync on the file system that the stores write to, with no other load.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::figures::say;

/// Bytes that are appended before each sync: about an answer of Redis to a turn of claims.
const BYTES: usize = 4_096;
/// Time of one measurement.
const TIME: Duration = Duration::from_millis(1_500);
/// Syncs of one measurement at least.
const SYNCS_MIN: usize = 50;

/// Durations of fdatasync around a slice.
#[derive(Clone, Debug, Serialize)]
pub struct SyncTimes {
    pub syncs: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Appends to a file of its own in this folder, and syncs. Returns the duration of each sync in milliseconds; none without
/// a folder.
pub async fn measure(folder: Option<PathBuf>) -> anyhow::Result<Vec<f64>> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    say("syncing a file");
    let path = folder.join("bench-syncs");
    let measure = move || {
        let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
        let mut took = Vec::new();
        let began = Instant::now();
        while began.elapsed() < TIME || took.len() < SYNCS_MIN {
            file.write_all(&[7; BYTES])?;
            let synced_from = Instant::now();
            file.sync_data()?;
            took.push(synced_from.elapsed().as_secs_f64() * 1_000.0);
        }
        std::fs::remove_file(&path)?;
        anyhow::Ok(took)
    };
    tokio::task::spawn_blocking(measure).await?
}

impl SyncTimes {
    /// Of at least one duration.
    pub fn of(mut took: Vec<f64>) -> Option<Self> {
        took.sort_by(f64::total_cmp);
        let last = took.len().checked_sub(1)?;
        let at = |share: f64| took[(last as f64 * share).ceil() as usize];
        Some(Self { syncs: took.len(), p50_ms: at(0.5), p99_ms: at(0.99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_p99_is_what_one_in_a_hundred_exceeds() {
        let times = SyncTimes::of((0..=100).map(f64::from).rev().collect()).unwrap();
        assert_eq!((times.syncs, times.p50_ms, times.p99_ms), (101, 50.0, 99.0));
        assert!(SyncTimes::of(Vec::new()).is_none());
    }
}
