//! Figures of all processes together, and of each.

use serde::Serialize;
use utoipa::ToSchema;

/// The last minutes, at first.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Past {
    /// One for each second in which a process was heard, oldest first.
    pub points: Vec<Point>,
}

/// One second of all processes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Point {
    /// Its time, in ms since 1970.
    pub t_ms: i64,
    /// Claims a second.
    #[serde(flatten)]
    pub claims: Rates,
    /// Orders written a second.
    pub rows: f64,
    /// Claims that waited to be written; null if it isn't known.
    pub waiting: Option<u64>,
}

impl Point {
    /// A point at this time, without any count.
    pub fn at(t_ms: i64) -> Self {
        Self { t_ms, ..Self::default() }
    }
}

/// Claims a second, by kind of answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Rates {
    /// A unit, or an order.
    pub accepted: f64,
    /// Told that no unit is left.
    pub sold_out: f64,
    /// Told the order of an earlier claim.
    pub repeats: f64,
    /// Sent away to come again: overloaded, or the outcome is unknown.
    pub shed: f64,
    /// All other answers.
    pub others: f64,
}

/// A process of the installation.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Process {
    /// Host and process number; the beginning of its id if it has not been heard by this board.
    pub name: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// Whether it was heard within the last 5 s. A process that ends well is not listed.
    pub is_heard: bool,
    /// Time of its last word, in ms since 1970.
    pub heard_ms: i64,
    /// Whether it stops soon.
    pub is_stopping: bool,
    /// Its start, in ms since 1970.
    pub started_ms: Option<i64>,
    /// Requests a second.
    pub requests: Option<f64>,
    /// Orders written a second.
    pub rows: Option<f64>,
    /// Connections of clients that are open.
    pub connections: Option<u64>,
    /// Share of one processor.
    pub cpu: Option<f64>,
    /// Bytes in memory.
    pub memory_bytes: Option<u64>,
}
