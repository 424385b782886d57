//! Gauges that jobs compute now and then. A job replaces all of its gauges together.
//!
//! The metrics crate keeps a gauge for as long as the process runs. A gauge that is labelled with an id has to vanish
//! with the id. So these gauges are kept as the last run of the job found them, and written to the page after the
//! others.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

/// One gauge: a number with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    pub name: &'static str,
    /// Names and values. A value must not have a quote, a backslash or a line break.
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// The latest gauges, by the name of what computes them.
#[derive(Debug, Default)]
pub struct Gauges {
    checks: Mutex<BTreeMap<&'static str, Vec<Gauge>>>,
}

impl Gauge {
    pub fn plain(name: &'static str, value: f64) -> Self {
        Self { name, labels: Vec::new(), value }
    }

    pub fn labelled(name: &'static str, label: &'static str, of: &str, value: f64) -> Self {
        Self { name, labels: vec![(label, of.to_owned())], value }
    }
}

impl Gauges {
    /// Replaces the gauges of `checker`. A gauge's name belongs to one checker, and its values follow each other.
    pub fn replace(&self, checker: &'static str, gauges: Vec<Gauge>) {
        if let Ok(mut checks) = self.checks.lock() {
            checks.insert(checker, gauges);
        }
    }

    /// All gauges in Prometheus's text format.
    pub fn page(&self) -> String {
        let mut page = String::new();
        let Ok(checks) = self.checks.lock() else {
            return page;
        };
        let mut last = "";
        for Gauge { name, labels, value } in checks.values().flatten() {
            if *name != last {
                let _ = writeln!(page, "# TYPE {name} gauge");
                last = name;
            }
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            let _ = writeln!(page, "{name}{labels} {value}");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_replaces_the_one_before() {
        let gauges = Gauges::default();
        gauges.replace("b", vec![Gauge::plain("y", 1.5)]);
        gauges.replace("a", vec![Gauge::labelled("x", "id", "7", 1.0)]);
        let two = [Gauge::labelled("x", "id", "8", 2.0), Gauge::labelled("x", "id", "9", 0.0)];
        gauges.replace("a", Vec::from(two));
        let page = "# TYPE x gauge\nx{id=\"8\"} 2\nx{id=\"9\"} 0\n# TYPE y gauge\ny 1.5\n";
        assert_eq!(gauges.page(), page);
    }
}
