//! One page that needs nothing else: no network, no script, no font.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::cells::Rows;
use super::plots::{self, Plot};
use super::svg::{alone, escape, inline};
use super::table;
use super::{goals, limits};
use crate::results::compare::CompareReport;
use crate::results::drain::DrainReport;
use crate::results::machine::Machine;
use crate::results::run::RunReport;
use crate::service::verdict::Verdict;

const STYLE: &str = include_str!("page.css");

/// A page on its way.
struct Page {
    body: String,
    plots: Vec<Plot>,
}

/// Writes a run into a folder: `index.html`, each plot as a file of its own, and all figures in `figures.json`.
pub fn of_run(report: &RunReport, folder: &Path) -> anyhow::Result<()> {
    let mut page = Page::new(plots::of_run(report)?);
    for (name, verdict) in report.verdicts() {
        page.verdict(name, verdict);
    }
    page.machine(&report.machine, &[("service arguments", &report.service_args)]);
    let closed = "Closed loop, unless a rate was given: each connection sends its next request when the last one is \
        answered. Medians of the slices; CPU time in microseconds per request, told apart by process. Troubles are \
        failures, time-outs, “overloaded”, and requests that were never sent.";
    page.section("What came through", closed, &table::throughput(&report.summaries), true);
    let latencies = table::latencies(report);
    if latencies.len() > 1 {
        let open = "Requests at a constant rate. Each latency counts from when the request was due, so a stall shows in all that \
            were due meanwhile. “Sent late” is the part of it before a connection was free and the client came to it.";
        page.section("Latency", open, &latencies, true);
        let law = "What is in the system at one time (L) is what comes in (λ) times how long each stays (W). Both sides \
            are measured apart: L by looking every few milliseconds, λ by counting answers, W from the latencies.";
        page.section("Little’s law", law, &table::littles_law(report), true);
    }
    for limits::Section { title, text, rows } in limits::sections(report) {
        page.section(title, &text, &rows, true);
    }
    if !report.goals.is_empty() {
        let text = "Each ratio is taken round by round, of slices that are neighbours in time; the median counts.";
        page.section("Goals", text, &goals::rows(&report.goals), true);
    }
    page.write(report, folder)
}

/// Writes a comparison, likewise.
pub fn of_comparison(report: &CompareReport, folder: &Path) -> anyhow::Result<()> {
    let mut page = Page::new(plots::of_comparison(report)?);
    for (name, verdict) in ["Verdict of A", "Verdict of B"].iter().zip(&report.verdicts) {
        page.verdict(name, verdict);
    }
    page.machine(&report.machine, &[("A", &report.a), ("B", &report.b)]);
    let text = "Slices of A and B in turns, A-B-B-A; each ratio is B / A of two neighbours.";
    page.section("B / A", text, &table::ratios(report), true);
    page.write(report, folder)
}

/// Writes a backlog that was drained, likewise.
pub fn of_drain(report: &DrainReport, folder: &Path) -> anyhow::Result<()> {
    let drain = &report.drain;
    let mut page = Page::new(plots::of_drain(drain)?);
    page.verdict("Verdict", &drain.verdict);
    page.machine(&report.machine, &[("service arguments", &report.service_args)]);
    let limits::Section { title, text, rows } = limits::drain(drain);
    page.section(title, &text, &rows, true);
    page.write(report, folder)
}

impl Page {
    fn new(plots: Vec<Plot>) -> Self {
        Self { body: String::new(), plots }
    }

    fn verdict(&mut self, name: &str, verdict: &Verdict) {
        let class = if verdict.findings.is_empty() { "good" } else { "void" };
        let sentence = escape(&verdict.sentence());
        let _ = writeln!(self.body, "<p class=\"{class}\">{name}: {sentence}</p>");
        for finding in &verdict.findings {
            let _ = writeln!(self.body, "<p class=\"void\">Void: {}</p>", escape(finding));
        }
    }

    fn machine(&mut self, machine: &Machine, what: &[(&'static str, &str)]) {
        let mut facts = machine.facts();
        let of = |text: &str| if text.is_empty() { "none" } else { text }.to_owned();
        facts.extend(what.iter().map(|(name, text)| (*name, of(text))));
        let facts: Rows =
            facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        self.section("Where and on what", "", &facts, false);
    }

    fn section(&mut self, title: &str, text: &str, rows: &Rows, has_head: bool) {
        let body = &mut self.body;
        let text = escape(text);
        let _ = writeln!(body, "<h2>{title}</h2>\n<p>{text}</p>\n<div class=\"wide\"><table>");
        for (at, row) in rows.iter().enumerate() {
            let tag = if has_head && at == 0 { "th" } else { "td" };
            let cells: String =
                row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            let _ = writeln!(body, "<tr>{cells}</tr>");
        }
        body.push_str("</table></div>\n");
    }

    fn write(&self, figures: &impl Serialize, folder: &Path) -> anyhow::Result<()> {
        let unwritable = || format!("{} can't be written to", folder.display());
        let write = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).with_context(unwritable)
        };
        std::fs::create_dir_all(folder).with_context(unwritable)?;
        for plot in &self.plots {
            write(&format!("{}.svg", plot.name), alone(&plot.svg))?;
        }
        write("figures.json", serde_json::to_string_pretty(figures)? + "\n")?;
        write("index.html", self.text())
    }

    fn text(&self) -> String {
        let mut body = self.body.clone();
        for plot in &self.plots {
            let title = plot.title;
            let svg = inline(&plot.svg);
            let _ = writeln!(body, "<h2>{title}</h2>\n<figure>{svg}</figure>");
        }
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
            <meta name=\"color-scheme\" content=\"light dark\">\n<title>flash-sale-bench</title>\n<style>\n{STYLE}</style>\n\
            <h1>flash-sale-bench</h1>\n{body}</html>\n"
        )
    }
}
