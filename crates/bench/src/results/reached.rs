//! A goal, and the figure of a run beside it.

use serde::Serialize;

use crate::figures::Spread;

/// A goal and its figure in a run.
#[derive(Clone, Debug, Serialize)]
pub struct Reached {
    pub what: &'static str,
    /// As it is printed: bound and unit.
    pub aim: String,
    pub unit: &'static str,
    pub figure: Option<Spread>,
    /// Whether the median is on the good side; none if there is no figure.
    pub met: Option<bool>,
    #[serde(skip)]
    pub how: &'static str,
}
