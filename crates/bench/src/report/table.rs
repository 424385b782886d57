//! The table in the terminal. It is Markdown, so that it can be pasted.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::cells::{Rows, figure, texts, thousands};
use super::{goals, limits};
use crate::figures::Spread;
use crate::measure::slice::Slice;
use crate::results::compare::CompareReport;
use crate::results::drain::DrainReport;
use crate::results::machine::Machine;
use crate::results::run::{RunReport, Summary};
use crate::service::verdict::Verdict;

/// The text about a run.
pub fn of_run(report: &RunReport) -> String {
    let mut text = head(&report.machine);
    let _ = write!(
        text,
        "\nwhat came through (closed loop, unless a rate was given; median of the slices, smallest to largest in brackets)\n\n{}\n",
        markdown(&throughput(&report.summaries))
    );
    let latencies = latencies(report);
    if latencies.len() > 1 {
        let title = "constant rate: latency from when each request was due";
        let _ = write!(text, "\n{title}\n\n{}\n", markdown(&latencies));
    }
    for limits::Section { title, text: about, rows } in limits::sections(report) {
        let _ = write!(text, "\n{title}. {about}\n\n{}\n", markdown(&rows));
    }
    if !report.goals.is_empty() {
        let _ = write!(text, "\ngoals\n\n{}\n", markdown(&goals::rows(&report.goals)));
    }
    for (name, verdict) in report.verdicts() {
        let _ = write!(text, "\n{name}: {}\n{}", verdict.sentence(), findings(verdict));
    }
    text
}

/// Everything about a comparison.
pub fn of_comparison(report: &CompareReport) -> String {
    let mut text = head(&report.machine);
    let _ = writeln!(text, "  {:<14}{}\n  {:<14}{}", "A", report.a, "B", report.b);
    let _ = write!(text, "\n{}\n\n", markdown(&ratios(report)));
    for verdict in &report.verdicts {
        let _ = write!(text, "Verdict: {}\n{}", verdict.sentence(), findings(verdict));
    }
    text
}

/// B / A of all figures of a comparison.
pub fn ratios(report: &CompareReport) -> Rows {
    let mut rows =
        vec![texts(&["scenario, B / A", "median", "quartiles", "smallest to largest", "pairs"])];
    for comparison in &report.comparisons {
        let name = comparison.scenario.name();
        let figures = [
            ("requests/s", comparison.throughput),
            ("CPU/request, service, Redis and Postgres", comparison.cpu),
            ("service CPU/request", comparison.service_cpu),
            ("Redis CPU/request", comparison.redis_cpu),
            ("Postgres CPU/request", comparison.postgres_cpu),
            ("bytes of the append-only file/request", comparison.aof_bytes),
        ];
        rows.extend(
            figures.iter().filter_map(|(what, spread)| {
                Some(ratio(format!("{name}: {what}"), spread.as_ref()?))
            }),
        );
    }
    rows.extend(report.drain.iter().map(|spread| ratio("drain: rows/s".to_owned(), spread)));
    rows
}

fn ratio(what: String, spread: &Spread) -> Vec<String> {
    let Spread { min, lower_quartile, median, upper_quartile, max, count } = spread;
    vec![
        what,
        format!("{median:.3}"),
        format!("{lower_quartile:.3} to {upper_quartile:.3}"),
        format!("{min:.3} to {max:.3}"),
        count.to_string(),
    ]
}

/// Requests a second, ratios and CPU time of each scenario.
pub fn throughput(summaries: &[Summary]) -> Rows {
    let mut rows = vec![texts(&[
        "scenario",
        "requests/s",
        "/ no-op",
        "service µs",
        "Redis µs",
        "Postgres µs",
        "client µs",
        "troubles",
    ])];
    for summary in summaries {
        let Spread { min, median, max, .. } = summary.requests_per_second;
        let cpu = &summary.cpu_us_per_request;
        rows.push(vec![
            summary.scenario.name(),
            format!("{} ({} to {})", thousands(median), thousands(min), thousands(max)),
            figure(summary.throughput_to_no_op.map(|spread| spread.median)),
            figure(cpu.service),
            figure(cpu.redis),
            figure(cpu.postgres),
            figure(cpu.client),
            summary.troubles.to_string(),
        ]);
    }
    rows
}

/// The slices whose latency means something.
pub fn with_latency(report: &RunReport) -> impl Iterator<Item = &Slice> {
    report.slices.iter().chain(&report.half_load).filter(|slice| slice.latency.is_some())
}

/// Latencies in milliseconds.
pub fn latencies(report: &RunReport) -> Rows {
    let mut rows = vec![texts(&[
        "scenario",
        "due/s",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "sent late p99 ms",
        "never sent",
        "202 to row p50 / p99 ms (±)",
    ])];
    for slice in with_latency(report) {
        let Some(latency) = &slice.latency else { continue };
        let row = slice.time_to_row.as_ref().map_or("-".to_owned(), |row| {
            let (p50, p99) = (figure(Some(row.p50_ms)), figure(Some(row.p99_ms)));
            format!("{p50} / {p99} (±{})", figure(Some(row.resolution_ms)))
        });
        rows.push(vec![
            slice.scenario.name(),
            figure(slice.rate),
            figure(Some(latency.p50_ms)),
            figure(Some(latency.p90_ms)),
            figure(Some(latency.p99_ms)),
            figure(Some(latency.p999_ms)),
            figure(Some(latency.max_ms)),
            figure(Some(latency.sent_late_p99_ms)),
            slice.never_sent.to_string(),
            row,
        ]);
    }
    rows
}

/// Everything about a backlog that was drained.
pub fn of_drain(report: &DrainReport) -> String {
    let verdict = &report.drain.verdict;
    let limits::Section { text: about, rows, .. } = limits::drain(&report.drain);
    let head = head(&report.machine);
    let rows = markdown(&rows);
    let sentence = verdict.sentence();
    format!("{head}\n{about}\n\n{rows}\n\nVerdict: {sentence}\n{}", findings(verdict))
}

pub fn head(machine: &Machine) -> String {
    let mut text = String::new();
    for (name, value) in machine.facts() {
        let _ = writeln!(text, "  {name:<14}{value}");
    }
    text
}

fn findings(verdict: &Verdict) -> String {
    verdict.findings.iter().map(|finding| format!("VOID: {finding}\n")).collect()
}

pub fn markdown(rows: &Rows) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let mut rows = rows.iter();
    if let Some(head) = rows.next() {
        table.set_header(head);
    }
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
