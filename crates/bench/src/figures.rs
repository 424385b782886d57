//! The arithmetic behind what is printed, and words on the way there.

use std::fmt::Display;
use std::io::IsTerminal;

use serde::Serialize;

/// The run broke its own rules, or the service broke its promises: nothing of it may be believed.
#[derive(Debug, thiserror::Error)]
#[error("this run is void: {0}")]
pub struct Void(pub String);

/// Several measurements of the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub min: f64,
    pub lower_quartile: f64,
    pub median: f64,
    pub upper_quartile: f64,
    pub max: f64,
    pub count: usize,
}

impl Spread {
    /// Of these; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let min = *values.first()?;
        let max = *values.last()?;
        Some(Self {
            min,
            lower_quartile: quantile(&values, 0.25),
            median: quantile(&values, 0.5),
            upper_quartile: quantile(&values, 0.75),
            max,
            count: values.len(),
        })
    }
}

/// Between two neighbours in proportion to the distance from each.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
}

/// b / a, pair by pair: what disturbs the machine for longer than a pair hits both sides of a ratio.
pub fn ratios(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).filter(|(a, _)| **a > 0.0).map(|(a, b)| b / a).collect()
}

/// Shows the current step on a terminal.
pub fn say(what: impl Display) {
    if std::io::stderr().is_terminal() {
        eprintln!("{what} ...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_the_quartiles_are_halfway() {
        let odd = Spread::of([5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((odd.min, odd.median, odd.max, odd.count), (1.0, 3.0, 5.0, 5));
        assert_eq!((odd.lower_quartile, odd.upper_quartile), (2.0, 4.0));
        assert_eq!(Spread::of([4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The machine got three times slower for the second pair; the ratio of each pair doesn't show it.
        assert_eq!(ratios(&[300.0, 100.0], &[150.0, 50.0]), [0.5, 0.5]);
        assert_eq!(ratios(&[0.0, 2.0], &[1.0, 1.0]), [0.5]);
    }
}
