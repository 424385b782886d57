//! All figures of `flash-sale-bench rows`.

use serde::Serialize;

use super::machine::Machine;
use crate::figures::Spread;
use crate::measure::rows::large::Large;
use crate::measure::rows::moves::Moves;
use crate::measure::rows::table::Cost;

/// Postgres's part of a row; a part that wasn't asked for is empty.
#[derive(Debug, Serialize)]
pub struct RowsReport {
    pub machine: Machine,
    pub ways: Vec<Inserts>,
    pub shapes: Vec<Inserts>,
    pub moves: Vec<Moves>,
    pub large: Option<Large>,
}

/// Inserts of one kind.
#[derive(Debug, Serialize)]
pub struct Inserts {
    pub name: String,
    /// Rows in a transaction.
    pub batch: u32,
    pub cpu_us: Option<Spread>,
    pub log_bytes: Option<Spread>,
    pub rows_per_second: Option<Spread>,
    pub slices: Vec<Cost>,
}

impl RowsReport {
    /// Without figures yet.
    pub fn of(machine: Machine) -> Self {
        Self { machine, ways: Vec::new(), shapes: Vec::new(), moves: Vec::new(), large: None }
    }
}

impl Inserts {
    /// Of these slices.
    pub fn of(name: &str, batch: u32, slices: Vec<Cost>) -> Self {
        let all = |figure: fn(&Cost) -> f64| Spread::of(slices.iter().map(figure));
        Self {
            name: name.to_owned(),
            batch,
            cpu_us: all(|cost| cost.cpu_us),
            log_bytes: all(|cost| cost.log_bytes),
            rows_per_second: all(|cost| cost.rows_per_second),
            slices,
        }
    }
}
