//! The budgets of the pages, and the table of the figures beside them.

use std::time::Duration;

use crate::figures::Spread;
use crate::report::cells::{Rows, figure, texts, thousands};
use crate::report::document::{Markers, markdown};
use crate::results::machine::Machine;
use crate::service::verdict::Verdict;

/// Place of the table in a document.
pub const PLACE: Markers =
    ["<!-- budgets: written by make budgets -->", "<!-- end of the budgets -->"];

/// Bytes of the shopper's page, and of all pages.
const SHOP_BYTES_MAX: u64 = 25 * 1024;
const ALL_BYTES_MAX: u64 = 70 * 1024;
/// Share of a core, and memory, of a service with 10,000 watchers.
const SHARE_MAX: f64 = 0.2;
/// Events a second that each watcher has at least of a sale that changes each second.
const EVENTS_MIN: f64 = 0.9;
const MEMORY_BYTES_MAX: u64 = 350_000_000;
/// Claims with watchers / claims without.
const RATIO_MIN: f64 = 0.97;
/// Time of a stop with all streams open.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Budgets that tests assert, because they depend on no machine.
const ASSERTED: [&str; 2] = [
    "faults that axe-core knows, in each state, theme and size",
    "breaches of the policy that the browser reports",
];

/// A service that is only watched.
pub struct Watched {
    /// Share of one core with the watchers.
    pub share: f64,
    /// The same without them.
    pub alone: f64,
    /// Bytes with the watchers.
    pub memory: u64,
    /// Bytes before the first one.
    pub memory_before: u64,
    /// Events that all watchers together have had a second.
    pub events_per_second: f64,
}

/// The figures of a run.
pub struct Budgets {
    pub machine: Machine,
    pub watchers: u32,
    pub shop_bytes: u64,
    pub all_bytes: u64,
    pub watched: Watched,
    pub ratios: Vec<f64>,
    pub stop: Duration,
    pub verdict: Verdict,
}

impl Budgets {
    /// The conditions of the run, and the table.
    pub fn text(&self) -> String {
        let Machine { measured_at, commit, cores, load_before, .. } = &self.machine;
        let day = measured_at.split('T').next().unwrap_or_default();
        let commit = commit.as_deref().unwrap_or("an unknown commit");
        let load = load_before.map_or("unknown".to_owned(), |load| format!("{load:.1}"));
        let head = format!(
            "Run of {day} at {commit}; cores: {cores}; load of the machine before: {load}."
        );
        format!("{head}\n\n{}", markdown(&self.rows()))
    }

    fn rows(&self) -> Rows {
        let watchers = thousands(f64::from(self.watchers));
        let kb = |bytes: u64| format!("{} KB", figure(Some(bytes as f64 / 1024.0)));
        let mb = |bytes: u64| format!("{} MB", thousands(bytes as f64 / 1e6));
        let Watched { share, alone, memory, memory_before, events_per_second } = self.watched;
        let each = (memory.saturating_sub(memory_before)) as f64 / f64::from(self.watchers) / 1e3;
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let ratio = Spread::of(self.ratios.iter().copied());
        let mut rows = vec![texts(&["budget", "aim", "figure", "met"])];
        let mut row = |what: String, aim: String, figure: String, met: bool| {
            rows.push(vec![what, aim, figure, if met { "yes" } else { "no" }.to_owned()]);
        };
        row(
            "the shopper's page, compressed".to_owned(),
            format!("<= {}", kb(SHOP_BYTES_MAX)),
            kb(self.shop_bytes),
            self.shop_bytes <= SHOP_BYTES_MAX,
        );
        row(
            "all pages, compressed".to_owned(),
            format!("<= {}", kb(ALL_BYTES_MAX)),
            kb(self.all_bytes),
            self.all_bytes <= ALL_BYTES_MAX,
        );
        row(
            format!(
                "CPU time of the service with {watchers} watchers of a sale that changes each second"
            ),
            format!("<= {} of a core", percent(SHARE_MAX)),
            format!(
                "{} ({} without them); {} events/s",
                percent(share),
                percent(alone),
                thousands(events_per_second)
            ),
            share <= SHARE_MAX && events_per_second >= EVENTS_MIN * f64::from(self.watchers),
        );
        row(
            format!("memory of the service with {watchers} watchers"),
            format!("<= {}", mb(MEMORY_BYTES_MAX)),
            format!(
                "{} ({} without them); {} KB for each",
                mb(memory),
                mb(memory_before),
                figure(Some(each))
            ),
            memory <= MEMORY_BYTES_MAX,
        );
        row(
            format!("claims/s, with {watchers} watchers / without"),
            format!(">= {RATIO_MIN}"),
            ratio.map_or("-".to_owned(), |it| {
                format!("{:.2} ({:.2} to {:.2}; pairs: {})", it.median, it.min, it.max, it.count)
            }),
            ratio.is_some_and(|it| it.median >= RATIO_MIN),
        );
        row(
            format!("stop with {watchers} streams open"),
            format!("<= {} s", STOP_MAX.as_secs()),
            format!("{} s", figure(Some(self.stop.as_secs_f64()))),
            self.stop <= STOP_MAX,
        );
        let asserted = ASSERTED.iter();
        rows.extend(asserted.map(|what| texts(&[what, "0", "`make browser` asserts it", "-"])));
        rows
    }
}

#[cfg(test)]
mod tests {
    use crate::report::document::between;

    use super::*;

    #[test]
    fn the_document_has_a_place_for_the_table() {
        let document = include_str!("../../../../../docs/pages.md");
        let place = between(document, PLACE).expect("both markers are there");
        assert!(place.contains("| budget | aim | figure | met |"), "`make budgets` writes it");
        for what in ASSERTED {
            assert!(place.contains(&format!("| {what} | 0 |")), "docs/pages.md lacks: {what}");
        }
    }
}
