//! The tables of `flash-sale-bench rows`.

use super::cells::{Rows, figure, texts, thousands};
use super::table::{head, markdown};
use crate::figures::Spread;
use crate::measure::rows::large::Large;
use crate::measure::rows::table::Cost;
use crate::results::rows::{Inserts, RowsReport};

/// Everything that was measured.
pub fn of_rows(report: &RowsReport) -> String {
    let mut text = head(&report.machine);
    let parts = [
        ("ways to write a batch", of_inserts(&report.ways)),
        ("the table without one of its parts", of_inserts(&report.shapes)),
        ("moves from unpaid to paid", of_moves(report)),
    ];
    let large = report.large.iter().flat_map(|large| {
        [
            ("inserts into a large table, in turns with an empty one", of_growth(large)),
            ("reads of an order by its key", of_sizes(large)),
            ("bytes for an order", of_bytes(large)),
        ]
    });
    for (about, rows) in parts.into_iter().chain(large).filter(|(_, rows)| rows.len() > 1) {
        text.push_str(&format!("\n{about}\n\n{}\n", markdown(&rows)));
    }
    text
}

/// Ratios of CPU time are medians of ratios to the first row with the same batch, round by round.
fn of_inserts(all: &[Inserts]) -> Rows {
    let head = ["", "rows in a batch", "Postgres µs", "of the first", "bytes of its log", "rows/s"];
    let mut rows = vec![texts(&head)];
    for inserts in all {
        let first = all.iter().find(|first| first.batch == inserts.batch);
        let ratio = first.and_then(|first| ratio(first, inserts));
        rows.push(vec![
            inserts.name.clone(),
            inserts.batch.to_string(),
            spread(inserts.cpu_us),
            spread(ratio),
            figure(inserts.log_bytes.map(|bytes| bytes.median)),
            figure(inserts.rows_per_second.map(|rows| rows.median)),
        ]);
    }
    rows
}

fn ratio(first: &Inserts, inserts: &Inserts) -> Option<Spread> {
    let pairs = first.slices.iter().zip(&inserts.slices);
    Spread::of(pairs.map(|(first, this)| this.cpu_us / first.cpu_us))
}

fn of_moves(report: &RowsReport) -> Rows {
    let head = [
        "",
        "fillfactor",
        "heap-only",
        "Postgres µs",
        "bytes of its log",
        "µs of the insert before",
        "bytes of table and indexes",
    ];
    let mut rows = vec![texts(&head)];
    for moves in &report.moves {
        rows.push(vec![
            moves.shape.to_owned(),
            moves.fill_factor.to_string(),
            format!("{:.0} %", moves.hot * 100.0),
            figure(Some(moves.cost.cpu_us)),
            figure(Some(moves.cost.log_bytes)),
            figure(Some(moves.insert.cpu_us)),
            figure(Some(moves.bytes)),
        ]);
    }
    rows
}

fn of_growth(large: &Large) -> Rows {
    let head = ["", "µs at 0", "µs", "µs / µs at 0", "bytes of the log at 0", "bytes of the log"];
    let mut rows = vec![texts(&head)];
    for phase in &large.phases {
        let all = |costs: &[Cost], figure: fn(&Cost) -> f64| {
            Spread::of(costs.iter().map(figure)).map(|spread| spread.median)
        };
        let pairs = phase.empty.iter().zip(&phase.large);
        rows.push(vec![
            phase.name.to_owned(),
            figure(all(&phase.empty, |cost| cost.cpu_us)),
            figure(all(&phase.large, |cost| cost.cpu_us)),
            spread(Spread::of(pairs.map(|(empty, large)| large.cpu_us / empty.cpu_us))),
            figure(all(&phase.empty, |cost| cost.log_bytes)),
            figure(all(&phase.large, |cost| cost.log_bytes)),
        ]);
    }
    rows
}

fn of_sizes(large: &Large) -> Rows {
    let head = ["orders", "a read of", "p50 µs", "p99 µs", "Postgres µs"];
    let mut rows = vec![texts(&head)];
    for size in &large.sizes {
        for (name, reads) in [("an order", size.by_id), ("a live order", size.live)] {
            let figures = [reads.p50_us, reads.p99_us, reads.cpu_us].map(|it| figure(Some(it)));
            let mut row = vec![thousands(size.orders as f64), name.to_owned()];
            row.extend(figures);
            rows.push(row);
        }
    }
    rows
}

fn of_bytes(large: &Large) -> Rows {
    let mut rows = vec![texts(&["orders", "table or index", "bytes"])];
    for size in &large.sizes {
        for (name, bytes) in &size.bytes {
            rows.push(vec![thousands(size.orders as f64), name.clone(), figure(Some(*bytes))]);
        }
    }
    rows
}

fn spread(spread: Option<Spread>) -> String {
    let Some(Spread { min, median, max, .. }) = spread else { return figure(None) };
    let [min, median, max] = [min, median, max].map(|value| figure(Some(value)));
    format!("{median} ({min} to {max})")
}
