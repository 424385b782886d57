//! The arithmetic behind what is printed.

use serde::Serialize;

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

/// Little's law (L = λW) on a slice's own numbers: what is in the system at one time is what comes in, times how long each
/// stays. Both sides are measured apart from each other, so a large difference means that a measurement is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LittlesLaw {
    /// λ: requests a second.
    pub arrivals_per_second: f64,
    /// W: how long a request stays, on average.
    pub mean_latency_ms: f64,
    /// L by the law.
    pub expected_concurrency: f64,
    /// L as looked at every few milliseconds.
    pub measured_concurrency: f64,
    /// measured / expected.
    pub ratio: f64,
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

impl LittlesLaw {
    /// Compares both sides; `None` when nothing came in.
    pub fn check(
        arrivals_per_second: f64,
        mean_latency_ms: f64,
        measured_concurrency: f64,
    ) -> Option<Self> {
        let expected_concurrency = arrivals_per_second * mean_latency_ms / 1_000.0;
        (expected_concurrency > 0.0).then(|| Self {
            arrivals_per_second,
            mean_latency_ms,
            expected_concurrency,
            measured_concurrency,
            ratio: measured_concurrency / expected_concurrency,
        })
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
        assert_eq!(Spread::of([7.0]).unwrap().upper_quartile, 7.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The machine got three times slower for the second pair; the ratio of each pair doesn't show it.
        assert_eq!(ratios(&[300.0, 100.0], &[150.0, 50.0]), [0.5, 0.5]);
        assert_eq!(ratios(&[0.0, 2.0], &[1.0, 1.0]), [0.5]);
    }

    #[test]
    fn littles_law_multiplies_arrivals_by_seconds() {
        let law = LittlesLaw::check(2_000.0, 5.0, 11.0).unwrap();
        assert_eq!((law.expected_concurrency, law.ratio), (10.0, 1.1));
        assert_eq!(LittlesLaw::check(0.0, 5.0, 1.0), None);
    }
}
