//! Wins at the levels of durability, beside those of the service itself.

use serde::Serialize;

use crate::figures::{Spread, ratios};
use crate::measure::slice::Slice;
use crate::service::cpu::CpuTimes;

/// A level that is measured beside `fsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// `memory`, with `appendfsync everysec`.
    Memory,
    /// `replica`, with `appendfsync everysec`.
    Replica,
    /// `postgres`, with `appendfsync everysec`.
    Postgres,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Replica, Self::Postgres];

    /// As on the command line of the service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Replica => "replica",
            Self::Postgres => "postgres",
        }
    }

    /// The setting of Redis while the level is measured.
    pub fn appendfsync(self) -> &'static str {
        match self {
            Self::Memory | Self::Replica | Self::Postgres => "everysec",
        }
    }
}

/// A slice of wins at a level.
#[derive(Debug, Serialize)]
pub struct LevelSlice {
    pub level: Level,
    pub slice: Slice,
}

/// All slices of a level.
#[derive(Debug)]
pub struct OfLevel {
    pub name: &'static str,
    pub appendfsync: &'static str,
    pub wins_per_second: Option<Spread>,
    /// Round by round, against `fsync`.
    pub to_fsync: Option<Spread>,
    pub cpu_us_per_win: CpuTimes,
}

/// `fsync` first, which is the service's own level, and then the others.
pub fn of(wins: Vec<&Slice>, levels: &[LevelSlice]) -> Vec<OfLevel> {
    let per_second = |slices: &[&Slice]| -> Vec<f64> {
        slices.iter().map(|slice| slice.good_per_second).collect()
    };
    let own = per_second(&wins);
    let summary = |name, appendfsync, slices: Vec<&Slice>| {
        let costs = slices.iter().filter_map(|slice| slice.cost.as_ref());
        OfLevel {
            name,
            appendfsync,
            wins_per_second: Spread::of(per_second(&slices)),
            to_fsync: Spread::of(ratios(&own, &per_second(&slices))),
            cpu_us_per_win: CpuTimes::mean(costs.map(|cost| (&cost.cpu_us, cost.requests))),
        }
    };
    let mut all = vec![summary("fsync", "always", wins)];
    for level in Level::ALL {
        let slices = levels.iter().filter(|one| one.level == level);
        let slices = slices.map(|one| &one.slice).collect();
        all.push(summary(level.name(), level.appendfsync(), slices));
    }
    all
}
